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

/* Iterates over the registers of a vector, unrolled before GCC allocates registers. */
#define FOR_PARTS(v) _Pragma("GCC unroll 2") for (int v = 0; v < REGISTERS; v++)

ALWAYS sums load_part(const float *x, int v)
{
    return *(const loose_sums *)(x + (int64_t)v * SUMS);
}

/* Returns the sum of all lanes, in the order of sum_lanes_by_halving(). */
ALWAYS float sum_registers(const registers *r)
{
    registers all = *r;
    for (int across = REGISTERS / 2; across; across /= 2)
        for (int v = 0; v < across; v++)
            all.part[v] += all.part[v + across];
    float number[SUMS];
    memcpy(number, all.part, sizeof number);
    return sum_by_halving(number, SUMS);
}

/* Computes some rows of y = a x: the diagonal block of LANES rows is stored whole; elements of the upper half are used
 * twice. */
ALWAYS void symmetric_row_group(const float *a, int64_t step, int64_t i, int64_t n, const float *x,
                                float *y)
{
    const int64_t block = i - i % LANES;
    registers sum[REDUCE_ROWS];
    sums factor[REDUCE_ROWS];
    for (int r = 0; r < REDUCE_ROWS; r++) {
        FOR_PARTS(v)
        sum[r].part[v] = load_part(a + (i + r) * step + block, v) * load_part(x + block, v);
        factor[r] = x[i + r] - (sums){0};
    }
    for (int64_t c = block + LANES; c < n; c += LANES)
        FOR_PARTS(v)
        {
            const sums right = load_part(x + c, v);
            sums lower = load_part(y + c, v);
            _Pragma("GCC unroll 8") for (int r = 0; r < REDUCE_ROWS; r++)
            {
                const sums here = load_part(a + (i + r) * step + c, v);
                sum[r].part[v] = fused(here, right, sum[r].part[v]);
                lower = fused(here, factor[r], lower);
            }
            *(loose_sums *)(y + c + (int64_t)v * SUMS) = lower;
        }
    for (int r = 0; r < REDUCE_ROWS; r++)
        y[i + r] += sum_registers(&sum[r]);
}

/* Multiplies by a symmetric matrix: y = a x, a [n,n], of which the upper half is stored. */
static void symmetric_product(const float *a, int64_t step, int64_t n, const float *x, float *y)
{
    memset(y, 0, (size_t)n * sizeof *y);
    for (int64_t i = 0; i < n; i += REDUCE_ROWS)
        symmetric_row_group(a, step, i, n, x, y);
}

/* Computes the dot products of `rows` rows, a constant in all calls, with y. */
ALWAYS void dot_row_group(const float *x, int64_t step, int rows, int64_t n, const float *y,
                          float *dot)
{
    registers sum[4] = {{{{0}}}};
    for (int64_t c = 0; c < n; c += LANES)
        FOR_PARTS(v)
        {
            const sums right = load_part(y + c, v);
            _Pragma("GCC unroll 4") for (int k = 0; k < rows; k++) sum[k].part[v] =
                fused(load_part(x + k * step + c, v), right, sum[k].part[v]);
        }
    for (int k = 0; k < rows; k++)
        dot[k] = sum_registers(&sum[k]);
}

/* Computes dot products of rows with y: dot[r] = row r . y. */
static void rows_dot(const float *x, int64_t step, int64_t rows, int64_t n, const float *y,
                     float *dot)
{
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4)
        dot_row_group(x + r * step, step, 4, n, y, dot + r);
    for (; r < rows; r++)
        dot_row_group(x + r * step, step, 1, n, y, dot + r);
}

/* Subtracts rows: y -= sum over r of factor[r] times row r. */
static void rows_subtract(const float *x, int64_t step, int64_t rows, int64_t n,
                          const float *factor, float *y)
{
    for (int64_t c = 0; c < n; c += 2 * SUMS) {
        sums low = load_part(y + c, 0), high = load_part(y + c, 1);
        for (int64_t r = 0; r < rows; r++) {
            const sums f = -factor[r] - (sums){0};
            low = fused(load_part(x + r * step + c, 0), f, low);
            high = fused(load_part(x + r * step + c, 1), f, high);
        }
        *(loose_sums *)(y + c) = low;
        *(loose_sums *)(y + c + SUMS) = high;
    }
}

#endif
