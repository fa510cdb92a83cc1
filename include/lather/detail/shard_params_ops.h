/** Values of parameters divided over ranks: a value has memory at its owner, and on other ranks only
 *  while it is read. */
#ifndef LATHER_DETAIL_SHARD_PARAMS_OPS_H
#define LATHER_DETAIL_SHARD_PARAMS_OPS_H

/* Not a stable interface: may change in any release. */

#include "lather/comm.h"
#include "lather/param.h"

/** A trained parameter, and the rank that keeps its value. */
typedef struct lt_owned_param {
    lt_param *param; /**< borrowed */
    int owner;
} lt_owned_param;

typedef struct lt_shard_params_config {
    size_t
        unit_bytes; /**< what is gathered at once; 0: 25 MiB. A larger parameter is a unit by itself */
    bool no_prefetch; /**< gather a unit when it is read, not while the one before it is */
} lt_shard_params_config;

/** Since the division. */
typedef struct lt_shard_params_stats {
    int64_t gathers;      /**< of units */
    int64_t prefetched;   /**< of those, in flight already when the first operation read them */
    int64_t units;        /**< of a pass; before the first update one for each parameter */
    int64_t value_bytes;  /**< of values that have memory on this rank */
    int64_t flight_bytes; /**< of gathers that are in flight */
    double exposed;       /**< seconds that passes waited for gathers */
} lt_shard_params_stats;

typedef struct lt_shard_params lt_shard_params;

/** Units are gathered in front of the first operation that reads one of their parameters, and dropped when
 *  an operation reads another unit. Until the first update a unit is one parameter, then as many as
 *  unit_bytes holds in the order in which rank 0's passes read them. What a pass of the second update reads
 *  is what later ones must read, in that order: the next unit's gather is begun when one was waited for.
 *  All values have memory until lt_shard_params_release(). config NULL: zeros. Copies the list; collective.
 *  Owns: you; free it before tape and comm.
 *  Of n ranks, rank r sends in a pass (n - 1) times the elements of its own in all units forward, and in
 *  all backward but those still there from forward.
 *  Errors: LT_E_ARG (no such owner; no parameter), LT_E_NOMEM, LT_E_COMM.
 *  Source: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC
 *  2020, stage 3; Zhao et al., "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel", VLDB 2023. */
LT_API LT_MUST_CHECK lt_status lt_shard_params_new(lt_shard_params **out, lt_comm *comm,
                                                   lt_tape *tape, const lt_owned_param *list,
                                                   size_t count,
                                                   const lt_shard_params_config *config);
LT_API void lt_shard_params_free(lt_shard_params **shard);

/** Drops the values of others, and what follows them. Not collective. */
LT_API void lt_shard_params_release(lt_shard_params *shard);
/** Gives all ranks all values, and what follows them, until the release: for what reads them outside of
 *  training's passes. Collective. Errors: LT_E_COMM, LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_shard_params_gather(lt_shard_params *shard);
/** A tensor of yours that is as the parameter is: on the owner, gathered and released with all values.
 *  Borrowed until the last gather. Errors: LT_E_ARG (no such parameter, another shape), LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_shard_params_follow(lt_shard_params *shard, const lt_param *param,
                                                      lt_tensor *tensor);

/** In front of each update of values by their owners: releases, and in the first two the ranks agree on
 *  units and their order. Collective. Errors: LT_E_COMM (ranks read other parameters), LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_shard_params_begin_update(lt_shard_params *shard);

/** What was gathered, and what has memory now. */
LT_API void lt_shard_params_stats_of(const lt_shard_params *shard, lt_shard_params_stats *out);

#endif
