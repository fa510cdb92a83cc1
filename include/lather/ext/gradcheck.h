/** Gradient check for a differentiable operation, by central differences. */
#ifndef LATHER_EXT_GRADCHECK_H
#define LATHER_EXT_GRADCHECK_H

#include "lather/tape.h"

/** Builds an output of any shape from the inputs, on the tape. It runs many times and must
 *  compute the same each time. Returns NULL on failure, with the reason in lt_tape_status(). */
typedef lt_tensor *lt_gradcheck_fn(lt_tape *tape, lt_tensor *const *in, void *context);

typedef struct lt_gradcheck_config {
    double step;      /**< step of the differences; 0: 1e-5, right for inputs of magnitude 1 */
    double tolerance; /**< relative tolerance; 0: 1e-7 */
    lt_pass pass;     /**< mode of the passes; record is set where needed */
} lt_gradcheck_config;

/**
 * Compares, for every element of every f64 input, the gradient that backward gives with a central
 * difference, both of sum(y * r) for a fixed random r:
 *
 *     |numeric - analytic| <= tolerance * max(max |analytic|, 1e-3 * max |r|)   per input
 *
 * Inputs must be more than a step away from kinks (relu at 0, ties of a maximum). Inputs that
 * are not f64, labels for instance, are passed on as they are; constants belong into context.
 *
 * Owns    in: yours; its tensors are changed and put back. context: lent until the return
 * Errors  LT_E_ARG (the gradient is wrong: the message gives input, element, and both numbers; a
 *         device not opened with f64), LT_E_NOMEM, or what fn failed with
 * Source  Nocedal & Wright, "Numerical optimization", 2006, section 8.1 (central differences)
 */
LT_API LT_MUST_CHECK lt_status lt_gradcheck(lt_device *device, lt_gradcheck_fn *fn, void *context,
                                            lt_tensor *const *in, int count,
                                            const lt_gradcheck_config *config);

#endif
