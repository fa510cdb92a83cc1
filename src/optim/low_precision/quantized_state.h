/* Optimizer state in fewer bytes than the f32 tensor that kernels use: dequantized to such a tensor when used, then
 * requantized. Formats: quantized_formats.h, docs/adr/0046. Requantizing an unchanged tensor changes no bit, so
 * checkpoints store the dequantized values, under the names and shapes of f32 state, and a run with another
 * --state-dtype or --factor-dtype can read them. */
#ifndef LT_OPTIM_QUANTIZED_STATE_H
#define LT_OPTIM_QUANTIZED_STATE_H

#include "quantized_formats.h"

#include "lather/detail/backend.h"
#include "lather/detail/state.h"
#include "lather/ext/fail.h"

typedef struct lt_quantized {
    lt_quantized_format format;
    lt_shape shape;              /* shape of the dequantized tensor */
    int64_t stride[LT_MAX_DIMS]; /* strides of the dequantized tensor, dense */
    uint64_t key;                /* lt_quantized_random_key() of its random draws */
    lt_tensor *memory;           /* the quantized elements, u8 */
    bool rounded;                /* lt_quantized_from_checkpoint() had to round a root */
} lt_quantized;

/* Returns the key of the random draws of a block's state, which does not depend on its rank. */
uint64_t lt_quantized_random_key(const char *param, const char *state, int block);
/* Makes a state of zeros, in host memory. Errors: LT_E_UNSUPPORTED (the device's memory is not the host's, or its
 * state not f32), LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_quantized_new(lt_quantized **out, lt_device *device,
                                         lt_quantized_format format, lt_shape shape,
                                         const int64_t *stride, uint64_t key);
void lt_quantized_free(lt_quantized **q);
/* Checks that a device supports quantized state. what: for the message, such as "--state-dtype int8 of adam".
 * Errors: LT_E_UNSUPPORTED. */
LT_MUST_CHECK lt_status lt_quantized_check_device(const lt_device *device, const char *what);

/* Dequantizes to a new tensor; a Cholesky factor C to C C^T. */
LT_MUST_CHECK lt_status lt_quantized_dequantize(const lt_quantized *q, lt_tensor **out);
/* Quantizes a tensor, overwriting it if it is a factor. attempt: step, by which averages (moments and factors) are
 * rounded stochastically; 0: to nearest, as inverse roots and bases always are. */
void lt_quantized_requantize(lt_quantized *q, lt_tensor *dense, int64_t attempt);

/* Makes the tensor that a checkpoint stores: the dequantized values. For a Cholesky factor C: C's lower triangle
 * with a negative diagonal, and the quantization errors transposed above it. */
LT_MUST_CHECK lt_status lt_quantized_to_checkpoint(const lt_quantized *q, lt_tensor **out);
/* Quantizes the tensor of a checkpoint, in either form; overwrites it. */
LT_MUST_CHECK lt_status lt_quantized_from_checkpoint(lt_quantized *q, lt_tensor *values);
/* Replaces a checkpoint's Cholesky factor [n,n] by C C^T, on the host; leaves other matrices unchanged. Errors:
 * LT_E_UNSUPPORTED (it is one, in memory that the host cannot read). */
LT_MUST_CHECK lt_status lt_quantized_expand_cholesky(lt_tensor *values, bool *converted);

#endif
