/** Image transforms: decoding limits, crops, colour augmentation, mixing. */
#ifndef LATHER_TRANSFORM_H
#define LATHER_TRANSFORM_H

#include "lather/status.h"

#include <stdbool.h>
#include <stdint.h>

/** Limits for decoding one image; images above them count as corrupt. Decoding uses at most 12 bytes
 *  per allowed pixel, and 4 times the image's own size (or 64 MiB). */
typedef struct lt_image_limits {
    int64_t pixels; /**< largest width times height; 0: 100 million */
    double seconds; /**< most CPU seconds; 0: 10. WebP and AVIF cannot be interrupted */
} lt_image_limits;

/** How an image is cropped to size x size, with torchvision's geometry and Pillow's antialiased
 *  filters. */
typedef enum lt_augment {
    LT_AUGMENT_NONE,     /**< no augmentation: resize the short side to `resize`, centre crop */
    LT_AUGMENT_IMAGENET, /**< random resized crop, horizontal flip */
    LT_AUGMENT_SMALL     /**< resize the short side to size, pad by size/8, random crop, flip */
} lt_augment;

typedef enum lt_filter { LT_FILTER_BILINEAR, LT_FILTER_BICUBIC } lt_filter;

/** Upper limits of lt_transform's fields. */
enum {
    LT_TRANSFORM_MOST_SIZE = 4096,
    LT_JITTER_MOST = 10, /**< largest brightness, contrast or saturation of lt_jitter */
    LT_RAND_AUGMENT_MOST_OPS = 100
};

/** Maximum random changes, as in torchvision's ColorJitter: factors between 1 - x and 1 + x, hue in
 *  turns. */
typedef struct lt_jitter {
    double brightness, contrast, saturation; /**< largest changes, 0 to LT_JITTER_MOST */
    double hue;                              /**< largest change in turns, 0 to 0.5 */
} lt_jitter;

/** RandAugment with torchvision's operations and its 31 magnitudes: Cubuk et al., NeurIPS 2020. */
enum { LT_RAND_AUGMENT_MOST = 30 };
typedef struct lt_rand_augment {
    int ops;       /**< operations per image, up to LT_RAND_AUGMENT_MOST_OPS, e.g. 2; 0: none */
    int magnitude; /**< strength, 0 to LT_RAND_AUGMENT_MOST, e.g. 9 */
} lt_rand_augment;

typedef struct lt_transform {
    lt_augment augment;
    int size;          /**< side of the input in pixels, 1 to LT_TRANSFORM_MOST_SIZE */
    int resize;        /**< short side before the centre crop, >= size; 0: size * 256 / 224 */
    double crop_ratio; /**< alternative to resize, size / crop_ratio rounded down; in (0, 1] */
    lt_filter filter;
    /** Decode JPEG at 1/2, 1/4 or 1/8 if the crop still has at least size x size pixels: faster, with
     *  slightly different pixels. Only with LT_AUGMENT_IMAGENET. */
    bool fast;
    bool exif;          /**< apply the EXIF orientation of JPEG first */
    double flip, vflip; /**< probability of a horizontal, vertical flip, not with LT_AUGMENT_NONE */
    double min_scale, max_scale; /**< relative area of the random crop; 0: 0.08, 1 */
    double min_ratio, max_ratio; /**< aspect ratio of the random crop; 0: 3/4, 4/3 */
    lt_image_limits limits;      /**< limits for decoding */
    /* Further changes after crop and flip, in this order; not with LT_AUGMENT_NONE. */
    double rotation;              /**< largest angle of a random rotation, 0 to 180 degrees */
    bool trivial_augment;         /**< TrivialAugmentWide: Mueller & Hutter, ICCV 2021 */
    lt_rand_augment rand_augment; /**< RandAugment; not with trivial_augment */
    lt_jitter jitter;
    double grayscale;      /**< probability of turning grey */
    double blur;           /**< probability of a Gaussian blur of 0.1 to 2 pixels */
    double erase;          /**< probability of random erasing: Zhong et al., AAAI 2020 */
    uint8_t erase_fill[3]; /**< fill colour of random erasing */
} lt_transform;

/** Mixup and CutMix of a batch's images, with random numbers from (seed, epoch, batch, rank); on a
 *  reproducible device from (seed, epoch, step, number of the batch among all ranks' in the step). */
typedef struct lt_mix {
    double mixup_alpha, cutmix_alpha; /**< Beta distribution's parameter; 0: off; both: either */
    double probability;               /**< fraction of batches to mix; 0: 1 */
} lt_mix;

/** Progressive resizing: the input's side is step[i].size from epoch step[i].epoch on. */
enum { LT_MAX_SIZES = 32 };
typedef struct lt_size_step {
    int64_t epoch;
    int size;
} lt_size_step;
typedef struct lt_size_schedule {
    int count;                       /**< number of steps; 0: constant size */
    lt_size_step step[LT_MAX_SIZES]; /**< steps with increasing epochs, the first from epoch 0 */
} lt_size_schedule;
/** Parses EPOCH:SIZE,..., e.g. "0:128,30:160,60:224". Errors: LT_E_ARG. */
LT_API LT_MUST_CHECK lt_status lt_size_schedule_parse(lt_size_schedule *out, const char *text);
LT_API LT_MUST_CHECK lt_status lt_size_schedule_check(const lt_size_schedule *schedule);
/** Returns the input's side in an epoch, 0 if there are no steps. */
LT_API int lt_size_schedule_at(const lt_size_schedule *schedule, int64_t epoch);

#endif
