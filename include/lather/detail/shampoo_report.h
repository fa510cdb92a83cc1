/** What Shampoo keeps, what it costs, and what its last step did. */
#ifndef LATHER_DETAIL_SHAMPOO_REPORT_H
#define LATHER_DETAIL_SHAMPOO_REPORT_H

/* Not a stable interface: may change in any release. */

#include "lather/shampoo.h"

/** A line per block for a table before training: what is kept and what it costs. */
typedef struct lt_shampoo_block {
    const char *param;
    int block;
    lt_shape shape;       /**< after merging and splitting */
    int factors;          /**< that have roots: matrices */
    int64_t factor_bytes; /**< of factors and roots */
    int64_t state_bytes;  /**< with moments, filter, momentum */
    double step_ns;       /**< modelled nanoseconds: factors, direction, update */
    double
        refresh_ns; /**< modelled nanoseconds of its roots, once in precondition_frequency steps */
    int owner;      /**< rank of the group that has it; 0 unless divided */
} lt_shampoo_block;
/** Block number index of an optimizer made by lt_optim_shampoo(). Errors: LT_E_ARG, LT_END. */
LT_API LT_MUST_CHECK lt_status lt_shampoo_block_at(const lt_optim *optim, size_t index,
                                                   lt_shampoo_block *out);

/** Its settings, defaults filled in; NULL: the optimizer is another one. Owns: the optimizer. */
LT_API const lt_shampoo_config *lt_shampoo_settings(const lt_optim *optim);

/** What the last step did on this rank; zeros, but for root_age, if it was skipped. */
typedef struct lt_shampoo_stats {
    double factor_seconds, root_seconds, apply_seconds, gather_seconds;
    double wait_seconds;   /**< for roots of LT_REFRESH_ASYNC that were late */
    double worker_seconds; /**< what those took that came into use, on their own thread */
    int64_t roots;         /**< matrices whose new roots came into use */
    int64_t retries;       /**< of them, again in double */
    int64_t failures;      /**< of them, without a new root */
    int64_t root_age;      /**< steps since the factors of the oldest root in use */
} lt_shampoo_stats;
/** Zeros if the optimizer is another one. */
LT_API lt_shampoo_stats lt_shampoo_statistics(const lt_optim *optim);

#endif
