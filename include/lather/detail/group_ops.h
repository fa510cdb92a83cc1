/** Differentiable collectives in conjugate pairs, and matrix products built from them. The loss is shared by all ranks: a
 *  tensor is replicated, sharded, or a partial sum. */
#ifndef LATHER_DETAIL_GROUP_OPS_H
#define LATHER_DETAIL_GROUP_OPS_H

/* Not a stable interface: may change in any release. */

#include "lather/detail/process_group.h"
#include "lather/tape.h"

/**
 * Identity whose gradient is summed over ranks: a replicated tensor enters computations that differ by rank.
 *
 *     y = x        dx = sum over ranks of dy
 *
 * Shapes  x [..] -> y like x
 * Dtypes  any floating; y has x's
 * Grads   x
 * Owns    the tape owns y; borrows the group
 * Errors  NULL, and lt_tape_status() says: LT_E_COMM, LT_E_NOMEM, LT_E_DEVICE
 * Source  Shoeybi et al., "Megatron-LM", 2019, section 3 (the function f)
 */
LT_API lt_tensor *lt_group_copy(lt_tape *tape, lt_tensor *x, lt_process_group *group);

/**
 * All-reduce: the sum over ranks, equal on all of them.
 *
 *     y = sum over ranks of x        dx = dy
 *
 * Shapes  x [..] -> y like x
 * Dtypes  any floating; y has x's
 * Grads   x
 * Owns    the tape owns y; borrows the group
 * Errors  NULL, and lt_tape_status() says: LT_E_COMM, LT_E_NOMEM, LT_E_DEVICE
 * Source  Shoeybi et al., "Megatron-LM", 2019, section 3 (the function g)
 */
LT_API lt_tensor *lt_group_allreduce(lt_tape *tape, lt_tensor *x, lt_process_group *group);

/**
 * All-gather of rows, in rank order.
 *
 *     y = rows of rank 0, rank 1, ..        dx = own rows of the sum over ranks of dy
 *
 * Shapes  x [lt_even_shard_size(rows, size, rank), ..] -> y [rows, ..]
 * Dtypes  any floating; y has x's
 * Grads   x
 * Owns    the tape owns y; borrows the group
 * Errors  NULL, and lt_tape_status() says: LT_E_SHAPE, LT_E_COMM, LT_E_NOMEM, LT_E_DEVICE
 * Source  Korthikanti et al., "Reducing activation recomputation in large transformer models", 2022,
 *         section 4.2.2
 */
LT_API lt_tensor *lt_group_allgather(lt_tape *tape, lt_tensor *x, lt_process_group *group,
                                     int64_t rows);

/**
 * Reduce-scatter: this rank's rows of the sum over ranks.
 *
 *     y = own rows of the sum over ranks of x        dx = rows of dy of rank 0, rank 1, ..
 *
 * Shapes  x [rows, ..], rows >= size -> y [lt_even_shard_size(rows, size, rank), ..]
 * Dtypes  any floating; y has x's
 * Grads   x
 * Owns    the tape owns y; borrows the group
 * Errors  NULL, and lt_tape_status() says: LT_E_SHAPE, LT_E_COMM, LT_E_NOMEM, LT_E_DEVICE
 * Source  Korthikanti et al., "Reducing activation recomputation in large transformer models", 2022,
 *         section 4.2.2
 */
LT_API lt_tensor *lt_group_reducescatter(lt_tape *tape, lt_tensor *x, lt_process_group *group);

/** Groups and sizes of a product on a 2-D grid with depth. */
typedef struct lt_summa_config {
    lt_process_group *row;    /**< the q ranks of this rank's row, by column */
    lt_process_group *column; /**< the q ranks of this rank's column, by row */
    lt_process_group *
        depth; /**< ranks with the same block of w; NULL: depth 1, or the caller sums dw and db over depth
                              when it averages gradients */
    int64_t in, out; /**< C and K of the whole w */
    bool whole; /**< do not overlap communication with products; results are bitwise identical */
} lt_summa_config;

/**
 * lt_linear() on a grid of q x q ranks with depth d. Rank (i, j, k) holds block (kq+i, j) of x and y, block (i, j) of w
 * (by inputs, by outputs) and block j of b, all split by lt_even_shard_size().
 *
 *     y(h,j) = b(j) + sum over t of x(h,t) w(t,j)         dx(h,t) = sum over j of dy(h,j) w(t,j)^T
 *     dw(t,j) = sum over h of x(h,t)^T dy(h,j)            db(j) = sum over h and rows of dy(h,j)
 *
 * Elements received by all ranks, with M rows in total: forward, dx and dw each (q-1)(MC + dCK), plus 2(d-1)CK for the
 * sum over depth. The transfer of step t+1's blocks overlaps with the product of step t.
 *
 * Shapes  x [M_h,C_j], w [K_j,C_i], b [K_j] or NULL -> y [M_h,K_j]
 * Dtypes  x, w of one of f32, f64; y has it
 * Grads   x, w, b
 * Owns    the tape owns y; borrows the groups
 * Errors  NULL, and lt_tape_status() says: LT_E_SHAPE, LT_E_UNSUPPORTED (dtype), LT_E_COMM, LT_E_NOMEM,
 *         LT_E_DEVICE
 * Source  van de Geijn & Watts, "SUMMA: scalable universal matrix multiplication algorithm", 1997;
 *         with depth: Wang et al., "2.5-dimensional distributed model training", 2021
 */
LT_API lt_tensor *lt_linear_summa(lt_tape *tape, lt_tensor *x, lt_tensor *w, lt_tensor *b,
                                  lt_summa_config config);

/**
 * Column-parallel linear layer with sequence parallelism: equals lt_group_allgather() followed by lt_linear() with this
 * rank's outputs, but overlaps communication: multiplies rows as they arrive, own rows first, and in backward sends rows
 * as soon as they are computed.
 * Shapes  x [lt_even_shard_size(rows, size, rank),C], w [K/size,C], b [K/size] or NULL -> y [rows,K/size]
 * Dtypes  any floating; y has x's
 * Grads   x, w, b
 * Owns    the tape owns y; borrows the group
 * Errors  NULL, and lt_tape_status() says: LT_E_SHAPE, LT_E_COMM, LT_E_NOMEM, LT_E_DEVICE
 * Source  Korthikanti et al., "Reducing activation recomputation in large transformer models", 2022
 */
LT_API lt_tensor *lt_linear_column_parallel(lt_tape *tape, lt_tensor *x, lt_tensor *w, lt_tensor *b,
                                            lt_process_group *group, int64_t rows);

/**
 * Row-parallel linear layer with sequence parallelism: equals lt_linear() with this rank's inputs followed by
 * lt_group_reducescatter(), with communication overlapped as in lt_linear_column_parallel().
 * Shapes  x [rows,C/size], rows >= size, w [K,C/size], b [K] (equal on all ranks) or NULL ->
 *         y [lt_even_shard_size(rows, size, rank),K]
 * Dtypes  any floating; y has x's
 * Grads   x, w, b
 * Owns    the tape owns y; borrows the group
 * Errors  NULL, and lt_tape_status() says: LT_E_SHAPE, LT_E_COMM, LT_E_NOMEM, LT_E_DEVICE
 * Source  Korthikanti et al., "Reducing activation recomputation in large transformer models", 2022
 */
LT_API lt_tensor *lt_linear_row_parallel(lt_tape *tape, lt_tensor *x, lt_tensor *w, lt_tensor *b,
                                         lt_process_group *group);

#endif
