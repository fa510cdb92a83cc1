/* Communicator of a single rank: every collective is a copy or a no-op and completes immediately. */

#include "dist/comm/comm.h"
#include "tensor/tensor.h"

#include <stdatomic.h>

typedef struct self_comm {
    lt_comm base;
    atomic_bool aborted;
} self_comm;

static lt_status open_self(lt_comm *self)
{
    self->rank = 0;
    self->size = 1;
    return LT_OK;
}

static void close_self(lt_comm *self)
{
    (void)self;
}

static lt_status begin_collective(lt_comm *self, const lt_comm_call *call, lt_request **request)
{
    const lt_device *d = self->device;
    size_t bytes = (size_t)call->elements * lt_dtype_size(call->dtype);
    *request = NULL;
    if (atomic_load(&((self_comm *)self)->aborted))
        return lt_fail(LT_E_COMM, "comm: the group was aborted");
    if (call->in == call->out || !bytes)
        return LT_OK;
    return d->backend->copy(d->ctx, call->out, call->in, bytes, LT_COPY_WITHIN);
}

/* Never called: begin_collective() makes no requests. */
static lt_status wait_for_request(lt_request *request)
{
    (void)request;
    return LT_OK;
}

static lt_status split_self(lt_comm *self, int color, int key, lt_comm *out)
{
    (void)color;
    (void)key;
    if (atomic_load(&((self_comm *)self)->aborted))
        return lt_fail(LT_E_COMM, "comm: the group was aborted");
    return open_self(out);
}

static void abort_group(lt_comm *self)
{
    atomic_store(&((self_comm *)self)->aborted, true);
}

const lt_comm_ops lt_comm_self = {
    .kind = "self",
    .bytes = sizeof(self_comm),
    .open = open_self,
    .close = close_self,
    .begin = begin_collective,
    .wait = wait_for_request,
    .split = split_self,
    .abort = abort_group,
};
