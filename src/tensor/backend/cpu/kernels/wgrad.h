/* f32 micro-kernel of the weight gradient: packs pixels, computes a tile of TILE_ROWS x TILE_COLS. See conv/wgrad.h and
 * conv/wgrad_microkernel.h. */

#include "gemm.h"

/* Packs a panel of TILE_COLS channels, one row per pixel. */
ALWAYS void wgrad_x_any(const void *base, const int64_t *at, int64_t pixels, int64_t count,
                        void *out, lt_cpu_store s)
{
    float *to = out;
    for (int64_t p = 0; p < pixels; p++)
        for (int v = 0; v < TILE_VECS; v++, to += LANES) {
            const int64_t left = at[p] < 0 ? 0 : count - (int64_t)v * LANES;
            vec channels = {0};
            if (left >= LANES)
                channels = load(base, at[p] + (int64_t)v * LANES, LANES, s);
            else if (left > 0)
                channels = load(base, at[p] + (int64_t)v * LANES, (int)left, s);
            *(loose_vec *)to = channels;
        }
}

/* Copies count channels of a pixel. */
ALWAYS void copy_channels(const void *base, int64_t from, int64_t count, float *to, lt_cpu_store s)
{
    if (s == LT_STORE_F32) {
        memcpy(to, (const float *)base + from, (size_t)count * sizeof *to);
        return;
    }
    for (int64_t r = 0; r < count; r++) {
        const uint32_t high = (uint32_t)((const uint16_t *)base)[from + r] << 16;
        memcpy(to + r, &high, sizeof high);
    }
}

/* Packs panels of TILE_ROWS channels, one row per pixel; a few pixels at a time, so that memory is read
 * sequentially. */
ALWAYS void wgrad_dy_any(const void *base, const int64_t *at, int64_t pixels, int64_t count,
                         void *out, lt_cpu_store s)
{
    enum { STRIP = 16 };
    for (int64_t first = 0; first < pixels; first += STRIP)
        for (int64_t k = 0; k < count; k += TILE_ROWS) {
            const int64_t end = first + STRIP < pixels ? first + STRIP : pixels;
            float *to = (float *)out + k * pixels + first * TILE_ROWS;
            for (int64_t p = first; p < end; p++, to += TILE_ROWS) {
                if (at[p] >= 0 && count - k >= TILE_ROWS) {
                    copy_channels(base, at[p] + k, TILE_ROWS, to, s);
                    continue;
                }
                memset(to, 0, TILE_ROWS * sizeof *to);
                if (at[p] >= 0)
                    copy_channels(base, at[p] + k, count - k, to, s);
            }
        }
}

static void wgrad_product(const void *dy, const void *x, int64_t pixels, float *dw, int64_t ld,
                          bool add)
{
    sums sum[TILE_ROWS][TILE_SUMS];
    FOR_SUMS(r, v) {
        sum[r][v] = (sums){0};
        if (add)
            sum[r][v] = *(const loose_sums *)(dw + r * ld + (int64_t)v * SUMS);
    }
    const float *left = dy, *right = x;
    FOUR_STEPS
    for (int64_t p = 0; p < pixels; p++, left += TILE_ROWS, right += TILE_COLS)
        FOR_SUMS(r, v)
            sum[r][v] = add_product(left[r], *(const loose_sums *)(right + (int64_t)v * SUMS),
                                    sum[r][v], false);
    FOR_SUMS(r, v)
        *(loose_sums *)(dw + r * ld + (int64_t)v * SUMS) = sum[r][v];
}
