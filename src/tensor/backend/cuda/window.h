/* Geometry of pooling: which pixels a window has, and which windows have a pixel. */
#ifndef LT_CUDA_WINDOW_H
#define LT_CUDA_WINDOW_H

#include "host_device.h"

#include <stdint.h>

/* Indices first .. end-1. */
typedef struct lt_range {
    int64_t first, end;
} lt_range;

/* Of numbers that are not negative and have less than 32 bits, as the sides of pictures have: long
 * divisions take devices many times as long. */
LT_HD int64_t lt_short_quotient(int64_t a, int b)
{
    return (int64_t)((uint32_t)a / (uint32_t)b);
}

/* The taps of window p that lie in a picture of that size. */
LT_HD lt_range lt_window_taps(int64_t p, int kernel, int stride, int pad, int64_t size)
{
    const int64_t begin = p * stride - pad;
    lt_range taps;
    taps.first = begin < 0 ? -begin : 0;
    taps.end = size - begin < kernel ? size - begin : kernel;
    return taps;
}

/* The windows, of `windows` many, that have pixel h: window p has it at tap h + pad - p * stride. */
LT_HD lt_range lt_windows_of(int64_t h, int kernel, int stride, int pad, int64_t windows)
{
    const int64_t last = lt_short_quotient(h + pad, stride), before = h + pad - kernel;
    lt_range p;
    p.first = before < 0 ? 0 : lt_short_quotient(before, stride) + 1;
    p.end = last + 1 < windows ? last + 1 : windows;
    return p;
}

/* Whether a candidate takes a window's place of the largest: NaN is larger than any number; of
 * equals, the first wins. */
LT_HD bool lt_window_beats(float candidate, float best)
{
    return candidate > best || (candidate != candidate && best == best);
}

#endif
