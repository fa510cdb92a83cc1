/** Shampoo's blocks with their state and cost, and statistics of its last step. */
#ifndef LATHER_DETAIL_SHAMPOO_REPORT_H
#define LATHER_DETAIL_SHAMPOO_REPORT_H

/* Not a stable interface: may change in any release. */

#include "lather/shampoo.h"

/** A block: its state and its cost. */
typedef struct lt_shampoo_block {
    const char *param;
    int block;
    lt_shape shape;       /**< dimensions after merging and splitting */
    int factors;          /**< number of factors that are matrices */
    int64_t factor_bytes; /**< bytes of factors and roots */
    int64_t state_bytes;  /**< bytes of all state */
    double step_ns;       /**< modelled nanoseconds of a step without refresh */
    double refresh_ns;    /**< modelled nanoseconds of a refresh of its roots */
    int owner;            /**< rank of the group that owns it; 0 unless sharded */
} lt_shampoo_block;
/** Describes block number index of an optimizer made by lt_optim_shampoo(). Errors: LT_E_ARG, LT_END. */
LT_API LT_MUST_CHECK lt_status lt_shampoo_block_at(const lt_optim *optim, size_t index,
                                                   lt_shampoo_block *out);

/** Returns Shampoo's config with defaults resolved, or NULL for another optimizer. Owns: the optimizer. */
LT_API const lt_shampoo_config *lt_shampoo_settings(const lt_optim *optim);

/** Statistics of the last step on this rank; zeros, except root_age, if it was skipped. */
typedef struct lt_shampoo_stats {
    double factor_seconds, root_seconds, apply_seconds, gather_seconds;
    double wait_seconds;   /**< time that the step waited for late roots of LT_REFRESH_ASYNC */
    double worker_seconds; /**< worker thread's time for the roots that were swapped in */
    int64_t roots;         /**< matrices whose new roots came into use */
    int64_t retries;       /**< number of these that were solved again in double */
    int64_t failures;      /**< matrices without a new root */
    int64_t root_age;      /**< steps since the factors of the oldest root in use */
} lt_shampoo_stats;
/** Returns the statistics; zeros for another optimizer. */
LT_API lt_shampoo_stats lt_shampoo_statistics(const lt_optim *optim);

#endif
