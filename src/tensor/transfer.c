/* Reads and writes whole tensors; a deferred one is computed first. */

#include "tensor/tape.h"

static lt_status check_host_transfer(const lt_tensor *tensor, size_t bytes)
{
    char text[LT_SHAPE_TEXT];
    LT_TRY(lt_tensor_materialize(tensor));
    if (bytes != lt_tensor_bytes(tensor))
        return lt_fail(LT_E_ARG, "tensor: got %zu bytes of host memory for %s %s, want %zu", bytes,
                       lt_dtype_name(tensor->dtype), lt_shape_text(tensor->shape, text),
                       lt_tensor_bytes(tensor));
    const lt_tensor *storage = lt_tensor_storage(tensor);
    if (!storage->buffer && !storage->tape)
        return lt_fail(LT_E_ARG, "tensor: this %s has no memory on this rank",
                       lt_shape_text(tensor->shape, text));
    if (!storage->buffer)
        return lt_fail(LT_E_ARG,
                       "tensor: this %s was freed after its last use in backward; lt_tape_keep() "
                       "keeps it",
                       lt_shape_text(tensor->shape, text));
    if (tensor->device->capturing)
        return lt_fail(LT_E_UNSUPPORTED,
                       "tensor: the host cannot read or write it in a captured step");
    return LT_OK;
}

/* Prepares a row-major form of the tensor: in new device memory, or the tensor itself if it is row-major. */
static lt_status stage_row_major(const lt_tensor *tensor, lt_buffer **buffer, lt_view *staged)
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
    LT_TRY(check_host_transfer(tensor, bytes));
    const lt_device *d = tensor->device;
    lt_view view = lt_tensor_view(tensor), staged;
    lt_buffer *buffer;
    LT_TRY(stage_row_major(tensor, &buffer, &staged));

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
    LT_TRY(check_host_transfer(tensor, bytes));
    const lt_device *d = tensor->device;
    lt_view view = lt_tensor_view(tensor), staged;
    lt_buffer *buffer;
    LT_TRY(stage_row_major(tensor, &buffer, &staged));

    lt_status st = d->backend->copy(d->ctx, staged.data, host, bytes, LT_COPY_IN);
    if (!st && buffer)
        st = d->backend->cast(d->ctx, &staged, &view);
    if (!st)
        st = d->backend->sync(d->ctx);
    lt_buffer_release(&buffer);
    lt_tensor_bump_version(tensor);
    return st;
}

lt_status lt_tensor_copy(lt_tensor *dst, const lt_tensor *src)
{
    char a[LT_SHAPE_TEXT], b[LT_SHAPE_TEXT];
    if (!lt_shape_equal(dst->shape, src->shape))
        return lt_fail(LT_E_SHAPE, "tensor: cannot copy %s to %s: the shapes differ",
                       lt_shape_text(src->shape, a), lt_shape_text(dst->shape, b));
    LT_TRY(lt_tensor_materialize(src));
    lt_view from = lt_tensor_view(src), to = lt_tensor_view(dst);
    if (!from.data || !to.data)
        return lt_fail(LT_E_ARG, "tensor: copy of a freed tensor; lt_tape_keep() keeps it");
    lt_tensor_bump_version(dst);
    return lt_device_cast(dst->device, &from, &to);
}

lt_status lt_tensor_item(const lt_tensor *tensor, double *value)
{
    char text[LT_SHAPE_TEXT];
    if (lt_tensor_count(tensor) != 1)
        return lt_fail(LT_E_SHAPE, "tensor: item needs one element, got %s",
                       lt_shape_text(tensor->shape, text));
    LT_TRY(check_host_transfer(tensor, lt_tensor_bytes(tensor)));
    lt_tensor *wide = NULL;
    LT_TRY(lt_tensor_new(&wide, tensor->device, LT_F64, tensor->shape));
    lt_status st = lt_tensor_copy(wide, tensor);
    if (!st)
        st = lt_tensor_read(wide, value, sizeof *value);
    lt_tensor_free(&wide);
    return st;
}
