/* Options of image classification: a struct for each group. */
#ifndef LT_CLASSIFY_ARGUMENTS_H
#define LT_CLASSIFY_ARGUMENTS_H

#include "lather/options.h"

/* Indices of the choices, in the order of the rows. */
enum { AUGMENT_AUTO, AUGMENT_NONE, AUGMENT_IMAGENET, AUGMENT_SMALL };
enum { FILTER_AUTO, FILTER_BILINEAR };
enum { TTA_NONE, TTA_HFLIP, TTA_SHIFT };

/* preprocess.c: the images to read, and their preprocessing. */
typedef struct image_options {
    const char *val_split, *val_split_seed, *labels, *labels_columns, *val_labels,
        *image_size_schedule, *mean, *std, *cache_ram, *auto_augment, *scale, *ratio;
    int augment, interpolation, decode, exif;
    int64_t image_size, max_image_pixels, repeated_aug, max_bad_images;
    double flip, vflip, rotation, grayscale, blur, color_jitter, random_erase, mixup_alpha,
        cutmix_alpha, crop_pct;
    double max_image_seconds;
} image_options;
lt_option_table lt_image_option_table(image_options *o);

/* program.c: classes, and output of evaluations. */
typedef struct classifier_options {
    const char *save_logits, *eval_json, *class_weights;
    int tta;     /* TTA_* */
    int sampler; /* 1: weighted */
    int64_t num_classes;
    double label_smoothing, target_top1;
    image_options images;
} classifier_options;

#endif
