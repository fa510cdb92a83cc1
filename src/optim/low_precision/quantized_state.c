/* Quantized state and its conversion to and from tensors: quantized_state.h. */

#include "quantized_state.h"

#include "base/alloc.h"
#include "base/rng.h"
#include "tensor/tensor.h"

#include <string.h>

lt_status lt_quantized_check_device(const lt_device *device, const char *what)
{
    if (!device->backend->host_memory)
        return lt_fail(LT_E_UNSUPPORTED, "%s: backend %s supports f32 state only", what,
                       device->backend->name);
    if (lt_device_master_dtype(device) != LT_F32)
        return lt_fail(LT_E_UNSUPPORTED, "%s: a device opened with f64 supports f64 state only",
                       what);
    return LT_OK;
}

uint64_t lt_quantized_random_key(const char *param, const char *state, int block)
{
    const uint64_t key = lt_rng_name_key(0, LT_STREAM_ROUND, param);
    return lt_rng_key(lt_rng_name_key(key, LT_STREAM_ROUND, state), LT_STREAM_ROUND,
                      (uint64_t)(int64_t)block, 2);
}

lt_status lt_quantized_new(lt_quantized **out, lt_device *device, lt_quantized_format format,
                           lt_shape shape, const int64_t *stride, uint64_t key)
{
    LT_TRY(lt_quantized_check_device(device, "quantized state"));
    lt_quantized *q = NULL;
    LT_TRY(LT_ALLOC(&q, 1));
    q->format = format;
    q->shape = shape;
    q->key = key;
    memcpy(q->stride, stride, sizeof q->stride);
    const int64_t bytes = lt_quantized_bytes(format, lt_shape_count(shape));
    lt_status st = lt_tensor_new(&q->memory, device, LT_U8, LT_SHAPE(bytes));
    if (st) {
        lt_free(q);
        return st;
    }
    *out = q;
    return LT_OK;
}

void lt_quantized_free(lt_quantized **q)
{
    if (!*q)
        return;
    lt_tensor_free(&(*q)->memory);
    lt_free(*q);
    *q = NULL;
}

static lt_status new_dense(const lt_quantized *q, lt_tensor **out)
{
    lt_tensor *t = NULL;
    LT_TRY(lt_tensor_new_meta(&t, q->memory->device, LT_F32, q->shape, q->stride));
    lt_status st = lt_tensor_allocate_raw(t);
    if (st) {
        lt_tensor_free(&t);
        return st;
    }
    *out = t;
    return LT_OK;
}

static float *f32_data(const lt_tensor *t)
{
    return lt_tensor_view(t).data;
}

static lt_status decode(const lt_quantized *q, bool apart, lt_tensor **out)
{
    LT_TRY(new_dense(q, out));
    lt_quantized_decode(q->format, lt_tensor_view(q->memory).data, lt_shape_count(q->shape), apart,
                        f32_data(*out));
    return LT_OK;
}

static bool is_moving_average(const lt_quantized *q)
{
    return q->format.kind != LT_QUANTIZED_MATRIX && q->format.kind != LT_QUANTIZED_SYMMETRIC;
}

static void encode(lt_quantized *q, const float *x, bool apart, int64_t attempt)
{
    const lt_quantized_rounding rounding = {is_moving_average(q) && attempt > 0, q->key, attempt};
    lt_quantized_encode(q->format, x, lt_shape_count(q->shape), lt_tensor_view(q->memory).data,
                        apart, rounding);
}

/* f = c c^T, where c is lower triangular; overwrites c above the diagonal. */
static lt_status multiply_by_own_transpose(lt_tensor *c, lt_tensor *f)
{
    const int64_t n = lt_tensor_shape(c).dim[0];
    float *x = f32_data(c);
    for (int64_t i = 0; i < n; i++)
        memset(x + i * n + i + 1, 0, (size_t)(n - 1 - i) * sizeof *x);
    const lt_gram_job job = {.g = lt_tensor_view(c), .f = lt_tensor_view(f), .alpha = 1};
    return c->device->backend->gram(c->device->ctx, &job, 1, NULL);
}

lt_status lt_quantized_dequantize(const lt_quantized *q, lt_tensor **out)
{
    lt_tensor *c = NULL, *f = NULL;
    if (q->format.kind != LT_QUANTIZED_CHOLESKY)
        return decode(q, false, out);
    LT_TRY(decode(q, false, &c));
    lt_status st = new_dense(q, &f);
    if (!st)
        st = multiply_by_own_transpose(c, f);
    lt_tensor_free(&c);
    if (st)
        lt_tensor_free(&f);
    else
        *out = f;
    return st;
}

void lt_quantized_requantize(lt_quantized *q, lt_tensor *dense, int64_t attempt)
{
    float *x = f32_data(dense);
    if (q->format.kind == LT_QUANTIZED_CHOLESKY)
        lt_quantized_cholesky(x, q->shape.dim[0]);
    encode(q, x, false, attempt);
}

/* --- Checkpoints --- */

static void negate_diagonal(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i * (n + 1)] = -x[i * (n + 1)];
}

/* Returns true if a checkpoint matrix is a Cholesky factor, marked by a negative diagonal; a factor matrix has
 * none. */
static bool is_cholesky(const lt_tensor *t)
{
    const int64_t n = lt_tensor_shape(t).dim[0];
    const float *x = f32_data(t);
    for (int64_t i = 0; i < n; i++)
        if (x[i * (n + 1)] < 0)
            return true;
    return false;
}

lt_status lt_quantized_to_checkpoint(const lt_quantized *q, lt_tensor **out)
{
    LT_TRY(decode(q, true, out));
    if (q->format.kind == LT_QUANTIZED_CHOLESKY)
        negate_diagonal(f32_data(*out), q->shape.dim[0]);
    return LT_OK;
}

/* Adds the errors of a checkpoint's Cholesky factor, stored above the diagonal, to C below it. */
static void add_stored_errors(float *x, int64_t n)
{
    negate_diagonal(x, n);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < i; j++)
            x[i * n + j] += x[j * n + i];
}

/* Fails for a Cholesky factor on a device, recognized by its negative trace. */
static lt_status reject_cholesky(const lt_tensor *t)
{
    const lt_backend *be = t->device->backend;
    lt_view diagonal = lt_tensor_view(t);
    lt_tensor *trace = NULL;
    float value = 0;
    diagonal.shape = LT_SHAPE(diagonal.shape.dim[0]);
    diagonal.stride[0]++; /* the rows are n long */
    LT_TRY(lt_tensor_new(&trace, t->device, LT_F32, LT_SHAPE(1)));
    const lt_view y = lt_tensor_view(trace);
    lt_status st = be->sum(t->device->ctx, 1, &diagonal, &y);
    if (!st)
        st = lt_tensor_read(trace, &value, sizeof value);
    lt_tensor_free(&trace);
    if (!st && value < 0)
        st = lt_fail(LT_E_UNSUPPORTED,
                     "shampoo: the checkpoint's factors were saved with a --factor-dtype below "
                     "f32, which backend %s cannot convert: load and save it once on cpu",
                     be->name);
    return st;
}

lt_status lt_quantized_expand_cholesky(lt_tensor *values, bool *converted)
{
    lt_tensor *c = NULL;
    *converted = false;
    if (!values->device->backend->host_memory)
        return reject_cholesky(values);
    *converted = is_cholesky(values);
    if (!*converted)
        return LT_OK;
    LT_TRY(lt_tensor_new_like(&c, values, LT_F32));
    lt_status st = lt_tensor_copy(c, values);
    if (!st) {
        add_stored_errors(f32_data(c), lt_tensor_shape(c).dim[0]);
        st = multiply_by_own_transpose(c, values);
    }
    lt_tensor_free(&c);
    return st;
}

/* Sets q->rounded if quantization changed the values. State that was saved in the same format is unchanged. */
static lt_status detect_rounding(lt_quantized *q, const lt_tensor *values)
{
    lt_tensor *now = NULL;
    LT_TRY(lt_quantized_dequantize(q, &now));
    q->rounded = memcmp(f32_data(now), f32_data(values), lt_tensor_bytes(now)) != 0;
    lt_tensor_free(&now);
    return LT_OK;
}

lt_status lt_quantized_from_checkpoint(lt_quantized *q, lt_tensor *values)
{
    float *x = f32_data(values);
    if (q->format.kind == LT_QUANTIZED_CHOLESKY && is_cholesky(values)) {
        negate_diagonal(x, q->shape.dim[0]);
        encode(q, x, true, 0);
        return LT_OK;
    }
    bool converted;
    if (q->format.kind == LT_QUANTIZED_SYMMETRIC)
        LT_TRY(lt_quantized_expand_cholesky(values, &converted));
    lt_quantized_requantize(q, values, 0);
    return is_moving_average(q) ? LT_OK : detect_rounding(q, values);
}
