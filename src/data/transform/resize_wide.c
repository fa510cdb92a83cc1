/* Row pass over 3-channel images with 32-byte vectors: two source pixels at a time. Uses the same integer arithmetic as
 * resize_kernel.c, so the results are bitwise identical. */

#include "data/transform/taps.h"

#include <string.h>

enum { HALF = 1 << (LT_RESIZE_BITS - 1) };

typedef int32_t int4 __attribute__((vector_size(16)));
typedef int32_t int8 __attribute__((vector_size(32)));
typedef uint8_t byte4 __attribute__((vector_size(4)));
typedef uint8_t byte16 __attribute__((vector_size(16)));
typedef uint8_t byte32 __attribute__((vector_size(32)));

enum { BLOCK = 16, PAIRS = 8 };

/* Adds two adjacent pixels times their weights to the eight elements of sum; the fourth element of each pixel is
 * unused. Each byte is repeated in its element and masked: a single shuffle on CPUs with 32-byte vectors. */
static inline void add_two_pixels(int8 *sum, const uint8_t *from, const int8 *weight)
{
    byte16 b;
    memcpy(&b, from, sizeof b);
    byte32 spread_out =
        __builtin_shufflevector(b, b, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 19, 19, 19,
                                19, 20, 20, 20, 20, 21, 21, 21, 21, 21, 21, 21, 21);
    *sum += ((int8)spread_out & 0xFF) * *weight;
}

static inline void broadcast_weights(int8 *to, const int32_t *w)
{
    *to = (int8){w[0], w[0], w[0], w[0], w[1], w[1], w[1], w[1]};
}

static inline int4 round_to_levels(int4 sum, bool clamp)
{
    int4 x = sum >> LT_RESIZE_BITS;
    if (clamp) {
        x &= ~(x < 0);
        int4 over = x > 255;
        x = (x & ~over) | (over & 255);
    }
    return x;
}

/* Rows of the input and the output. */
typedef struct rows_of {
    const uint8_t *from;
    uint8_t *to;
    size_t stride, bytes;
    int32_t count;
} rows_of;

/* Computes one output pixel of each row; pairs: number of pairs of weights. */
static inline __attribute__((always_inline)) void resize_output_column(rows_of r, const int32_t *w,
                                                                       int32_t pairs, bool clamp)
{
    int8 weight[PAIRS];
    int32_t held = pairs < PAIRS ? pairs : PAIRS;
    for (int32_t j = 0; j < held; j++)
        broadcast_weights(&weight[j], w + (size_t)2 * (size_t)j);
    for (int32_t y = 0; y < r.count; y++, r.from += r.stride, r.to += r.bytes) {
        int8 sum = {HALF, HALF, HALF, HALF};
        for (int32_t j = 0; j < held; j++)
            add_two_pixels(&sum, r.from + (size_t)6 * (size_t)j, &weight[j]);
        for (int32_t j = held; j < pairs; j++) {
            int8 one;
            broadcast_weights(&one, w + (size_t)2 * (size_t)j);
            add_two_pixels(&sum, r.from + (size_t)6 * (size_t)j, &one);
        }
        int4 both = __builtin_shufflevector(sum, sum, 0, 1, 2, 3)
                    + __builtin_shufflevector(sum, sum, 4, 5, 6, 7);
        byte4 b = __builtin_convertvector(round_to_levels(both, clamp), byte4);
        memcpy(r.to, &b, 3);
    }
}

/* Row pass over a block of rows. With a constant number of weights, the compiler keeps them in registers. */
static void resize_row_block(const uint8_t *src, size_t stride, int32_t rows, const lt_taps *t,
                             uint8_t *dst)
{
    for (int32_t i = 0; i < t->count; i++) {
        const int32_t *w = t->weight + (size_t)i * (size_t)t->width;
        rows_of r = {.from = src + (size_t)t->first[i] * 3,
                     .to = dst + (size_t)i * 3,
                     .stride = stride,
                     .bytes = (size_t)t->count * 3,
                     .count = rows};
        int32_t pairs = (t->used[i] + 1) / 2;
        if (t->overshoots)
            resize_output_column(r, w, pairs, true);
        else if (pairs == 1)
            resize_output_column(r, w, 1, false);
        else if (pairs == 2)
            resize_output_column(r, w, 2, false);
        else if (pairs == 3)
            resize_output_column(r, w, 3, false);
        else
            resize_output_column(r, w, pairs, false);
    }
}

/* Processes blocks of rows that fit into the cache. */
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
        resize_row_block(src + (size_t)y * stride, stride, some, taps, dst + (size_t)y * bytes);
    }
}
