/** What becomes of an image: limits, decoding, crops, colours, mixing. */
#ifndef LATHER_TRANSFORM_H
#define LATHER_TRANSFORM_H

#include "lather/status.h"

#include <stdbool.h>
#include <stdint.h>

/** What decoding one image may cost; an image beyond it counts as broken. Memory in flight is at
 *  most 12 bytes for each pixel allowed, and 4 times what an image's own pixels have (or 64
 *  MiB). */
typedef struct lt_image_limits {
    int64_t pixels; /**< width times height; 0: 100 million */
    double
        seconds; /**< of one core; 0: 10. Not of WebP and AVIF, whose libraries cannot be stopped */
} lt_image_limits;

/** How an image becomes an input of size x size, with torchvision's geometry and Pillow's
 *  antialiased filters. */
typedef enum lt_augment {
    LT_AUGMENT_NONE,     /**< short side to resize, then the centre crop */
    LT_AUGMENT_IMAGENET, /**< random-resized-crop + horizontal flip */
    LT_AUGMENT_SMALL     /**< short side to size, pad by size/8 with zeros, random crop, flip */
} lt_augment;

typedef enum lt_filter { LT_FILTER_BILINEAR, LT_FILTER_BICUBIC } lt_filter;

/** Limits of lt_transform, of the command line and of requests to a data service alike. */
enum {
    LT_TRANSFORM_MOST_SIZE = 4096,
    LT_JITTER_MOST = 10, /**< brightness, contrast, saturation */
    LT_RAND_AUGMENT_MOST_OPS = 100
};

/** Largest random changes, as torchvision's ColorJitter: factors in 1 - x .. 1 + x; hue in
 *  turns. */
typedef struct lt_jitter {
    double brightness, contrast, saturation; /**< 0 .. LT_JITTER_MOST */
    double hue;                              /**< in [0, 0.5] */
} lt_jitter;

/** RandAugment with torchvision's operations and its 31 strengths: Cubuk et al., NeurIPS 2020. */
enum { LT_RAND_AUGMENT_MOST = 30 };
typedef struct lt_rand_augment {
    int ops; /**< operations drawn for an image, up to LT_RAND_AUGMENT_MOST_OPS, e.g. 2; 0: none */
    int magnitude; /**< strength of all of them, 0 .. LT_RAND_AUGMENT_MOST, e.g. 9 */
} lt_rand_augment;

typedef struct lt_transform {
    lt_augment augment;
    int size;   /**< side of the input in pixels, 1 .. LT_TRANSFORM_MOST_SIZE */
    int resize; /**< short side before the centre crop, >= size; 0: size * 256 / 224, rounded */
    double crop_ratio; /**< says what resize is, instead: size / crop_ratio, down; in (0, 1] */
    lt_filter filter;
    /** JPEG are decoded at 1/2, 1/4 or 1/8 where the crop still has size x size pixels then: other
     *  pixels, sooner. Only with LT_AUGMENT_IMAGENET. */
    bool fast;
    bool exif;   /**< JPEG are turned as their EXIF orientation says, before all else */
    double flip; /**< probability of a horizontal flip, if augment is not LT_AUGMENT_NONE */
    double min_scale, max_scale; /**< area of the random crop; 0: 0.08, 1 */
    double min_ratio, max_ratio; /**< its width / height; 0: 3/4, 4/3 */
    lt_image_limits limits;      /**< of images to decode */
    /* After crop and flip, in this order; not with LT_AUGMENT_NONE. */
    bool trivial_augment;         /**< TrivialAugmentWide: Mueller & Hutter, ICCV 2021 */
    lt_rand_augment rand_augment; /**< not with trivial_augment */
    lt_jitter jitter;
    double erase;          /**< probability of random erasing: Zhong et al., AAAI 2020 */
    uint8_t erase_fill[3]; /**< what is put there: the mean pixel */
} lt_transform;

/** Batches whose images are mixed, each with another; drawn from (seed, epoch, batch, rank). */
typedef struct lt_mix {
    double mixup_alpha, cutmix_alpha; /**< of the Beta distribution; 0: not; both: either */
    double probability;               /**< of a batch; 0: 1 */
} lt_mix;

/** From epoch step[i].epoch on the input's side is step[i].size: progressive resizing. */
enum { LT_MAX_SIZES = 32 };
typedef struct lt_size_step {
    int64_t epoch;
    int size;
} lt_size_step;
typedef struct lt_size_schedule {
    int count;                       /**< 0: one size */
    lt_size_step step[LT_MAX_SIZES]; /**< the first from epoch 0 on, the others rising */
} lt_size_schedule;
/** "0:128,30:160,60:224". Errors: LT_E_ARG. */
LT_API LT_MUST_CHECK lt_status lt_size_schedule_parse(lt_size_schedule *out, const char *text);
LT_API LT_MUST_CHECK lt_status lt_size_schedule_check(const lt_size_schedule *schedule);
LT_API int lt_size_schedule_at(const lt_size_schedule *schedule, int64_t epoch); /**< 0: no step */

#endif
