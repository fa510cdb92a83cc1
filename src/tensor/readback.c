/* Asynchronous copies from the device to page-locked memory, queued on the main queue. The host waits for an
 * event after the last copy. */

#include "tensor/readback.h"

#include "base/alloc.h"
#include "tensor/tensor.h"

#include "lather/ext/fail.h"
#include "lather/log.h"

#include <stdio.h>

struct lt_readback {
    lt_device *device;
    const lt_upload_ops *ops; /* NULL: data is plain memory */
    char *data;
    size_t bytes, used;
    uint64_t event; /* event of the main queue after the last copy */
    bool sent;
};

lt_status lt_readback_new(lt_readback **out, lt_device *device, size_t bytes)
{
    lt_readback *r = NULL;
    LT_TRY(LT_ALLOC(&r, 1));
    void *memory = NULL;
    r->device = device;
    r->ops = device->backend->uploads;
    r->bytes = bytes;
    lt_status st = LT_OK;
    if (r->ops) {
        st = r->ops->host_alloc(device->ctx, bytes, &memory);
    } else {
        memory = lt_alloc(1, bytes);
        st = memory ? LT_OK : LT_E_NOMEM;
    }
    if (st) {
        lt_free(r);
        return st;
    }
    r->data = memory;
    *out = r;
    return LT_OK;
}

static lt_status wait_for_copies(lt_readback *r)
{
    const bool sent = r->sent;
    r->sent = false;
    return sent && r->ops ? r->ops->event_synchronize(r->device->ctx, r->event) : LT_OK;
}

void lt_readback_free(lt_readback **readback)
{
    lt_readback *r = *readback;
    char before[1024]; /* the first failure is the one to report */
    *readback = NULL;
    if (!r)
        return;
    snprintf(before, sizeof before, "%s", lt_error_message());
    lt_status st = wait_for_copies(r);
    if (st) { /* the next call on the device reports it again */
        lt_log(LT_LOG_WARN, "readback", "%s", lt_error_message());
        if (lt_device_sync(r->device)) /* copies may still be in flight */
            lt_log(LT_LOG_WARN, "readback", "%s", lt_error_message());
        (void)lt_fail(st, "%s", before);
    }
    if (r->ops)
        r->ops->host_free(r->device->ctx, r->data);
    else
        lt_free(r->data);
    lt_free(r);
}

void lt_readback_begin(lt_readback *r)
{
    r->used = 0;
    r->sent = false;
}

lt_status lt_readback_add_memory(lt_readback *r, const void *memory, size_t bytes)
{
    const lt_device *d = r->device;
    if (r->sent || bytes > r->bytes - r->used)
        return lt_fail(LT_E_ARG, "readback: no space for %zu bytes: %zu of %zu are used%s", bytes,
                       r->used, r->bytes, r->sent ? " and sent" : "");
    LT_TRY(d->backend->copy(d->ctx, r->data + r->used, memory, bytes, LT_COPY_OUT));
    r->used += bytes;
    return LT_OK;
}

lt_status lt_readback_add(lt_readback *r, const lt_tensor *tensor)
{
    LT_TRY(lt_tensor_materialize(tensor));
    const lt_view view = lt_tensor_view(tensor);
    if (tensor->device != r->device || !view.data || !lt_view_is_contiguous(&view))
        return lt_fail(LT_E_ARG, "readback: needs contiguous tensors of its device");
    return lt_readback_add_memory(r, view.data, lt_tensor_bytes(tensor));
}

lt_status lt_readback_send(lt_readback *r)
{
    const lt_device *d = r->device;
    r->sent = true;
    return r->ops ? r->ops->event_record(d->ctx, &r->event) : d->backend->sync(d->ctx);
}

lt_status lt_readback_wait(lt_readback *r, const void **data)
{
    LT_TRY(wait_for_copies(r));
    *data = r->data;
    return LT_OK;
}

bool lt_device_has_queue(const lt_device *device)
{
    return device->backend->uploads != NULL;
}
