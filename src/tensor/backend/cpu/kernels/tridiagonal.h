/* Products of rows with a vector, for the tridiagonal reduction. Counts are multiples of LT_CPU_REDUCE_BLOCK; rows are
 * 64-byte aligned. */
#ifndef LT_BACKEND_CPU_KERNELS_TRIDIAGONAL_H
#define LT_BACKEND_CPU_KERNELS_TRIDIAGONAL_H

#include "simd.h"

/* Rows processed together: a sum and a factor of each are in registers. */
#if defined(__AVX512F__)
enum { REDUCE_ROWS = 8 };
#else
enum { REDUCE_ROWS = 4 };
#endif

ALWAYS sums load_floats(const float *x)
{
    return *(const loose_sums *)x;
}

ALWAYS float sum_floats(sums s)
{
    float number[SUMS];
    memcpy(number, &s, sizeof s);
    return sum_by_halving(number, SUMS);
}

/* Computes some rows of y = a x: the diagonal block is stored whole; elements of the upper half are used twice. */
ALWAYS void symmetric_row_group(const float *a, int64_t step, int64_t i, int64_t n, const float *x,
                                float *y)
{
    const int64_t next_block = i - i % SUMS + SUMS;
    sums sum[REDUCE_ROWS], factor[REDUCE_ROWS];
    for (int r = 0; r < REDUCE_ROWS; r++) {
        sum[r] = load_floats(a + (i + r) * step + next_block - SUMS)
                 * load_floats(x + next_block - SUMS);
        factor[r] = x[i + r] - (sums){0};
    }
    for (int64_t c = next_block; c < n; c += SUMS) {
        const sums right = load_floats(x + c);
        sums lower = load_floats(y + c);
        for (int r = 0; r < REDUCE_ROWS; r++) {
            const sums here = load_floats(a + (i + r) * step + c);
            sum[r] += here * right;
            lower += here * factor[r];
        }
        *(loose_sums *)(y + c) = lower;
    }
    for (int r = 0; r < REDUCE_ROWS; r++)
        y[i + r] += sum_floats(sum[r]);
}

/* Multiplies by a symmetric matrix: y = a x, a [n,n], of which the upper half is stored. */
static void symmetric_product(const float *a, int64_t step, int64_t n, const float *x, float *y)
{
    memset(y, 0, (size_t)n * sizeof *y);
    for (int64_t i = 0; i < n; i += REDUCE_ROWS)
        symmetric_row_group(a, step, i, n, x, y);
}

/* Computes dot products of rows with y: dot[r] = row r . y. */
static void rows_dot(const float *x, int64_t step, int64_t rows, int64_t n, const float *y,
                     float *dot)
{
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4) {
        sums sum[4] = {{0}};
        for (int64_t c = 0; c < n; c += SUMS) {
            const sums right = load_floats(y + c);
            for (int k = 0; k < 4; k++)
                sum[k] += load_floats(x + (r + k) * step + c) * right;
        }
        for (int k = 0; k < 4; k++)
            dot[r + k] = sum_floats(sum[k]);
    }
    for (; r < rows; r++) {
        sums sum = {0};
        for (int64_t c = 0; c < n; c += SUMS)
            sum += load_floats(x + r * step + c) * load_floats(y + c);
        dot[r] = sum_floats(sum);
    }
}

/* Subtracts rows: y -= sum over r of factor[r] times row r. */
static void rows_subtract(const float *x, int64_t step, int64_t rows, int64_t n,
                          const float *factor, float *y)
{
    for (int64_t c = 0; c < n; c += 2 * SUMS) {
        sums low = load_floats(y + c), high = load_floats(y + c + SUMS);
        for (int64_t r = 0; r < rows; r++) {
            const sums f = -factor[r] - (sums){0};
            low += load_floats(x + r * step + c) * f;
            high += load_floats(x + r * step + c + SUMS) * f;
        }
        *(loose_sums *)(y + c) = low;
        *(loose_sums *)(y + c + SUMS) = high;
    }
}

#endif
