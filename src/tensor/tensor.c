/* Tensors that the caller owns: memory, reading, writing. */

#include "tensor/tensor.h"

#include "base/alloc.h"

#include <stdatomic.h>
#include <string.h>

uint64_t lt_next_version(void)
{
    static _Atomic uint64_t last;
    return atomic_fetch_add(&last, 1) + 1;
}

lt_status lt_buffer_new(lt_buffer **out, lt_device *device, size_t bytes)
{
    lt_buffer *b = lt_alloc(1, sizeof *b);
    if (!b)
        return LT_E_NOMEM;
    lt_status st = lt_allocator_alloc(device->allocator, bytes, &b->chunk);
    if (st) {
        lt_free(b);
        return st;
    }
    b->device = device;
    b->references = 1;
    *out = b;
    return LT_OK;
}

void lt_buffer_release(lt_buffer **buffer)
{
    lt_buffer *b = *buffer;
    *buffer = NULL;
    if (!b || --b->references)
        return;
    lt_allocator_give_back(b->device->allocator, b->chunk);
    lt_free(b);
}

const lt_tensor *lt_tensor_storage(const lt_tensor *tensor)
{
    return tensor->source ? tensor->source : tensor;
}

lt_status lt_tensor_new_meta(lt_tensor **out, lt_device *device, lt_dtype dtype, lt_shape shape,
                             const int64_t stride[LT_MAX_DIMS])
{
    size_t bytes;
    LT_TRY(lt_shape_bytes(shape, dtype, &bytes));
    lt_tensor *t = lt_alloc(1, sizeof *t);
    if (!t)
        return LT_E_NOMEM;
    t->device = device;
    t->dtype = dtype;
    t->shape = shape;
    t->version = lt_next_version();
    memcpy(t->stride, stride, sizeof t->stride);
    *out = t;
    return LT_OK;
}

lt_status lt_tensor_allocate(lt_tensor *tensor)
{
    if (tensor->buffer)
        return LT_OK;
    LT_TRY(lt_buffer_new(&tensor->buffer, tensor->device, lt_tensor_bytes(tensor)));
    lt_status st = lt_tensor_fill(tensor, 0);
    if (st)
        lt_buffer_release(&tensor->buffer);
    return st;
}

static lt_status new_tensor(lt_tensor **out, lt_device *device, lt_dtype dtype, lt_shape shape,
                            const int64_t stride[LT_MAX_DIMS])
{
    lt_tensor *t = NULL;
    LT_TRY(lt_tensor_new_meta(&t, device, dtype, shape, stride));
    lt_status st = lt_tensor_allocate(t);
    if (st) {
        lt_tensor_free(&t);
        return st;
    }
    *out = t;
    return LT_OK;
}

lt_status lt_tensor_new_as(lt_tensor **out, lt_device *device, lt_dtype dtype, lt_shape shape,
                           lt_memory_format format)
{
    int64_t stride[LT_MAX_DIMS] = {0};
    char text[LT_SHAPE_TEXT];
    size_t bytes;
    LT_TRY(lt_shape_bytes(shape, dtype, &bytes));
    if (format == LT_FORMAT_CHANNELS_LAST && shape.ndim != 4)
        return lt_fail(LT_E_SHAPE, "tensor: %s channels-last, want 4 dimensions",
                       lt_shape_text(shape, text));
    lt_format_strides(shape, format, stride);
    return new_tensor(out, device, dtype, shape, stride);
}

lt_status lt_tensor_new(lt_tensor **out, lt_device *device, lt_dtype dtype, lt_shape shape)
{
    return lt_tensor_new_as(out, device, dtype, shape, LT_FORMAT_CONTIGUOUS);
}

lt_status lt_tensor_new_like(lt_tensor **out, const lt_tensor *like, lt_dtype dtype)
{
    const lt_tensor *s = lt_tensor_storage(like);
    return new_tensor(out, like->device, dtype, s->shape, s->stride);
}

void lt_tensor_free(lt_tensor **tensor)
{
    if (!*tensor)
        return;
    LT_ASSERT(!(*tensor)->tape);
    lt_tensor_release(*tensor);
    lt_free(*tensor);
    *tensor = NULL;
}

void lt_tensor_release(lt_tensor *tensor)
{
    LT_ASSERT(!tensor->tape);
    lt_buffer_release(&tensor->buffer);
    lt_buffer_release(&tensor->other);
}

void lt_tensor_hold(lt_tensor *tensor, lt_dtype dtype)
{
    lt_buffer *buffer = tensor->buffer;
    const bool same = lt_dtype_size(dtype) == lt_dtype_size(tensor->dtype);
    tensor->dtype = dtype;
    if (same)
        return;
    tensor->buffer = tensor->other;
    tensor->other = buffer;
    if (!tensor->buffer && lt_dtype_size(dtype) == 2) /* until there is a sum, no more is needed */
        lt_buffer_release(&tensor->other);
}

lt_status lt_tensor_allocate_raw(lt_tensor *tensor)
{
    if (tensor->buffer)
        return LT_OK;
    return lt_buffer_new(&tensor->buffer, tensor->device, lt_tensor_bytes(tensor));
}

lt_shape lt_tensor_shape(const lt_tensor *tensor)
{
    return tensor->shape;
}

lt_dtype lt_tensor_dtype(const lt_tensor *tensor)
{
    return tensor->dtype;
}

lt_device *lt_tensor_device(const lt_tensor *tensor)
{
    return tensor->device;
}

int64_t lt_tensor_count(const lt_tensor *tensor)
{
    return lt_shape_count(tensor->shape);
}

size_t lt_tensor_bytes(const lt_tensor *tensor)
{
    return (size_t)lt_tensor_count(tensor) * lt_dtype_size(tensor->dtype);
}

lt_view lt_tensor_view(const lt_tensor *tensor)
{
    const lt_tensor *s = lt_tensor_storage(tensor);
    lt_view view = {
        .data = s->buffer ? lt_chunk_data(s->buffer->chunk) : NULL,
        .dtype = s->dtype,
        .shape = s->shape,
        .version = s->version,
    };
    memcpy(view.stride, s->stride, sizeof view.stride);
    return view;
}

void lt_tensor_touch(lt_tensor *tensor)
{
    if (tensor->version)
        tensor->version = lt_next_version();
}

lt_status lt_device_cast(lt_device *device, const lt_view *x, const lt_view *y)
{
    return device->backend->cast(device->ctx, x, y);
}

static lt_status check_host_bytes(const lt_tensor *tensor, size_t bytes)
{
    char text[LT_SHAPE_TEXT];
    LT_TRY(lt_tensor_materialize(tensor));
    if (bytes != lt_tensor_bytes(tensor))
        return lt_fail(LT_E_ARG, "tensor: %zu bytes of host memory for %s %s, which has %zu", bytes,
                       lt_dtype_name(tensor->dtype), lt_shape_text(tensor->shape, text),
                       lt_tensor_bytes(tensor));
    const lt_tensor *storage = lt_tensor_storage(tensor);
    if (!storage->buffer && !storage->tape)
        return lt_fail(LT_E_ARG, "tensor: this %s has a shape, but no memory on this rank",
                       lt_shape_text(tensor->shape, text));
    if (!storage->buffer)
        return lt_fail(LT_E_ARG,
                       "tensor: the memory of this %s was given back after its last use in "
                       "backward; lt_tape_keep() keeps it",
                       lt_shape_text(tensor->shape, text));
    if (tensor->device->capturing)
        return lt_fail(LT_E_UNSUPPORTED, "tensor: read or written by the host in a captured step");
    return LT_OK;
}

/* The same elements in row-major order in device memory of their own, or the view itself. */
static lt_status stage(const lt_tensor *tensor, lt_buffer **buffer, lt_view *staged)
{
    *buffer = NULL;
    *staged = lt_tensor_view(tensor);
    if (lt_view_is_contiguous(staged))
        return LT_OK;
    LT_TRY(lt_buffer_new(buffer, tensor->device, lt_tensor_bytes(tensor)));
    staged->data = lt_chunk_data((*buffer)->chunk);
    lt_row_major_strides(staged->shape, staged->stride);
    return LT_OK;
}

lt_status lt_tensor_read(const lt_tensor *tensor, void *host, size_t bytes)
{
    LT_TRY(check_host_bytes(tensor, bytes));
    const lt_device *d = tensor->device;
    lt_view view = lt_tensor_view(tensor), staged;
    lt_buffer *buffer;
    LT_TRY(stage(tensor, &buffer, &staged));

    lt_status st = buffer ? d->backend->cast(d->ctx, &view, &staged) : LT_OK;
    if (!st)
        st = d->backend->copy(d->ctx, host, staged.data, bytes, LT_COPY_OUT);
    if (!st)
        st = d->backend->sync(d->ctx);
    lt_buffer_release(&buffer);
    return st;
}

lt_status lt_tensor_write(lt_tensor *tensor, const void *host, size_t bytes)
{
    LT_TRY(check_host_bytes(tensor, bytes));
    const lt_device *d = tensor->device;
    lt_view view = lt_tensor_view(tensor), staged;
    lt_buffer *buffer;
    LT_TRY(stage(tensor, &buffer, &staged));

    lt_status st = d->backend->copy(d->ctx, staged.data, host, bytes, LT_COPY_IN);
    if (!st && buffer)
        st = d->backend->cast(d->ctx, &staged, &view);
    if (!st)
        st = d->backend->sync(d->ctx);
    lt_buffer_release(&buffer);
    lt_tensor_touch(tensor);
    return st;
}

lt_status lt_tensor_fill(lt_tensor *tensor, double value)
{
    lt_view view = lt_tensor_view(tensor);
    if (!view.data)
        return lt_fail(LT_E_ARG, "tensor: fill of memory that was given back");
    lt_tensor_touch(tensor);
    return tensor->device->backend->fill(tensor->device->ctx, value, &view);
}

lt_status lt_tensor_copy(lt_tensor *dst, const lt_tensor *src)
{
    char a[LT_SHAPE_TEXT], b[LT_SHAPE_TEXT];
    if (!lt_shape_equal(dst->shape, src->shape))
        return lt_fail(LT_E_SHAPE, "tensor: copy of %s to %s", lt_shape_text(src->shape, a),
                       lt_shape_text(dst->shape, b));
    LT_TRY(lt_tensor_materialize(src));
    lt_view from = lt_tensor_view(src), to = lt_tensor_view(dst);
    if (!from.data || !to.data)
        return lt_fail(LT_E_ARG, "tensor: copy of memory that was given back");
    lt_tensor_touch(dst);
    return lt_device_cast(dst->device, &from, &to);
}

lt_status lt_tensor_item(const lt_tensor *tensor, double *value)
{
    char text[LT_SHAPE_TEXT];
    if (lt_tensor_count(tensor) != 1)
        return lt_fail(LT_E_SHAPE, "tensor: item of %s, which has more than one element",
                       lt_shape_text(tensor->shape, text));
    LT_TRY(check_host_bytes(tensor, lt_tensor_bytes(tensor)));
    lt_tensor *wide = NULL;
    LT_TRY(lt_tensor_new(&wide, tensor->device, LT_F64, tensor->shape));
    lt_status st = lt_tensor_copy(wide, tensor);
    if (!st)
        st = lt_tensor_read(wide, value, sizeof *value);
    lt_tensor_free(&wide);
    return st;
}
