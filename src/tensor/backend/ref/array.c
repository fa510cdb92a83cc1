/* Converts views of any strides and dtype to row-major arrays, and back. */

#include "real.h"
#include "ref.h"
#include "tensor/backend/dtype.h"

static void load_row(const lt_view *v, int64_t offset, int64_t count, int64_t stride, real *out)
{
#define LOAD(type, convert)                                \
    do {                                                   \
        const type *from = (const type *)v->data + offset; \
        for (int64_t i = 0; i < count; i++)                \
            out[i] = (real)convert(from[i * stride]);      \
    } while (0)

    switch (v->dtype) {
    case LT_F32:
        LOAD(float, );
        break;
    case LT_F64:
        LOAD(double, );
        break;
    case LT_F16:
        LOAD(uint16_t, lt_f32_from_f16);
        break;
    case LT_BF16:
        LOAD(uint16_t, lt_f32_from_bf16);
        break;
    case LT_I32:
        LOAD(int32_t, );
        break;
    case LT_I64:
        LOAD(int64_t, );
        break;
    case LT_U8:
        LOAD(uint8_t, );
        break;
    }
#undef LOAD
}

/* Converts to an integer in low..high, towards zero. limit is high + 1, exact in double. */
static int64_t saturate_to_integer(double x, int64_t low, int64_t high, double limit)
{
    if (x >= limit)
        return high;
    if (x <= (double)low)
        return low;
    return x == x ? (int64_t)x : 0;
}

static float round_to_odd_f32(real x)
{
    return lt_f32_odd_from_f64((double)x);
}

static int32_t to_i32(real x)
{
    return (int32_t)saturate_to_integer((double)x, INT32_MIN, INT32_MAX, 0x1p31);
}

static int64_t to_i64(real x)
{
    return saturate_to_integer((double)x, INT64_MIN, INT64_MAX, 0x1p63);
}

static uint8_t to_u8(real x)
{
    return (uint8_t)saturate_to_integer((double)x, 0, UINT8_MAX, 0x1p8);
}

static void store_row(const lt_view *v, int64_t offset, int64_t count, int64_t stride,
                      const real *in)
{
#define STORE(type, expression)                                                       \
    do {                                                                              \
        type *to = (type *)v->data + offset; /* NOLINT(bugprone-macro-parentheses) */ \
        for (int64_t i = 0; i < count; i++)                                           \
            to[i * stride] = expression;                                              \
    } while (0)

    switch (v->dtype) {
    case LT_F32:
        STORE(float, (float)in[i]);
        break;
    case LT_F64:
        STORE(double, (double)in[i]);
        break;
    case LT_F16:
        STORE(uint16_t, lt_f16_from_f32(round_to_odd_f32(in[i])));
        break;
    case LT_BF16:
        STORE(uint16_t, lt_bf16_from_f32(round_to_odd_f32(in[i])));
        break;
    case LT_I32:
        STORE(int32_t, to_i32(in[i]));
        break;
    case LT_I64:
        STORE(int64_t, to_i64(in[i]));
        break;
    case LT_U8:
        STORE(uint8_t, to_u8(in[i]));
        break;
    }
#undef STORE
}

/* Number of elements along the last dimension, which form a row; a scalar is one row of one element. */
static int64_t row_length(const lt_view *v)
{
    return v->shape.ndim ? v->shape.dim[v->shape.ndim - 1] : 1;
}

static int64_t row_stride(const lt_view *v)
{
    return v->shape.ndim ? v->stride[v->shape.ndim - 1] : 0;
}

/* Returns the offset of a row, numbered in row-major order. */
static int64_t row_offset(const lt_view *v, int64_t row)
{
    int64_t offset = 0;
    for (int d = v->shape.ndim - 2; d >= 0; d--) {
        offset += row % v->shape.dim[d] * v->stride[d];
        row /= v->shape.dim[d];
    }
    return offset;
}

/* Returns the offset of element i. */
static int64_t element_offset(const lt_view *v, int64_t i)
{
    int64_t length = row_length(v);
    return row_offset(v, i / length) + i % length * row_stride(v);
}

/* Returns the number of elements from i on that are in one row, at most count. */
static int64_t row_run_length(const lt_view *v, int64_t i, int64_t count)
{
    int64_t rest = row_length(v) - i % row_length(v);
    return rest < count ? rest : count;
}

void NAME(load)(const lt_view *view, int64_t first, int64_t count, real *values)
{
    for (int64_t i = 0, run; i < count; i += run) {
        run = row_run_length(view, first + i, count - i);
        load_row(view, element_offset(view, first + i), run, row_stride(view), values + i);
    }
}

void NAME(store)(const lt_view *view, int64_t first, int64_t count, const real *values)
{
    for (int64_t i = 0, run; i < count; i += run) {
        run = row_run_length(view, first + i, count - i);
        store_row(view, element_offset(view, first + i), run, row_stride(view), values + i);
    }
}

real *NAME(gather)(lt_ref_call *call, const lt_view *view)
{
    if (!lt_ref_has_data(view))
        return NULL;
    real *values = lt_ref_array(call, lt_ref_element_count(view), sizeof *values);
    if (values)
        NAME(load)(view, 0, lt_ref_element_count(view), values);
    return values;
}

real *NAME(gather_rounded)(lt_ref_call *call, const lt_view *view, lt_dtype dtype)
{
    real *values = NAME(gather)(call, view);
    if (!values || view->dtype == dtype || (dtype != LT_BF16 && dtype != LT_F16))
        return values;
    for (int64_t i = 0, count = lt_ref_element_count(view); i < count; i++) {
        float x = round_to_odd_f32(values[i]);
        values[i] = (real)(dtype == LT_BF16 ? lt_f32_from_bf16(lt_bf16_from_f32(x))
                                            : lt_f32_from_f16(lt_f16_from_f32(x)));
    }
    return values;
}

real *NAME(gather_pair)(lt_ref_call *call, const lt_view dy[2])
{
    if (!lt_ref_has_data(dy))
        return NULL;
    real *sum = NAME(gather)(call, &dy[0]), *second = NAME(gather)(call, &dy[1]);
    for (int64_t i = 0, count = lt_ref_element_count(dy); sum && second && i < count; i++)
        sum[i] += second[i];
    return sum;
}

void NAME(scatter)(const real *values, const lt_view *view)
{
    NAME(store)(view, 0, lt_ref_element_count(view), values);
}
