/* Products of a matrix X [rows,cols] with a few columns, and columns made orthonormal: what PowerSGD computes.
 * All arrays are row-major; P is [rows,rank], Q is [rank,cols]. Results do not depend on the number of threads,
 * so that ranks of any threads make the same bits of the same numbers. */
#ifndef LT_DIST_REDUCER_LOWRANK_H
#define LT_DIST_REDUCER_LOWRANK_H

#include <stdbool.h>
#include <stdint.h>

enum { LT_LOWRANK_MOST = 64 }; /* rank */

typedef struct lt_lowrank {
    float *x, *p, *q;
    int64_t rows, cols, rank;
} lt_lowrank;

/* P = X Q^T. */
void lt_lowrank_project(const lt_lowrank *m);
/* Q = P^T X. */
void lt_lowrank_back(const lt_lowrank *m);
/* X = P Q. */
void lt_lowrank_expand(const lt_lowrank *m);

/* The columns of p [rows,rank] made orthonormal one after the other. A column that depends on those before it
 * becomes 0; one that is not finite stays so. */
void lt_lowrank_orthonormalise(double *p, int64_t rows, int64_t rank);

/* Row k of q [rank,cols]: numbers of a normal distribution, of the parameter's name and k. */
void lt_lowrank_draw(double *q, int64_t cols, const char *name, int64_t k);
/* q as the next update's start: rows of length 1, and those that are 0 drawn anew. */
void lt_lowrank_warm(double *q, int64_t rank, int64_t cols, const char *name);

#endif
