/* The weight gradient's micro-kernel on tiles of 16 rows of 64 bytes, over four operations that the including file
 * defines:
 *
 *     TILE_ZERO(t)                 t = 0
 *     TILE_LOAD(t, from, stride)   16 rows, stride bytes apart
 *     TILE_STORE(t, to, stride)
 *     TILE_PRODUCT(sum, a, b)      sum[m][n] += a[m][2k] b[k][2n] + a[m][2k+1] b[k][2n+1], k < 16;
 *                                  sum of f32, a and b of bf16
 *
 * wgrad_amx.c defines them by AMX, tests in C. Four accumulators: two tiles of dy by two of x, so that each loaded tile
 * is used in two products. */
#ifndef LT_BACKEND_CPU_WGRAD_TILES_H
#define LT_BACKEND_CPU_WGRAD_TILES_H

#include "wgrad_microkernel.h"

enum {
    LT_TILE_SIDE = 16,
    LT_TILE_PIXELS = 2 * LT_TILE_SIDE, /* pixels that one product sums */
    LT_TILE_ROWS = 2 * LT_TILE_SIDE    /* rows of dw per call */
};

static void tile_product(const void *dy, const void *x, int64_t pixels, float *dw, int64_t ld,
                         bool add)
{
    enum { TILE = LT_TILE_SIDE * LT_TILE_PIXELS, ROW = 64, PANEL = 2 * ROW };
    const int64_t stride = ld * (int64_t)sizeof *dw;
    float *below = dw + LT_TILE_SIDE * ld;
    if (add) {
        TILE_LOAD(0, dw, stride);
        TILE_LOAD(1, dw + LT_TILE_SIDE, stride);
        TILE_LOAD(2, below, stride);
        TILE_LOAD(3, below + LT_TILE_SIDE, stride);
    } else {
        TILE_ZERO(0);
        TILE_ZERO(1);
        TILE_ZERO(2);
        TILE_ZERO(3);
    }
    for (int64_t p = 0; p < pixels; p += LT_TILE_PIXELS) {
        const uint16_t *rows = (const uint16_t *)dy + p * LT_TILE_ROWS;
        const uint16_t *columns = (const uint16_t *)x + p * LT_WGRAD_COLUMNS;
        TILE_LOAD(4, rows, ROW);
        TILE_LOAD(6, columns, PANEL);
        TILE_PRODUCT(0, 4, 6);
        TILE_LOAD(7, columns + LT_TILE_PIXELS, PANEL);
        TILE_PRODUCT(1, 4, 7);
        TILE_LOAD(5, rows + TILE, ROW);
        TILE_PRODUCT(2, 5, 6);
        TILE_PRODUCT(3, 5, 7);
    }
    TILE_STORE(0, dw, stride);
    TILE_STORE(1, dw + LT_TILE_SIDE, stride);
    TILE_STORE(2, below, stride);
    TILE_STORE(3, below + LT_TILE_SIDE, stride);
}

#endif
