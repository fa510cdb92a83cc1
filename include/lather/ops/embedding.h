/** Embedding: rows of a table, selected by index. */
#ifndef LATHER_OPS_EMBEDDING_H
#define LATHER_OPS_EMBEDDING_H

#include "lather/tape.h"

/**
 * Rows of a table. The gradient of a row is summed over its occurrences in ascending order, bitwise
 * identical for any number of threads.
 *
 *     y[..,c] = w[ids[..], c]
 *
 * Shapes  ids [..] (at most 4 dimensions), w [V,C] -> y [..,C]
 * Dtypes  ids i32, w any floating; y of the pass's dtype
 * Grads   w
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_SHAPE, LT_E_ARG (on host devices, an id outside
 *         0..V-1), LT_E_NOMEM, LT_E_DEVICE
 * Source  Bengio et al., "A neural probabilistic language model", JMLR 3, 2003
 */
LT_API lt_tensor *lt_embedding(lt_tape *tape, lt_tensor *ids, lt_tensor *w);

/** Which rows of the table this rank holds. */
typedef struct lt_embedding_shard {
    int64_t first; /**< index of this rank's first row */
    int64_t count; /**< rows of the whole table */
} lt_embedding_shard;

/**
 * lt_embedding() of a table sharded by rows: a contribution; the sum over ranks is the result.
 *
 *     y[..,c] = w[ids[..] - first, c], or 0 if that is not a row of w
 *
 * Shapes  ids [..] (at most 4 dimensions), w [V_j,C] -> y [..,C]
 * Dtypes  ids i32, w any floating; y of the pass's dtype
 * Grads   w
 * Owns    the tape owns y
 * Errors  as lt_embedding() (an id outside 0..count-1), LT_E_UNSUPPORTED (device memory)
 * Source  Shoeybi et al., "Megatron-LM", 2019, section 3
 */
LT_API lt_tensor *lt_embedding_sharded(lt_tape *tape, lt_tensor *ids, lt_tensor *w,
                                       lt_embedding_shard part);

#endif
