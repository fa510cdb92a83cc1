/** The signatures of a backend's entries for inverse roots. */
#ifndef LATHER_EXT_ROOT_KERNELS_H
#define LATHER_EXT_ROOT_KERNELS_H

#include "lather/ext/view.h"

/* The jobs of one call are independent of each other and may run in any order. */

/** Eigenvalues, ascending, and eigenvectors (in columns) of a symmetric matrix. */
typedef struct lt_eigh_job {
    lt_view a;        /**< [n,n] contiguous; read */
    lt_view values;   /**< [n] */
    lt_view vectors;  /**< [n,n] contiguous */
    lt_status status; /**< out: LT_OK, or why this one failed; the others go on */
} lt_eigh_job;
typedef lt_status lt_eigh_fn(void *ctx, lt_eigh_job *job, size_t count);

/** y = constant * I + sum over j of weight[j] * (a + shift[j] I)^(-1): a rational function of a
 *  symmetric matrix whose shifted forms are positive definite. */
enum { LT_MAX_POLES = 24 };
typedef struct lt_rational_job {
    lt_view a; /**< [n,n] contiguous; read */
    lt_view y; /**< [n,n] contiguous, other memory; undefined unless status is LT_OK */
    int poles;
    double constant, weight[LT_MAX_POLES], shift[LT_MAX_POLES];
    double wide_below; /**< terms of f32 data with a smaller shift are computed in double */
    lt_status status;  /**< out: LT_E_ARG: not positive definite; the others go on */
} lt_rational_job;
typedef lt_status lt_rational_fn(void *ctx, lt_rational_job *job, size_t count);

/** q: the columns of a made orthonormal one after the other, those with the largest a[j,j] first, each
 *  with a product >= 0 with its column of a. Columns stay in their places. */
typedef struct lt_qr_job {
    lt_view a; /**< [n,n] contiguous; read */
    lt_view q; /**< [n,n] contiguous, other memory */
} lt_qr_job;
typedef lt_status lt_qr_fn(void *ctx, const lt_qr_job *job, size_t count);

/** k[i,j] = atan(2 s[i,j] / (s[j,j] - s[i,i])) / 2, in [-pi/4, pi/4] and antisymmetric: the rotation
 *  of the plane (i,j) that makes s[i,j] zero. k[i,j] is 0 where s[i,j] is. */
typedef struct lt_rotations_job {
    lt_view s; /**< [n,n] contiguous, symmetric but for rounding; its lower triangle is read */
    lt_view k; /**< [n,n] contiguous, other memory */
} lt_rotations_job;
typedef lt_status lt_rotations_fn(void *ctx, const lt_rotations_job *job, size_t count);

#endif
