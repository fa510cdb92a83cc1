/** Elementwise operations on two tensors, in addition to lt_add() and lt_mul(); broadcast as
 *  there. */
#ifndef LATHER_OPS_ARITHMETIC_H
#define LATHER_OPS_ARITHMETIC_H

#include "lather/tape.h"

/**
 * Difference, elementwise.
 *
 *     y[i] = a[i] - b[i]
 *
 * Shapes  as lt_add()
 * Dtypes  as lt_add()
 * Grads   a, b
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_SHAPE, LT_E_NOMEM, LT_E_DEVICE
 * Source  elementary
 */
LT_API lt_tensor *lt_sub(lt_tape *tape, lt_tensor *a, lt_tensor *b);

/**
 * Quotient, elementwise; 0/0 is NaN, other numbers divided by 0 are infinite.
 *
 *     y[i] = a[i] / b[i]
 *
 * Shapes  as lt_add()
 * Dtypes  as lt_add()
 * Grads   a, b
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_SHAPE, LT_E_NOMEM, LT_E_DEVICE
 * Source  elementary
 */
LT_API lt_tensor *lt_div(lt_tape *tape, lt_tensor *a, lt_tensor *b);

/**
 * The larger of two, elementwise; NaN if either is NaN. Equal operands get half of the
 * gradient each.
 *
 *     y[i] = max(a[i], b[i])
 *
 * Shapes  as lt_add()
 * Dtypes  as lt_add()
 * Grads   a, b
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_SHAPE, LT_E_NOMEM, LT_E_DEVICE
 * Source  elementary
 */
LT_API lt_tensor *lt_maximum(lt_tape *tape, lt_tensor *a, lt_tensor *b);

/**
 * The smaller of two, elementwise; NaN if either is NaN. Equal operands get half of the
 * gradient each.
 *
 *     y[i] = min(a[i], b[i])
 *
 * Shapes  as lt_add()
 * Dtypes  as lt_add()
 * Grads   a, b
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_SHAPE, LT_E_NOMEM, LT_E_DEVICE
 * Source  elementary
 */
LT_API lt_tensor *lt_minimum(lt_tape *tape, lt_tensor *a, lt_tensor *b);

/**
 * Power, elementwise, with one exponent per element; lt_pow() takes one for all. The gradient of a is
 * 0 where b is 0, that of b is 0 where a is 0 and b >= 0. The gradient of a is b a^(b - 1) as in
 * PyTorch, with b - 1 rounded: in f32 its error can be |log(a)| units in the last place.
 *
 *     y[i] = a[i]^b[i]
 *
 * Shapes  as lt_add()
 * Dtypes  as lt_add()
 * Grads   a, b
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_SHAPE, LT_E_NOMEM, LT_E_DEVICE
 * Source  IEEE 754-2019, section 9.2.1 (pow: 0, infinities and NaN)
 */
LT_API lt_tensor *lt_pow_tensor(lt_tape *tape, lt_tensor *a, lt_tensor *b);

#endif
