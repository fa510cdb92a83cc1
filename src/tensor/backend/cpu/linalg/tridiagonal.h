/* A symmetric matrix as Q T Q^T, T tridiagonal. */
#ifndef LT_BACKEND_CPU_TRIDIAGONAL_H
#define LT_BACKEND_CPU_TRIDIAGONAL_H

#include "tensor/backend/cpu/internal.h"

/* One matrix [n,n] in f32, one thread. Rows have `step` elements and there are `size` of them, with zeros
 * behind n. */
typedef struct lt_tridiagonal {
    const lt_cpu_kernels *kernels;
    int64_t n, size, step;
    int64_t coupled;    /* T's first rows; behind them it is diagonal */
    int64_t reflectors; /* in a */
    float *a;           /* in: the matrix; then row j has reflector j, from j + 1 on */
    float *diagonal, *beside, *scale; /* of T: beside[j] is (j, j + 1); scale: of each reflector */
    float *z;    /* rows are vectors: lt_tridiagonal_turn() multiplies them with Q */
    float *work; /* lt_tridiagonal_work(size) floats, as all that is above */
} lt_tridiagonal;

static inline int64_t lt_tridiagonal_size(int64_t n)
{
    return (n + LT_CPU_REDUCE_BLOCK - 1) / LT_CPU_REDUCE_BLOCK * LT_CPU_REDUCE_BLOCK;
}
int64_t lt_tridiagonal_work(int64_t size);

void lt_tridiagonal_reduce(lt_tridiagonal *t);
void lt_tridiagonal_turn(const lt_tridiagonal *t);

#endif
