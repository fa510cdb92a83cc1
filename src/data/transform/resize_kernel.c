/* The two passes of resize.c in C. meson.build compiles them for any CPU and for AVX2, under different names.
 *
 * Sums of the triangle filter need no clamping: its weights are nonnegative and add up to 2^22 + k with |k| at most
 * half their number, so with 255 in every pixel the sum is below 255.5 * 2^22. The absolute weights of the cubic filter
 * add up to less than 1.3 * 2^22, so the sums fit into an int32. */

#include "data/transform/taps.h"

#include <string.h>

enum { HALF = 1 << (LT_RESIZE_BITS - 1) };

static inline uint8_t round_to_byte(int32_t sum, bool clamp)
{
    int32_t x = sum >> LT_RESIZE_BITS;
    if (clamp)
        x = x < 0 ? 0 : x > 255 ? 255 : x;
    return (uint8_t)x;
}

/* Row pass over RGB: computes 4 channels per pixel; the next pixel overwrites the fourth. */
static void resize_rows_rgb(const uint8_t *src, size_t stride, int32_t rows, const lt_taps *t,
                            uint8_t *dst)
{
    for (int32_t y = 0; y < rows; y++, src += stride)
        for (int32_t i = 0; i < t->count; i++) {
            const int32_t *w = t->weight + (size_t)i * (size_t)t->width;
            const uint8_t *from = src + (size_t)t->first[i] * 3;
            int32_t sum[4] = {HALF, HALF, HALF, HALF};
            for (int32_t j = 0; j < t->used[i]; j++, from += 3)
                for (int c = 0; c < 4; c++)
                    sum[c] += from[c] * w[j];
            for (int c = 0; c < 4; c++)
                dst[c] = round_to_byte(sum[c], t->overshoots);
            dst += 3;
        }
}

static void resize_rows_grey(const uint8_t *src, size_t stride, int32_t rows, const lt_taps *t,
                             uint8_t *dst)
{
    for (int32_t y = 0; y < rows; y++, src += stride)
        for (int32_t i = 0; i < t->count; i++) {
            const int32_t *w = t->weight + (size_t)i * (size_t)t->width;
            int32_t sum = HALF;
            for (int32_t j = 0; j < t->used[i]; j++)
                sum += src[t->first[i] + j] * w[j];
            *dst++ = round_to_byte(sum, t->overshoots);
        }
}

void LT_RESIZE_ACROSS(const uint8_t *src, size_t stride, int32_t rows, const lt_taps *taps,
                      int channels, uint8_t *dst)
{
    (channels == 3 ? resize_rows_rgb : resize_rows_grey)(src, stride, rows, taps, dst);
}

/* Column pass over a strip of 64 bytes, whose sums fit into registers. */
static inline __attribute__((always_inline)) void
resize_column_strip(const uint8_t *src, size_t bytes, const int32_t *w, int32_t used, uint8_t *dst,
                    size_t wide, bool clamp)
{
    enum { WIDE = 64 };
    int32_t sum[WIDE];
    for (int i = 0; i < WIDE; i++)
        sum[i] = HALF;
    for (int32_t j = 0; j < used; j++)
        for (int i = 0; i < WIDE; i++)
            sum[i] += src[(size_t)j * bytes + (size_t)i] * w[j];
    uint8_t out[WIDE];
    for (int i = 0; i < WIDE; i++)
        out[i] = round_to_byte(sum[i], clamp);
    memcpy(dst, out, wide < WIDE ? wide : WIDE);
}

void LT_RESIZE_DOWN(const uint8_t *src, size_t bytes, const lt_taps *taps, uint8_t *dst,
                    size_t stride)
{
    enum { WIDE = 64 };
    for (int32_t y = 0; y < taps->count; y++) {
        const int32_t *w = taps->weight + (size_t)y * (size_t)taps->width;
        const uint8_t *from = src + (size_t)taps->first[y] * bytes;
        uint8_t *to = dst + (size_t)y * stride;
        for (size_t i = 0; i < bytes; i += WIDE)
            if (taps->overshoots)
                resize_column_strip(from + i, bytes, w, taps->used[y], to + i, bytes - i, true);
            else
                resize_column_strip(from + i, bytes, w, taps->used[y], to + i, bytes - i, false);
    }
}
