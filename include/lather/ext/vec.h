/** Vector arithmetic on tensors for optimizers: in stream order, skipped in a skipped step. All tensors of a call have
 *  one shape; but a row-major matrix [rows,rest] stands for a tensor [rows,...] with as many elements, so that a
 *  parameter is copied to a matrix and updated from one. y may be an input, too.
 *  Errors of all: LT_E_SHAPE, LT_E_UNSUPPORTED. */
#ifndef LATHER_EXT_VEC_H
#define LATHER_EXT_VEC_H

#include "lather/detail/scalars.h"
#include "lather/tensor.h"

/** y = alpha * x + beta * y. */
LT_API LT_MUST_CHECK lt_status lt_vec_axpby(lt_tensor *y, double alpha, const lt_tensor *x,
                                            double beta, const lt_scalars *s);
/** y += weight * (x - y): an exponential moving average. */
LT_API LT_MUST_CHECK lt_status lt_vec_lerp(lt_tensor *y, const lt_tensor *x, double weight,
                                           const lt_scalars *s);
/** y += weight * (x*x - y). */
LT_API LT_MUST_CHECK lt_status lt_vec_lerp_sq(lt_tensor *y, const lt_tensor *x, double weight,
                                              const lt_scalars *s);
/** y = alpha * a / (sqrt(beta * b) + eps), elementwise. */
LT_API LT_MUST_CHECK lt_status lt_vec_rsqrt(lt_tensor *y, double alpha, const lt_tensor *a,
                                            double beta, const lt_tensor *b, double eps,
                                            const lt_scalars *s);
/** y = x / (1 - beta^t), t the applied steps, read on the device: the bias correction of an average that began at 0. */
LT_API LT_MUST_CHECK lt_status lt_vec_correct_bias(lt_tensor *y, const lt_tensor *x, double beta,
                                                   const lt_scalars *s);
/** y += alpha * lr * x, lr read on the device. */
LT_API LT_MUST_CHECK lt_status lt_vec_add_lr(lt_tensor *y, double alpha, const lt_tensor *x,
                                             const lt_scalars *s);

#endif
