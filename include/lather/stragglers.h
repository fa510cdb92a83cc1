/** Mitigation of stragglers in data-parallel training: updates from the first ranks to finish (backup workers), or from
 *  the micro-batches that meet a deadline (DropCompute). */
#ifndef LATHER_STRAGGLERS_H
#define LATHER_STRAGGLERS_H

#include "lather/data_parallel.h"

/** Straggler mitigation of a run. Zeros: wait for all ranks. */
typedef struct lt_straggler_config {
    int backup_workers; /**< B: an update uses the first n - B of n ranks; 0: all */
    /** metrics.jsonl of an earlier run, whose participating ranks are used again; NULL: the first to finish */
    const char *contributors;
    bool drop_compute; /**< start no micro-batch after a deadline */
    double deadline; /**< seconds from the start of an update; 0: chosen from measured latencies */
} lt_straggler_config;

/* --- Backup workers: lt_data_parallel_config.needed = N ranks of n make each update ---
 *
 * The gradient of an update is the mean over the first N ranks to send their last bucket, added in rank order and bitwise
 * identical on all ranks. The other ranks are notified, stop computing and apply the same update; their batches are
 * discarded. Source: Chen, Pan, Monga, Bengio & Jozefowicz, "Revisiting Distributed Synchronous SGD", 2016,
 * arXiv 1604.00981. */

/** Begins an update, before its first micro-batch; number: equal on all ranks. set: [size] flags of the N participating
 *  ranks, read on rank 0 only; NULL: the first to finish. In the first update the set is determined when all ranks have
 *  finished. Without this call an update begins with the first gradient. No-op if all ranks are needed (needed 0).
 *  A later reset of the tape clears its cancellation: then check lt_data_parallel_is_late().
 *  Errors: LT_E_COMM. */
LT_API LT_MUST_CHECK lt_status lt_data_parallel_begin_update(lt_data_parallel *dp, int64_t number,
                                                             const bool *set);
/** Returns true if this rank is excluded from the running update: its tape is cancelled (lt_tape_cancel()), and it must
 *  only call lt_data_parallel_finish(), which restores the running statistics from before the update. */
LT_API bool lt_data_parallel_is_late(const lt_data_parallel *dp);
/** Returns the participating ranks of the last update, [size] flags, after lt_data_parallel_finish(); NULL if all ranks
 *  are needed. Borrowed. */
LT_API const bool *lt_data_parallel_participants(const lt_data_parallel *dp);

/** Payload bytes of gradients that this rank received for its chunks since lt_data_parallel_new():
 *  received = used + dropped. */
typedef struct lt_data_parallel_contributions {
    uint64_t received, used, dropped;
} lt_data_parallel_contributions;
LT_API lt_data_parallel_contributions
lt_data_parallel_count_contributions(const lt_data_parallel *dp);

/* --- DropCompute: lt_data_parallel_config.micro_batches = M of each rank and update ---
 *
 * A rank that stops after m of its M micro-batches reports m, and the gradient is the sum over all computed micro-batches
 * divided by their number. Source: Giladi et al., "DropCompute: simple and more robust distributed synchronous training
 * via compute variance reduction", 2023, arXiv 2306.10598. */

/** Sets the number of micro-batches that this rank computed in the update, before lt_data_parallel_finish(); default M.
 *  Gradients are sums over them, each divided by M. */
LT_API void lt_data_parallel_set_computed(lt_data_parallel *dp, int64_t micro_batches);
/** Returns the number of micro-batches that all ranks computed together, after lt_data_parallel_finish(). */
LT_API int64_t lt_data_parallel_total_computed(const lt_data_parallel *dp);

/** Latencies of micro-batches, measured without a deadline. */
typedef struct lt_drop_latencies {
    const double *seconds; /**< [updates][ranks][micro_batches] seconds of each micro-batch */
    int updates, ranks, micro_batches;
    double rest; /**< seconds of a step outside micro-batches: communication, optimizer */
} lt_drop_latencies;

/** Predicted effect of a deadline. */
typedef struct lt_drop_plan {
    double deadline; /**< deadline in seconds from the start of an update; 0: none */
    double step;     /**< mean seconds of a step */
    double kept;     /**< fraction of micro-batches that are computed */
    double gain;     /**< kept / step, relative to no deadline */
} lt_drop_plan;

/** Predicts the effect of a deadline, after which a rank starts no micro-batch. With P[m] the sum of a rank's first m
 *  latencies, it computes k = min(M, 1 + count of {1 <= m < M: P[m] < deadline}), and a step takes the maximum over ranks
 *  of P[k], plus rest. */
LT_API lt_drop_plan lt_drop_predict(const lt_drop_latencies *latencies, double deadline);
/** Returns the deadline that maximizes E[sum of k] / E[step], among at most 512 quantiles of the P[m], m < M; 0 if no
 *  deadline gains. */
LT_API lt_drop_plan lt_drop_choose(const lt_drop_latencies *latencies);

#endif
