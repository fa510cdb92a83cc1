/** Reductions in addition to lt_sum() and lt_mean(), running sums, and the largest elements. */
#ifndef LATHER_OPS_REDUCE_H
#define LATHER_OPS_REDUCE_H

#include "lather/ops/math.h"

/**
 * Largest element over some dimensions or all; NaN if one is NaN. Equal largest elements share the gradient
 * evenly, as in PyTorch's amax(); for the gradient to the first one only: lt_topk() with k = 1.
 *
 *     y[j] = max over the chosen dimensions of x
 *
 * Shapes  as lt_sum()
 * Dtypes  as lt_sum()
 * Grads   x
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_ARG, LT_E_NOMEM, LT_E_DEVICE
 * Source  elementary
 */
LT_API lt_tensor *lt_amax(lt_tape *tape, lt_tensor *x, lt_reduce_config config);

/**
 * Smallest element, otherwise as lt_amax().
 *
 *     y[j] = min over the chosen dimensions of x
 *
 * Shapes  as lt_sum()
 * Dtypes  as lt_sum()
 * Grads   x
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_ARG, LT_E_NOMEM, LT_E_DEVICE
 * Source  elementary
 */
LT_API lt_tensor *lt_amin(lt_tape *tape, lt_tensor *x, lt_reduce_config config);

/**
 * Product. The gradient is right also where elements are 0.
 *
 *     y[j] = product over the chosen dimensions of x
 *
 * Shapes  as lt_sum()
 * Dtypes  as lt_sum()
 * Grads   x
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_ARG, LT_E_NOMEM, LT_E_DEVICE
 * Source  elementary
 */
LT_API lt_tensor *lt_prod(lt_tape *tape, lt_tensor *x, lt_reduce_config config);

/**
 * Logarithm of the sum of exponentials, without overflow.
 *
 *     y[j] = log(sum over the chosen dimensions of exp(x))
 *
 * Shapes  as lt_sum()
 * Dtypes  as lt_sum()
 * Grads   x
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_ARG, LT_E_NOMEM, LT_E_DEVICE
 * Source  elementary
 */
LT_API lt_tensor *lt_logsumexp(lt_tape *tape, lt_tensor *x, lt_reduce_config config);

/**
 * Variance; correction 1 (Bessel's, PyTorch's default) divides by one less than the number n of elements. NaN
 * if n = correction.
 *
 *     y[j] = sum of (x - mean)^2 / max(n - correction, 0) over the chosen dimensions
 *
 * Shapes  as lt_sum()
 * Dtypes  as lt_sum()
 * Grads   x
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_ARG, LT_E_NOMEM, LT_E_DEVICE
 * Source  Chan, Golub & LeVeque, "Algorithms for computing the sample variance", 1983 (two passes)
 */
LT_API lt_tensor *lt_var(lt_tape *tape, lt_tensor *x, lt_reduce_config config, double correction);

/**
 * Standard deviation, the square root of lt_var(). The gradient is 0 where it is 0.
 *
 *     y[j] = sqrt(sum of (x - mean)^2 / max(n - correction, 0))
 *
 * Shapes  as lt_sum()
 * Dtypes  as lt_sum()
 * Grads   x
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_ARG, LT_E_NOMEM, LT_E_DEVICE
 * Source  as lt_var()
 */
LT_API lt_tensor *lt_std(lt_tape *tape, lt_tensor *x, lt_reduce_config config, double correction);

/**
 * Sums of all elements up to each, along a dimension; a negative one counts from the end.
 *
 *     y[.., i, ..] = sum over j <= i of x[.., j, ..]
 *
 * Shapes  x [..], at least one dimension -> y like x
 * Dtypes  any floating; y has x's
 * Grads   x
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_ARG (dimension), LT_E_NOMEM, LT_E_DEVICE
 * Source  elementary
 */
LT_API lt_tensor *lt_cumsum(lt_tape *tape, lt_tensor *x, int dim);

/**
 * Logarithm of lt_softmax() over a dimension, a negative one counting from the end.
 *
 *     y[.., k, ..] = x[.., k, ..] - log(sum over j of exp(x[.., j, ..]))
 *
 * Shapes  x [..], at least one dimension -> y like x
 * Dtypes  any floating; y has x's
 * Grads   x
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_ARG (dimension), LT_E_NOMEM, LT_E_DEVICE
 * Source  as lt_softmax()
 */
LT_API lt_tensor *lt_log_softmax(lt_tape *tape, lt_tensor *x, int dim);

/**
 * The k largest elements of the last dimension, largest first, and their indices. NaN counts as larger than
 * any number; of equal elements the first is the larger. The gradient goes to the chosen elements.
 *
 *     y[.., j] = x[.., indices[.., j]]
 *
 * Shapes  x [..,K], 1 <= k <= K -> y [..,k], *indices [..,k]
 * Dtypes  x any floating; y has x's; indices i32
 * Grads   x
 * Owns    the tape owns y and *indices, which may be NULL
 * Errors  NULL; lt_tape_status() returns LT_E_ARG (k), LT_E_NOMEM, LT_E_DEVICE
 * Source  elementary
 */
LT_API lt_tensor *lt_topk(lt_tape *tape, lt_tensor *x, int64_t k, lt_tensor **indices);

/**
 * Index of the largest element of the last dimension, of equal ones the first; NaN counts as largest.
 *
 *     y[..] = the smallest k with x[.., k] = max over j of x[.., j]
 *
 * Shapes  x [..,K] -> y [..]
 * Dtypes  x any floating; y i32
 * Grads   none
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_ARG, LT_E_NOMEM, LT_E_DEVICE
 * Source  elementary
 */
LT_API lt_tensor *lt_argmax(lt_tape *tape, lt_tensor *x);

#endif
