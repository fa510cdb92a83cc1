/** Matrix kernels that a backend provides: products and inverse roots for Shampoo's factor matrices. */
#ifndef LATHER_DETAIL_MATRIX_KERNELS_H
#define LATHER_DETAIL_MATRIX_KERNELS_H

/* Not a stable interface: may change in any release. */

#include "lather/detail/entry.h"
#include "lather/detail/scalars.h"
#include "lather/detail/vec_kernels.h"

/* The jobs of one call are independent and may run in any order. */

/** f = beta * f + alpha * G_dim G_dim^T, a Gram matrix; G_dim: g unfolded along dim (the rows of the matrix). */
typedef struct lt_gram_job {
    lt_view g; /**< the array; any strides */
    lt_view f; /**< the Gram matrix [n,n], symmetric, contiguous */
    int dim;
    double alpha, beta;
    bool finite; /**< all of g is finite even if scalars->finite is 0 */
} lt_gram_job;
LT_ENTRY(gram, void *ctx, const lt_gram_job *job, size_t count, const lt_scalars *scalars);

/** Product of an array and a matrix: y[.., i, ..] = sum over j of m[i,j] * g[.., j, ..], i and j along dim. */
typedef struct lt_mode_product_job {
    lt_view g, y; /**< input and output; any strides, different memory */
    lt_view m;    /**< the matrix [n,n], contiguous */
    int dim;
    bool transpose; /**< multiply by the transpose, m[j,i] */
} lt_mode_product_job;
LT_ENTRY(mode_product, void *ctx, const lt_mode_product_job *job, size_t count,
         const lt_scalars *scalars);

/** out[i] = Frobenius norm of x[i] (any strides), summed in double in a fixed order. out: f64 [count] on the
 *  device. */
LT_ENTRY(frobenius, void *ctx, const lt_view *x, size_t count, const lt_view *out);

/** out[i] = Frobenius norm of the y that job[i] would compute, summed in double in a fixed order; beta of AXPBY
 *  and SQUARE must be 0. y's memory is not accessed and may be absent; only its dtype, shape and strides count.
 *  out: f64 [count] on the device, undefined in a skipped step. */
LT_ENTRY(vec_norms, void *ctx, const lt_vec_job *job, size_t count, const lt_view *out,
         const lt_scalars *scalars);

/** Eigendecomposition of a symmetric matrix: eigenvalues, ascending, and eigenvectors (in columns). */
typedef struct lt_eigh_job {
    lt_view a;        /**< input: matrix [n,n], contiguous */
    lt_view values;   /**< out: eigenvalues [n] */
    lt_view vectors;  /**< out: eigenvectors [n,n], contiguous */
    lt_status status; /**< out: LT_OK, or why this job failed; the others continue */
} lt_eigh_job;
LT_ENTRY(eigh, void *ctx, lt_eigh_job *job, size_t count);

/** Rational function: y = constant * I + sum over j of weight[j] * (a + shift[j] I)^(-1):
 *  a rational function of a symmetric matrix whose shifted forms are positive definite. */
enum { LT_MAX_POLES = 24 };
typedef struct lt_rational_job {
    lt_view a; /**< input: matrix [n,n], contiguous */
    lt_view y; /**< result [n,n] contiguous, in other memory; undefined unless status is LT_OK */
    int poles;
    double constant, weight[LT_MAX_POLES], shift[LT_MAX_POLES];
    /** Terms of f32 data with a smaller shift are computed in double; devices that may round factors to TF32 do
     *  so below 250 times that. */
    double wide_below;
    /** NULL, or device memory: s, the unit of all numbers above. With b = a / s the job is y = s^(-exponent) *
     *  (constant * I + sum over j of weight[j] * (b + shift[j] I)^(-1)). The host then reads nothing back:
     *  status is always LT_OK, and a failure sets the first element of y to NaN. y: f32 or f64. */
    const double *scale;
    double exponent;
    lt_status status; /**< out: LT_E_ARG if not positive definite; the others continue */
} lt_rational_job;
LT_ENTRY(rational, void *ctx, lt_rational_job *job, size_t count);

/** QR: q has the columns of a, orthonormalised one after the other, those with the largest
 *  a[j,j] first, each with a product >= 0 with its column of a. Columns keep their positions. */
typedef struct lt_qr_job {
    lt_view a; /**< input: matrix [n,n], contiguous */
    lt_view q; /**< out: orthonormal columns [n,n], contiguous, in other memory */
} lt_qr_job;
LT_ENTRY(qr, void *ctx, const lt_qr_job *job, size_t count);

/** *value = *bound times an estimate of the largest eigenvalue of a symmetric matrix B with eigenvalues in [0,
 *  1], by the Rayleigh-Ritz method: the largest eigenvalue of B restricted to the span of V = [X, B X], rounded
 *  up to a multiple of 2^-24. The diagonal of V^T V is multiplied by 1 + 1e-8, so that directions of pure
 *  rounding error do not contribute. *value is *bound if X is 0 or not finite. */
enum { LT_RITZ_VECTORS = 4, LT_RITZ_COLUMNS = 3 * LT_RITZ_VECTORS };
typedef struct lt_ritz_job {
    lt_view
        product; /**< f64 [parts,LT_RITZ_COLUMNS,LT_RITZ_COLUMNS], contiguous: parts that sum to Z^T Z of
                              Z = [X, B X, B^2 X], X of LT_RITZ_VECTORS columns */
    const double *bound; /**< factor of the estimate, in device memory; NULL: 1 */
    double *value;       /**< out: the estimate, in device memory */
} lt_ritz_job;
LT_ENTRY(ritz, void *ctx, const lt_ritz_job *job, size_t count);

/** List of the kernels above; columns as in detail/entry.h. */
#define LT_MATRIX_ENTRIES(X)    \
    X(gram, BASIC, OWN)         \
    X(mode_product, BASIC, OWN) \
    X(frobenius, BASIC, OWN)    \
    X(vec_norms, FUSED, NONE)   \
    X(eigh, BASIC, OWN)         \
    X(rational, BASIC, OWN)     \
    X(qr, BASIC, OWN)           \
    X(ritz, BASIC, REF)

#endif
