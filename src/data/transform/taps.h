/* Weights of a resampling, and the passes along rows and columns that apply them. */
#ifndef LT_DATA_TAPS_H
#define LT_DATA_TAPS_H

#include "lather/loader.h"

#include <stddef.h>
#include <stdint.h>

/* One direction of a resampling: its output pixels and their source pixels. */
typedef struct lt_axis {
    int32_t limit;        /* number of source pixels */
    double start, length; /* range of the source that is resampled to `size` pixels */
    int64_t size;         /* pixels of the complete output along the axis */
    int64_t first;        /* output pixels to compute: first .. first + count - 1 */
    int32_t count;
    bool reverse; /* stores the output from right to left */
    lt_filter filter;
} lt_axis;

/* The weights along one axis. Starts as {0}. */
typedef struct lt_taps {
    int32_t low, high; /* source pixels needed: low .. high-1 */
    int32_t count;     /* number of output pixels */
    int32_t width;     /* weights stored per output pixel, an even number; unused ones are 0 */
    int32_t *first;    /* [count] source pixel of the first weight, minus low */
    int32_t *used;     /* [count] number of weights used */
    int32_t *weight;   /* [count][width] weights in units of 2^-LT_RESIZE_BITS */
    bool overshoots;   /* weights may be negative, so sums must be clamped to 0 .. 255 */
    int32_t *memory;
    size_t capacity;
} lt_taps;

enum { LT_RESIZE_BITS = 22 };

/* Computes the weights along an axis. Errors: LT_E_NOMEM. */
lt_status lt_taps_make(lt_taps *taps, const lt_axis *axis);
void lt_taps_clear(lt_taps *taps);

/* Resamples each of `rows` rows of src to taps->count pixels; dst is contiguous, with LT_IMAGE_PADDING bytes after its
 * end. */
typedef void lt_across_fn(const uint8_t *src, size_t stride, int32_t rows, const lt_taps *taps,
                          int channels, uint8_t *dst);
/* Resamples the columns of src, contiguous rows of `bytes` bytes, to taps->count rows, stride bytes apart. */
typedef void lt_down_fn(const uint8_t *src, size_t bytes, const lt_taps *taps, uint8_t *dst,
                        size_t stride);

lt_across_fn lt_across_base, lt_across_avx2, lt_across_wide;
lt_down_fn lt_down_base, lt_down_avx2;

#endif
