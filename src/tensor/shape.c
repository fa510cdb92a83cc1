/* Shapes, strides and dtypes: what can be said of a tensor without its data. */

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
        return lt_fail(LT_E_ARG, "tensor: %d dimensions, at most %d", shape.ndim, LT_MAX_DIMS);
    int64_t total = (int64_t)lt_dtype_size(dtype);
    for (int d = 0; d < shape.ndim; d++) {
        if (shape.dim[d] < 1)
            return lt_fail(LT_E_ARG, "tensor: extent %lld of dimension %d is below 1",
                           (long long)shape.dim[d], d);
        if (__builtin_mul_overflow(total, shape.dim[d], &total))
            return lt_fail(LT_E_NOMEM, "tensor: more bytes than 63 bits can count");
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

void lt_storage_strides(lt_shape shape, int64_t stride[LT_MAX_DIMS])
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

static bool has_strides(const lt_view *view, const int64_t *stride)
{
    for (int d = 0; d < view->shape.ndim; d++)
        if (view->shape.dim[d] > 1 && view->stride[d] != stride[d])
            return false;
    return true;
}

bool lt_view_is_contiguous(const lt_view *view)
{
    int64_t stride[LT_MAX_DIMS];
    lt_row_major_strides(view->shape, stride);
    return has_strides(view, stride);
}

bool lt_view_is_channels_last(const lt_view *view)
{
    int64_t stride[LT_MAX_DIMS];
    if (view->shape.ndim != 4)
        return false;
    lt_storage_strides(view->shape, stride);
    return has_strides(view, stride);
}

bool lt_view_is_dense(const lt_view *view)
{
    /* Every stride, in ascending order, is the count of all elements inside it. */
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

/* Groups of neighbouring extents with equal products on both sides are reshaped one by one; each
 * group of the old side must be one interval (its strides those of row-major order). */
bool lt_view_reshape(const lt_view *view, lt_shape shape, int64_t stride[LT_MAX_DIMS])
{
    lt_view old = {.shape = {0}};
    for (int d = 0; d < view->shape.ndim; d++) {
        if (view->shape.dim[d] == 1)
            continue;
        old.shape.dim[old.shape.ndim] = view->shape.dim[d];
        old.stride[old.shape.ndim++] = view->stride[d];
    }
    int from = 0, to = 0;
    while (to < shape.ndim) {
        int from_end = from, to_end = to;
        int64_t have = from < old.shape.ndim ? old.shape.dim[from_end++] : 1;
        int64_t want = shape.dim[to_end++];
        while (have != want) {
            if (have < want && from_end < old.shape.ndim)
                have *= old.shape.dim[from_end++];
            else if (want < have && to_end < shape.ndim)
                want *= shape.dim[to_end++];
            else if (want == 1 || have == 1)
                break;
            else
                return false;
        }
        if (want == 1 && have != 1) /* a new extent of 1 takes nothing from the old side */
            from_end = from;
        for (int d = from; d + 1 < from_end; d++)
            if (old.stride[d] != old.shape.dim[d + 1] * old.stride[d + 1])
                return false;
        int64_t step = from_end > from ? old.stride[from_end - 1] : 1;
        for (int d = to_end - 1; d >= to; d--) {
            stride[d] = step;
            step *= shape.dim[d];
        }
        from = from_end;
        to = to_end;
    }
    return from == old.shape.ndim;
}

bool lt_view_broadcast(const lt_view *small, lt_shape shape, lt_view *out)
{
    int shift = shape.ndim - small->shape.ndim;
    if (shift < 0)
        return false;
    *out = *small;
    out->shape = shape;
    for (int d = 0; d < shape.ndim; d++) {
        int64_t extent = d < shift ? 1 : small->shape.dim[d - shift];
        if (extent != 1 && extent != shape.dim[d])
            return false;
        out->stride[d] = extent == 1 ? 0 : small->stride[d - shift];
    }
    return true;
}
