/* NCCL and CUDA functions of nccl.h, in liblather-cuda.so. All calls of a group run in order on a dedicated stream, after
 * the work that the device's main stream had when they were started. */

#include "dist/nccl/nccl.h"

#include "tensor/backend/cuda/external.h"

#include <dlfcn.h>
#include <nccl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct lt_nccl_group {
    lt_cuda *c;
    const lt_cuda_api *api;
    ncclComm_t comm;
    lt_cuda_stream stream;
    lt_cuda_event before; /* in the main stream, when a call is started */
    void *scratch;        /* int32 for the all-reduce of a barrier */
    pthread_t aborter;    /* runs ncclCommAbort() */
    bool aborting;
};

struct lt_nccl_event {
    lt_cuda *c; /* not the group, which may be freed earlier */
    const lt_cuda_api *api;
    lt_cuda_event event;
};

/* NCCL_VERSION_CODE of 2.9 and later: major * 10000 + minor * 100 + patch. */
enum { MAJOR = 10000, MINOR = 100 };
enum { LEAST = 2 * MAJOR + 18 * MINOR }; /* the first with ncclCommSplit() */

/* NCCL has error texts, but not the names of its codes. */
static const char *error_name(ncclResult_t code)
{
    static const char *const names[] = {[ncclUnhandledCudaError] = "ncclUnhandledCudaError",
                                        [ncclSystemError] = "ncclSystemError",
                                        [ncclInternalError] = "ncclInternalError",
                                        [ncclInvalidArgument] = "ncclInvalidArgument",
                                        [ncclInvalidUsage] = "ncclInvalidUsage",
                                        [ncclRemoteError] = "ncclRemoteError"};
    const size_t i = (size_t)code;
    return i < sizeof names / sizeof *names && names[i] ? names[i] : "a failure";
}

static lt_status check_nccl(const lt_nccl_group *g, ncclResult_t code, const char *call)
{
    if (code == ncclSuccess)
        return LT_OK;
    const char *more = ncclGetLastError(g ? g->comm : NULL);
    return lt_fail(LT_E_COMM, "%s: NCCL says: %s, %s (%d)%s%.300s", call, error_name(code),
                   ncclGetErrorString(code), (int)code, more && *more ? ": " : "",
                   more ? more : "");
}

static lt_status check_cuda(const lt_cuda *c, int code, const char *call)
{
    return lt_cuda_check(c, LT_CUDA_RUNTIME, code, call);
}

static lt_status check_version(void)
{
    Dl_info info = {0};
    int found = 0;
    LT_TRY(check_nccl(NULL, ncclGetVersion(&found), "ncclGetVersion"));
    const bool known = dladdr((const void *)(uintptr_t)ncclGetVersion, &info) && info.dli_fname;
    if (found / MAJOR == LEAST / MAJOR && found >= LEAST)
        return LT_OK;
    return lt_fail(LT_E_UNSUPPORTED,
                   "comm nccl: NCCL %d.%d was found (%s), want %d.%d or a later %d.x",
                   found / MAJOR, found % MAJOR / MINOR, known ? info.dli_fname : "?",
                   LEAST / MAJOR, LEAST % MAJOR / MINOR, LEAST / MAJOR);
}

static lt_status set_device(void *device)
{
    lt_cuda *c = device;
    return check_cuda(c, lt_cuda_get_api(c)->set_device(lt_cuda_ordinal(c)), "cudaSetDevice");
}

static lt_status gpu_name(void *device, char text[LT_NCCL_GPU_NAME])
{
    const lt_cuda *c = device;
    char bus[20] = ""; /* "00000000:65:00.0" at most */
    LT_TRY(check_cuda(c, (int)cudaDeviceGetPCIBusId(bus, sizeof bus, lt_cuda_ordinal(c)),
                      "cudaDeviceGetPCIBusId"));
    snprintf(text, LT_NCCL_GPU_NAME, "%.30s at %s", lt_cuda_name(c), bus);
    return LT_OK;
}

static lt_status unique_id(char id[LT_NCCL_ID])
{
    ncclUniqueId made;
    _Static_assert(sizeof made == LT_NCCL_ID, "an id of NCCL");
    LT_TRY(check_nccl(NULL, ncclGetUniqueId(&made), "ncclGetUniqueId"));
    memcpy(id, &made, sizeof made);
    return LT_OK;
}

/* Frees all but the ncclComm_t, which was destroyed or never made. */
static void free_group(lt_nccl_group *g)
{
    const lt_cuda_api *api = g->api;
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
    const lt_cuda_api *api = lt_cuda_get_api(c);
    lt_nccl_group *g = calloc(1, sizeof *g);
    if (!g)
        return lt_fail(LT_E_NOMEM, "comm nccl: no memory");
    g->c = c;
    g->api = api;
    lt_status st =
        check_cuda(c, api->stream_create(&g->stream, true), "cudaStreamCreateWithPriority");
    if (!st)
        st = check_cuda(c, api->event_create(&g->before, false), "cudaEventCreateWithFlags");
    if (!st)
        st = check_cuda(c, api->alloc(&g->scratch, sizeof(int32_t)), "cudaMalloc");
    if (!st)
        st = check_cuda(c, api->set_async(g->scratch, 0, sizeof(int32_t), g->stream),
                        "cudaMemsetAsync");
    if (st)
        free_group(g);
    else
        *out = g;
    return st;
}

static lt_status init_rank(lt_nccl_group **out, void *device, const char id[LT_NCCL_ID], int rank,
                           int size)
{
    ncclUniqueId known;
    lt_nccl_group *g;
    memcpy(&known, id, sizeof known);
    LT_TRY(new_group(&g, device));
    lt_status st = check_nccl(g, ncclCommInitRank(&g->comm, size, known, rank), "ncclCommInitRank");
    if (st)
        free_group(g);
    else
        *out = g;
    return st;
}

static lt_status split_group(lt_nccl_group *group, int color, int key, lt_nccl_group **out,
                             int *rank, int *size)
{
    lt_nccl_group *g;
    LT_TRY(new_group(&g, group->c));
    lt_status st =
        check_nccl(group, ncclCommSplit(group->comm, color, key, &g->comm, NULL), "ncclCommSplit");
    if (!st)
        st = check_nccl(g, ncclCommUserRank(g->comm, rank), "ncclCommUserRank");
    if (!st)
        st = check_nccl(g, ncclCommCount(g->comm, size), "ncclCommCount");
    if (st && g->comm)
        ncclCommAbort(g->comm);
    if (st)
        free_group(g);
    else
        *out = g;
    return st;
}

static void destroy_group(lt_nccl_group *g)
{
    g->api->stream_sync(g->stream);
    if (ncclCommFinalize(g->comm) == ncclSuccess)
        ncclCommDestroy(g->comm);
    else
        ncclCommAbort(g->comm);
    free_group(g);
}

static void *run_comm_abort(void *context)
{
    lt_nccl_group *g = context;
    g->api->set_device(lt_cuda_ordinal(g->c));
    ncclCommAbort(g->comm);
    return NULL;
}

/* Runs ncclCommAbort() on a separate thread: it ends running calls immediately, but returns only when no graph contains
 * calls of the group. */
static void abort_group(lt_nccl_group *g)
{
    g->aborting = !pthread_create(&g->aborter, NULL, run_comm_abort, g);
    if (!g->aborting)
        run_comm_abort(g);
}

/* Leaks a group whose graphs are never freed, as its ncclCommAbort() does not return. */
static void finish_abort(lt_nccl_group *g)
{
    enum { PATIENCE = 10 }; /* seconds */
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE;
    if (!g->aborting || !pthread_timedjoin_np(g->aborter, NULL, &until))
        free_group(g);
}

static lt_status async_error(lt_nccl_group *g)
{
    ncclResult_t found = ncclSuccess;
    LT_TRY(check_nccl(g, ncclCommGetAsyncError(g->comm, &found), "ncclCommGetAsyncError"));
    return found == ncclInProgress ? LT_OK : check_nccl(g, found, "a call that was queued");
}

static lt_status group_start(lt_nccl_group *g)
{
    const lt_cuda *c = g->c;
    LT_TRY(
        check_cuda(c, g->api->event_record(g->before, lt_cuda_main_stream(c)), "cudaEventRecord"));
    LT_TRY(check_cuda(c, g->api->stream_wait(g->stream, g->before), "cudaStreamWaitEvent"));
    return check_nccl(g, ncclGroupStart(), "ncclGroupStart");
}

static lt_status group_end(lt_nccl_group *g)
{
    return check_nccl(g, ncclGroupEnd(), "ncclGroupEnd");
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

static ncclRedOp_t reduction_op(lt_reduce op)
{
    return op == LT_REDUCE_SUM ? ncclSum : op == LT_REDUCE_MEAN ? ncclAvg : ncclMax;
}

static lt_status allreduce(lt_nccl_group *g, const lt_comm_call *c)
{
    return check_nccl(g,
                      ncclAllReduce(c->in, c->out, (size_t)c->elements, data_type(c->dtype),
                                    reduction_op(c->op), g->comm, g->stream),
                      "ncclAllReduce");
}

static lt_status reduce_scatter(lt_nccl_group *g, const lt_comm_call *c, int64_t count)
{
    return check_nccl(g,
                      ncclReduceScatter(c->in, c->out, (size_t)count, data_type(c->dtype),
                                        reduction_op(c->op), g->comm, g->stream),
                      "ncclReduceScatter");
}

static lt_status allgather(lt_nccl_group *g, const lt_comm_call *c, int64_t count)
{
    return check_nccl(
        g, ncclAllGather(c->in, c->out, (size_t)count, data_type(c->dtype), g->comm, g->stream),
        "ncclAllGather");
}

static lt_status reduce(lt_nccl_group *g, const lt_comm_call *c)
{
    return check_nccl(g,
                      ncclReduce(c->in, c->out, (size_t)c->elements, data_type(c->dtype),
                                 reduction_op(c->op), c->root, g->comm, g->stream),
                      "ncclReduce");
}

static lt_status broadcast(lt_nccl_group *g, const lt_comm_call *c)
{
    return check_nccl(g,
                      ncclBroadcast(c->in, c->out, (size_t)c->elements, data_type(c->dtype),
                                    c->root, g->comm, g->stream),
                      "ncclBroadcast");
}

static lt_status send(lt_nccl_group *g, const lt_comm_call *c)
{
    return check_nccl(
        g, ncclSend(c->in, (size_t)c->elements, data_type(c->dtype), c->root, g->comm, g->stream),
        "ncclSend");
}

static lt_status recv(lt_nccl_group *g, const lt_comm_call *c)
{
    return check_nccl(
        g, ncclRecv(c->out, (size_t)c->elements, data_type(c->dtype), c->root, g->comm, g->stream),
        "ncclRecv");
}

static lt_status barrier(lt_nccl_group *g)
{
    return check_nccl(
        g, ncclAllReduce(g->scratch, g->scratch, 1, ncclInt32, ncclSum, g->comm, g->stream),
        "ncclAllReduce");
}

static bool is_capturing(lt_nccl_group *g)
{
    return lt_cuda_is_capturing(g->c);
}

static void set_launch_hooks(void *device, const lt_nccl_launch_hooks *hooks)
{
    lt_cuda_launch_hooks own = {0};
    if (hooks)
        own = (lt_cuda_launch_hooks){hooks->context, hooks->before, hooks->after};
    lt_cuda_set_launch_hooks(device, own);
}

static void event_destroy(lt_nccl_event *e)
{
    if (e->event)
        e->api->event_destroy(e->event);
    free(e);
}

static lt_status record_on_stream(lt_cuda *c, lt_cuda_stream stream, lt_nccl_event **out)
{
    lt_nccl_event *e = calloc(1, sizeof *e);
    if (!e)
        return lt_fail(LT_E_NOMEM, "comm nccl: no memory");
    e->c = c;
    e->api = lt_cuda_get_api(c);
    lt_status st =
        check_cuda(c, e->api->event_create(&e->event, false), "cudaEventCreateWithFlags");
    if (!st)
        st = check_cuda(c, e->api->event_record(e->event, stream), "cudaEventRecord");
    if (st)
        event_destroy(e);
    else
        *out = e;
    return st;
}

static lt_status record_group_stream(lt_nccl_group *g, lt_nccl_event **out)
{
    return record_on_stream(g->c, g->stream, out);
}

static lt_status record_main_stream(void *device, lt_nccl_event **out)
{
    return record_on_stream(device, lt_cuda_main_stream(device), out);
}

static lt_status event_query(lt_nccl_event *e, bool *done)
{
    const int code = e->api->event_query(e->event);
    *done = code == LT_CUDA_SUCCESS;
    return code == LT_CUDA_NOT_READY ? LT_OK : check_cuda(e->c, code, "cudaEventQuery");
}

static lt_status main_stream_wait(lt_nccl_event *e)
{
    return check_cuda(e->c, e->api->stream_wait(lt_cuda_main_stream(e->c), e->event),
                      "cudaStreamWaitEvent");
}

LT_API extern const lt_nccl_api lt_nccl_cuda;
const lt_nccl_api lt_nccl_cuda = {
    .version = LT_VERSION,
    .check = check_version,
    .set_device = set_device,
    .gpu_name = gpu_name,
    .unique_id = unique_id,
    .init_rank = init_rank,
    .split = split_group,
    .destroy = destroy_group,
    .abort = abort_group,
    .finish_abort = finish_abort,
    .async_error = async_error,
    .group_start = group_start,
    .group_end = group_end,
    .allreduce = allreduce,
    .reduce_scatter = reduce_scatter,
    .allgather = allgather,
    .reduce = reduce,
    .broadcast = broadcast,
    .send = send,
    .recv = recv,
    .barrier = barrier,
    .is_capturing = is_capturing,
    .set_launch_hooks = set_launch_hooks,
    .record_main = record_main_stream,
    .record = record_group_stream,
    .event_query = event_query,
    .main_wait = main_stream_wait,
    .event_destroy = event_destroy,
};
