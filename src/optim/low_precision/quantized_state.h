/* State of optimizers in fewer bytes than the f32 tensor that kernels work on: opened to such a tensor where
 * it is used, and stored again. Formats: quantized_formats.h, docs/adr/0046.
 *
 * Storing what was opened changes no bit, so that a checkpoint has the opened values, under the names and
 * shapes of f32 state: a run with another --state-dtype or --factor-dtype reads it. */
#ifndef LT_OPTIM_QUANTIZED_STATE_H
#define LT_OPTIM_QUANTIZED_STATE_H

#include "quantized_formats.h"

#include "lather/detail/backend.h"
#include "lather/detail/state.h"
#include "lather/ext/fail.h"

typedef struct lt_quantized {
    lt_quantized_format format;
    lt_shape shape;              /* of the opened tensor */
    int64_t stride[LT_MAX_DIMS]; /* and its order of storage, dense */
    uint64_t key;                /* of its draws: lt_quantized_key() */
    lt_tensor *memory;           /* u8 */
    bool rounded; /* a root that lt_quantized_from_checkpoint() could not have as it was */
} lt_quantized;

/* Returns the key of the draws of a block's state, the same on whichever rank has it. */
uint64_t lt_quantized_key(const char *param, const char *state, int block);
/* Zeros. The device's memory is the host's, its state f32. Errors: LT_E_UNSUPPORTED (it is not; names what),
 * LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_quantized_new(lt_quantized **out, lt_device *device,
                                         lt_quantized_format format, lt_shape shape,
                                         const int64_t *stride, uint64_t key);
void lt_quantized_free(lt_quantized **q);
/* Checks that a device can have it. what: "--state-dtype int8 of adam". Errors: LT_E_UNSUPPORTED. */
LT_MUST_CHECK lt_status lt_quantized_check(const lt_device *device, const char *what);

/* Its values as a new tensor; of a Cholesky factor C, C C^T. */
LT_MUST_CHECK lt_status lt_quantized_dequantize(const lt_quantized *q, lt_tensor **out);
/* From such a tensor, whose contents are lost if it is a Cholesky factor's. attempt: the step, by which averages
 * (moments and factors) are rounded stochastically; 0: to nearest, as roots and bases always are. */
void lt_quantized_requantize(lt_quantized *q, lt_tensor *dense, int64_t attempt);

/* The values that a checkpoint stores. Of a Cholesky factor C: C's lower triangle with a negative
 * diagonal, and above it the errors of the codes, transposed. */
LT_MUST_CHECK lt_status lt_quantized_to_checkpoint(const lt_quantized *q, lt_tensor **out);
/* From a checkpoint, whichever of both it has; the tensor's contents are lost. */
LT_MUST_CHECK lt_status lt_quantized_from_checkpoint(lt_quantized *q, lt_tensor *values);
/* A shown Cholesky factor [n,n] becomes the factor C C^T, on the host; another matrix stays as it is.
 * Errors: LT_E_UNSUPPORTED (it is one, of which the host cannot read the memory). */
LT_MUST_CHECK lt_status lt_quantized_convert(lt_tensor *values, bool *converted);

/* lt_safetensors_source: reads shown values, context being the entry's. */
LT_MUST_CHECK lt_status lt_quantized_read(void *quantized, void *host, size_t bytes);

#endif
