/** Optimizer state divided over ranks: every part has an owner that updates it for all. */
#ifndef LATHER_SHARD_H
#define LATHER_SHARD_H

#include "lather/comm.h"
#include "lather/data_parallel.h"
#include "lather/optim.h"

/** What is spread evenly, largest part first, each to the least loaded rank (ties: the lowest):
 *  Graham, "Bounds on multiprocessing timing anomalies", 1969. */
typedef enum lt_balance {
    LT_BALANCE_COST,      /**< modelled time of a step */
    LT_BALANCE_MEMORY,    /**< bytes of state */
    LT_BALANCE_BYTES,     /**< bytes gathered, rounded up to 64: the reference implementation's */
    LT_BALANCE_POLYNOMIAL /**< lt_balance_polynomial, the reference implementation's other one */
} lt_balance;

enum { LT_BALANCE_COEFFICIENTS = 6 };
/** What a part costs: over the sides n of a block (merged), or of a parameter where these are the parts,
 *  the sum of max(least, coefficient[0] + coefficient[1] n + coefficient[2] n^2 ...), in any unit. */
typedef struct lt_balance_polynomial {
    double coefficient[LT_BALANCE_COEFFICIENTS], least;
} lt_balance_polynomial;

typedef struct lt_shard_config {
    lt_comm *comm; /**< borrowed: must outlive the optimizer */
    lt_balance balance;
    lt_balance_polynomial polynomial; /**< of LT_BALANCE_POLYNOMIAL */
    int group;          /**< num_trainers_per_group: ranks with one copy of the state; 0: all */
    lt_dtype dtype;     /**< communication dtype: LT_F32 (the master dtype), LT_BF16, LT_F16 */
    bool gather_params; /**< gather parameters instead of updates: rounds them to dtype */
    /** Values stay at their owners: nothing is gathered behind a step but how it went, which is 1
     *  element. All parts of a parameter have one owner, and memory is what is spread evenly: of values,
     *  gradients and state. For lt_optim_shard_params(). */
    bool shard_params;
} lt_shard_config;

/** Divides the state; before the first step and before a checkpoint is loaded. From then on
 *  lt_optim_step() and lt_optim_free() are collective, and all ranks have bit-identical parameters
 *  after a step if they had bit-identical gradients. What fails on one rank before it has sent its part
 *  fails on all of its group, naming the rank; what fails later, on that rank. Shampoo is divided by
 *  blocks, others by parameters (ZeRO-1: Rajbhandari et al., SC 2020); of these the parameters are gathered if dtype is LT_F32, as that is exact.
 *  Each rank sends (ranks of its group - 1) * (elements that it owns + 1) * size of dtype bytes a step,
 *  counted by comm. The result does not depend on ranks, groups and balance. It is that of the
 *  undivided optimizer if parameters are gathered in LT_F32; else an update is rounded to dtype
 *  before it is sent.
 *  Errors: LT_E_ARG (group does not divide the ranks; the optimizer has made a step; a polynomial
 *  that is negative or not finite for a part), LT_E_COMM,
 *  LT_E_NOMEM, LT_E_UNSUPPORTED (an optimizer of your own that has no blocks or slot_state). */
LT_API LT_MUST_CHECK lt_status lt_optim_shard(lt_optim *optim, const lt_shard_config *config);

/** Divides gradients too, like the state: dp's buckets are reduced to the owners of their parts, so an
 *  update moves 2 (n-1)/n of the parameters per rank instead of 3 (n-1)/n. Updates have the same bits but
 *  where they are clipped: the gradient norm is then that of norms of parts, each an f64 of its
 *  owner's, their squares added in the order of parts, and does not depend on the number of ranks.
 *  For that each rank sends what an all-reduce of one f64 per part does. dp NULL: the norm only, for
 *  ranks that have all gradients, or one rank, divided or not. After lt_optim_shard(), before the
 *  first update; dp must not be used after optim is freed. Collective.
 *  Errors: LT_E_ARG (not divided; divided already; state is divided over groups of ranks),
 *  LT_E_UNSUPPORTED (the backend lacks frobenius), LT_E_NOMEM, or those of lt_data_parallel_divide().
 *  Source: Rajbhandari et al., "ZeRO", SC 2020, stage 2. */
LT_API LT_MUST_CHECK lt_status lt_optim_shard_gradients(lt_optim *optim, lt_data_parallel *dp);

/** What a rank of the group got. */
typedef struct lt_shard_load {
    int64_t parts;        /**< blocks or parameters */
    double cost;          /**< in modelled nanoseconds of a step: src/optim/shampoo/assign.c */
    int64_t state_bytes;  /**< on this rank, but for pending roots */
    int64_t gather_bytes; /**< it contributes per step */
} lt_shard_load;
/** Errors: LT_E_ARG (no such rank, or not divided). */
LT_API LT_MUST_CHECK lt_status lt_optim_shard_load(const lt_optim *optim, int rank,
                                                   lt_shard_load *out);

#endif
