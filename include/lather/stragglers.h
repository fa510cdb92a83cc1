/** Data-parallel training that does not wait for stragglers: updates of the first ranks that are done (backup
 *  workers), and of the micro-batches that fit a deadline (DropCompute). */
#ifndef LATHER_STRAGGLERS_H
#define LATHER_STRAGGLERS_H

#include "lather/data_parallel.h"

/** What a run does about stragglers. Zeros: it waits for them. */
typedef struct lt_straggler_config {
    int backup_workers; /**< B: the first n - B of n ranks make an update; 0: all */
    const char *
        contributors; /**< metrics.jsonl of such a run, whose sets are used again; NULL: the first ones */
    bool drop_compute; /**< no micro-batch is begun behind a deadline */
    double deadline;   /**< seconds from the update's beginning; 0: chosen by recorded latencies */
} lt_straggler_config;

/* --- Backup workers: lt_data_parallel_config.needed = N ranks of n make each update ---
 *
 * The gradient of an update is the mean over the first N ranks whose last bucket has left, the terms added in rank
 * order: the same bits on all ranks. The others are told, give up, and apply it as well. Their batches are not
 * used. Source: Chen, Pan, Monga, Bengio & Jozefowicz, "Revisiting Distributed Synchronous SGD", 2016,
 * arXiv 1604.00981. */

/** An update begins, before its first micro-batch; number: the same on all ranks. set: [size], which N ranks
 *  make it, read on rank 0 alone; NULL: the first ones. The first update's set is made when all are done. Without
 *  this call an update begins with the first gradient. Does nothing if all ranks are needed (needed 0).
 *  A reset of the tape behind it ends a cancellation: then ask lt_data_parallel_is_late().
 *  Errors: LT_E_COMM. */
LT_API LT_MUST_CHECK lt_status lt_data_parallel_update(lt_data_parallel *dp, int64_t number,
                                                       const bool *set);
/** Whether this rank is not in the running update's set: then its tape was cancelled (lt_tape_cancel()), and it
 *  has only lt_data_parallel_finish() to call. Running statistics are then those of before the update. */
LT_API bool lt_data_parallel_is_late(const lt_data_parallel *dp);
/** Behind lt_data_parallel_finish(): [size] whether a rank is in the set. NULL: all ranks are needed. Borrowed. */
LT_API const bool *lt_data_parallel_set(const lt_data_parallel *dp);

/** Payload of terms that this rank got from others for its chunks, since lt_data_parallel_new():
 *  received = used + dropped. */
typedef struct lt_data_parallel_terms {
    uint64_t received, used, dropped;
} lt_data_parallel_terms;
LT_API lt_data_parallel_terms lt_data_parallel_count_terms(const lt_data_parallel *dp);

/* --- DropCompute: lt_data_parallel_config.micro_batches = M of each rank and update ---
 *
 * A rank that stops after m of its M micro-batches says so, and the gradient is the sum over all micro-batches
 * that were computed, divided by their number. Source: Giladi et al., "DropCompute: simple and more robust
 * distributed synchronous training via compute variance reduction", 2023, arXiv 2306.10598. */

/** In front of lt_data_parallel_finish(): this rank computed so many of the update's M. Else: M. Gradients are
 *  sums over them, each divided by M. */
LT_API void lt_data_parallel_computed(lt_data_parallel *dp, int64_t micro_batches);
/** Behind it: how many all ranks computed together, the sum of what they said. */
LT_API int64_t lt_data_parallel_computed_by_all(const lt_data_parallel *dp);

/** Latencies of micro-batches that were recorded without a deadline. */
typedef struct lt_drop_latencies {
    const double *seconds; /**< [updates][ranks][micro_batches] */
    int updates, ranks, micro_batches;
    double rest; /**< seconds of a step besides: exchange, optimizer */
} lt_drop_latencies;

/** What a deadline would have done to them. */
typedef struct lt_drop_plan {
    double deadline; /**< seconds from the update's beginning; 0: none */
    double step;     /**< mean seconds of a step */
    double kept;     /**< share of the micro-batches that are computed */
    double gain;     /**< kept / step, relative to no deadline */
} lt_drop_plan;

/** A rank begins no micro-batch later than the deadline. With P[m] the sum of a rank's first m latencies it
 *  computes k = min(M, 1 + count of {1 <= m < M: P[m] < deadline}), and a step takes max over ranks of P[k], plus rest. */
LT_API lt_drop_plan lt_drop_predict(const lt_drop_latencies *latencies, double deadline);
/** The deadline that maximises E[sum of k] / E[step], of at most 512 quantiles of the P[m], m < M; none if no
 *  deadline gains. */
LT_API lt_drop_plan lt_drop_choose(const lt_drop_latencies *latencies);

#endif
