/* Double-buffered upload: while a step reads batch n at its fixed address, a separate stream copies batch n+1 from the
 * host to one of two upload slots. After the step has read batch n, batch n+1 is copied from the slot to the fixed
 * address. */

#include "data/loader/upload.h"

#include "base/alloc.h"

#include "lather/log.h"

#include <stdio.h>

enum { NONE = -1 };

struct lt_upload {
    lt_device *device;
    lt_tensor *memory[LT_UPLOAD_SLOTS];
    int64_t number[LT_UPLOAD_SLOTS]; /* batch in the slot or being copied to it; NONE if empty */
    void *host;
};

static const lt_upload_ops *upload_ops(const lt_upload *u)
{
    return u->device->backend->uploads;
}

static int slot_of(int64_t number)
{
    return (int)(number % LT_UPLOAD_SLOTS);
}

lt_status lt_upload_new(lt_upload **out, lt_device *device, size_t bytes)
{
    lt_upload *u = NULL;
    LT_TRY(LT_ALLOC(&u, 1));
    u->device = device;
    lt_status st = LT_OK;
    for (int i = 0; i < LT_UPLOAD_SLOTS && !st; i++) {
        u->number[i] = NONE;
        st = lt_tensor_new(&u->memory[i], device, LT_U8, LT_SHAPE((int64_t)bytes));
    }
    if (!st)
        st = lt_device_sync(device); /* the slots must be zeroed before the first copy */
    if (st)
        lt_upload_free(&u);
    else
        *out = u;
    return st;
}

void lt_upload_free(lt_upload **upload)
{
    lt_upload *u = *upload;
    char before[1024]; /* the first error, which must not be overwritten */
    *upload = NULL;
    if (!u)
        return;
    snprintf(before, sizeof before, "%s", lt_error_message());
    lt_status st = lt_upload_reset(u), synced = lt_device_sync(u->device);
    if (st || synced) { /* a device error; the device's next call reports it again */
        lt_log(LT_LOG_WARN, "data", "upload: %s", lt_error_message());
        (void)lt_fail(LT_E_DEVICE, "%s", before);
    }
    for (int i = 0; i < LT_UPLOAD_SLOTS; i++)
        lt_tensor_free(&u->memory[i]);
    if (u->host)
        upload_ops(u)->host_free(u->device->ctx, u->host);
    lt_free(u);
}

lt_status lt_upload_alloc_pinned(lt_upload *u, size_t bytes, uint8_t **out)
{
    LT_ASSERT(!u->host);
    LT_TRY(upload_ops(u)->host_alloc(u->device->ctx, bytes, &u->host));
    *out = u->host;
    return LT_OK;
}

lt_status lt_upload_begin(lt_upload *u, const lt_batch_slot *batch, size_t image_bytes)
{
    const uint8_t *begin = (const uint8_t *)batch->labels;
    size_t bytes = (size_t)(batch->pixels - begin) + (size_t)batch->count * image_bytes;
    int slot = slot_of(batch->number);
    if (u->number[slot] == batch->number)
        return LT_OK;
    u->number[slot] = batch->number;
    return upload_ops(u)->copy(u->device->ctx, slot, lt_tensor_view(u->memory[slot]).data, begin,
                               bytes);
}

lt_status lt_upload_copy_to_tensors(lt_upload *u, const lt_batch_slot *batch,
                                    const lt_upload_part *part, int parts)
{
    const lt_device *d = u->device;
    int slot = slot_of(batch->number);
    const char *memory = lt_tensor_view(u->memory[slot]).data;
    LT_TRY(upload_ops(u)->stream_wait(d->ctx, slot));
    for (int i = 0; i < parts; i++) {
        if (!part[i].to)
            continue;
        ptrdiff_t offset = (const char *)part[i].from - (const char *)batch->labels;
        LT_TRY(d->backend->copy(d->ctx, lt_tensor_view(part[i].to).data, memory + offset,
                                lt_tensor_bytes(part[i].to), LT_COPY_WITHIN));
    }
    return upload_ops(u)->record_stream(d->ctx, slot);
}

lt_status lt_upload_wait(lt_upload *u, int64_t number)
{
    int slot = slot_of(number);
    return u->number[slot] == number ? upload_ops(u)->wait(u->device->ctx, slot) : LT_OK;
}

lt_status lt_upload_reset(lt_upload *u)
{
    lt_status st = LT_OK;
    for (int slot = 0; slot < LT_UPLOAD_SLOTS; slot++) {
        lt_status waited =
            u->number[slot] == NONE ? LT_OK : upload_ops(u)->wait(u->device->ctx, slot);
        st = st ? st : waited;
        u->number[slot] = NONE;
    }
    return st;
}
