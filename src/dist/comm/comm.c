/* Public calls of communicators, dispatched through their table, and the modelled link. */

#include "dist/comm/comm.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/thread.h"
#include "base/trace.h"
#include "tensor/tensor.h"

#include "lather/detail/view.h"

static const double default_deadline = 600; /* seconds */

lt_status lt_comm_allocate(lt_comm **out, const lt_comm_ops *ops, lt_device *device)
{
    lt_comm *comm = lt_alloc(1, ops->bytes);
    if (!comm)
        return LT_E_NOMEM;
    comm->ops = ops;
    comm->device = device;
    comm->deadline = default_deadline;
    comm->size = 1;
    *out = comm;
    return LT_OK;
}

lt_status lt_comm_split(lt_comm *comm, int color, int key, lt_comm **out)
{
    lt_comm *group;
    LT_TRY(lt_comm_allocate(&group, comm->ops, comm->device));
    group->deadline = comm->deadline;
    group->latency_us = comm->latency_us;
    group->gbit = comm->gbit;
    lt_status st = comm->ops->split(comm, color, key, group);
    if (st) {
        lt_free(group);
        return st;
    }
    *out = group;
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

void lt_comm_set_deadline(lt_comm *comm, double seconds)
{
    comm->deadline = seconds > 0 ? seconds : 0;
}

void lt_comm_set_model(lt_comm *comm, double latency_us, double gbit)
{
    comm->latency_us = latency_us > 0 ? latency_us : 0;
    comm->gbit = gbit > 0 ? gbit : 0;
}

static void sleep_until(double time)
{
    for (double left; (left = time - lt_clock_seconds()) > 0;) {
        const struct timespec t = lt_timespec_from_seconds(left);
        nanosleep(&t, NULL);
    }
}

/* Returns the time at which the modelled link, which serves requests in sequence, completes this one; 0: no model. */
static double modelled_completion(lt_comm *comm, double issued, uint64_t sent, uint64_t received)
{
    if (!(comm->gbit > 0) || comm->size == 1)
        return 0;
    double most = (double)(sent > received ? sent : received);
    double begin = comm->link_free > issued ? comm->link_free : issued;
    comm->link_free = begin + 1e-6 * comm->latency_us + most * 8 / (1e9 * comm->gbit);
    return comm->link_free;
}

lt_status lt_comm_begin(lt_comm *comm, const lt_comm_call *call, lt_tensor *target,
                        lt_request **request)
{
    uint64_t sent, received;
    double issued = comm->gbit > 0 ? lt_clock_seconds() : 0;
    int64_t span = lt_trace_begin();
    LT_TRY(comm->ops->begin(comm, call, request));
    lt_call_payload_bytes(call, comm->rank, comm->size, &sent, &received);
    lt_trace_end(span, LT_PROFILE_COMM, lt_call_name(call->what), (int64_t)sent);
    comm->bytes += sent;
    double ready = modelled_completion(comm, issued, sent, received);
    if (*request) {
        (*request)->target = target;
        (*request)->ready = ready;
    } else if (target) {
        lt_tensor_bump_version(target);
    }
    return LT_OK;
}

lt_status lt_comm_allreduce_begin(lt_comm *comm, lt_tensor *tensor, lt_reduce op,
                                  lt_request **request)
{
    lt_comm_call call;
    *request = NULL;
    LT_TRY(lt_call_fill_allreduce(&call, comm, tensor, op));
    return lt_comm_begin(comm, &call, tensor, request);
}

lt_status lt_comm_allgather_begin(lt_comm *comm, const lt_tensor *shard, lt_tensor *whole,
                                  const int64_t *count, lt_request **request)
{
    lt_comm_call call = {.what = LT_COMM_ALLGATHER};
    *request = NULL;
    LT_TRY(lt_call_fill_sharded(&call, comm, shard, whole, count));
    return lt_comm_begin(comm, &call, whole, request);
}

lt_status lt_comm_reducescatter_begin(lt_comm *comm, const lt_tensor *whole, lt_tensor *shard,
                                      const int64_t *count, lt_reduce op, lt_request **request)
{
    lt_comm_call call = {.what = LT_COMM_REDUCESCATTER, .op = op};
    *request = NULL;
    LT_TRY(lt_call_fill_sharded(&call, comm, shard, whole, count));
    return lt_comm_begin(comm, &call, shard, request);
}

lt_status lt_comm_broadcast_begin(lt_comm *comm, lt_tensor *tensor, int root, lt_request **request)
{
    lt_comm_call call = {.what = LT_COMM_BROADCAST};
    *request = NULL;
    LT_TRY(lt_call_fill_bcast_send_recv(&call, comm, tensor, root));
    return lt_comm_begin(comm, &call, root == comm->rank ? NULL : tensor, request);
}

lt_status lt_comm_alltoall_begin(lt_comm *comm, const lt_tensor *in, lt_tensor *out,
                                 const int64_t *sent_count, const int64_t *received_count,
                                 lt_request **request)
{
    lt_comm_call call = {
        .what = LT_COMM_ALLTOALL, .count = sent_count, .received_count = received_count};
    *request = NULL;
    LT_TRY(lt_call_fill_alltoall(&call, comm, in, out));
    return lt_comm_begin(comm, &call, call.out ? out : NULL, request);
}

lt_status lt_comm_send_begin(lt_comm *comm, const lt_tensor *tensor, int to, lt_request **request)
{
    lt_comm_call call = {.what = LT_COMM_SEND};
    *request = NULL;
    LT_TRY(lt_call_fill_bcast_send_recv(&call, comm, tensor, to));
    return lt_comm_begin(comm, &call, NULL, request);
}

lt_status lt_comm_recv_begin(lt_comm *comm, lt_tensor *tensor, int from, lt_request **request)
{
    lt_comm_call call = {.what = LT_COMM_RECV};
    *request = NULL;
    LT_TRY(lt_call_fill_bcast_send_recv(&call, comm, tensor, from));
    return lt_comm_begin(comm, &call, tensor, request);
}

lt_status lt_comm_barrier(lt_comm *comm)
{
    lt_comm_call call = {.what = LT_COMM_BARRIER};
    lt_request *request = NULL;
    LT_TRY(lt_comm_begin(comm, &call, NULL, &request));
    return lt_request_wait(&request);
}

lt_status lt_request_wait(lt_request **request)
{
    lt_request *r = *request;
    *request = NULL;
    if (!r)
        return LT_OK;
    int64_t span = lt_trace_begin();
    lt_tensor *target = r->target;
    double ready = r->ready;
    lt_status st = r->comm->ops->wait(r);
    if (!st && ready > 0)
        sleep_until(ready);
    if (!st && target)
        lt_tensor_bump_version(target);
    lt_trace_end(span, LT_PROFILE_COMM, "wait", 0);
    return st;
}

lt_status lt_comm_allreduce(lt_comm *comm, lt_tensor *tensor, lt_reduce op)
{
    lt_request *request;
    LT_TRY(lt_comm_allreduce_begin(comm, tensor, op, &request));
    return lt_request_wait(&request);
}

lt_status lt_comm_allgather(lt_comm *comm, const lt_tensor *shard, lt_tensor *whole,
                            const int64_t *count)
{
    lt_request *request;
    LT_TRY(lt_comm_allgather_begin(comm, shard, whole, count, &request));
    return lt_request_wait(&request);
}

lt_status lt_comm_reducescatter(lt_comm *comm, const lt_tensor *whole, lt_tensor *shard,
                                const int64_t *count, lt_reduce op)
{
    lt_request *request;
    LT_TRY(lt_comm_reducescatter_begin(comm, whole, shard, count, op, &request));
    return lt_request_wait(&request);
}

lt_status lt_comm_broadcast(lt_comm *comm, lt_tensor *tensor, int root)
{
    lt_request *request;
    LT_TRY(lt_comm_broadcast_begin(comm, tensor, root, &request));
    return lt_request_wait(&request);
}

lt_status lt_comm_broadcast_order(lt_comm *comm, size_t *order, int64_t *host, size_t count)
{
    lt_tensor *all = NULL;
    for (size_t i = 0; i < count; i++)
        host[i] = (int64_t)order[i];
    lt_status st = lt_tensor_new(&all, comm->device, LT_I64, LT_SHAPE((int64_t)count));
    if (!st)
        st = lt_tensor_write(all, host, lt_tensor_bytes(all));
    if (!st)
        st = lt_comm_broadcast(comm, all, 0);
    if (!st)
        st = lt_tensor_read(all, host, lt_tensor_bytes(all));
    for (size_t i = 0; i < count && !st; i++)
        order[i] = (size_t)host[i];
    lt_tensor_free(&all);
    return st;
}

void lt_comm_abort(lt_comm *comm)
{
    comm->ops->abort(comm);
}
