/* Geometry of pooling: pixels of a window, and windows of a pixel. Image sizes fit in 32 bits. */
#ifndef LT_CUDA_WINDOW_H
#define LT_CUDA_WINDOW_H

#include "tensor/backend/cuda/host_device.h"

#include <stdint.h>

/* Indices first .. end-1. */
typedef struct lt_range {
    int first, end;
} lt_range;

/* Returns the taps of window p that are inside an image of that size. */
LT_HD lt_range lt_window_taps(int64_t p, int kernel, int stride, int pad, int64_t size)
{
    const int64_t begin = p * stride - pad;
    lt_range taps;
    taps.first = begin < 0 ? (int)-begin : 0;
    taps.end = size - begin < kernel ? (int)(size - begin) : kernel;
    return taps;
}

/* Returns those of the `windows` windows that contain pixel h: window p at tap h + pad - p * stride. */
LT_HD lt_range lt_windows_with_pixel(int h, int kernel, lt_divisor stride, int pad, int windows)
{
    const int last = (int)lt_divide((uint32_t)(h + pad), stride), before = h + pad - kernel;
    lt_range p;
    p.first = before < 0 ? 0 : (int)lt_divide((uint32_t)before, stride) + 1;
    p.end = last + 1 < windows ? last + 1 : windows;
    return p;
}

/* Images of height x width pixels, in the order of rows. */
typedef struct lt_grid {
    int64_t images;
    int height, width;
    lt_divisor by_height, by_width;
} lt_grid;

LT_HD lt_grid lt_make_grid(int64_t images, int64_t height, int64_t width)
{
    lt_grid g;
    g.images = images;
    g.height = (int)height;
    g.width = (int)width;
    g.by_height = lt_make_divisor((uint32_t)height);
    g.by_width = lt_make_divisor((uint32_t)width);
    return g;
}

/* A pixel, and a thread's first channel of it. */
typedef struct lt_pixel {
    int64_t image;
    int h, w;
    int64_t channel;
} lt_pixel;

/* Returns the pixel of a row, channel 0; image >= images past the end. */
LT_HD lt_pixel lt_find_row(const lt_grid *g, int64_t row)
{
    const bool is_short = row < INT32_MAX;
    const int64_t line = is_short ? lt_divide((uint32_t)row, g->by_width) : row / g->width;
    lt_pixel p;
    p.image = is_short ? lt_divide((uint32_t)line, g->by_height) : line / g->height;
    p.h = (int)(line - p.image * g->height);
    p.w = (int)(row - line * g->width);
    p.channel = 0;
    return p;
}

/* Returns the position of vector i of [images, height, width, vectors]; channel: the vector's number. */
LT_HD lt_pixel lt_find_pixel(const lt_grid *g, int64_t i, int64_t vectors)
{
    const int64_t row = lt_quotient(i, vectors, i <= UINT32_MAX);
    lt_pixel p = lt_find_row(g, row);
    p.channel = i - row * vectors;
    return p;
}

/* Returns whether a candidate replaces the window's maximum: NaN is larger than any number; of equal values, the
 * first is kept. */
LT_HD bool lt_is_new_window_max(float candidate, float best)
{
    return candidate > best || (candidate != candidate && best == best);
}

#endif
