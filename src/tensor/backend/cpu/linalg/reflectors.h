/* Products of Householder reflectors, applied to rows in blocks. */
#ifndef LT_BACKEND_CPU_REFLECTORS_H
#define LT_BACKEND_CPU_REFLECTORS_H

#include "tensor/backend/cpu/internal.h"

enum {
    LT_CPU_REFLECTOR_BLOCK = 2 * LT_CPU_REDUCE_BLOCK
}; /* reflectors applied together, at most */

/* Reflectors H_j = I - scale[j] v_j v_j^T in f32, on one thread. Vectors are zero-padded to `size` elements, a multiple
 * of LT_CPU_REDUCE_BLOCK; rows of matrices are `step` elements apart and 64-byte aligned. */
typedef struct lt_reflectors {
    const lt_cpu_kernels *kernels;
    int64_t n, size, step;
    int64_t
        offset; /* v_j is stored in row j of a from j + offset on, where it is 1; it is 0 before */
    const float *a, *scale;
    float *work; /* lt_reflectors_workspace_size(size) floats, 64-byte aligned */
} lt_reflectors;

int64_t lt_reflectors_workspace_size(int64_t size);

/* Computes v and scale such that (I - scale v v^T) x is zero past element `first`, and writes v to x from there on.
 * Returns that element. v: size floats. */
float lt_reflectors_make(const lt_cpu_kernels *kernels, float *x, int64_t first, int64_t n,
                         int64_t size, float *v, float *scale);

/* Multiplies `rows` rows of z by H_begin ... H_(end-1) from the right, or by H_(end-1) ... H_begin if reverse; at most
 * LT_CPU_REFLECTOR_BLOCK reflectors. */
void lt_reflectors_apply(const lt_reflectors *r, int64_t begin, int64_t end, bool reverse, float *z,
                         int64_t rows);

#endif
