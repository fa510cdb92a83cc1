/** What Shampoo's settings choose among. */
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
    LT_DECAY_DECOUPLED,  /**< direction += wd * w */
    LT_DECAY_L2,         /**< gradient += wd * w */
    LT_DECAY_CORRECTED,  /**< direction += wd * lr / peak_lr * w */
    LT_DECAY_INDEPENDENT /**< direction += wd / peak_lr * w */
} lt_decay_type;

typedef enum lt_epsilon_rule {
    LT_EPSILON_BEFORE,         /**< decompose A + eps*I */
    LT_EPSILON_AFTER,          /**< decompose A, shift the eigenvalues (the 2023 rule) */
    LT_EPSILON_PSEUDO_INVERSE, /**< no eps; small eigenvalues give 0 */
    LT_EPSILON_RELATIVE        /**< as AFTER, with eps times the largest eigenvalue */
} lt_epsilon_rule;

/** What stands for A^(-e) of each factor A = Q L Q^T. */
typedef enum lt_preconditioner {
    LT_PRECONDITIONER_ROOT,               /**< the inverse root, kept as a matrix */
    LT_PRECONDITIONER_EIGENDECOMPOSED,    /**< the same, kept as Q and L */
    LT_PRECONDITIONER_CORRECTED,          /**< Q, with a second moment kept in its basis (SOAP) */
    LT_PRECONDITIONER_KL,                 /**< as ROOT; factors see the preconditioned gradient */
    LT_PRECONDITIONER_KL_EIGENDECOMPOSED, /**< as EIGENDECOMPOSED, with KL's factors */
    LT_PRECONDITIONER_SPECTRAL, /**< no factors: the orthogonal factor of the block, as a matrix */
    LT_PRECONDITIONER_SIGN      /**< no factors: signs */
} lt_preconditioner;

/** What an orthogonal factor of a [rows,cols] block is multiplied by. */
typedef enum lt_spectral_scale {
    LT_SPECTRAL_NONE,
    LT_SPECTRAL_ORIGINAL,       /**< sqrt(max(1, rows / cols)), of [in,out] weights cols / rows */
    LT_SPECTRAL_MATCH_RMS_ADAMW /**< 0.2 sqrt(max(rows, cols)) */
} lt_spectral_scale;

/** What signs are multiplied by. */
typedef enum lt_sign_scale {
    LT_SIGN_NONE,
    LT_SIGN_L1 /**< the block's sum of magnitudes: steepest descent in the largest element's norm */
} lt_sign_scale;

/** How inverse roots, or eigenbases, are computed. */
typedef enum lt_root_solver {
    LT_ROOT_EIGH,         /**< eigendecomposition */
    LT_ROOT_NEWTON,       /**< coupled Newton iteration: Guo & Higham 2006; integer roots */
    LT_ROOT_HIGHER_ORDER, /**< coupled iteration with a truncated binomial series */
    LT_ROOT_NEWTON_DB,    /**< Newton-Denman-Beavers: roots 2 and 4 */
    LT_ROOT_QR,           /**< orthogonal iteration from the last basis */
    LT_ROOT_RATIONAL      /**< a sum of shifted inverses: Hale, Higham & Trefethen 2008 */
} lt_root_solver;

/** When roots are computed and used. */
typedef enum lt_refresh_timing {
    LT_REFRESH_REFERENCE, /**< all when t mod f == 0 or t == start, used at once */
    LT_REFRESH_STAGGERED, /**< after a first time at start: in every step those of 1/f of the cost */
    LT_REFRESH_ASYNC      /**< as REFERENCE, on another thread; used from step t + f on */
} lt_refresh_timing;

/** What a block does when its roots fail more than tolerated_failures times in a row. */
typedef enum lt_on_failure {
    LT_ON_FAILURE_ABORT,   /**< the step fails */
    LT_ON_FAILURE_KEEP,    /**< goes on with its old roots */
    LT_ON_FAILURE_DIAGONAL /**< goes on with the powers of the factors' diagonals */
} lt_on_failure;

typedef enum lt_merge_order { LT_MERGE_BACKWARD, LT_MERGE_FORWARD } lt_merge_order;

/** What becomes of a merged dimension that is longer than max_preconditioner_dim. */
typedef enum lt_large_dims {
    LT_LARGE_DIMS_CUT,  /**< it is cut into blocks */
    LT_LARGE_DIMS_WHOLE /**< it stays whole and has no factor: Vyas et al. 2024, section 4 */
} lt_large_dims;

/** Parameters that are several joined ones, such as those of queries, keys and values. */
typedef struct lt_shampoo_split {
    lt_name_regex names;
    int dim;   /**< of the parameter; below 0: from the last one, -1 */
    int parts; /**< equal ones along it: parameters of their own to Shampoo */
} lt_shampoo_split;
enum { LT_MAX_SPLITS = 8 };

#endif
