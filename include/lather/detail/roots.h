/** Inverse roots or eigenbases of batches of symmetric positive semidefinite matrices. */
#ifndef LATHER_DETAIL_ROOTS_H
#define LATHER_DETAIL_ROOTS_H

/* Not a stable interface: may change in any release. */

#include "lather/detail/view.h"
#include "lather/shampoo.h"

/** Job of lt_root_run(): one matrix. Views are [n,n] contiguous and of the device's master dtype. */
typedef struct lt_root_job {
    lt_view a;       /**< input: symmetric, bias-corrected; damped and scaled in place */
    double exponent; /**< exponent e of A^(-e) */
    lt_view old;     /**< previous root or basis, the solver's start; data NULL: absent */
    lt_view out;     /**< A^(-e) or eigenvectors; unchanged unless status is LT_OK; may be old */
    lt_view power;   /**< [n]: eigenvalues^(-e), with LT_PRECONDITIONER_EIGENDECOMPOSED */

    const char *param; /**< parameter, block and dimension, for messages */
    int block, dim;
    void *owner; /**< the caller's; not read */

    lt_status status;    /**< out: LT_OK, or the reason of failure; other jobs are unaffected */
    lt_root_solver used; /**< out: the solver, or LT_ROOT_EIGH as its fallback */
    bool retried;        /**< out: solved in double */
    int iterations;      /**< out: iterations of the solver; 0 if not iterative */
    double residual;     /**< out: |R^p A - I| / sqrt(n) on random vectors, or of a basis before its
                              last iteration |offdiagonal of Q^T A Q| / |A|; < 0: not measured */
} lt_root_job;

/** Statistics, accumulated over calls. */
typedef struct lt_root_stats {
    int64_t matrices;
    int64_t retries;   /**< matrices solved in double */
    int64_t fallbacks; /**< matrices solved by LT_ROOT_EIGH instead of the solver */
    int64_t failures;  /**< matrices without a result */
    double residual;   /**< largest accepted residual */
} lt_root_stats;

typedef struct lt_root_context {
    const lt_shampoo_config *config; /**< epsilon and its rule, scaling, solver, preconditioner */
    lt_device *device;               /**< device of the views */
    int64_t step;                    /**< number of the step, for messages */
    lt_root_stats *stats;            /**< statistics to add to; may be NULL */
    const char *optim;               /**< name in messages; NULL: "shampoo" */
} lt_root_context;

/** Solves all jobs; equal sizes are batched. Keeps nothing between calls: with its own device it may run on
 *  another thread.
 *  Errors: LT_E_ARG (a matrix is not finite: names parameter, block, dimension and step), LT_E_NOMEM. A
 *  result that is not finite or not accurate enough fails its job only. */
LT_API LT_MUST_CHECK lt_status lt_root_run(const lt_root_context *context, lt_root_job *job,
                                           size_t count);

/** Checks that the config's solver supports the config; exponent: of a factor, or 0 for the settings alone.
 *  optim: name for messages. Errors: LT_E_ARG. */
LT_API LT_MUST_CHECK lt_status lt_root_check(const lt_shampoo_config *config, double exponent,
                                             const char *optim);

/** Returns the solver's name, such as "eigh", or NULL past the end. */
LT_API const char *lt_root_solver_name(int solver);

#endif
