/** Elementwise operations, sums, and changes of dtype. */
#ifndef LATHER_OPS_MATH_H
#define LATHER_OPS_MATH_H

#include "lather/tape.h"

/**
 * Sum, elementwise; a and b are broadcast as in NumPy: [3,1] and [4] give [3,4].
 *
 *     y[i] = a[i] + b[i]
 *
 * Shapes  a, b broadcastable to each other -> y
 * Dtypes  any floating; y has the dtype of the operand with y's shape, a's if both or neither have it
 * Grads   a, b (summed over broadcast dimensions)
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_SHAPE, LT_E_NOMEM, LT_E_DEVICE
 * Source  Harris et al., "Array programming with NumPy", Nature 2020 (broadcasting)
 */
LT_API lt_tensor *lt_add(lt_tape *tape, lt_tensor *a, lt_tensor *b);

/**
 * Product, elementwise.
 *
 *     y[i] = a[i] * b[i]
 *
 * Shapes  as lt_add()
 * Dtypes  as lt_add()
 * Grads   a, b (summed over broadcast dimensions)
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_SHAPE, LT_E_NOMEM, LT_E_DEVICE
 * Source  elementary
 */
LT_API lt_tensor *lt_mul(lt_tape *tape, lt_tensor *a, lt_tensor *b);

/**
 * Product with a number.
 *
 *     y[i] = factor * x[i]
 *
 * Shapes  x [..] -> y like x
 * Dtypes  any floating; y has x's
 * Grads   x
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_NOMEM, LT_E_DEVICE
 * Source  elementary
 */
LT_API lt_tensor *lt_scale(lt_tape *tape, lt_tensor *x, double factor);

/**
 * Rectifier; the gradient at 0 is 0. NaN remains NaN, and its gradient is 0 (PyTorch passes it on), because
 * fused kernels save one bit per value: whether it is above 0.
 *
 *     y[i] = max(x[i], 0)
 *
 * Shapes  x [..] -> y like x
 * Dtypes  any floating; y has x's
 * Grads   x
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_NOMEM, LT_E_DEVICE
 * Source  Nair & Hinton, "Rectified linear units improve restricted Boltzmann machines", 2010
 */
LT_API lt_tensor *lt_relu(lt_tape *tape, lt_tensor *x);

/** Dimensions to reduce. */
typedef struct lt_reduce_config {
    unsigned dims; /**< bit d set: sum over dimension d; 0: over all */
    bool keep;     /**< keep summed dimensions, with size 1 */
} lt_reduce_config;

/**
 * Sum over some dimensions or all.
 *
 *     y[j] = sum over the chosen dimensions of x
 *
 * Shapes  x [..] -> y without the chosen dimensions (size 1 if config.keep); [] for all
 * Dtypes  any floating; y has x's, or the master dtype if it is a scalar
 * Grads   x
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_ARG, LT_E_NOMEM, LT_E_DEVICE
 * Source  elementary
 */
LT_API lt_tensor *lt_sum(lt_tape *tape, lt_tensor *x, lt_reduce_config config);

/**
 * Mean over some dimensions or all.
 *
 *     y[j] = mean over the chosen dimensions of x
 *
 * Shapes  as lt_sum()
 * Dtypes  as lt_sum()
 * Grads   x
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_ARG, LT_E_NOMEM, LT_E_DEVICE
 * Source  elementary
 */
LT_API lt_tensor *lt_mean(lt_tape *tape, lt_tensor *x, lt_reduce_config config);

/**
 * Zeroes each element with probability p and scales the others, if the pass has dropout set.
 *
 *     y[i] = x[i] * [u[i] >= p] / (1 - p)    u[i] uniform in [0,1), from the pass's random stream
 *
 * Shapes  x [..] -> y like x
 * Dtypes  any floating; y has x's
 * Grads   x
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_ARG (p not in [0,1)), LT_E_NOMEM, LT_E_DEVICE
 * Source  Srivastava et al., "Dropout", JMLR 2014, section 10 (inverted scaling)
 */
LT_API lt_tensor *lt_dropout(lt_tape *tape, lt_tensor *x, double p);

/**
 * Stochastic depth: zeroes whole samples with probability p and scales the others, if the pass has
 * dropout set. Apply it to the branch of a residual block, before the addition.
 *
 *     y[n,..] = x[n,..] * [u[n] >= p] / (1 - p)    u[n] uniform in [0,1), from the pass's stream
 *
 * Shapes  x [N,..] -> y like x
 * Dtypes  any floating; y has x's
 * Grads   x
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_ARG (p not in [0,1)), LT_E_SHAPE (no dimension),
 *         LT_E_NOMEM, LT_E_DEVICE
 * Source  Huang et al., "Deep networks with stochastic depth", ECCV 2016, section 3
 */
LT_API lt_tensor *lt_drop_path(lt_tape *tape, lt_tensor *x, double p);

/**
 * Conversion to another dtype, rounded to nearest even.
 *
 *     y[i] = (dtype)x[i]
 *
 * Shapes  x [..] -> y like x
 * Dtypes  any -> any; x itself is returned if it already has this dtype
 * Grads   x (floating to floating)
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_NOMEM, LT_E_DEVICE
 * Source  IEEE 754-2019, section 4.3.1
 */
LT_API lt_tensor *lt_cast(lt_tape *tape, lt_tensor *x, lt_dtype dtype);

#endif
