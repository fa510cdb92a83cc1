/* Opening a communicator by name, the calls that go through its table, and the modelled link. */

#include "dist/comm.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/plugin.h"
#include "base/trace.h"
#include "dist/nccl/nccl.h"
#include "tensor/tensor.h"

#include "lather/ext/view.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const double default_deadline = 600; /* seconds */

lt_status lt_comm_make(lt_comm **out, const lt_comm_ops *ops, lt_device *device)
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

/* The link that the plugin liblather-KIND.so exports. */
static lt_status load_link(const char *kind, const lt_link_ops **out)
{
    char user[64], symbol[64];
    const void *table;
    snprintf(user, sizeof user, "comm %s", kind);
    snprintf(symbol, sizeof symbol, "lt_link_%s", kind);
    LT_TRY(lt_plugin_open(user, kind, symbol, &table));
    *out = table;
    return lt_plugin_check_version(user, (*out)->version);
}

/* A communicator over a plugin's link. */
static lt_status open_linked(lt_comm *comm, const char *kind)
{
    const lt_link_ops *ops;
    LT_TRY(load_link(kind, &ops));
    lt_link *link = lt_alloc(1, ops->bytes);
    if (!link)
        return LT_E_NOMEM;
    link->ops = ops;
    LT_TRY(lt_linked_open(&comm, link));
    int launched = lt_launched_size();
    if (launched > 1 && comm->size == 1) {
        comm->ops->close(comm);
        return lt_fail(LT_E_COMM,
                       "comm %s: %d processes were launched, but each of them is alone: the "
                       "launcher is not of the MPI that the library was built with",
                       kind, launched);
    }
    return LT_OK;
}

/* The table is in the plugin whose memory NCCL moves. */
static lt_status open_nccl(lt_comm *comm, const char *kind)
{
    const lt_device *d = comm->device;
    const void *table;
    lt_nccl_start start;
    if (strcmp(d->backend->name, "cuda") != 0)
        return lt_fail(LT_E_ARG, "comm nccl: the device is %s; NCCL is for cuda devices",
                       lt_device_name(d));
    LT_TRY(lt_plugin_open("comm nccl", "cuda", "lt_nccl_cuda", &table));
    const lt_nccl_api *api = table;
    LT_TRY(lt_plugin_check_version("comm nccl", api->version));
    LT_TRY(api->check());
    LT_TRY(lt_nccl_find_ranks(&start));
    (void)kind;
    return lt_nccl_open_with(comm, api, d->ctx, &start);
}

static lt_status open_self(lt_comm *comm, const char *kind)
{
    (void)kind;
    return comm->ops->open(comm);
}

/* Every communicator that has a name. */
static const struct kind {
    const char *name;
    const lt_comm_ops *ops;
    lt_status (*open)(lt_comm *comm, const char *kind);
} kinds[] = {
    {"self", &lt_comm_self, open_self},
    {"mpi", &lt_comm_linked, open_linked},
    {"nccl", &lt_comm_nccl, open_nccl},
};

lt_status lt_comm_open(lt_comm **out, const char *kind, lt_device *device)
{
    enum { KINDS = sizeof kinds / sizeof *kinds };
    int i = 0;
    if (!strcmp(kind, "threads"))
        return lt_fail(LT_E_ARG, "comm: lt_comm_open_threads() opens threads");
    while (i < KINDS && strcmp(kinds[i].name, kind) != 0)
        i++;
    if (i == KINDS)
        return lt_fail(LT_E_UNSUPPORTED,
                       "comm: no communicator '%s' in this build; there are self, "
                       "threads, mpi, nccl",
                       kind);
    lt_comm *comm;
    LT_TRY(lt_comm_make(&comm, kinds[i].ops, device));
    lt_status st = kinds[i].open(comm, kind);
    if (st) {
        lt_free(comm);
        return st;
    }
    *out = comm;
    return LT_OK;
}

lt_status lt_comm_split(lt_comm *comm, int color, int key, lt_comm **out)
{
    lt_comm *group;
    LT_TRY(lt_comm_make(&group, comm->ops, comm->device));
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
    struct timespec t = {.tv_sec = (time_t)time};
    t.tv_nsec = (long)(1e9 * (time - (double)t.tv_sec));
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        continue;
}

/* When the modelled link, which serves one request after the other, is done with this one. */
static double model(lt_comm *comm, double issued, uint64_t sent, uint64_t received)
{
    if (!(comm->gbit > 0) || comm->size == 1)
        return 0;
    double most = (double)(sent > received ? sent : received);
    double begin = comm->link_free > issued ? comm->link_free : issued;
    comm->link_free = begin + 1e-6 * comm->latency_us + most * 8 / (1e9 * comm->gbit);
    return comm->link_free;
}

static lt_status begin(lt_comm *comm, const lt_comm_call *call, lt_tensor *target,
                       lt_request **request)
{
    uint64_t sent, received;
    double issued = comm->gbit > 0 ? lt_clock_seconds() : 0;
    int64_t span = lt_trace_begin();
    LT_TRY(comm->ops->begin(comm, call, request));
    lt_call_payload(call, comm->rank, comm->size, &sent, &received);
    lt_trace_end(span, LT_PROFILE_COMM, lt_call_name(call->what), (int64_t)sent);
    comm->bytes += sent;
    double ready = model(comm, issued, sent, received);
    if (*request) {
        (*request)->target = target;
        (*request)->ready = ready;
    } else if (target) {
        lt_tensor_touch(target);
    }
    return LT_OK;
}

lt_status lt_comm_allreduce_begin(lt_comm *comm, lt_tensor *tensor, lt_reduce op,
                                  lt_request **request)
{
    lt_comm_call call;
    *request = NULL;
    LT_TRY(lt_call_allreduce(&call, comm, tensor, op));
    return begin(comm, &call, tensor, request);
}

lt_status lt_comm_allgather_begin(lt_comm *comm, const lt_tensor *part, lt_tensor *whole,
                                  const int64_t *count, lt_request **request)
{
    lt_comm_call call = {.what = LT_COMM_ALLGATHER};
    *request = NULL;
    LT_TRY(lt_call_parts(&call, comm, part, whole, count));
    return begin(comm, &call, whole, request);
}

lt_status lt_comm_reducescatter_begin(lt_comm *comm, const lt_tensor *whole, lt_tensor *part,
                                      const int64_t *count, lt_reduce op, lt_request **request)
{
    lt_comm_call call = {.what = LT_COMM_REDUCESCATTER, .op = op};
    *request = NULL;
    LT_TRY(lt_call_parts(&call, comm, part, whole, count));
    return begin(comm, &call, part, request);
}

lt_status lt_comm_broadcast_begin(lt_comm *comm, lt_tensor *tensor, int root, lt_request **request)
{
    lt_comm_call call = {.what = LT_COMM_BROADCAST};
    *request = NULL;
    LT_TRY(lt_call_whole(&call, comm, tensor, root));
    return begin(comm, &call, root == comm->rank ? NULL : tensor, request);
}

lt_status lt_comm_send_begin(lt_comm *comm, const lt_tensor *tensor, int to, lt_request **request)
{
    lt_comm_call call = {.what = LT_COMM_SEND};
    *request = NULL;
    LT_TRY(lt_call_whole(&call, comm, tensor, to));
    return begin(comm, &call, NULL, request);
}

lt_status lt_comm_recv_begin(lt_comm *comm, lt_tensor *tensor, int from, lt_request **request)
{
    lt_comm_call call = {.what = LT_COMM_RECV};
    *request = NULL;
    LT_TRY(lt_call_whole(&call, comm, tensor, from));
    return begin(comm, &call, tensor, request);
}

lt_status lt_comm_barrier(lt_comm *comm)
{
    lt_comm_call call = {.what = LT_COMM_BARRIER};
    lt_request *request = NULL;
    LT_TRY(begin(comm, &call, NULL, &request));
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
        lt_tensor_touch(target);
    lt_trace_end(span, LT_PROFILE_COMM, "wait", 0);
    return st;
}

void lt_comm_abort(lt_comm *comm)
{
    comm->ops->abort(comm);
}
