/** Column- and row-parallel linear layers with all options: see lather/detail/group_ops.h. */
#ifndef LATHER_DETAIL_LINEAR_PARALLEL_H
#define LATHER_DETAIL_LINEAR_PARALLEL_H

/* Not a stable interface: may change in any release. */

#include "lather/detail/group_ops.h"

typedef struct lt_sequence_parallel_config {
    lt_process_group *group;
    int64_t rows; /**< rows of all ranks; lt_linear_row_parallel_as() takes them from x */
    bool in_out;  /**< w is stored as [in,out], as for lt_linear_as() */
    bool whole;   /**< does not overlap communication with products: the same bits */
} lt_sequence_parallel_config;

/**
 * lt_linear_column_parallel() with options for the storage of w and for overlap.
 * Shapes  x [lt_even_shard_size(rows, size, rank),C], w [K/size,C] or [C,K/size], b [K/size] or NULL ->
 *         y [rows,K/size]
 * Dtypes  any floating; y has x's
 * Grads   x, w, b
 * Owns    the tape owns y; borrows the group
 * Errors  NULL; lt_tape_status() returns LT_E_SHAPE, LT_E_COMM, LT_E_NOMEM, LT_E_DEVICE
 * Source  Korthikanti et al., "Reducing activation recomputation in large transformer models", 2022
 */
LT_API lt_tensor *lt_linear_column_parallel_as(lt_tape *tape, lt_tensor *x, lt_tensor *w,
                                               lt_tensor *b, lt_sequence_parallel_config config);

/**
 * lt_linear_row_parallel() with the same options.
 * Shapes  x [rows,C/size], rows >= size, w [K,C/size] or [C/size,K], b [K] (equal on all ranks) or NULL
 *         -> y [lt_even_shard_size(rows, size, rank),K]
 * Dtypes  any floating; y has x's
 * Grads   x, w, b
 * Owns    the tape owns y; borrows the group
 * Errors  NULL; lt_tape_status() returns LT_E_SHAPE, LT_E_COMM, LT_E_NOMEM, LT_E_DEVICE
 * Source  Korthikanti et al., "Reducing activation recomputation in large transformer models", 2022
 */
LT_API lt_tensor *lt_linear_row_parallel_as(lt_tape *tape, lt_tensor *x, lt_tensor *w, lt_tensor *b,
                                            lt_sequence_parallel_config config);

#endif
