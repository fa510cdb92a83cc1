/* Geometry of the augmentation: the crop, and where the input gets it. */
#ifndef LT_DATA_AUGMENT_H
#define LT_DATA_AUGMENT_H

#include "base/rng.h"
#include "data/formats/image.h"
#include "data/transform/resize.h"

#include "lather/data.h"

/* One sample's geometry. The axes are relative to the crop. */
typedef struct lt_plan {
    lt_window crop; /* pixels outside of it are not read */
    lt_axis x, y;
    int32_t left, top; /* of the result in the size x size input; zeros around it */
} lt_plan;

/* Fills in the defaults. Errors: LT_E_ARG, naming the field. */
lt_status lt_transform_check(lt_transform *transform);

/* A checked transform whose input has another size; its crop keeps the same share. */
lt_transform lt_transform_sized(const lt_transform *transform, int size);

/* Numbers are drawn in a fixed order: flip, then the crop. */
lt_plan lt_augment_plan(const lt_transform *transform, int32_t width, int32_t height, lt_rng *rng);

/* The random window of random-resized-crop. */
lt_window lt_random_crop(const lt_transform *transform, int32_t width, int32_t height, lt_rng *rng);

#endif
