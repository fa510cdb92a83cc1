/** Sharded parameters (ZeRO stage 3, FSDP): a value has memory at its owner, and on other ranks only while it is read. */
#ifndef LATHER_DETAIL_SHARD_PARAMS_OPS_H
#define LATHER_DETAIL_SHARD_PARAMS_OPS_H

/* Not a stable interface: may change in any release. */

#include "lather/comm.h"
#include "lather/param.h"

/** A trained parameter, and the rank that owns its value. */
typedef struct lt_owned_param {
    lt_param *param; /**< a trained parameter; borrowed */
    int owner;
} lt_owned_param;

typedef struct lt_shard_params_config {
    size_t
        unit_bytes; /**< bytes gathered at once; 0: 25 MiB. A larger parameter is a separate unit */
    bool no_prefetch; /**< gather a unit when it is read, not while the previous one is in use */
} lt_shard_params_config;

/** Counters since lt_shard_params_new(). */
typedef struct lt_shard_params_stats {
    int64_t gathers;      /**< number of units gathered */
    int64_t prefetched;   /**< units already in flight when the first operation read them */
    int64_t units;        /**< units of a pass; one per parameter before the first update */
    int64_t value_bytes;  /**< bytes of values with memory on this rank */
    int64_t flight_bytes; /**< bytes of gathers in flight */
    double exposed;       /**< seconds that passes waited for gathers */
} lt_shard_params_stats;

typedef struct lt_shard_params lt_shard_params;

/** Gathers a unit of parameters before the first operation that reads one of them, and frees it when an operation reads
 *  another unit. Until the first update a unit is one parameter, then unit_bytes of parameters in the order in which rank
 *  0's passes read them. Passes after the second update must read parameters in the order recorded in it: each gather is
 *  followed by a prefetch of the next unit. All values have memory until lt_shard_params_release(). config NULL: zeros.
 *  Copies the list. Free *out before tape and comm. Collective.
 *  With n ranks, rank r sends in a pass (n - 1) times the elements that it owns in all units forward, and in all units
 *  backward except those still present from forward.
 *  Errors: LT_E_ARG (invalid owner; no parameter), LT_E_NOMEM, LT_E_COMM.
 *  Source: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC
 *  2020, stage 3; Zhao et al., "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel", VLDB 2023. */
LT_API LT_MUST_CHECK lt_status lt_shard_params_new(lt_shard_params **out, lt_comm *comm,
                                                   lt_tape *tape, const lt_owned_param *list,
                                                   size_t count,
                                                   const lt_shard_params_config *config);
LT_API void lt_shard_params_free(lt_shard_params **shard);

/** Frees the values that other ranks own, and attached tensors. Not collective. */
LT_API void lt_shard_params_release(lt_shard_params *shard);
/** Gathers all values and attached tensors on all ranks until lt_shard_params_release(), for reads outside of training
 *  passes. Collective. Errors: LT_E_COMM, LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_shard_params_gather(lt_shard_params *shard);
/** Attaches a tensor, such as an average, to a parameter: it has memory at the owner and is gathered and released with all
 *  values. Borrowed until the last gather. Errors: LT_E_ARG (unknown parameter, different shape), LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_shard_params_follow(lt_shard_params *shard, const lt_param *param,
                                                      lt_tensor *tensor);

/** Must precede each update of values by their owners: releases values; in the first two updates the ranks agree on units
 *  and their order. Collective. Errors: LT_E_COMM (ranks read different parameters), LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_shard_params_begin_update(lt_shard_params *shard);

/** Returns the counters. */
LT_API void lt_shard_params_stats_of(const lt_shard_params *shard, lt_shard_params_stats *out);

#endif
