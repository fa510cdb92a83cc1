/** Elementwise operations on two tensors: differences, quotients, extremes, powers. */
#ifndef LATHER_OPS_ARITHMETIC_H
#define LATHER_OPS_ARITHMETIC_H

#include "lather/tape.h"

/* Here either operand is broadcast over the other, as in NumPy: aligned right, extents of 1 or absent
 * ones are repeated; [3,1] and [4] give [3,4]. y has the dtype of the operand that has y's shape, a's
 * if both or neither have it. Gradients are summed over what was broadcast. */

/**
 * Difference, elementwise.
 *
 *     y[i] = a[i] - b[i]
 *
 * Shapes  a, b broadcastable to each other -> y
 * Dtypes  any floating
 * Grads   a, b
 * Owns    the tape owns y
 * Errors  NULL, and lt_tape_status() says: LT_E_SHAPE, LT_E_NOMEM, LT_E_DEVICE
 * Source  Harris et al., "Array programming with NumPy", Nature 2020 (broadcasting)
 */
LT_API lt_tensor *lt_sub(lt_tape *tape, lt_tensor *a, lt_tensor *b);

/**
 * Quotient, elementwise; of 0 by 0 it is NaN, of others by 0 infinite.
 *
 *     y[i] = a[i] / b[i]
 *
 * Shapes  as lt_sub()
 * Dtypes  any floating
 * Grads   a, b
 * Owns    the tape owns y
 * Errors  NULL, and lt_tape_status() says: LT_E_SHAPE, LT_E_NOMEM, LT_E_DEVICE
 * Source  elementary
 */
LT_API lt_tensor *lt_div(lt_tape *tape, lt_tensor *a, lt_tensor *b);

/**
 * The larger of two, elementwise; NaN if either is. Where they are equal, each gets half of the
 * gradient.
 *
 *     y[i] = max(a[i], b[i])
 *
 * Shapes  as lt_sub()
 * Dtypes  any floating
 * Grads   a, b
 * Owns    the tape owns y
 * Errors  NULL, and lt_tape_status() says: LT_E_SHAPE, LT_E_NOMEM, LT_E_DEVICE
 * Source  elementary
 */
LT_API lt_tensor *lt_maximum(lt_tape *tape, lt_tensor *a, lt_tensor *b);

/**
 * The smaller of two, elementwise; NaN if either is. Where they are equal, each gets half of the
 * gradient.
 *
 *     y[i] = min(a[i], b[i])
 *
 * Shapes  as lt_sub()
 * Dtypes  any floating
 * Grads   a, b
 * Owns    the tape owns y
 * Errors  NULL, and lt_tape_status() says: LT_E_SHAPE, LT_E_NOMEM, LT_E_DEVICE
 * Source  elementary
 */
LT_API lt_tensor *lt_minimum(lt_tape *tape, lt_tensor *a, lt_tensor *b);

/**
 * Power, elementwise, with an exponent of its own for each element; lt_pow() takes one for all. The
 * gradient of a is 0 where b is 0, that of b where a is 0 and b >= 0.
 *
 *     y[i] = a[i]^b[i]
 *
 * Shapes  as lt_sub()
 * Dtypes  any floating
 * Grads   a, b
 * Owns    the tape owns y
 * Errors  NULL, and lt_tape_status() says: LT_E_SHAPE, LT_E_NOMEM, LT_E_DEVICE
 * Source  IEEE 754-2019, section 9.2.1 (pow: 0, infinities and NaN)
 */
LT_API lt_tensor *lt_pow_tensor(lt_tape *tape, lt_tensor *a, lt_tensor *b);

#endif
