/* Products of rows with a vector, for the reduction of a symmetric matrix to a tridiagonal one. Counts are
 * multiples of LT_CPU_REDUCE_BLOCK, and rows lie at 64 bytes. */
#ifndef LT_BACKEND_CPU_KERNELS_TRIDIAGONAL_H
#define LT_BACKEND_CPU_KERNELS_TRIDIAGONAL_H

#include "simd.h"

/* Rows at once: a sum of each stays in a register, and a factor. */
#if defined(__AVX512F__)
enum { REDUCE_ROWS = 8 };
#else
enum { REDUCE_ROWS = 4 };
#endif

ALWAYS vec lanes_at(const float *x)
{
    return *(const loose_vec *)x;
}

/* Some rows of y = a x: the block on the diagonal is whole, of the others the upper half counts twice. */
ALWAYS void symmetric_group(const float *a, int64_t step, int64_t i, int64_t n, const float *x,
                            float *y)
{
    const int64_t behind = i - i % LANES + LANES;
    vec sum[REDUCE_ROWS], factor[REDUCE_ROWS];
    for (int r = 0; r < REDUCE_ROWS; r++) {
        sum[r] = lanes_at(a + (i + r) * step + behind - LANES) * lanes_at(x + behind - LANES);
        factor[r] = vec_set(x[i + r]);
    }
    for (int64_t c = behind; c < n; c += LANES) {
        const vec right = lanes_at(x + c);
        vec below = lanes_at(y + c);
        for (int r = 0; r < REDUCE_ROWS; r++) {
            const vec here = lanes_at(a + (i + r) * step + c);
            sum[r] = multiply_add(here, right, sum[r]);
            below = multiply_add(here, factor[r], below);
        }
        *(loose_vec *)(y + c) = below;
    }
    for (int r = 0; r < REDUCE_ROWS; r++)
        y[i + r] += add_across(sum[r]);
}

/* y = a x, a symmetric [n,n] with its upper half in place. */
static void symmetric_product(const float *a, int64_t step, int64_t n, const float *x, float *y)
{
    memset(y, 0, (size_t)n * sizeof *y);
    for (int64_t i = 0; i < n; i += REDUCE_ROWS)
        symmetric_group(a, step, i, n, x, y);
}

/* dot[r] = row r times y. */
static void rows_dot(const float *x, int64_t step, int64_t rows, int64_t n, const float *y,
                     float *dot)
{
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4) {
        vec sum[4] = {{0}};
        for (int64_t c = 0; c < n; c += LANES) {
            const vec right = lanes_at(y + c);
            for (int k = 0; k < 4; k++)
                sum[k] = multiply_add(lanes_at(x + (r + k) * step + c), right, sum[k]);
        }
        for (int k = 0; k < 4; k++)
            dot[r + k] = add_across(sum[k]);
    }
    for (; r < rows; r++) {
        vec sum = {0};
        for (int64_t c = 0; c < n; c += LANES)
            sum = multiply_add(lanes_at(x + r * step + c), lanes_at(y + c), sum);
        dot[r] = add_across(sum);
    }
}

/* y -= sum over r of factor[r] times row r. */
static void rows_subtract(const float *x, int64_t step, int64_t rows, int64_t n,
                          const float *factor, float *y)
{
    for (int64_t c = 0; c < n; c += 2 * LANES) {
        vec low = lanes_at(y + c), high = lanes_at(y + c + LANES);
        for (int64_t r = 0; r < rows; r++) {
            const vec f = vec_set(-factor[r]);
            low = multiply_add(lanes_at(x + r * step + c), f, low);
            high = multiply_add(lanes_at(x + r * step + c + LANES), f, high);
        }
        *(loose_vec *)(y + c) = low;
        *(loose_vec *)(y + c + LANES) = high;
    }
}

#endif
