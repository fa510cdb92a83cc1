/** The loader: makes batches of samples for each rank and epoch. */
#ifndef LATHER_LOADER_H
#define LATHER_LOADER_H

#include "lather/tensor.h"
#include "lather/transform.h"

typedef struct lt_dataset lt_dataset;
typedef struct lt_loader lt_loader;

/** Loader options. A sample's random numbers depend only on (seed, epoch, index in the data set) and
 *  the number of the repeat. An image that cannot be read or decoded is replaced by the next good
 *  one in index order. */
typedef struct lt_loader_config {
    lt_transform transform; /**< transform, for images only, as are sizes and mix */
    lt_size_schedule sizes; /**< replaces transform.size if it has steps */
    lt_mix mix;
    int batch; /**< samples per batch on this rank */
    /** Samples rank, rank + size, ... of the epoch's order; size 0: 1. On a reproducible device whole batches,
     *  grad_accum in a row, so that a step's batches are the same for any split over ranks. */
    int rank, size;
    int64_t grad_accum; /**< batches per step on this rank; 0: 1 */
    int threads;        /**< decoder threads; 0: one per core */
    int slots;          /**< batches in memory, including the borrowed one; 0: 4 */
    bool shuffle;       /**< random order in each epoch; false: index order */
    /** With shuffle: draws each sample's class with equal probability and a sample of it, with replacement, as
     *  PyTorch's WeightedRandomSampler with weights inverse to the class's number of samples. */
    bool weighted;
    /** Repeats of each image in an epoch (repeated augmentation, Hoffer et al., CVPR 2020). They are
     *  consecutive, so that neighbouring ranks share them. An epoch keeps its number of samples and
     *  has fewer images. 0: 1. */
    int repeats;
    bool
        drop_last; /**< skip an incomplete last batch, so that all ranks have equally many samples */
    uint64_t seed; /**< equal seeds give equal batches with any number of threads */
    /* Failure policy: */
    int64_t max_bad;  /**< corrupt images to replace before LT_E_FORMAT; < 0: unlimited */
    bool keep_broken; /**< return zeros and label 0 for a corrupt image instead of replacing it */
    /* Limits and caches: */
    int64_t limit;       /**< use only the data set's first limit samples; 0: all */
    int64_t max_batches; /**< batches per epoch; 0: all */
    /** Spread limit or max_batches evenly over the data set without shuffle, as its first samples may
     *  all have one class. */
    bool spread;
    int64_t cache_bytes; /**< capacity of the cache of decoded images; 0: none */
    int64_t read_ahead;  /**< samples whose reads start ahead of the decoders */
} lt_loader_config;

/** The origin of a batch's row. */
typedef struct lt_row {
    int64_t sample;  /**< index in the data set; the replacement's if replaced */
    const char *why; /**< error of the corrupt sample that it replaces; NULL if none */
} lt_row;

/** A batch, borrowed until the next call of lt_loader_next() or lt_loader_seek(). */
typedef struct lt_batch {
    /** Images: [N,C,H,W] LT_U8, channels-last, on the device, for lt_normalize(). Arrays: [N,shape]
     *  LT_F32, unchanged. Tokens: [N,T] LT_I32. */
    lt_tensor *inputs;
    /** Classes: [N] LT_I32, 0 to classes-1. Tokens: [N,T], the id after each input, or
     *  LT_IGNORED_LABEL (-100) after the last one. */
    lt_tensor *labels;
    lt_tensor *targets; /**< [N,classes] LT_F32 for mixed images; NULL without lt_mix */
    int count;          /**< number of samples N, smaller in an incomplete batch */
    int64_t index;      /**< number of the batch in the epoch */
    const lt_row *row;  /**< [N] origin of each row */
} lt_batch;

/** Makes a loader that borrows the data set and the device. Reading starts with the first call of
 *  lt_loader_next() or lt_loader_seek(). Errors: LT_E_ARG, LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_loader_new(lt_loader **out, lt_dataset *dataset,
                                             lt_device *device, const lt_loader_config *config);
/** Moves to a batch of an epoch, for exact resume. A new loader is at epoch 0, batch 0. */
LT_API LT_MUST_CHECK lt_status lt_loader_seek(lt_loader *loader, int64_t epoch, int64_t batch);
/** Returns the next batch, or LT_END after an epoch's last one; then the next epoch begins.
 *  Errors: LT_E_FORMAT (more corrupt images than allowed: the message lists the last ones; a label
 *  out of range), LT_E_DEVICE. After an error every call fails until lt_loader_seek(). */
LT_API LT_MUST_CHECK lt_status lt_loader_next(lt_loader *loader, lt_batch *out);
LT_API void lt_loader_free(lt_loader **loader);

LT_API int64_t lt_loader_batches(const lt_loader *loader); /**< batches per epoch on this rank */

/** Counters since the loader was made. */
typedef struct lt_loader_stats {
    int64_t samples, batches; /**< samples and batches delivered */
    int64_t bad;              /**< distinct corrupt images so far */
    /** Summed over threads. idle_seconds is spent waiting for the consumer, while the prefetch queue
     *  is full. */
    double read_seconds, decode_seconds, resize_seconds, idle_seconds;
    double wait_seconds; /**< time that lt_loader_next() waited for the threads */
    int64_t starved;     /**< batches that were not ready when requested */
    int64_t ready;       /**< prefetch queue's lengths summed over batches */
    int queued;          /**< complete batches in the prefetch queue now */
    int capacity;        /**< largest possible value of queued */
    int64_t cache_hits, cache_misses, cache_bytes; /**< counters of the cache of decoded images */
} lt_loader_stats;
LT_API lt_loader_stats lt_loader_statistics(const lt_loader *loader);
/** Returns the difference of two statistics. */
LT_API lt_loader_stats lt_loader_stats_since(const lt_loader_stats *now,
                                             const lt_loader_stats *before);
/** Returns "loader-bound" if lt_loader_next() waited for more than 3 % of the seconds, else
 *  "compute-bound". */
LT_API const char *lt_loader_bottleneck(const lt_loader_stats *stats, double seconds);
/** Returns path and error of corrupt image i, in the order of batches; NULL after the last one.
 *  Borrowed until the next lt_loader_next(). */
LT_API const char *lt_loader_corrupt(const lt_loader *loader, int64_t i);

#endif
