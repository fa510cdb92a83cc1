/** What Shampoo keeps, what it costs, and what its last step did. */
#ifndef LATHER_SHAMPOO_REPORT_H
#define LATHER_SHAMPOO_REPORT_H

#include "lather/shampoo.h"

/** A line per block for a table before training: what is kept and what it costs. */
typedef struct lt_shampoo_block {
    const char *param;
    int block;
    lt_shape shape;       /**< after merging and splitting */
    int64_t factor_bytes; /**< of factors and roots */
} lt_shampoo_block;
/** Block number index of an optimizer made by lt_optim_shampoo(). Errors: LT_E_ARG, LT_END. */
LT_API LT_MUST_CHECK lt_status lt_shampoo_block_at(const lt_optim *optim, size_t index,
                                                   lt_shampoo_block *out);

/** What the last step did on this rank. */
typedef struct lt_shampoo_stats {
    double factor_seconds, root_seconds, apply_seconds, gather_seconds;
    int64_t roots;    /**< matrices refreshed */
    int64_t retries;  /**< of them, again in double */
    int64_t failures; /**< of them, without a new root */
} lt_shampoo_stats;
LT_API lt_shampoo_stats lt_shampoo_statistics(const lt_optim *optim);

#endif
