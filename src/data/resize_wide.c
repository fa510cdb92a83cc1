/* The pass along rows of 3-channel pictures with vectors of 32 bytes, for CPUs that have them: two
 * source pixels at once. The same integers as in resize_kernel.c, so the same bits. */

#include "data/resize.h"

#include <string.h>

enum { HALF = 1 << (LT_RESIZE_BITS - 1) };

typedef int32_t int4 __attribute__((vector_size(16)));
typedef int32_t int8 __attribute__((vector_size(32)));
typedef uint8_t byte4 __attribute__((vector_size(4)));
typedef uint8_t byte16 __attribute__((vector_size(16)));
typedef uint8_t byte32 __attribute__((vector_size(32)));

enum { BLOCK = 16, PAIRS = 8 };

/* Puts two neighbouring pixels into the eight lanes of sum, each with a lane that is not looked at,
 * times the weights. Each byte is repeated over its lane and masked: one shuffle that every CPU
 * with 32-byte vectors has. */
static inline void add2(int8 *sum, const uint8_t *from, const int8 *weight)
{
    byte16 b;
    memcpy(&b, from, sizeof b);
    byte32 lanes =
        __builtin_shufflevector(b, b, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 19, 19, 19,
                                19, 20, 20, 20, 20, 21, 21, 21, 21, 21, 21, 21, 21);
    *sum += ((int8)lanes & 0xFF) * *weight;
}

static inline void spread(int8 *to, const int32_t *w)
{
    *to = (int8){w[0], w[0], w[0], w[0], w[1], w[1], w[1], w[1]};
}

/* One output pixel of `rows` rows; pairs: of weights. */
static inline __attribute__((always_inline)) void column3(const uint8_t *from, size_t stride,
                                                          int32_t rows, const int32_t *w,
                                                          int32_t pairs, uint8_t *to, size_t bytes)
{
    int8 weight[PAIRS];
    int32_t held = pairs < PAIRS ? pairs : PAIRS;
    for (int32_t j = 0; j < held; j++)
        spread(&weight[j], w + (size_t)2 * (size_t)j);
    for (int32_t y = 0; y < rows; y++, from += stride, to += bytes) {
        int8 sum = {HALF, HALF, HALF, HALF};
        for (int32_t j = 0; j < held; j++)
            add2(&sum, from + (size_t)6 * (size_t)j, &weight[j]);
        for (int32_t j = held; j < pairs; j++) {
            int8 one;
            spread(&one, w + (size_t)2 * (size_t)j);
            add2(&sum, from + (size_t)6 * (size_t)j, &one);
        }
        int4 both = __builtin_shufflevector(sum, sum, 0, 1, 2, 3)
                    + __builtin_shufflevector(sum, sum, 4, 5, 6, 7);
        byte4 b = __builtin_convertvector(both >> LT_RESIZE_BITS, byte4);
        memcpy(to, &b, 3);
    }
}

/* The common numbers of weights get loops of their own, with the weights in registers. */
static void block3(const uint8_t *src, size_t stride, int32_t rows, const lt_taps *t, uint8_t *dst)
{
    size_t bytes = (size_t)t->count * 3;
    for (int32_t i = 0; i < t->count; i++) {
        const int32_t *w = t->weight + (size_t)i * (size_t)t->width;
        const uint8_t *from = src + (size_t)t->first[i] * 3;
        uint8_t *to = dst + (size_t)i * 3;
        int32_t pairs = (t->used[i] + 1) / 2;
        if (pairs == 1)
            column3(from, stride, rows, w, 1, to, bytes);
        else if (pairs == 2)
            column3(from, stride, rows, w, 2, to, bytes);
        else if (pairs == 3)
            column3(from, stride, rows, w, 3, to, bytes);
        else
            column3(from, stride, rows, w, pairs, to, bytes);
    }
}

/* By blocks of rows, which stay in the cache while their columns are made. */
void lt_across_wide(const uint8_t *src, size_t stride, int32_t rows, const lt_taps *taps,
                    int channels, uint8_t *dst)
{
    size_t bytes = (size_t)taps->count * 3;
    if (channels != 3) {
        lt_across_avx2(src, stride, rows, taps, channels, dst);
        return;
    }
    for (int32_t y = 0; y < rows; y += BLOCK) {
        int32_t some = rows - y < BLOCK ? rows - y : BLOCK;
        block3(src + (size_t)y * stride, stride, some, taps, dst + (size_t)y * bytes);
    }
}
