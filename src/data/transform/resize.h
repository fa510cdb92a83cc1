/* Antialiased bilinear and bicubic resampling of 8-bit images, bitwise identical to Pillow: the filter is scaled when
 * shrinking; two passes with 22-bit weights. */
#ifndef LT_DATA_RESIZE_H
#define LT_DATA_RESIZE_H

#include "data/formats/image.h"
#include "data/transform/taps.h"

/* An implementation of the two passes. Both read up to LT_IMAGE_PADDING bytes past the last row of src. */
typedef struct lt_resize_kernels {
    lt_across_fn *across;
    lt_down_fn *down;
} lt_resize_kernels;

/* Return the kernels for any CPU, and the fastest kernels for this CPU. */
lt_resize_kernels lt_resize_portable_kernels(void);
lt_resize_kernels lt_resize_best_kernels(void);

/* Resamples src (pixels x.low .. x.high-1 of rows y.low .. y.high-1 of the image) to dst, with rows stride bytes apart.
 * intermediate: memory for the result of the first pass. Errors: LT_E_NOMEM. */
lt_status lt_resize(lt_resize_kernels kernels, const lt_image *src, const lt_taps *x,
                    const lt_taps *y, lt_image *intermediate, uint8_t *dst, size_t stride);

#endif
