/* A stand-in for NCCL between processes of one machine: the functions of nccl.h that the library calls. As in NCCL, a
 * group is one piece of work on its stream, a send completes only once its receiver has the message, and destroying
 * or aborting a communicator waits until no captured graph holds its calls. Stricter than NCCL: ranks that call
 * different collectives get an error. */

#include "nccl_shared.h"
#include "standin.h"
#include "version.h"

#include <cstdio>
#include <cstring>
#include <time.h>
#include <unistd.h>

using standin_nccl::end;
using standin_nccl::operation;

struct ncclComm {
    std::shared_ptr<end> e;
};

namespace
{

struct queued {
    ncclComm_t comm;
    cudaStream_t stream;
    operation op;
};

/* State of a thread between ncclGroupStart() and ncclGroupEnd(). */
thread_local int depth;
thread_local std::vector<queued> pending;
thread_local std::string last_error;

void pause_a_little()
{
    const timespec t = {0, 1000000};
    nanosleep(&t, NULL);
}

ncclResult_t refused(const char *call)
{
    if (!standin_fails(call))
        return ncclSuccess;
    last_error = std::string(call) + " was told to fail";
    return ncclSystemError;
}

/* One piece of work for each communicator and stream, in the order of their first calls. */
void flush()
{
    while (!pending.empty()) {
        const queued head = pending.front();
        std::vector<operation> ops;
        std::vector<queued> rest;
        for (const queued &q : pending)
            if (q.comm == head.comm && q.stream == head.stream)
                ops.push_back(q.op);
            else
                rest.push_back(q);
        pending = rest;
        const bool recorded = standin_capturing(head.stream);
        standin_queue_until(head.stream, standin_nccl::work(head.comm->e, ops, recorded), "NCCL");
    }
}

uint64_t in_elements(const operation &o, int size)
{
    return o.what.kind == standin_nccl::REDUCE_SCATTER ? o.what.count * (uint64_t)size
                                                       : o.what.count;
}

uint64_t out_elements(const operation &o, int size)
{
    return o.what.kind == standin_nccl::GATHER ? o.what.count * (uint64_t)size : o.what.count;
}

ncclResult_t add(const char *name, ncclComm_t comm, cudaStream_t stream, const operation &o)
{
    const size_t element = standin_nccl::bytes_of(o.what.dtype);
    const int size = comm->e->size;
    if (refused(name))
        return ncclSystemError;
    if (o.what.root < 0 || o.what.root >= size) {
        last_error = std::string(name) + ": no such rank";
        return ncclInvalidArgument;
    }
    if (o.in)
        standin_check_device(o.in, in_elements(o, size) * element, name);
    if (o.out)
        standin_check_device(o.out, out_elements(o, size) * element, name);
    pending.push_back({comm, stream, o});
    if (!depth)
        flush();
    return ncclSuccess;
}

operation describe(standin_nccl::kind kind, const void *in, void *out, size_t count, int dtype,
                   int op, int root)
{
    return {{kind, dtype, op, root, count}, in, out};
}

ncclResult_t no_memory(ncclComm_t *out, const std::string &why)
{
    *out = NULL;
    last_error = why;
    return ncclSystemError;
}

ncclResult_t join(ncclComm_t *out, const std::string &name, int rank, int size)
{
    std::string why;
    auto e = standin_nccl::attach(name, rank, size, &why);
    if (!e)
        return no_memory(out, why);
    *out = new ncclComm{e};
    return ncclSuccess;
}

/* Until nothing that runs or is recorded needs the communicator. */
void wait_for_work(const end *e)
{
    while (e->running || e->captured)
        pause_a_little();
}

} /* namespace */

ncclResult_t ncclGetVersion(int *version)
{
    int major, minor;
    *version =
        standin_version("NCCL", &major, &minor) ? major * 10000 + minor * 100 : NCCL_VERSION_CODE;
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    const std::string name = standin_nccl::new_name();
    if (refused("ncclGetUniqueId"))
        return ncclSystemError;
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "%s", name.c_str());
    standin_nccl::make_file(name);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int size, ncclUniqueId id, int rank)
{
    if (refused("ncclCommInitRank"))
        return ncclSystemError;
    return join(comm, id.internal, rank, size);
}

/* Each tells color and key by its own area; the name of a part is known to all who have its color. */
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *out, ncclConfig_t *)
{
    end *e = comm->e.get();
    const size_t turn = e->splits % standin_nccl::SLOTS;
    int rank = 0, size = 0;
    if (refused("ncclCommSplit"))
        return ncclSystemError;
    e->shared->rank[e->rank].color[turn] = color;
    e->shared->rank[e->rank].key[turn] = key;
    e->shared->rank[e->rank].splits = ++e->splits;
    for (int r = 0; r < e->size; r++)
        while (e->shared->rank[r].splits < e->splits) {
            e->look_for_dead(true);
            if (e->failure != ncclSuccess || e->aborted)
                return no_memory(out, e->why);
            pause_a_little();
        }
    for (int r = 0; r < e->size; r++) {
        const standin_nccl::rank_area &other = e->shared->rank[r];
        if (other.color[turn] != color)
            continue;
        const int theirs = other.key[turn];
        size++;
        rank += theirs < key || (theirs == key && r < e->rank);
    }
    return join(out, e->name + "." + std::to_string(e->splits) + "." + std::to_string(color), rank,
                size);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    comm->e->shared->rank[comm->e->rank].place = standin_nccl::LEFT;
    return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    comm->e->shared->rank[comm->e->rank].place = standin_nccl::LEFT;
    wait_for_work(comm->e.get());
    comm->e->closed = true;
    delete comm;
    return ncclSuccess;
}

/* Ends the running collectives without a result; the other ranks detect that this rank is gone. */
ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    comm->e->aborted = true;
    comm->e->shared->rank[comm->e->rank].place = standin_nccl::ABORTED;
    wait_for_work(comm->e.get());
    delete comm;
    return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *found)
{
    comm->e->look_for_dead(true);
    *found = (ncclResult_t)comm->e->failure.load();
    return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank)
{
    *rank = comm->e->rank;
    return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count)
{
    *count = comm->e->size;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t code)
{
    switch (code) {
    case ncclSuccess:
        return "no error";
    case ncclSystemError:
        return "unhandled system error";
    case ncclInvalidArgument:
        return "invalid argument";
    case ncclRemoteError:
        return "remote process exited or there was a network error";
    default:
        return "internal error";
    }
}

/* As in NCCL: the thread's last error, of any communicator; or an error that this communicator detected. */
const char *ncclGetLastError(ncclComm_t comm)
{
    if (!comm)
        return last_error.c_str();
    std::lock_guard<std::mutex> lock(comm->e->mutex);
    if (!comm->e->why.empty())
        last_error = comm->e->why;
    return last_error.c_str();
}

ncclResult_t ncclGroupStart()
{
    depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd()
{
    if (refused("ncclGroupEnd"))
        return ncclSystemError;
    if (!--depth)
        flush();
    return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void *in, void *out, size_t count, ncclDataType_t dtype,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    return add("ncclAllReduce", comm, stream,
               describe(standin_nccl::ALLREDUCE, in, out, count, dtype, op, 0));
}

ncclResult_t ncclReduceScatter(const void *in, void *out, size_t count, ncclDataType_t dtype,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    return add("ncclReduceScatter", comm, stream,
               describe(standin_nccl::REDUCE_SCATTER, in, out, count, dtype, op, 0));
}

ncclResult_t ncclAllGather(const void *in, void *out, size_t count, ncclDataType_t dtype,
                           ncclComm_t comm, cudaStream_t stream)
{
    return add("ncclAllGather", comm, stream,
               describe(standin_nccl::GATHER, in, out, count, dtype, 0, 0));
}

ncclResult_t ncclReduce(const void *in, void *out, size_t count, ncclDataType_t dtype,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)
{
    void *mine = root == comm->e->rank ? out : NULL;
    return add("ncclReduce", comm, stream,
               describe(standin_nccl::REDUCE, in, mine, count, dtype, op, root));
}

ncclResult_t ncclBroadcast(const void *in, void *out, size_t count, ncclDataType_t dtype, int root,
                           ncclComm_t comm, cudaStream_t stream)
{
    const void *mine = root == comm->e->rank ? in : NULL;
    return add("ncclBroadcast", comm, stream,
               describe(standin_nccl::BROADCAST, mine, out, count, dtype, 0, root));
}

ncclResult_t ncclSend(const void *in, size_t count, ncclDataType_t dtype, int to, ncclComm_t comm,
                      cudaStream_t stream)
{
    return add("ncclSend", comm, stream,
               describe(standin_nccl::SEND, in, NULL, count, dtype, 0, to));
}

ncclResult_t ncclRecv(void *out, size_t count, ncclDataType_t dtype, int from, ncclComm_t comm,
                      cudaStream_t stream)
{
    return add("ncclRecv", comm, stream,
               describe(standin_nccl::RECEIVE, NULL, out, count, dtype, 0, from));
}
