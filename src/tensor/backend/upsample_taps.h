/* Pixels and weights of interpolation along one dimension. Formula: lather/ops/image.h. */
#ifndef LT_TENSOR_BACKEND_UPSAMPLE_TAPS_H
#define LT_TENSOR_BACKEND_UPSAMPLE_TAPS_H

#include "lather/ops/image.h"

/* An output pixel is 1 - weight times pixel `first` plus weight times pixel `next`. */
typedef struct lt_upsample_pair {
    int64_t first, next;
    double weight;
} lt_upsample_pair;

/* Returns the pixels of output pixel p of `out`, of `in` pixels. */
static inline lt_upsample_pair lt_upsample_taps(const lt_upsample_config *c, int64_t p, int64_t in,
                                                int64_t out)
{
    double at = ((double)p + 0.5) * (double)in / (double)out - 0.5;
    if (c->mode == LT_UPSAMPLE_NEAREST)
        return (lt_upsample_pair){.first = p * in / out, .next = p * in / out};
    if (c->align_corners)
        at = out > 1 ? (double)(p * (in - 1)) / (double)(out - 1) : 0;
    at = at < 0 ? 0 : at;
    const int64_t first = (int64_t)at;
    if (first + 1 >= in)
        return (lt_upsample_pair){.first = in - 1, .next = in - 1};
    return (lt_upsample_pair){.first = first, .next = first + 1, .weight = at - (double)first};
}

#endif
