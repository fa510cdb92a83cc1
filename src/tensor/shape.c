/* Shapes, strides and dtypes. */

#include "tensor/shape.h"

#include <stdio.h>

static const struct {
    const char *name;
    size_t size;
} dtypes[] = {
    [LT_F32] = {"f32", 4}, [LT_F64] = {"f64", 8}, [LT_F16] = {"f16", 2}, [LT_BF16] = {"bf16", 2},
    [LT_I32] = {"i32", 4}, [LT_I64] = {"i64", 8}, [LT_U8] = {"u8", 1},
};

size_t lt_dtype_size(lt_dtype dtype)
{
    return dtypes[dtype].size;
}

const char *lt_dtype_name(lt_dtype dtype)
{
    return dtypes[dtype].name;
}

int64_t lt_shape_count(lt_shape shape)
{
    int64_t count = 1;
    for (int d = 0; d < shape.ndim; d++)
        count *= shape.dim[d];
    return count;
}

bool lt_shape_equal(lt_shape a, lt_shape b)
{
    if (a.ndim != b.ndim)
        return false;
    for (int d = 0; d < a.ndim; d++)
        if (a.dim[d] != b.dim[d])
            return false;
    return true;
}

const char *lt_shape_text(lt_shape shape, char *text)
{
    int used = snprintf(text, LT_SHAPE_TEXT, "[");
    for (int d = 0; d < shape.ndim; d++)
        used += snprintf(text + used, (size_t)(LT_SHAPE_TEXT - used), "%s%lld", d ? "," : "",
                         (long long)shape.dim[d]);
    snprintf(text + used, (size_t)(LT_SHAPE_TEXT - used), "]");
    return text;
}

lt_status lt_shape_bytes(lt_shape shape, lt_dtype dtype, size_t *bytes)
{
    if (shape.ndim < 0 || shape.ndim > LT_MAX_DIMS)
        return lt_fail(LT_E_ARG, "tensor: got %d dimensions, want 0 to %d", shape.ndim,
                       LT_MAX_DIMS);
    int64_t total = (int64_t)lt_dtype_size(dtype);
    for (int d = 0; d < shape.ndim; d++) {
        if (shape.dim[d] < 1)
            return lt_fail(LT_E_ARG, "tensor: size %lld of dimension %d is below 1",
                           (long long)shape.dim[d], d);
        if (__builtin_mul_overflow(total, shape.dim[d], &total))
            return lt_fail(LT_E_NOMEM, "tensor: the size in bytes exceeds 63 bits");
    }
    *bytes = (size_t)total;
    return LT_OK;
}

void lt_row_major_strides(lt_shape shape, int64_t stride[LT_MAX_DIMS])
{
    int64_t step = 1;
    for (int d = shape.ndim - 1; d >= 0; d--) {
        stride[d] = step;
        step *= shape.dim[d];
    }
}

void lt_channels_last_strides(lt_shape shape, int64_t stride[LT_MAX_DIMS])
{
    if (shape.ndim != 4) {
        lt_row_major_strides(shape, stride);
        return;
    }
    stride[1] = 1;
    stride[3] = shape.dim[1];
    stride[2] = stride[3] * shape.dim[3];
    stride[0] = stride[2] * shape.dim[2];
}

void lt_format_strides(lt_shape shape, lt_memory_format format, int64_t stride[LT_MAX_DIMS])
{
    if (format == LT_FORMAT_CHANNELS_LAST)
        lt_channels_last_strides(shape, stride);
    else
        lt_row_major_strides(shape, stride);
}

static bool has_strides(const lt_view *view, const int64_t *stride)
{
    for (int d = 0; d < view->shape.ndim; d++)
        if (view->shape.dim[d] > 1 && view->stride[d] != stride[d])
            return false;
    return true;
}

bool lt_view_is_contiguous(const lt_view *view)
{
    int64_t stride[LT_MAX_DIMS] = {0};
    lt_row_major_strides(view->shape, stride);
    return has_strides(view, stride);
}

bool lt_view_is_channels_last(const lt_view *view)
{
    int64_t stride[LT_MAX_DIMS] = {0};
    if (view->shape.ndim != 4)
        return false;
    lt_channels_last_strides(view->shape, stride);
    return has_strides(view, stride);
}

bool lt_view_is_dense(const lt_view *view)
{
    /* In ascending order each stride must equal the number of elements inside it. */
    int64_t step = 1;
    bool used[LT_MAX_DIMS] = {false};
    for (int round = 0; round < view->shape.ndim; round++) {
        int found = -1;
        for (int d = 0; d < view->shape.ndim && found < 0; d++)
            if (!used[d] && (view->shape.dim[d] == 1 || view->stride[d] == step))
                found = d;
        if (found < 0)
            return false;
        used[found] = true;
        step *= view->shape.dim[found];
    }
    return true;
}

/* Removes dimensions of size 1. */
static lt_view squeeze(const lt_view *view)
{
    lt_view v = *view;
    v.shape.ndim = 0;
    for (int d = 0; d < view->shape.ndim; d++) {
        if (view->shape.dim[d] == 1)
            continue;
        v.shape.dim[v.shape.ndim] = view->shape.dim[d];
        v.stride[v.shape.ndim++] = view->stride[d];
    }
    return v;
}

/* Returns the stride of the innermost element of view's dimensions [from, to) if they form one interval,
 * else 0. An empty range is a single element. */
static int64_t interval_stride(const lt_view *view, int from, int to)
{
    for (int d = from; d + 1 < to; d++)
        if (view->stride[d] != view->shape.dim[d + 1] * view->stride[d + 1])
            return 0;
    return to > from ? view->stride[to - 1] : 1;
}

/* Reshapes groups of consecutive dimensions, whose products are equal in both shapes, one by one. */
bool lt_view_reshape(const lt_view *view, lt_shape shape, int64_t stride[LT_MAX_DIMS])
{
    lt_view old = squeeze(view);
    int from = 0;
    for (int to = 0, to_end; to < shape.ndim; to = to_end) {
        int64_t want = shape.dim[to], have = 1;
        int from_end = from;
        to_end = to + 1;
        while (have != want) {
            if (have < want && from_end < old.shape.ndim)
                have *= old.shape.dim[from_end++];
            else if (want < have && to_end < shape.ndim)
                want *= shape.dim[to_end++];
            else
                return false;
        }
        int64_t step = interval_stride(&old, from, from_end);
        if (!step)
            return false;
        for (int d = to_end - 1; d >= to; d--) {
            stride[d] = step;
            step *= shape.dim[d];
        }
        from = from_end;
    }
    return from == old.shape.ndim;
}
