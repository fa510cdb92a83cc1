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

#endif
