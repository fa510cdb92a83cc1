/** Matrix products. */
#ifndef LATHER_OPS_MATMUL_H
#define LATHER_OPS_MATMUL_H

#include "lather/tape.h"

/** Which operands of a matrix product are read transposed, in their last two dimensions. */
typedef struct lt_matmul_config {
    bool transpose_a, transpose_b;
} lt_matmul_config;

/**
 * Matrix product, batched over leading dimensions.
 *
 *     y[.., m, n] = sum over k of a[.., m, k] * b[.., k, n]
 *
 * Shapes  a [B..,M,K], b [B..,K,N] (K,M / N,K when transposed; b may lack B..) -> y [B..,M,N]
 * Dtypes  any floating; y has a's
 * Grads   a, b
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_SHAPE, LT_E_NOMEM, LT_E_DEVICE
 * Source  elementary
 */
LT_API lt_tensor *lt_matmul(lt_tape *tape, lt_tensor *a, lt_tensor *b, lt_matmul_config config);

/**
 * Affine map of the last dimension, weights stored as [out,in].
 *
 *     y[..,k] = b[k] + sum over c of x[..,c] * w[k,c]
 *
 * Shapes  x [..,C], w [K,C], b [K] or NULL -> y [..,K]
 * Dtypes  any floating; y has x's
 * Grads   x, w, b
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_SHAPE, LT_E_NOMEM, LT_E_DEVICE
 * Source  elementary
 */
LT_API lt_tensor *lt_linear(lt_tape *tape, lt_tensor *x, lt_tensor *w, lt_tensor *b);

typedef struct lt_linear_config {
    bool in_out; /**< w is stored as [in,out] = [C,K], as in GPT-2's Conv1D */
} lt_linear_config;

/**
 * lt_linear() with a weight stored as [out,in] or [in,out].
 * Shapes  x [..,C], w [K,C] or [C,K], b [K] or NULL -> y [..,K]
 * Dtypes  any floating; y has x's
 * Grads   x, w, b
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_SHAPE, LT_E_NOMEM, LT_E_DEVICE
 * Source  elementary
 */
LT_API lt_tensor *lt_linear_as(lt_tape *tape, lt_tensor *x, lt_tensor *w, lt_tensor *b,
                               lt_linear_config config);

#endif
