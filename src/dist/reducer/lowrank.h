/* Kernels of PowerSGD: products of a matrix X [rows,cols] with low-rank factors, and orthonormalization of columns. All
 * arrays are row-major; P is [rows,rank], Q is [rank,cols]. Results do not depend on the number of threads, so that they
 * are bitwise identical on all ranks. */
#ifndef LT_DIST_REDUCER_LOWRANK_H
#define LT_DIST_REDUCER_LOWRANK_H

#include <stdbool.h>
#include <stdint.h>

enum { LT_LOWRANK_MAX_RANK = 64 };

typedef struct lt_lowrank {
    float *x, *p, *q;
    int64_t rows, cols, rank;
} lt_lowrank;

/* Computes the left factor P = X Q^T. */
void lt_lowrank_compute_p(const lt_lowrank *m);
/* Computes the right factor Q = P^T X. */
void lt_lowrank_compute_q(const lt_lowrank *m);
/* Computes the approximation X = P Q. */
void lt_lowrank_reconstruct(const lt_lowrank *m);

/* Orthonormalizes the columns of p [rows,rank] in order. A column that depends linearly on its predecessors becomes 0; a
 * column that is not finite remains so. */
void lt_lowrank_orthonormalize(double *p, int64_t rows, int64_t rank);

/* Prepares q as the next update's warm start: normalizes its rows, and redraws those that are 0. */
void lt_lowrank_warm_start(double *q, int64_t rank, int64_t cols, const char *name);

#endif
