/* In-register transpose of sixteen vectors. */
#ifndef LT_BACKEND_CPU_KERNELS_TRANSPOSE_H
#define LT_BACKEND_CPU_KERNELS_TRANSPOSE_H

#include "simd.h"

/* One step of a transpose: replaces each two rows at distance `apart` by two shuffles of them; the second takes the
 * elements `high` positions after the first's. */
#define SWAP(row, apart, high, ...)                                                             \
    for (int r = 0; r < SUMS; r++)                                                              \
        if (!(r & (apart))) {                                                                   \
            const sums x = (row)[r], y = (row)[r | (apart)];                                    \
            (row)[r] = __builtin_shufflevector(x, y, __VA_ARGS__);                              \
            (row)[r | (apart)] = __builtin_shufflevector(x, y, SWAP_HIGH((high), __VA_ARGS__)); \
        }

/* Transposes SUMS x SUMS in place. Uses the cheap shuffles, within quarters of sixteen bytes and of whole quarters,
 * which leave columns in rows 0, 2, 1, 3; transpose_register() swaps them. */
#if defined(__AVX512F__)
#define SWAP_HIGH(k, a, b, c, d, e, f, g, h, i, j, l, m, n, o, p, q)                        \
    (a) + (k), (b) + (k), (c) + (k), (d) + (k), (e) + (k), (f) + (k), (g) + (k), (h) + (k), \
        (i) + (k), (j) + (k), (l) + (k), (m) + (k), (n) + (k), (o) + (k), (p) + (k), (q) + (k)
ALWAYS void transpose_with_swapped_rows(sums row[SUMS])
{
    SWAP(row, 1, 2, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
    SWAP(row, 2, 2, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
    SWAP(row, 4, 4, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
    SWAP(row, 8, 4, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
}
#elif defined(__aarch64__)
#define SWAP_HIGH(k, a, b, c, d) (a) + (k), (b) + (k), (c) + (k), (d) + (k)
ALWAYS void transpose_with_swapped_rows(sums row[SUMS])
{
    SWAP(row, 1, 2, 0, 4, 1, 5);
    SWAP(row, 2, 2, 0, 1, 4, 5);
}
#else
#define SWAP_HIGH(k, a, b, c, d, e, f, g, h) \
    (a) + (k), (b) + (k), (c) + (k), (d) + (k), (e) + (k), (f) + (k), (g) + (k), (h) + (k)
ALWAYS void transpose_with_swapped_rows(sums row[SUMS])
{
    SWAP(row, 1, 2, 0, 8, 1, 9, 4, 12, 5, 13);
    SWAP(row, 2, 2, 0, 1, 8, 9, 4, 5, 12, 13);
    SWAP(row, 4, 4, 0, 1, 2, 3, 8, 9, 10, 11);
}
#endif

ALWAYS void transpose_register(sums row[SUMS])
{
    transpose_with_swapped_rows(row);
    for (int r = 0; r < SUMS; r += 4) {
        const sums x = row[r + 1];
        row[r + 1] = row[r + 2];
        row[r + 2] = x;
    }
}

/* Transposes LANES rows at the offsets `at` of x to rows of y, `step` floats apart. */
ALWAYS void transpose_square(const float *x, const int64_t at[LANES], float *y, int64_t step)
{
    for (int i = 0; i < LANES; i += SUMS)
        for (int j = 0; j < LANES; j += SUMS) {
            sums row[SUMS];
            for (int r = 0; r < SUMS; r++)
                row[r] = *(const loose_sums *)(x + at[i + r] + j);
            transpose_register(row);
            for (int r = 0; r < SUMS; r++)
                *(loose_sums *)(y + (j + r) * step + i) = row[r];
        }
}

/* Transposes sixteen vectors in place. */
ALWAYS void transpose(vec row[LANES])
{
#if defined(__AVX512F__)
    transpose_register(row);
#else
    float from[LANES * LANES];
    int64_t at[LANES];
    for (int r = 0; r < LANES; r++)
        at[r] = (int64_t)r * LANES;
    memcpy(from, row, sizeof from);
    transpose_square(from, at, (float *)row, LANES);
#endif
}

#endif
