/* Tensors owned by the caller: memory, shape, version. */

#include "tensor/tensor.h"

#include "base/alloc.h"

#include <stdatomic.h>
#include <string.h>

/* Returns a version that no tensor has had. */
static uint64_t next_version(void)
{
    static _Atomic uint64_t last;
    return atomic_fetch_add(&last, 1) + 1;
}

lt_status lt_buffer_new(lt_buffer **out, lt_device *device, size_t bytes)
{
    lt_buffer *b = NULL;
    LT_TRY(LT_ALLOC(&b, 1));
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
    if (b->chunk)
        lt_chunk_free(b->device->allocator, b->chunk);
    lt_free(b);
}

static void *buffer_data(const lt_buffer *buffer)
{
    return buffer->chunk ? lt_chunk_data(buffer->chunk) : buffer->borrowed;
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
    lt_tensor *t = NULL;
    LT_TRY(LT_ALLOC(&t, 1));
    t->device = device;
    t->dtype = dtype;
    t->shape = shape;
    t->version = next_version();
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

/* Checks shape and format, and writes the strides. */
static lt_status strides_of(lt_dtype dtype, lt_shape shape, lt_memory_format format,
                            int64_t stride[LT_MAX_DIMS])
{
    char text[LT_SHAPE_TEXT];
    size_t bytes;
    LT_TRY(lt_shape_bytes(shape, dtype, &bytes));
    if (format == LT_FORMAT_CHANNELS_LAST && shape.ndim != 4)
        return lt_fail(LT_E_SHAPE, "tensor: channels-last needs 4 dimensions, got %s",
                       lt_shape_text(shape, text));
    lt_format_strides(shape, format, stride);
    return LT_OK;
}

lt_status lt_tensor_new_as(lt_tensor **out, lt_device *device, lt_dtype dtype, lt_shape shape,
                           lt_memory_format format)
{
    int64_t stride[LT_MAX_DIMS] = {0};
    LT_TRY(strides_of(dtype, shape, format, stride));
    return new_tensor(out, device, dtype, shape, stride);
}

static lt_status check_borrowed(const lt_device *device, lt_dtype dtype, const void *memory)
{
    const size_t size = lt_dtype_size(dtype), rest = (uintptr_t)memory % size;
    if (!device->backend->host_memory)
        return lt_fail(LT_E_UNSUPPORTED, "tensor: %s cannot borrow memory of the host",
                       device->name);
    if (!memory)
        return lt_fail(LT_E_ARG, "tensor: no memory to borrow");
    if (rest)
        return lt_fail(LT_E_ARG,
                       "tensor: borrowed memory of %s begins %zu bytes after a multiple of %zu",
                       lt_dtype_name(dtype), rest, size);
    return LT_OK;
}

lt_status lt_tensor_new_borrowed(lt_tensor **out, lt_device *device, lt_dtype dtype, lt_shape shape,
                                 lt_memory_format format, void *memory)
{
    int64_t stride[LT_MAX_DIMS] = {0};
    lt_tensor *t = NULL;
    LT_TRY(strides_of(dtype, shape, format, stride));
    LT_TRY(check_borrowed(device, dtype, memory));
    LT_TRY(lt_tensor_new_meta(&t, device, dtype, shape, stride));
    lt_status st = LT_ALLOC(&t->buffer, 1);
    if (st) {
        lt_tensor_free(&t);
        return st;
    }
    *t->buffer = (lt_buffer){.device = device, .borrowed = memory, .references = 1};
    t->version = 0; /* its owner writes without telling: no cached casts */
    *out = t;
    return LT_OK;
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
    lt_tensor_free_memory(*tensor);
    lt_free(*tensor);
    *tensor = NULL;
}

void lt_tensor_free_memory(lt_tensor *tensor)
{
    LT_ASSERT(!tensor->tape);
    lt_buffer_release(&tensor->buffer);
    lt_buffer_release(&tensor->other);
}

void lt_tensor_set_dtype(lt_tensor *tensor, lt_dtype dtype)
{
    lt_buffer *buffer = tensor->buffer;
    const bool same = lt_dtype_size(dtype) == lt_dtype_size(tensor->dtype);
    tensor->dtype = dtype;
    if (same)
        return;
    tensor->buffer = tensor->other;
    tensor->other = buffer;
    /* Until there is a sum, the wide buffer is not needed. */
    if (!tensor->buffer && lt_dtype_size(dtype) == 2)
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
        .data = s->buffer ? buffer_data(s->buffer) : NULL,
        .dtype = s->dtype,
        .shape = s->shape,
        .version = s->version,
    };
    memcpy(view.stride, s->stride, sizeof view.stride);
    return view;
}

void lt_tensor_bump_version(lt_tensor *tensor)
{
    if (tensor->version)
        tensor->version = next_version();
}

lt_status lt_device_cast(lt_device *device, const lt_view *x, const lt_view *y)
{
    return device->backend->cast(device->ctx, x, y);
}

lt_status lt_tensor_fill(lt_tensor *tensor, double value)
{
    lt_view view = lt_tensor_view(tensor);
    if (!view.data)
        return lt_fail(LT_E_ARG, "tensor: fill of a freed tensor; lt_tape_keep() keeps it");
    lt_tensor_bump_version(tensor);
    return tensor->device->backend->fill(tensor->device->ctx, value, &view);
}
