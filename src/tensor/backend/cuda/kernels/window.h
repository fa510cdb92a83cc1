/* Geometry of pooling: pixels of a window, and windows of a pixel. Image sizes fit in 32 bits, so divisions are of 32
 * bits. */
#ifndef LT_CUDA_WINDOW_H
#define LT_CUDA_WINDOW_H

#include "tensor/backend/cuda/host_device.h"

#include <stdint.h>

/* Indices first .. end-1. */
typedef struct lt_range {
    int64_t first, end;
} lt_range;

/* Returns the taps of window p that are inside an image of that size. */
LT_HD lt_range lt_window_taps(int64_t p, int kernel, int stride, int pad, int64_t size)
{
    const int64_t begin = p * stride - pad;
    lt_range taps;
    taps.first = begin < 0 ? -begin : 0;
    taps.end = size - begin < kernel ? size - begin : kernel;
    return taps;
}

/* Returns those of the `windows` windows that contain pixel h: window p at tap h + pad - p * stride. */
LT_HD lt_range lt_windows_with_pixel(int64_t h, int kernel, int stride, int pad, int64_t windows)
{
    const int64_t last = lt_quotient(h + pad, stride, true), before = h + pad - kernel;
    lt_range p;
    p.first = before < 0 ? 0 : lt_quotient(before, stride, true) + 1;
    p.end = last + 1 < windows ? last + 1 : windows;
    return p;
}

/* A thread's pixel, of y or x, and its first channel. */
typedef struct lt_pixel {
    int64_t image, h, w, channel;
} lt_pixel;

/* Returns the position of vector i of [images, height, width, vectors]; image >= images past the end. 32-bit
 * divisions are much faster. */
LT_HD lt_pixel lt_find_pixel(int64_t i, int64_t images, int64_t height, int64_t width,
                             int64_t vectors)
{
    lt_pixel p;
    if (images * height * width * vectors < INT32_MAX) {
        const uint32_t of_row = (uint32_t)vectors, of_line = (uint32_t)width;
        const uint32_t row = (uint32_t)i / of_row, line = row / of_line,
                       image = line / (uint32_t)height;
        p.channel = (uint32_t)i - row * of_row;
        p.w = row - line * of_line;
        p.h = line - image * (uint32_t)height;
        p.image = image;
    } else {
        const int64_t row = i / vectors, line = row / width;
        p.image = line / height;
        p.channel = i - row * vectors;
        p.w = row - line * width;
        p.h = line - p.image * height;
    }
    return p;
}

/* Returns whether a candidate replaces the window's maximum: NaN is larger than any number; of equal values, the
 * first is kept. */
LT_HD bool lt_is_new_window_max(float candidate, float best)
{
    return candidate > best || (candidate != candidate && best == best);
}

#endif
