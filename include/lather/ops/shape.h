/** Changes of shape, order and memory format; slices, concatenation and expansion. */
#ifndef LATHER_OPS_SHAPE_H
#define LATHER_OPS_SHAPE_H

#include "lather/tape.h"

/**
 * The same elements in row-major order of logical indices, under another shape. One size of -1 is
 * inferred. Returns a view if strides allow it, else a copy.
 *
 *     y[j] = x[i]  with equal row-major rank of i and j
 *
 * Shapes  x [..] -> y [shape], equal counts
 * Dtypes  any; y has x's
 * Grads   x
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_SHAPE, LT_E_NOMEM, LT_E_DEVICE
 * Source  elementary
 */
LT_API lt_tensor *lt_reshape(lt_tape *tape, lt_tensor *x, lt_shape shape);

/**
 * lt_reshape() that merges all dimensions after the first.
 * Shapes  x [N,..] -> y [N,rest]
 * Dtypes  any; y has x's
 * Grads   x
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_SHAPE, LT_E_NOMEM, LT_E_DEVICE
 * Source  elementary
 */
LT_API lt_tensor *lt_flatten(lt_tape *tape, lt_tensor *x);

/**
 * The same values in another memory format. Convolutions, poolings and batch norms convert an input that is
 * not channels-last: convert it once before several of them.
 *
 *     y[i] = x[i]  with equal logical indices
 *
 * Shapes  x [..], 4-D for LT_FORMAT_CHANNELS_LAST -> y like x
 * Dtypes  any; y has x's; x itself is returned if it already has the format
 * Grads   x
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_SHAPE, LT_E_NOMEM, LT_E_DEVICE
 * Source  PyTorch's Tensor.to(memory_format=...)
 */
LT_API lt_tensor *lt_to_format(lt_tape *tape, lt_tensor *x, lt_memory_format format);

/**
 * Reorders dimensions: PyTorch's permute(), as a row-major copy; without a copy if the storage order does
 * not change.
 *
 *     y[i_0, .., i_n-1] = x[..]  where index i_k of y is index order[k] of x
 *
 * Shapes  x [..], order: each of its dimensions once -> y, dim[k] = x.dim[order[k]]
 * Dtypes  any; y has x's
 * Grads   x
 * Owns    the tape owns y; order is read
 * Errors  NULL; lt_tape_status() returns LT_E_ARG, LT_E_NOMEM, LT_E_DEVICE
 * Source  elementary
 */
LT_API lt_tensor *lt_permute(lt_tape *tape, lt_tensor *x, const int *order);

/**
 * A range of indices along a dimension, negative ones counting from the end: PyTorch's narrow(), as a
 * row-major copy.
 *
 *     y[.., i, ..] = x[.., start + i, ..],  0 <= i < count
 *
 * Shapes  x [..] -> y like x, but of size count in dimension dim
 * Dtypes  any; y has x's
 * Grads   x
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_ARG, LT_E_NOMEM, LT_E_DEVICE
 * Source  elementary
 */
LT_API lt_tensor *lt_slice(lt_tape *tape, lt_tensor *x, int dim, int64_t start, int64_t count);

/**
 * Embeds x in a larger tensor whose other rows are filled: the inverse of lt_slice() along dimension 0.
 *
 *     y[first + i, ..] = x[i, ..], fill in the other rows
 *
 * Shapes  x [n,..], first + n <= rows -> y [rows,..]
 * Dtypes  any; y has x's
 * Grads   x
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_SHAPE, LT_E_NOMEM, LT_E_DEVICE
 * Source  elementary
 */
LT_API lt_tensor *lt_pad_rows(lt_tape *tape, lt_tensor *x, int64_t first, int64_t rows,
                              double fill);

/**
 * Concatenates tensors along a dimension; a negative one counts from the end.
 *
 *     y[.., start_k + i, ..] = x_k[.., i, ..],  start_k the sum of the sizes before k
 *
 * Shapes  x_k [..], equal except in dimension dim; 1 to LT_MAX_INPUTS (7) of them -> y, sizes summed
 * Dtypes  any; y has that of x_0; the others are converted
 * Grads   all
 * Owns    the tape owns y; the array is read
 * Errors  NULL; lt_tape_status() returns LT_E_SHAPE, LT_E_ARG, LT_E_NOMEM, LT_E_DEVICE
 * Source  elementary
 */
LT_API lt_tensor *lt_concat(lt_tape *tape, lt_tensor *const *x, int count, int dim);

/**
 * Repeats dimensions of size 1 and prepends dimensions: PyTorch's expand(), as a copy. The gradient is the
 * sum over the copies.
 *
 *     y[i] = x[i], with index 0 where x's size is 1
 *
 * Shapes  x [..], whose sizes, aligned right, are 1 or shape's -> y [shape]
 * Dtypes  any; y has x's
 * Grads   x
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_SHAPE, LT_E_NOMEM, LT_E_DEVICE
 * Source  elementary
 */
LT_API lt_tensor *lt_expand(lt_tape *tape, lt_tensor *x, lt_shape shape);

#endif
