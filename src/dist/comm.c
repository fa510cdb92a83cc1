/* Opening a communicator by name, and the calls that go through its table. */

#include "dist/comm.h"

#include "base/alloc.h"
#include "base/trace.h"

#include <string.h>

static const double default_deadline = 600; /* seconds */

static const lt_comm_ops *const kinds[] = {&lt_comm_self};

lt_status lt_comm_open(lt_comm **out, const char *kind, lt_device *device)
{
    const lt_comm_ops *ops = NULL;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i]->kind, kind))
            ops = kinds[i];
    if (!ops)
        return lt_fail(LT_E_UNSUPPORTED, "comm: no communicator '%s' in this build; there is self",
                       kind);
    lt_comm *comm = lt_alloc(1, ops->bytes);
    if (!comm)
        return LT_E_NOMEM;
    comm->ops = ops;
    comm->device = device;
    comm->deadline = default_deadline;
    lt_status st = ops->open(comm, device);
    if (st) {
        lt_free(comm);
        return st;
    }
    *out = comm;
    return LT_OK;
}

void lt_comm_close(lt_comm **comm)
{
    if (!*comm)
        return;
    (*comm)->ops->close(*comm);
    lt_free(*comm);
    *comm = NULL;
}

int lt_comm_rank(const lt_comm *comm)
{
    return comm->rank;
}

int lt_comm_size(const lt_comm *comm)
{
    return comm->size;
}

uint64_t lt_comm_bytes(const lt_comm *comm)
{
    return comm->bytes;
}

lt_status lt_comm_allreduce_begin(lt_comm *comm, lt_tensor *tensor, lt_reduce op,
                                  lt_request **request)
{
    *request = NULL;
    int64_t span = lt_trace_begin();
    lt_status st = comm->ops->allreduce(comm, tensor, op, request);
    lt_trace_end(span, LT_PROFILE_COMM, "allreduce", (int64_t)lt_tensor_bytes(tensor));
    return st;
}

lt_status lt_comm_allgather_begin(lt_comm *comm, const lt_tensor *part, lt_tensor *whole,
                                  const int64_t *count, lt_request **request)
{
    *request = NULL;
    int64_t span = lt_trace_begin();
    lt_status st = comm->ops->allgather(comm, part, whole, count, request);
    lt_trace_end(span, LT_PROFILE_COMM, "allgather", (int64_t)lt_tensor_bytes(whole));
    return st;
}

lt_status lt_comm_reducescatter_begin(lt_comm *comm, const lt_tensor *whole, lt_tensor *part,
                                      const int64_t *count, lt_reduce op, lt_request **request)
{
    *request = NULL;
    int64_t span = lt_trace_begin();
    lt_status st = comm->ops->reducescatter(comm, whole, part, count, op, request);
    lt_trace_end(span, LT_PROFILE_COMM, "reducescatter", (int64_t)lt_tensor_bytes(whole));
    return st;
}

lt_status lt_comm_broadcast_begin(lt_comm *comm, lt_tensor *tensor, int root, lt_request **request)
{
    *request = NULL;
    if (root < 0 || root >= comm->size)
        return lt_fail(LT_E_ARG, "comm: root %d of %d ranks", root, comm->size);
    int64_t span = lt_trace_begin();
    lt_status st = comm->ops->broadcast(comm, tensor, root, request);
    lt_trace_end(span, LT_PROFILE_COMM, "broadcast", (int64_t)lt_tensor_bytes(tensor));
    return st;
}

lt_status lt_comm_barrier(lt_comm *comm)
{
    return comm->ops->barrier(comm);
}

lt_status lt_request_wait(lt_request **request)
{
    lt_request *r = *request;
    *request = NULL;
    int64_t span = lt_trace_begin();
    lt_status st = r ? r->comm->ops->wait(r) : LT_OK;
    lt_trace_end(span, LT_PROFILE_COMM, "wait", 0);
    return st;
}

void lt_comm_abort(lt_comm *comm)
{
    comm->ops->abort(comm);
}
