/** Selection of elements by masks and indices. */
#ifndef LATHER_OPS_INDEX_H
#define LATHER_OPS_INDEX_H

#include "lather/tape.h"

/**
 * Elements of a where the mask is not 0, else of b; all are broadcast to each other. Elements that are not
 * chosen have gradient 0.
 *
 *     y[i] = mask[i] ? a[i] : b[i]
 *
 * Shapes  mask, a, b broadcastable to each other -> y
 * Dtypes  mask u8; a, b any floating; y has a's
 * Grads   a, b
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_SHAPE, LT_E_NOMEM, LT_E_DEVICE
 * Source  elementary
 */
LT_API lt_tensor *lt_where(lt_tape *tape, lt_tensor *mask, lt_tensor *a, lt_tensor *b);

/**
 * Replaces the elements of x where the mask, which is broadcast to x, is not 0.
 *
 *     y[i] = mask[i] ? value : x[i]
 *
 * Shapes  x [..], mask broadcastable to x -> y like x
 * Dtypes  mask u8; x any floating; y has x's
 * Grads   x
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_SHAPE, LT_E_NOMEM, LT_E_DEVICE
 * Source  elementary
 */
LT_API lt_tensor *lt_masked_fill(lt_tape *tape, lt_tensor *x, lt_tensor *mask, double value);

/**
 * Picks elements along a dimension, a negative one counting from the end. The gradient of an element is summed
 * over its occurrences in ascending order.
 *
 *     y[.., i, ..] = x[.., index[.., i, ..], ..]
 *
 * Shapes  x [..], index: as many dimensions, sizes of the others at most x's -> y like index
 * Dtypes  x any floating; y has x's; index i32
 * Grads   x
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_SHAPE, LT_E_ARG (dimension; on host devices an index
 *         outside 0..size-1: the first, by value and place), LT_E_NOMEM, LT_E_DEVICE
 * Source  elementary
 */
LT_API lt_tensor *lt_gather(lt_tape *tape, lt_tensor *x, int dim, lt_tensor *index);

/**
 * Adds elements of src to x at indices along a dimension: the gradient of lt_gather().
 *
 *     y = x, to which each src[.., i, ..] is added at y[.., index[.., i, ..], ..]
 *
 * Shapes  x [..], index: as many dimensions, sizes of the others at most x's; src like index -> y like x
 * Dtypes  x, src any floating; y has x's; index i32
 * Grads   x, src
 * Owns    the tape owns y
 * Errors  as lt_gather()
 * Source  elementary
 */
LT_API lt_tensor *lt_scatter_add(lt_tape *tape, lt_tensor *x, int dim, lt_tensor *index,
                                 lt_tensor *src);

/**
 * Slices of x along a dimension, by indices; one may occur several times.
 *
 *     y[.., i, ..] = x[.., index[i], ..]
 *
 * Shapes  x [..], index [n] -> y like x, but of size n in the dimension
 * Dtypes  as lt_gather()
 * Grads   x
 * Owns    the tape owns y
 * Errors  as lt_gather()
 * Source  elementary
 */
LT_API lt_tensor *lt_index_select(lt_tape *tape, lt_tensor *x, int dim, lt_tensor *index);

/**
 * The same values as a constant: no gradient passes. Shares the memory of x.
 *
 *     y[i] = x[i]
 *
 * Shapes  x [..] -> y like x
 * Dtypes  any; y has x's
 * Grads   none
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_NOMEM, LT_E_DEVICE
 * Source  elementary
 */
LT_API lt_tensor *lt_detach(lt_tape *tape, lt_tensor *x);

#endif
