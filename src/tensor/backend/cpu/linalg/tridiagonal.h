/* Factorisation of a symmetric matrix as Q T Q^T, T tridiagonal. */
#ifndef LT_BACKEND_CPU_TRIDIAGONAL_H
#define LT_BACKEND_CPU_TRIDIAGONAL_H

#include "tensor/backend/cpu/internal.h"

/* One matrix [n,n] in f32, on one thread. It is stored as `size` rows of `step` elements, zero-padded past n. */
typedef struct lt_tridiagonal {
    const lt_cpu_kernels *kernels;
    int64_t n, size, step;
    int64_t tridiagonal_rows; /* count of leading rows; T is diagonal after them */
    int64_t reflectors;       /* number of reflectors in a */
    float *a; /* input: the matrix; output: row j holds reflector j, from j + 1 on */
    float *diagonal, *off_diagonal,
        *scale;     /* diagonals of T; off_diagonal[j] is (j, j + 1). scale: of reflectors */
    float *z;       /* row vectors, which lt_tridiagonal_apply_q() multiplies with Q */
    double *value;  /* [n] eigenvalues of T by row of z */
    int64_t *order; /* [n] rows of z by rising eigenvalue */
    float *vectors, *packed; /* workspaces as large as a */
    float *work; /* lt_tridiagonal_workspace_size(size) floats, 64-byte aligned as the others */
} lt_tridiagonal;

static inline int64_t lt_tridiagonal_padded_size(int64_t n)
{
    return (n + LT_CPU_REDUCE_BLOCK - 1) / LT_CPU_REDUCE_BLOCK * LT_CPU_REDUCE_BLOCK;
}
int64_t lt_tridiagonal_workspace_size(int64_t size);

void lt_tridiagonal_reduce(lt_tridiagonal *t);
/* Writes T's eigenvalues to value and its eigenvectors to the rows of z. Returns false if it does not converge. */
bool lt_tridiagonal_solve(lt_tridiagonal *t);
void lt_tridiagonal_apply_q(const lt_tridiagonal *t);

#endif
