/* The two passes of resize.c, in plain C with vector types; compiled once for any CPU and once for
 * AVX2, under the name that meson gives.
 *
 * Sums need no clamping: the weights of a triangle are not negative and add up to 2^22 + k with
 * |k| at most half their number, so that with 255 in every pixel the sum is below 255.5 * 2^22. */

#include "data/resize.h"

#include <string.h>

enum { HALF = 1 << (LT_RESIZE_BITS - 1) };

typedef int32_t int4 __attribute__((vector_size(16)));
typedef uint8_t byte4 __attribute__((vector_size(4)));

static inline int4 load4(const uint8_t *from)
{
    byte4 b;
    memcpy(&b, from, sizeof b);
    return __builtin_convertvector(b, int4);
}

/* A pixel with the byte behind it as a fourth channel, which the next pixel overwrites. */
static void across3(const uint8_t *src, const lt_taps *t, uint8_t *dst)
{
    for (int32_t i = 0; i < t->count; i++) {
        const int32_t *w = t->weight + (size_t)i * (size_t)t->width;
        const uint8_t *from = src + (size_t)t->first[i] * 3;
        int4 sum = {HALF, HALF, HALF, HALF};
        for (int32_t j = 0; j < t->used[i]; j++)
            sum += load4(from + (size_t)j * 3) * w[j];
        byte4 b = __builtin_convertvector(sum >> LT_RESIZE_BITS, byte4);
        memcpy(dst + (size_t)i * 3, &b, sizeof b);
    }
}

static void across1(const uint8_t *src, const lt_taps *t, uint8_t *dst)
{
    for (int32_t i = 0; i < t->count; i++) {
        const int32_t *w = t->weight + (size_t)i * (size_t)t->width;
        int32_t sum = HALF;
        for (int32_t j = 0; j < t->used[i]; j++)
            sum += src[t->first[i] + j] * w[j];
        dst[i] = (uint8_t)(sum >> LT_RESIZE_BITS);
    }
}

static void across(const uint8_t *src, size_t stride, int32_t rows, const lt_taps *taps,
                   int channels, uint8_t *dst)
{
    size_t bytes = (size_t)taps->count * (size_t)channels;
    for (size_t y = 0; y < (size_t)rows; y++)
        (channels == 3 ? across3 : across1)(src + y * stride, taps, dst + y * bytes);
}

/* One strip of a column pass, as wide as the registers hold. */
static inline void strip(const uint8_t *src, size_t bytes, const int32_t *w, int32_t used,
                         uint8_t *dst, size_t wide)
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
        out[i] = (uint8_t)(sum[i] >> LT_RESIZE_BITS);
    memcpy(dst, out, wide < WIDE ? wide : WIDE);
}

static void down(const uint8_t *src, size_t bytes, const lt_taps *taps, uint8_t *dst, size_t stride)
{
    enum { WIDE = 64 };
    for (int32_t y = 0; y < taps->count; y++) {
        const int32_t *w = taps->weight + (size_t)y * (size_t)taps->width;
        const uint8_t *from = src + (size_t)taps->first[y] * bytes;
        for (size_t i = 0; i < bytes; i += WIDE)
            strip(from + i, bytes, w, taps->used[y], dst + (size_t)y * stride + i, bytes - i);
    }
}

const lt_resize_kernels LT_RESIZE_NAME = {.across = across, .down = down};
