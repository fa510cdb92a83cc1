/* Double-buffered input: while a step reads batch n at its fixed address, batch n+1 arrives in one of
 * two rooms, on a queue of its own. From there it takes one copy within the device, behind that step. */

#include "data/loader/upload.h"

#include "base/alloc.h"

#include "lather/log.h"

#include <stdio.h>

enum { NONE = -1 };

struct lt_upload {
    lt_device *device;
    lt_tensor *room[LT_UPLOAD_LANES];
    int64_t number[LT_UPLOAD_LANES]; /* of the batch that is there, or on its way */
    void *host;
};

static const lt_upload_ops *ops(const lt_upload *u)
{
    return u->device->backend->uploads;
}

static int lane_of(int64_t number)
{
    return (int)(number % LT_UPLOAD_LANES);
}

lt_status lt_upload_new(lt_upload **out, lt_device *device, size_t bytes)
{
    lt_upload *u = lt_alloc(1, sizeof *u);
    if (!u)
        return LT_E_NOMEM;
    u->device = device;
    lt_status st = LT_OK;
    for (int i = 0; i < LT_UPLOAD_LANES && !st; i++) {
        u->number[i] = NONE;
        st = lt_tensor_new(&u->room[i], device, LT_U8, LT_SHAPE((int64_t)bytes));
    }
    if (!st)
        st = lt_device_sync(device); /* the rooms' zeros come before the first batch */
    if (st)
        lt_upload_free(&u);
    else
        *out = u;
    return st;
}

void lt_upload_free(lt_upload **upload)
{
    lt_upload *u = *upload;
    char before[1024]; /* what failed first is what the program tells */
    *upload = NULL;
    if (!u)
        return;
    snprintf(before, sizeof before, "%s", lt_error_message());
    lt_status st = lt_upload_forget(u), synced = lt_device_sync(u->device);
    if (st || synced) { /* the next call of the device tells it again */
        lt_log(LT_LOG_WARN, "data", "upload: %s", lt_error_message());
        (void)lt_fail(LT_E_DEVICE, "%s", before);
    }
    for (int i = 0; i < LT_UPLOAD_LANES; i++)
        lt_tensor_free(&u->room[i]);
    if (u->host)
        ops(u)->host_free(u->device->ctx, u->host);
    lt_free(u);
}

lt_status lt_upload_host(lt_upload *u, size_t bytes, uint8_t **out)
{
    LT_ASSERT(!u->host);
    LT_TRY(ops(u)->host_alloc(u->device->ctx, bytes, &u->host));
    *out = u->host;
    return LT_OK;
}

lt_status lt_upload_begin(lt_upload *u, const lt_batch_slot *slot, size_t image_bytes)
{
    const uint8_t *begin = (const uint8_t *)slot->labels;
    size_t bytes = (size_t)(slot->pixels - begin) + (size_t)slot->count * image_bytes;
    int lane = lane_of(slot->number);
    if (u->number[lane] == slot->number)
        return LT_OK;
    u->number[lane] = slot->number;
    return ops(u)->copy(u->device->ctx, lane, lt_tensor_view(u->room[lane]).data, begin, bytes);
}

lt_status lt_upload_place(lt_upload *u, const lt_batch_slot *slot, const lt_upload_part *part,
                          int parts)
{
    const lt_device *d = u->device;
    int lane = lane_of(slot->number);
    const char *room = lt_tensor_view(u->room[lane]).data;
    LT_TRY(ops(u)->join(d->ctx, lane));
    for (int i = 0; i < parts; i++) {
        if (!part[i].to)
            continue;
        ptrdiff_t offset = (const char *)part[i].from - (const char *)slot->labels;
        LT_TRY(d->backend->copy(d->ctx, lt_tensor_view(part[i].to).data, room + offset,
                                lt_tensor_bytes(part[i].to), LT_COPY_WITHIN));
    }
    return ops(u)->follow(d->ctx, lane);
}

lt_status lt_upload_wait(lt_upload *u, int64_t number)
{
    int lane = lane_of(number);
    return u->number[lane] == number ? ops(u)->wait(u->device->ctx, lane) : LT_OK;
}

lt_status lt_upload_forget(lt_upload *u)
{
    lt_status st = LT_OK;
    for (int lane = 0; lane < LT_UPLOAD_LANES; lane++) {
        lt_status waited = u->number[lane] == NONE ? LT_OK : ops(u)->wait(u->device->ctx, lane);
        st = st ? st : waited;
        u->number[lane] = NONE;
    }
    return st;
}
