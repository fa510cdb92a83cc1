/** The same elements under another shape or in another order, parts of tensors, and repetition. */
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

/**
 * Dimensions in another order: PyTorch's permute(), as a row-major copy (none where the order in memory
 * stays).
 *
 *     y[i_0, .., i_n-1] = x[..]  where index i_k of y is index order[k] of x
 *
 * Shapes  x [..], order: each of its dimensions once -> y, dim[k] = x.dim[order[k]]
 * Dtypes  any; y has x's
 * Grads   x
 * Owns    the tape owns y; order is read
 * Errors  NULL, and lt_tape_status() says: LT_E_ARG, LT_E_NOMEM, LT_E_DEVICE
 * Source  elementary
 */
LT_API lt_tensor *lt_permute(lt_tape *tape, lt_tensor *x, const int *order);

/**
 * Some neighbours along a dimension, which counts from the end if it is negative: PyTorch's narrow(),
 * as a row-major copy.
 *
 *     y[.., i, ..] = x[.., start + i, ..],  0 <= i < count
 *
 * Shapes  x [..] -> y like it, but with count in dimension dim
 * Dtypes  any; y has x's
 * Grads   x
 * Owns    the tape owns y
 * Errors  NULL, and lt_tape_status() says: LT_E_ARG, LT_E_NOMEM, LT_E_DEVICE
 * Source  elementary
 */
LT_API lt_tensor *lt_slice(lt_tape *tape, lt_tensor *x, int dim, int64_t start, int64_t count);

/**
 * x as some rows of a larger tensor, whose others are filled: the opposite of lt_slice() of dimension 0.
 *
 *     y[first + i, ..] = x[i, ..], fill in the other rows
 *
 * Shapes  x [n,..], first + n <= rows -> y [rows,..]
 * Dtypes  any; y has x's
 * Grads   x
 * Owns    the tape owns y
 * Errors  NULL, and lt_tape_status() says: LT_E_SHAPE, LT_E_NOMEM, LT_E_DEVICE
 * Source  elementary
 */
LT_API lt_tensor *lt_pad_rows(lt_tape *tape, lt_tensor *x, int64_t first, int64_t rows,
                              double fill);

/**
 * Tensors one behind the other along a dimension, which counts from the end if it is negative.
 *
 *     y[.., start_k + i, ..] = x_k[.., i, ..],  start_k the sum of the extents before k
 *
 * Shapes  x_k [..], equal but in dimension dim; 1 to LT_MAX_INPUTS (7) of them -> y, extents summed
 * Dtypes  any; y has x_0's, to which the others are converted
 * Grads   all
 * Owns    the tape owns y; the array is read
 * Errors  NULL, and lt_tape_status() says: LT_E_SHAPE, LT_E_ARG, LT_E_NOMEM, LT_E_DEVICE
 * Source  elementary
 */
LT_API lt_tensor *lt_concat(lt_tape *tape, lt_tensor *const *x, int count, int dim);

/**
 * Extents of 1 repeated, and dimensions put in front: PyTorch's expand(), as a copy. The gradient is
 * the sum over the copies.
 *
 *     y[i] = x[i], where x's extent is 1: x[0]
 *
 * Shapes  x [..], whose extents, aligned right, are 1 or shape's -> y [shape]
 * Dtypes  any; y has x's
 * Grads   x
 * Owns    the tape owns y
 * Errors  NULL, and lt_tape_status() says: LT_E_SHAPE, LT_E_NOMEM, LT_E_DEVICE
 * Source  elementary
 */
LT_API lt_tensor *lt_expand(lt_tape *tape, lt_tensor *x, lt_shape shape);

#endif
