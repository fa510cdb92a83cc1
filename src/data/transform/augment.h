/* Geometry of an augmentation: the crop and its position in the input. */
#ifndef LT_DATA_AUGMENT_H
#define LT_DATA_AUGMENT_H

#include "base/rng.h"
#include "data/formats/image.h"
#include "data/transform/resize.h"

#include "lather/data.h"

/* Geometry of a sample. The axes are relative to the crop. */
typedef struct lt_geometry {
    lt_window crop; /* rectangle of the image to read; pixels outside are not needed */
    lt_axis x, y;
    int32_t left, top; /* position of the result in the input, whose other pixels are 0 */
} lt_geometry;

/* Sets defaults in place of zeros and checks the fields. Errors: LT_E_ARG. */
lt_status lt_transform_check(lt_transform *transform);

/* Returns a checked transform with another input size and the same crop ratio. */
lt_transform lt_transform_with_size(const lt_transform *transform, int size);

/* Draws the flip, then the crop, for an image of width x height pixels. */
lt_geometry lt_augment_geometry(const lt_transform *transform, int32_t width, int32_t height,
                                lt_rng *rng);

/* Draws the window of a random-resized-crop. */
lt_window lt_random_crop(const lt_transform *transform, int32_t width, int32_t height, lt_rng *rng);

#endif
