/** The loader: samples to batches, by rank and epoch. */
#ifndef LATHER_LOADER_H
#define LATHER_LOADER_H

#include "lather/tensor.h"
#include "lather/transform.h"

typedef struct lt_dataset lt_dataset;
typedef struct lt_loader lt_loader;

/** Every sample's random numbers come from (seed, epoch, index in the data set) and, with repeats,
 *  which one of its repeats it is, alone. An image that cannot be read or decoded is replaced by
 *  the next good one in index order. */
typedef struct lt_loader_config {
    lt_transform transform; /**< of images; numbers take none, and neither sizes nor mix */
    lt_size_schedule sizes; /**< instead of transform.size, if it has steps */
    lt_mix mix;
    int batch; /**< samples per batch on this rank */
    /** This loader's share: every size-th sample of the epoch's order; size 0: 1. With drop_last
     *  all ranks have equally many, else some one more. */
    int rank, size;
    int threads;  /**< decoders; 0: one per core */
    int slots;    /**< batches in memory, the lent one included; 0: 4 */
    bool shuffle; /**< else in index order */
    /** Of each image that an epoch visits, one after the other in its order, so that neighbouring
     *  ranks share them; the epoch has as many samples as without, of fewer images: repeated
     *  augmentation (Hoffer et al., CVPR 2020). 0: 1. */
    int repeats;
    bool drop_last; /**< leave out an incomplete last batch */
    uint64_t seed;  /**< the same seed gives the same batches, whatever threads is */
    /* Failure policy: what happens to a sample that cannot be read or decoded. */
    int64_t max_bad;  /**< broken images to replace before LT_E_FORMAT; < 0: any number */
    bool keep_broken; /**< not replaced: such a row is zeros, of label 0 */
    /* Limits and caches. */
    int64_t limit;       /**< use only the first limit samples of the data set; 0: all */
    int64_t max_batches; /**< per epoch; 0: all */
    /** Of samples in index order, fewer than all because of limit or max_batches: taken evenly over the
     *  whole data set instead of its first ones, which may all be of one class. */
    bool spread;
    int64_t cache_bytes; /**< of decoded images kept in memory; batches are the same. 0: none */
    int64_t read_ahead;  /**< samples before the decoders whose read-ahead is started */
} lt_loader_config;

/** Where a row of a batch comes from. */
typedef struct lt_row {
    int64_t sample;  /**< index in the data set; of a replaced sample: the replacement */
    const char *why; /**< why the original sample is broken; NULL: it is not */
} lt_row;

/** Lent until the next call of lt_loader_next() or lt_loader_seek(). */
typedef struct lt_batch {
    /** [N,C,H,W] LT_U8, channels-last, on the device: lt_normalize() first. Of a data set of
     *  numbers [N,shape] LT_F32, as they are; of tokens [N,T] LT_I32. */
    lt_tensor *inputs;
    /** [N] LT_I32, 0 .. classes-1. Of tokens [N,T]: the id that follows each input, -100
     *  (LT_IGNORED_LABEL) where none does. */
    lt_tensor *labels;
    lt_tensor *targets; /**< [N,classes] LT_F32, of mixed images; NULL without lt_mix */
    int count;          /**< N: less than the batch size in an incomplete batch */
    int64_t index;      /**< of the batch within the epoch */
    const lt_row *row;  /**< [N] */
} lt_batch;

/** Borrows the dataset and the device. Reading begins with the first call of lt_loader_next() or
 *  lt_loader_seek(). Errors: LT_E_ARG, LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_loader_new(lt_loader **out, lt_dataset *dataset,
                                             lt_device *device, const lt_loader_config *config);
/** Goes to batch number batch of an epoch: exact resume. Without it: epoch 0, batch 0. */
LT_API LT_MUST_CHECK lt_status lt_loader_seek(lt_loader *loader, int64_t epoch, int64_t batch);
/** LT_END after the epoch's last batch; the call after that starts the next epoch.
 *  Errors: LT_E_FORMAT (more broken images than allowed: the message lists the last; a label out
 *  of range), LT_E_DEVICE. A failure stays until lt_loader_seek(). */
LT_API LT_MUST_CHECK lt_status lt_loader_next(lt_loader *loader, lt_batch *out);
LT_API void lt_loader_free(lt_loader **loader);

LT_API int64_t lt_loader_batches(const lt_loader *loader); /**< per epoch, on this rank */

/** Counters since the loader was made. */
typedef struct lt_loader_stats {
    int64_t samples, batches; /**< delivered */
    int64_t bad;              /**< different broken images met so far */
    /** Summed over threads; idle: waiting while the prefetch queue is full, so the consumer is the
     *  slower one. */
    double read_seconds, decode_seconds, resize_seconds, idle_seconds;
    double wait_seconds; /**< of lt_loader_next() for a batch, so the threads are the slower ones */
    int64_t starved;     /**< batches that were not ready when they were asked for */
    int64_t ready; /**< sum over batches of those that were; divided by batches: the mean queue */
    int queued;    /**< complete batches in the prefetch queue now */
    int capacity;  /**< the largest value of queued */
    int64_t cache_hits, cache_misses, cache_bytes; /**< of decoded images */
} lt_loader_stats;
LT_API lt_loader_stats lt_loader_statistics(const lt_loader *loader);
/** What was counted between two moments. */
LT_API lt_loader_stats lt_loader_stats_since(const lt_loader_stats *now,
                                             const lt_loader_stats *before);
/** Of so many seconds with these counters: "loader-bound" if more than 3 % of them were waited for
 *  a batch, else "compute-bound". */
LT_API const char *lt_loader_bound(const lt_loader_stats *stats, double seconds);
/** Description of broken image number i (path and why), in the order of batches; NULL past the
 *  end. Borrowed until the next lt_loader_next(). */
LT_API const char *lt_loader_bad(const lt_loader *loader, int64_t i);

#endif
