/** Inverse roots, or eigenbases, of many symmetric positive semidefinite matrices at once. */
#ifndef LATHER_DETAIL_ROOTS_H
#define LATHER_DETAIL_ROOTS_H

/* Not a stable interface: may change in any release. */

#include "lather/detail/view.h"
#include "lather/shampoo.h"

/** One matrix. Views are [n,n] contiguous and of the device's master dtype. */
typedef struct lt_root_job {
    lt_view a;       /**< symmetric, its bias corrected; damping and scaling are added in place */
    double exponent; /**< e of A^(-e) */
    lt_view old;     /**< the last root or basis, where a solver begins; data NULL: none */
    lt_view out;   /**< A^(-e), or the eigenvectors; as it was unless status is LT_OK. May be old */
    lt_view power; /**< [n]: eigenvalues^(-e), with LT_PRECONDITIONER_EIGENDECOMPOSED */

    const char *param; /**< parameter, block and dimension: for messages */
    int block, dim;

    lt_status status;    /**< out: LT_OK, or why there is nothing new; the others go on */
    lt_root_solver used; /**< out: the solver, or LT_ROOT_EIGH where that had to step in */
    bool retried;        /**< out: solved in double */
    int iterations;      /**< out: of the solver; 0 if it has none */
    double residual;     /**< out: |R^p A - I| / sqrt(n) on random vectors, or of a basis
                              |offdiagonal of Q^T A Q| / |A|; < 0: not measured */
} lt_root_job;

/** What happened, added up over calls. */
typedef struct lt_root_stats {
    int64_t matrices;
    int64_t retries;   /**< of them, solved in double */
    int64_t fallbacks; /**< of them, by LT_ROOT_EIGH instead of the solver */
    int64_t failures;  /**< of them, without a result */
    double residual;   /**< the largest that was measured and accepted */
} lt_root_stats;

typedef struct lt_root_context {
    const lt_shampoo_config *config; /**< epsilon and its rule, scaling, solver, preconditioner */
    lt_device *device;               /**< where the views are */
    int64_t step;                    /**< for messages */
    lt_root_stats *stats;            /**< may be NULL */
} lt_root_context;

/** Solves all jobs; equal sizes are worked on together. Keeps nothing between calls: with a device
 *  of its own it may run on another thread. Errors: LT_E_ARG (a matrix is not finite:
 *  parameter, block, dimension and step are named), LT_E_NOMEM. A result that is not finite is the
 *  job's failure, as one that is too far off. */
LT_API LT_MUST_CHECK lt_status lt_root_run(const lt_root_context *context, lt_root_job *job,
                                           size_t count);

/** Whether the config's solver can do what the config asks for; exponent: of a factor, or 0 for
 *  the settings alone. Errors: LT_E_ARG. */
LT_API LT_MUST_CHECK lt_status lt_root_check(const lt_shampoo_config *config, double exponent);

/** "eigh", "newton", ...; NULL past the end. */
LT_API const char *lt_root_solver_name(int solver);

#endif
