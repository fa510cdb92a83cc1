/** Samples in, batches out. */
#ifndef LATHER_DATA_H
#define LATHER_DATA_H

#include "lather/tensor.h"

typedef struct lt_dataset lt_dataset;
typedef struct lt_loader lt_loader;

/** Opens a data set by name:
 *
 *  - "fashion-mnist": see lt_dataset_fashion_mnist();
 *  - "synthetic" or "synthetic:COUNT:SIZE:CLASSES": noise (1024 pictures of 224 x 224, 1000 classes);
 *  - a folder with MNIST's four idx files;
 *  - a pack (lather/pack.h), or a folder with the packs train and val;
 *  - a tar file, or a folder with tar files: to train those in FOLDER/train, or with "train" in their
 *    names, to evaluate likewise with "val"; see lt_dataset_tar();
 *  - another folder: FOLDER/train to train, FOLDER/val to evaluate, FOLDER itself if it has
 *    neither; see lt_dataset_folder().
 *
 *  Errors: LT_E_ARG, LT_E_IO, LT_E_FORMAT. */
LT_API LT_MUST_CHECK lt_status lt_dataset_open(lt_dataset **out, const char *spec, bool train);
/** Pictures in one folder per class (.jpg, .jpeg, .png, .bmp, .gif in any case; the first bytes of a file
 *  decide what it is), also in folders below it; names that begin with a dot are left out. Classes
 *  and files are ordered by name, bytewise. EXIF's orientation is not applied (as in torchvision's
 *  ImageFolder). Errors: LT_E_IO (no such folder), LT_E_FORMAT (no class folder, an empty one). */
LT_API LT_MUST_CHECK lt_status lt_dataset_folder(lt_dataset **out, const char *path);
/** Pictures in tar files as WebDataset writes them: NAME.jpg (.jpeg, .png, ...) and NAME.cls, a class
 *  number from 0 on; in tar files without .cls the folder is the class. FILE.tar.index, written beside
 *  each where that is possible, saves reading it through again; one that is older than its tar file
 *  is made anew. Samples are in the order of path and of the tar files.
 *  Errors: LT_E_IO; LT_E_FORMAT (cut off, no tar file, no picture, labels for some only). */
LT_API LT_MUST_CHECK lt_status lt_dataset_tar(lt_dataset **out, const char *const *path,
                                              size_t count);
/** MNIST's format: a file of images and one of labels, plain or gzip. Labels must be below classes;
 *  classes 0: the largest label + 1.
 *  Errors: LT_E_IO, LT_E_FORMAT (also labels out of range, counts that differ). */
LT_API LT_MUST_CHECK lt_status lt_dataset_idx(lt_dataset **out, const char *images,
                                              const char *labels, int classes);
/** Fashion-MNIST as Debian's dataset-fashion-mnist ships it, or from $LATHER_FASHION_MNIST: train
 *  or test part. Errors: LT_E_IO, naming the package; LT_E_FORMAT. */
LT_API LT_MUST_CHECK lt_status lt_dataset_fashion_mnist(lt_dataset **out, bool train);
/** Pictures by their paths (copied), in this order, all of class 0: to predict. channels: 1 or 3.
 *  Errors: LT_E_ARG, LT_E_NOMEM; a missing file is a broken picture to the loader. */
LT_API LT_MUST_CHECK lt_status lt_dataset_files(lt_dataset **out, const char *const *paths,
                                                int64_t count, int channels);
/** count noise pictures of size x size with channels 1 or 3, the same for the same index. */
LT_API LT_MUST_CHECK lt_status lt_dataset_synthetic(lt_dataset **out, int64_t count, int size,
                                                    int channels, int classes);
LT_API void lt_dataset_free(lt_dataset **dataset);

LT_API int64_t lt_dataset_count(const lt_dataset *dataset);
LT_API int lt_dataset_classes(const lt_dataset *dataset);
LT_API int lt_dataset_channels(const lt_dataset *dataset); /**< of the pictures: 1 or 3 */
/** Short side of the first picture in pixels; 0 if that cannot be told. Errors: LT_E_IO. */
LT_API LT_MUST_CHECK lt_status lt_dataset_side(const lt_dataset *dataset, int *side);
/** Borrowed; NULL if the class has no name. */
LT_API const char *lt_dataset_class_name(const lt_dataset *dataset, int label);
/** Path of a sample, for messages. Borrowed; NULL if unknown. */
LT_API const char *lt_dataset_sample_name(const lt_dataset *dataset, int64_t index);

/** How a picture becomes an input of size x size, with torchvision's geometry and the antialiased
 *  bilinear filter of Pillow. */
typedef enum lt_augment {
    LT_AUGMENT_NONE,     /**< short side to resize, then the centre crop */
    LT_AUGMENT_IMAGENET, /**< random-resized-crop + horizontal flip */
    LT_AUGMENT_SMALL     /**< short side to size, pad by size/8 with zeros, random crop, flip */
} lt_augment;

/** Largest random changes, as torchvision's ColorJitter: factors in 1 - x .. 1 + x; hue in turns. */
typedef struct lt_jitter {
    double brightness, contrast, saturation; /**< >= 0 */
    double hue;                              /**< in [0, 0.5] */
} lt_jitter;

typedef struct lt_transform {
    lt_augment augment;
    int size;    /**< side of the input in pixels */
    int resize;  /**< short side before the centre crop, >= size; 0: size * 256 / 224, rounded */
    double flip; /**< probability of a horizontal flip, if augment is not LT_AUGMENT_NONE */
    double min_scale, max_scale; /**< area of the random crop; 0: 0.08, 1 */
    double min_ratio, max_ratio; /**< its width / height; 0: 3/4, 4/3 */
    /* After crop and flip, in this order; not with LT_AUGMENT_NONE. */
    bool trivial_augment; /**< TrivialAugmentWide: Mueller & Hutter, ICCV 2021 */
    lt_jitter jitter;
    double erase;          /**< probability of random erasing: Zhong et al., AAAI 2020 */
    uint8_t erase_fill[3]; /**< what is put there: the mean pixel */
} lt_transform;

/** Batches whose pictures are mixed, each with another; drawn from (seed, epoch, batch, rank). */
typedef struct lt_mix {
    double mixup_alpha, cutmix_alpha; /**< of the Beta distribution; 0: not; both: either */
    double probability;               /**< of a batch; 0: 1 */
} lt_mix;

/** Every sample's random numbers come from (seed, epoch, index in the data set) alone. A picture
 *  that cannot be read or decoded is replaced by the next good one in index order. */
typedef struct lt_loader_config {
    lt_transform transform;
    lt_mix mix;
    int batch; /**< samples per batch on this rank */
    /** This loader's share: every size-th sample of the epoch's order; size 0: 1. With drop_last all
     *  ranks have equally many, else some one more. */
    int rank, size;
    int threads;         /**< decoders; 0: one per core */
    int slots;           /**< batches in memory, the lent one included; 0: 4 */
    bool shuffle;        /**< else in index order */
    bool drop_last;      /**< leave out an incomplete last batch */
    uint64_t seed;       /**< the same seed gives the same batches, whatever threads is */
    int64_t max_bad;     /**< broken pictures to replace before LT_E_FORMAT; < 0: any number */
    int64_t limit;       /**< use only the first limit samples of the data set; 0: all */
    int64_t max_batches; /**< per epoch; 0: all */
} lt_loader_config;

/** Lent until the next call of lt_loader_next() or lt_loader_seek(). */
typedef struct lt_batch {
    lt_tensor *images;  /**< [N,C,H,W] LT_U8, channels-last, on the device; lt_normalize() first */
    lt_tensor *labels;  /**< [N] LT_I32, 0 .. classes-1 */
    lt_tensor *targets; /**< [N,classes] LT_F32, of mixed pictures; NULL without lt_mix */
    int count;          /**< N: less than the batch size in an incomplete batch */
    int64_t index;      /**< of the batch within the epoch */
} lt_batch;

/** Borrows the dataset and the device. Reading begins with the first call of lt_loader_next() or
 *  lt_loader_seek(). Errors: LT_E_ARG, LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_loader_new(lt_loader **out, lt_dataset *dataset,
                                             lt_device *device, const lt_loader_config *config);
/** Goes to batch number batch of an epoch: exact resume. Without it: epoch 0, batch 0. */
LT_API LT_MUST_CHECK lt_status lt_loader_seek(lt_loader *loader, int64_t epoch, int64_t batch);
/** LT_END after the epoch's last batch; the call after that starts the next epoch.
 *  Errors: LT_E_FORMAT (more broken pictures than allowed: the message lists the last; a label out
 *  of range), LT_E_DEVICE. A failure stays until lt_loader_seek(). */
LT_API LT_MUST_CHECK lt_status lt_loader_next(lt_loader *loader, lt_batch *out);
LT_API void lt_loader_free(lt_loader **loader);

LT_API int64_t lt_loader_batches(const lt_loader *loader); /**< per epoch, on this rank */

/** Counters since the loader was made. */
typedef struct lt_loader_stats {
    int64_t samples; /**< delivered */
    int64_t bad;     /**< different broken pictures met so far */
    double read_seconds, decode_seconds, resize_seconds; /**< summed over threads */
    double wait_seconds;                                 /**< of lt_loader_next() for a batch */
} lt_loader_stats;
LT_API lt_loader_stats lt_loader_statistics(const lt_loader *loader);
/** Description of broken picture number i (path and why), in the order of batches; NULL past the
 *  end. Borrowed until the next lt_loader_next(). */
LT_API const char *lt_loader_bad(const lt_loader *loader, int64_t i);

#endif
