/* What the communicator "nccl" needs, by NCCL and CUDA: a part of liblather-cuda.so. All calls of one
 * group run on a stream of its own, in order, behind what the device's main stream had when they were
 * begun. */

#include "dist/nccl/nccl.h"

#include "tensor/backend/cuda/cuda.h"

#include <dlfcn.h>
#include <nccl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct lt_nccl_group {
    lt_cuda *c;
    ncclComm_t comm;
    lt_cuda_stream stream;
    lt_cuda_event before; /* what a call waits for */
    void *scratch;        /* of a barrier */
    pthread_t ender;      /* in ncclCommAbort() */
    bool ending;
};

struct lt_nccl_mark {
    lt_cuda *c; /* the group may be gone */
    lt_cuda_event event;
};

/* NCCL_VERSION_CODE of 2.9 and later: major * 10000 + minor * 100 + patch. */
enum { MAJOR = 10000, MINOR = 100 };

static lt_status good(const lt_nccl_group *g, ncclResult_t code, const char *call)
{
    if (code == ncclSuccess)
        return LT_OK;
    const char *more = ncclGetLastError(g ? g->comm : NULL);
    return lt_fail(LT_E_COMM, "%s: %s%s%.300s", call, ncclGetErrorString(code),
                   more && *more ? ": " : "", more ? more : "");
}

static lt_status cuda_good(const lt_cuda *c, int code, const char *call)
{
    return lt_cuda_check(c, LT_CUDA_RUNTIME, code, call);
}

static lt_status check(void)
{
    Dl_info info = {0};
    int found = 0;
    LT_TRY(good(NULL, ncclGetVersion(&found), "ncclGetVersion"));
    const bool known = dladdr((const void *)(uintptr_t)ncclGetVersion, &info) && info.dli_fname;
    if (found / MAJOR == NCCL_MAJOR && found / MINOR >= NCCL_VERSION_CODE / MINOR)
        return LT_OK;
    return lt_fail(LT_E_UNSUPPORTED,
                   "comm nccl: NCCL %d.%d was found (%s), want %d.%d or a later %d.x: the plugin "
                   "was built with that",
                   found / MAJOR, found % MAJOR / MINOR, known ? info.dli_fname : "?", NCCL_MAJOR,
                   NCCL_MINOR, NCCL_MAJOR);
}

static lt_status enter(void *device)
{
    lt_cuda *c = device;
    return cuda_good(c, c->api->set_device(c->ordinal), "cudaSetDevice");
}

static lt_status place(void *device, char text[LT_NCCL_PLACE])
{
    const lt_cuda *c = device;
    char bus[32] = "";
    LT_TRY(cuda_good(c, (int)cudaDeviceGetPCIBusId(bus, sizeof bus, c->ordinal),
                     "cudaDeviceGetPCIBusId"));
    snprintf(text, LT_NCCL_PLACE, "%.30s at %s", c->properties.name, bus);
    return LT_OK;
}

static lt_status unique_id(char id[LT_NCCL_ID])
{
    ncclUniqueId made;
    _Static_assert(sizeof made == LT_NCCL_ID, "an id of NCCL");
    LT_TRY(good(NULL, ncclGetUniqueId(&made), "ncclGetUniqueId"));
    memcpy(id, &made, sizeof made);
    return LT_OK;
}

/* Without NCCL: it has gone, or was never there. */
static void free_group(lt_nccl_group *g)
{
    const lt_cuda_api *api = g->c->api;
    if (g->stream)
        api->stream_destroy(g->stream);
    if (g->before)
        api->event_destroy(g->before);
    if (g->scratch)
        api->release(g->scratch);
    free(g);
}

static lt_status new_group(lt_nccl_group **out, lt_cuda *c)
{
    const lt_cuda_api *api = c->api;
    lt_nccl_group *g = calloc(1, sizeof *g);
    if (!g)
        return lt_fail(LT_E_NOMEM, "comm nccl: no memory");
    g->c = c;
    lt_status st = cuda_good(c, api->stream_create(&g->stream, true), "cudaStreamCreate");
    if (!st)
        st = cuda_good(c, api->event_create(&g->before, false), "cudaEventCreate");
    if (!st)
        st = cuda_good(c, api->alloc(&g->scratch, sizeof(int32_t)), "cudaMalloc");
    if (!st)
        st = cuda_good(c, api->set_async(g->scratch, 0, sizeof(int32_t), g->stream), "cudaMemset");
    if (st)
        free_group(g);
    else
        *out = g;
    return st;
}

static lt_status join(lt_nccl_group **out, void *device, const char id[LT_NCCL_ID], int rank,
                      int size)
{
    ncclUniqueId known;
    lt_nccl_group *g;
    memcpy(&known, id, sizeof known);
    LT_TRY(new_group(&g, device));
    lt_status st = good(g, ncclCommInitRank(&g->comm, size, known, rank), "ncclCommInitRank");
    if (st)
        free_group(g);
    else
        *out = g;
    return st;
}

static lt_status split(lt_nccl_group *group, int color, int key, lt_nccl_group **out, int *rank,
                       int *size)
{
    lt_nccl_group *g;
    LT_TRY(new_group(&g, group->c));
    lt_status st =
        good(group, ncclCommSplit(group->comm, color, key, &g->comm, NULL), "ncclCommSplit");
    if (!st)
        st = good(g, ncclCommUserRank(g->comm, rank), "ncclCommUserRank");
    if (!st)
        st = good(g, ncclCommCount(g->comm, size), "ncclCommCount");
    if (st && g->comm)
        ncclCommAbort(g->comm);
    if (st)
        free_group(g);
    else
        *out = g;
    return st;
}

static void leave(lt_nccl_group *g)
{
    g->c->api->stream_sync(g->stream);
    if (ncclCommFinalize(g->comm) == ncclSuccess)
        ncclCommDestroy(g->comm);
    else
        ncclCommAbort(g->comm);
    free_group(g);
}

static void *end_group(void *context)
{
    lt_nccl_group *g = context;
    g->c->api->set_device(g->c->ordinal);
    ncclCommAbort(g->comm);
    return NULL;
}

/* NCCL ends what runs at once, but returns only when no graph has calls of the group any more: that
 * is for another thread to wait for. */
static void abort_group(lt_nccl_group *g)
{
    g->ending = !pthread_create(&g->ender, NULL, end_group, g);
    if (!g->ending)
        end_group(g);
}

/* What waits for a graph that nobody frees is left alone. */
static void bury(lt_nccl_group *g)
{
    enum { PATIENCE = 10 }; /* seconds */
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE;
    if (!g->ending || !pthread_timedjoin_np(g->ender, NULL, &until))
        free_group(g);
}

static lt_status health(lt_nccl_group *g)
{
    ncclResult_t found = ncclSuccess;
    LT_TRY(good(g, ncclCommGetAsyncError(g->comm, &found), "ncclCommGetAsyncError"));
    return found == ncclInProgress ? LT_OK : good(g, found, "NCCL");
}

static lt_status begin(lt_nccl_group *g)
{
    const lt_cuda *c = g->c;
    LT_TRY(
        cuda_good(c, c->api->event_record(g->before, c->stream[LT_CUDA_MAIN]), "cudaEventRecord"));
    LT_TRY(cuda_good(c, c->api->stream_wait(g->stream, g->before), "cudaStreamWaitEvent"));
    return good(g, ncclGroupStart(), "ncclGroupStart");
}

static lt_status end(lt_nccl_group *g)
{
    return good(g, ncclGroupEnd(), "ncclGroupEnd");
}

static ncclDataType_t data_type(lt_dtype dtype)
{
    switch (dtype) {
    case LT_F32:
        return ncclFloat32;
    case LT_F64:
        return ncclFloat64;
    case LT_F16:
        return ncclFloat16;
    case LT_BF16:
        return ncclBfloat16;
    case LT_I32:
        return ncclInt32;
    case LT_I64:
        return ncclInt64;
    case LT_U8:
        break;
    }
    return ncclUint8;
}

static ncclRedOp_t operation(lt_reduce op)
{
    return op == LT_REDUCE_SUM ? ncclSum : op == LT_REDUCE_MEAN ? ncclAvg : ncclMax;
}

static lt_status allreduce(lt_nccl_group *g, const lt_comm_call *c)
{
    return good(g,
                ncclAllReduce(c->in, c->out, (size_t)c->elements, data_type(c->dtype),
                              operation(c->op), g->comm, g->stream),
                "ncclAllReduce");
}

static lt_status reduce_scatter(lt_nccl_group *g, const lt_comm_call *c, int64_t count)
{
    return good(g,
                ncclReduceScatter(c->in, c->out, (size_t)count, data_type(c->dtype),
                                  operation(c->op), g->comm, g->stream),
                "ncclReduceScatter");
}

static lt_status gather(lt_nccl_group *g, const lt_comm_call *c, int64_t count)
{
    return good(
        g, ncclAllGather(c->in, c->out, (size_t)count, data_type(c->dtype), g->comm, g->stream),
        "ncclAllGather");
}

static lt_status reduce(lt_nccl_group *g, const lt_comm_call *c)
{
    return good(g,
                ncclReduce(c->in, c->out, (size_t)c->elements, data_type(c->dtype),
                           operation(c->op), c->root, g->comm, g->stream),
                "ncclReduce");
}

static lt_status broadcast(lt_nccl_group *g, const lt_comm_call *c)
{
    return good(g,
                ncclBroadcast(c->in, c->out, (size_t)c->elements, data_type(c->dtype), c->root,
                              g->comm, g->stream),
                "ncclBroadcast");
}

static lt_status send(lt_nccl_group *g, const lt_comm_call *c)
{
    return good(
        g, ncclSend(c->in, (size_t)c->elements, data_type(c->dtype), c->root, g->comm, g->stream),
        "ncclSend");
}

static lt_status recv(lt_nccl_group *g, const lt_comm_call *c)
{
    return good(
        g, ncclRecv(c->out, (size_t)c->elements, data_type(c->dtype), c->root, g->comm, g->stream),
        "ncclRecv");
}

static lt_status barrier(lt_nccl_group *g)
{
    return good(g, ncclAllReduce(g->scratch, g->scratch, 1, ncclInt32, ncclSum, g->comm, g->stream),
                "ncclAllReduce");
}

static bool is_captured(lt_nccl_group *g)
{
    return g->c->capturing;
}

static void set_gate(void *device, const lt_nccl_gate *gate)
{
    lt_cuda *c = device;
    c->gate = gate ? (lt_cuda_gate){gate->context, gate->before, gate->after} : (lt_cuda_gate){0};
}

static lt_status mark_queue(lt_cuda *c, lt_cuda_stream queue, lt_nccl_mark **out)
{
    lt_nccl_mark *m = calloc(1, sizeof *m);
    if (!m)
        return lt_fail(LT_E_NOMEM, "comm nccl: no memory");
    m->c = c;
    lt_status st = cuda_good(c, c->api->event_create(&m->event, false), "cudaEventCreate");
    if (!st)
        st = cuda_good(c, c->api->event_record(m->event, queue), "cudaEventRecord");
    if (st) {
        if (m->event)
            c->api->event_destroy(m->event);
        free(m);
    } else {
        *out = m;
    }
    return st;
}

static lt_status mark(lt_nccl_group *g, lt_nccl_mark **out)
{
    return mark_queue(g->c, g->stream, out);
}

static lt_status mark_main(void *device, lt_nccl_mark **out)
{
    lt_cuda *c = device;
    return mark_queue(c, c->stream[LT_CUDA_MAIN], out);
}

static lt_status is_done(lt_nccl_mark *m, bool *done)
{
    const int code = m->c->api->event_query(m->event);
    *done = code == LT_CUDA_SUCCESS;
    return code == LT_CUDA_NOT_READY ? LT_OK : cuda_good(m->c, code, "cudaEventQuery");
}

static lt_status follow(lt_nccl_mark *m)
{
    const lt_cuda *c = m->c;
    return cuda_good(c, c->api->stream_wait(c->stream[LT_CUDA_MAIN], m->event),
                     "cudaStreamWaitEvent");
}

static void drop(lt_nccl_mark *m)
{
    m->c->api->event_destroy(m->event);
    free(m);
}

LT_API extern const lt_nccl_api lt_nccl_cuda;
const lt_nccl_api lt_nccl_cuda = {
    .version = LT_VERSION,
    .check = check,
    .enter = enter,
    .place = place,
    .unique_id = unique_id,
    .join = join,
    .split = split,
    .leave = leave,
    .abort = abort_group,
    .bury = bury,
    .health = health,
    .begin = begin,
    .end = end,
    .allreduce = allreduce,
    .reduce_scatter = reduce_scatter,
    .gather = gather,
    .reduce = reduce,
    .broadcast = broadcast,
    .send = send,
    .recv = recv,
    .barrier = barrier,
    .is_captured = is_captured,
    .gate = set_gate,
    .mark_main = mark_main,
    .mark = mark,
    .is_done = is_done,
    .follow = follow,
    .drop = drop,
};
