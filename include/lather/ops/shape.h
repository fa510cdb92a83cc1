/** The same elements under another shape, or in another order in memory. */
#ifndef LATHER_OPS_SHAPE_H
#define LATHER_OPS_SHAPE_H

#include "lather/tape.h"

/**
 * The same elements in row-major order of logical indices, under another shape. One extent of
 * -1 is inferred. A view where strides allow it, else a copy.
 *     y[j] = x[i]  with equal row-major rank of i and j
 *
 * Shapes  x [..] -> y [shape], equal counts
 * Dtypes  any; y has x's
 * Grads   x
 * Owns    the tape owns y
 * Errors  NULL, and lt_tape_status() says: LT_E_SHAPE, LT_E_NOMEM, LT_E_DEVICE
 * Source  elementary
 */
LT_API lt_tensor *lt_reshape(lt_tape *tape, lt_tensor *x, lt_shape shape);

/**
 * lt_reshape() with everything after the first dimension merged.
 * Shapes  x [N,..] -> y [N,rest]
 * Dtypes  any; y has x's
 * Grads   x
 * Owns    the tape owns y
 * Errors  NULL, and lt_tape_status() says: LT_E_SHAPE, LT_E_NOMEM, LT_E_DEVICE
 * Source  elementary
 */
LT_API lt_tensor *lt_flatten(lt_tape *tape, lt_tensor *x);

/**
 * The same values in another order in memory. Convolutions, poolings and norms of images do this
 * with an input that is not channels-last: before several of them it is called once.
 *
 *     y[i] = x[i]  with equal logical indices
 *
 * Shapes  x [..], 4-D for LT_FORMAT_CHANNELS_LAST -> y like x
 * Dtypes  any; y has x's; x itself is returned when it lies so already
 * Grads   x
 * Owns    the tape owns y
 * Errors  NULL, and lt_tape_status() says: LT_E_SHAPE, LT_E_NOMEM, LT_E_DEVICE
 * Source  PyTorch's Tensor.to(memory_format=...)
 */
LT_API lt_tensor *lt_to_format(lt_tape *tape, lt_tensor *x, lt_memory_format format);

#endif
