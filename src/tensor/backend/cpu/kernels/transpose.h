/* Sixteen vectors as the rows of a matrix, to its columns. */
#ifndef LT_BACKEND_CPU_KERNELS_TRANSPOSE_H
#define LT_BACKEND_CPU_KERNELS_TRANSPOSE_H

#include "simd.h"

/* One step of a transpose: of each two rows that are `apart` rows from each other, the numbers that low names and,
 * `behind` numbers further on, those of high. */
#define SWAP(row, apart, behind, ...)                                                             \
    for (int r = 0; r < LANES; r++)                                                               \
        if (!(r & (apart))) {                                                                     \
            const vec x = (row)[r], y = (row)[r | (apart)];                                       \
            (row)[r] = __builtin_shufflevector(x, y, __VA_ARGS__);                                \
            (row)[r | (apart)] = __builtin_shufflevector(x, y, SWAP_HIGH((behind), __VA_ARGS__)); \
        }
#define SWAP_HIGH(k, a, b, c, d, e, f, g, h, i, j, l, m, n, o, p, q)                        \
    (a) + (k), (b) + (k), (c) + (k), (d) + (k), (e) + (k), (f) + (k), (g) + (k), (h) + (k), \
        (i) + (k), (j) + (k), (l) + (k), (m) + (k), (n) + (k), (o) + (k), (p) + (k), (q) + (k)

/* Rows to columns, in place. Shuffles within quarters of a register, and of whole quarters, are the cheap ones; they
 * leave columns c of the first two steps in rows 0, 2, 1, 3, which the last lines put right. */
ALWAYS void transpose(vec row[LANES])
{
    SWAP(row, 1, 2, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29)
    SWAP(row, 2, 2, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29)
    SWAP(row, 4, 4, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27)
    SWAP(row, 8, 4, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27)
    for (int r = 0; r < LANES; r += 4) {
        const vec x = row[r + 1];
        row[r + 1] = row[r + 2];
        row[r + 2] = x;
    }
}

#endif
