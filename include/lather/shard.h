/** Sharded optimizer state (ZeRO stages 1 and 2): each part has an owner, which updates it for all ranks. */
#ifndef LATHER_SHARD_H
#define LATHER_SHARD_H

#include "lather/comm.h"
#include "lather/data_parallel.h"
#include "lather/optim.h"

/** Quantity that is balanced over ranks, assigning the largest part first to the least loaded rank (ties: the lowest):
 *  Graham, "Bounds on multiprocessing timing anomalies", 1969. */
typedef enum lt_balance {
    LT_BALANCE_COST,   /**< modelled time of a step */
    LT_BALANCE_MEMORY, /**< bytes of optimizer state */
    LT_BALANCE_BYTES,  /**< bytes gathered, rounded up to 64, as in the reference implementation */
    LT_BALANCE_POLYNOMIAL /**< lt_balance_polynomial, the reference implementation's alternative */
} lt_balance;

struct lt_nodes; /* lather/detail/topology.h */
enum { LT_BALANCE_COEFFICIENTS = 6 };
/** Cost of a part in any unit: the sum over the (merged) dimensions n of a block or parameter of
 *  max(least, coefficient[0] + coefficient[1] n + coefficient[2] n^2 ...). */
typedef struct lt_balance_polynomial {
    double coefficient[LT_BALANCE_COEFFICIENTS], least;
} lt_balance_polynomial;

typedef struct lt_shard_config {
    lt_comm *comm; /**< communicator of all ranks; borrowed: must outlive the optimizer */
    lt_balance balance;
    lt_balance_polynomial polynomial; /**< polynomial for LT_BALANCE_POLYNOMIAL */
    int group; /**< num_trainers_per_group: ranks over which the state is sharded once; 0: all */
    lt_dtype dtype;     /**< communication dtype: LT_F32 (the master dtype), LT_BF16, LT_F16 */
    bool gather_params; /**< gather parameters, rounded to dtype, instead of updates */
    /** For lt_optim_shard_params(): values remain at their owners, and only 1 element, the result of the step, is
     *  gathered. All parts of a parameter have one owner; balances the memory of values, gradients and state. */
    bool shard_params;
} lt_shard_config;

/** Shards the state; before the first step and before a checkpoint is loaded. From then on lt_optim_step() and
 *  lt_optim_free() are collective, and all ranks have bitwise identical parameters after a step if they had bitwise
 *  identical gradients. A failure on a rank before it has sent its shard fails on all ranks of its group, naming the rank;
 *  a later one on that rank only. Shampoo is sharded by blocks, other optimizers by parameters (ZeRO-1: Rajbhandari et
 *  al., SC 2020); the latter gather parameters if dtype is LT_F32, which is exact.
 *  Each rank sends (ranks of its group - 1) * (elements that it owns + 1) * size of dtype bytes per step, counted by
 *  comm. The result is independent of ranks, groups and balance. It equals that of the unsharded optimizer if parameters
 *  are gathered in LT_F32; otherwise an update is rounded to dtype before it is sent.
 *  Errors: LT_E_ARG (the ranks are not a multiple of group; the optimizer has made a step; a polynomial that is negative
 *  or not finite for a part), LT_E_COMM, LT_E_NOMEM, LT_E_UNSUPPORTED (a registered optimizer without blocks or
 *  slot_state). */
LT_API LT_MUST_CHECK lt_status lt_optim_shard(lt_optim *optim, const lt_shard_config *config);

/** Gathers in two levels from the next step on: among the ranks with the same local rank of all nodes, then within each
 *  node, so that a segment reaches a node once. The same bits; a rank sends (nodes - 1) * its elements and (ranks of its node
 *  - 1) * those of all ranks with its local rank. nodes: those of the config's comm; borrowed for the call. No effect unless
 *  there are several nodes with several ranks each, equally many, gathered in host memory over all ranks. Collective.
 *  After lt_optim_shard(). Errors: LT_E_ARG (not sharded), LT_E_COMM, LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_optim_shard_two_level(lt_optim *optim,
                                                        const struct lt_nodes *nodes);

/** Shards gradients like the state: dp's buckets are reduced to the owners of their parts, so an update sends 2 (n-1)/n
 *  of the parameters per rank instead of 3 (n-1)/n. Updates are bitwise identical unless clipped: the gradient norm is
 *  then computed from the parts' norms, f64 at their owners, whose squares are added in the order of parts, independently
 *  of the number of ranks. That adds an all-reduce of one f64 per part. dp NULL: the norm only, for ranks that have all
 *  gradients, or a single rank, sharded or not. After lt_optim_shard(), before the first update; dp must not be used after
 *  optim is freed. Collective.
 *  Errors: LT_E_ARG (not sharded; called twice; state is sharded over groups of ranks), LT_E_UNSUPPORTED (the backend
 *  lacks frobenius), LT_E_NOMEM, or those of lt_data_parallel_shard_gradients().
 *  Source: Rajbhandari et al., "ZeRO", SC 2020, stage 2. */
LT_API LT_MUST_CHECK lt_status lt_optim_shard_gradients(lt_optim *optim, lt_data_parallel *dp);

/** Load of a rank of the group. */
typedef struct lt_shard_load {
    int64_t parts;        /**< blocks or parameters that it owns */
    double cost;          /**< modelled nanoseconds of a step (src/optim/shampoo/assign.c) */
    int64_t state_bytes;  /**< bytes of its state, without pending roots */
    int64_t gather_bytes; /**< bytes that it contributes to the gather of a step */
} lt_shard_load;
/** Returns the load of a rank. Errors: LT_E_ARG (invalid rank, or not sharded). */
LT_API LT_MUST_CHECK lt_status lt_optim_shard_load(const lt_optim *optim, int rank,
                                                   lt_shard_load *out);

#endif
