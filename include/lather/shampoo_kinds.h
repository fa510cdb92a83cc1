/** Enumerations of Shampoo's options. */
#ifndef LATHER_SHAMPOO_KINDS_H
#define LATHER_SHAMPOO_KINDS_H

#include "lather/detail/name_regex.h"

typedef enum lt_grafting {
    LT_GRAFTING_NONE,
    LT_GRAFTING_SGD,
    LT_GRAFTING_ADAGRAD,
    LT_GRAFTING_RMSPROP,
    LT_GRAFTING_ADAM
} lt_grafting;

typedef enum lt_decay_type {
    LT_DECAY_DECOUPLED,  /**< decoupled weight decay: direction += wd * w */
    LT_DECAY_L2,         /**< weight decay as a gradient: gradient += wd * w */
    LT_DECAY_CORRECTED,  /**< scaled by lr / peak_lr: direction += wd * lr / peak_lr * w */
    LT_DECAY_INDEPENDENT /**< decoupled, independent of lr: direction += wd / peak_lr * w */
} lt_decay_type;

typedef enum lt_epsilon_rule {
    LT_EPSILON_BEFORE,         /**< damping before: decompose A + eps*I */
    LT_EPSILON_AFTER,          /**< damping after: decompose A, shift eigenvalues (the 2023 rule) */
    LT_EPSILON_PSEUDO_INVERSE, /**< no epsilon; small eigenvalues give 0 */
    LT_EPSILON_RELATIVE        /**< as EPSILON_AFTER, with eps times the largest eigenvalue */
} lt_epsilon_rule;

/** Representation of A^(-e) for each factor A = Q L Q^T. */
typedef enum lt_preconditioner {
    LT_PRECONDITIONER_ROOT,               /**< inverse root of each factor, stored as a matrix */
    LT_PRECONDITIONER_EIGENDECOMPOSED,    /**< inverse root, stored as Q and L */
    LT_PRECONDITIONER_CORRECTED,          /**< basis Q, with a second moment in it (SOAP) */
    LT_PRECONDITIONER_KL,                 /**< as ROOT; factors see the preconditioned gradient */
    LT_PRECONDITIONER_KL_EIGENDECOMPOSED, /**< as EIGENDECOMPOSED, with KL's factors */
    LT_PRECONDITIONER_KL_CORRECTED,       /**< as CORRECTED, with KL's factors (KL-SOAP) */
    LT_PRECONDITIONER_SPECTRAL, /**< no factors: orthogonal factor of the block's gradient */
    LT_PRECONDITIONER_SIGN      /**< no factors: the update is the signs of the gradient */
} lt_preconditioner;

/** Rule that scales the orthogonal factor of a [rows,cols] block. */
typedef enum lt_spectral_scale {
    LT_SPECTRAL_NONE,
    LT_SPECTRAL_ORIGINAL,       /**< sqrt(max(1, rows / cols)); cols / rows for [in,out] weights */
    LT_SPECTRAL_MATCH_RMS_ADAMW /**< 0.2 sqrt(max(rows, cols)), which gives AdamW's RMS */
} lt_spectral_scale;

/** Rule that scales the update of sign descent. */
typedef enum lt_sign_scale {
    LT_SIGN_NONE,
    LT_SIGN_L1 /**< the block's sum of magnitudes: steepest descent in the max norm */
} lt_sign_scale;

/** Algorithm for inverse roots or eigenbases. */
typedef enum lt_root_solver {
    LT_ROOT_EIGH,         /**< eigendecomposition of each matrix */
    LT_ROOT_NEWTON,       /**< coupled Newton iteration: Guo & Higham 2006; integer roots */
    LT_ROOT_HIGHER_ORDER, /**< coupled iteration with a truncated binomial series */
    LT_ROOT_NEWTON_DB,    /**< Newton-Denman-Beavers: roots 2 and 4 */
    LT_ROOT_QR,           /**< orthogonal iteration from the previous basis */
    LT_ROOT_RATIONAL      /**< a sum of shifted inverses: Hale, Higham & Trefethen 2008 */
} lt_root_solver;

/** Schedule of refreshes of inverse roots. */
typedef enum lt_refresh_timing {
    LT_REFRESH_REFERENCE, /**< all roots when t mod f == 0 or t == start, used at once */
    LT_REFRESH_STAGGERED, /**< all roots at start, then 1/f of the cost in every step */
    LT_REFRESH_ASYNC      /**< as REFERENCE, on another thread; used from step t + f on */
} lt_refresh_timing;

/** Reaction to more than tolerated_failures consecutive failed refreshes of a block. */
typedef enum lt_on_failure {
    LT_ON_FAILURE_ABORT,   /**< the step fails with an error */
    LT_ON_FAILURE_KEEP,    /**< the block keeps its old roots */
    LT_ON_FAILURE_DIAGONAL /**< the block uses powers of its factors' diagonals */
} lt_on_failure;

typedef enum lt_merge_order { LT_MERGE_BACKWARD, LT_MERGE_FORWARD } lt_merge_order;

/** Treatment of merged dimensions longer than max_preconditioner_dim. */
typedef enum lt_large_dims {
    LT_LARGE_DIMS_CUT,  /**< split into blocks of at most that length */
    LT_LARGE_DIMS_WHOLE /**< not split, without a factor: Vyas et al. 2024, section 4 */
} lt_large_dims;

#endif
