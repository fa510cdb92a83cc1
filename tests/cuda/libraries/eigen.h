/* Eigenvalues, rising, and eigenvectors of one symmetric matrix by columns, of which only the lower
 * triangle counts: by the reference backend's solver. */
#ifndef LT_TESTS_STANDIN_EIGEN_H
#define LT_TESTS_STANDIN_EIGEN_H

#include "lather/detail/backend.h"

#include <cstring>
#include <vector>

static inline lt_view eigen_view(void *data, lt_dtype dtype, int ndim, int64_t n)
{
    lt_view v = {};
    v.data = data;
    v.dtype = dtype;
    v.shape.ndim = ndim;
    v.shape.dim[0] = v.shape.dim[1] = n;
    v.stride[0] = ndim == 2 ? n : 1;
    v.stride[1] = 1;
    return v;
}

/* The vectors become a's columns. 0, or 1 after a failure. */
template <class real> int loop_eigen(int64_t n, real *a, int64_t lda, real *values)
{
    const lt_dtype dtype = sizeof(real) == sizeof(double) ? LT_F64 : LT_F32;
    std::vector<real> copy((size_t)(n * n)), vectors((size_t)(n * n));
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < n; i++)
            copy[(size_t)(i * n + j)] = i >= j ? a[i + j * lda] : a[j + i * lda];
    lt_eigh_job job = {};
    job.a = eigen_view(copy.data(), dtype, 2, n);
    job.values = eigen_view(values, dtype, 1, n);
    job.vectors = eigen_view(vectors.data(), dtype, 2, n);
    const lt_status st = lt_backend_ref()->eigh(NULL, &job, 1);
    for (int64_t j = 0; j < n && !st && !job.status; j++)
        for (int64_t i = 0; i < n; i++)
            a[i + j * lda] = vectors[(size_t)(i * n + j)];
    return st || job.status;
}

#endif
