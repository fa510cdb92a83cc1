/* The communicator of a single rank: every collective is a copy or nothing, and done at once. */

#include "dist/comm.h"

#include <stdatomic.h>

typedef struct self_comm {
    lt_comm base;
    atomic_bool aborted;
} self_comm;

static lt_status check(lt_comm *self)
{
    if (atomic_load(&((self_comm *)self)->aborted))
        return lt_fail(LT_E_COMM, "comm: the group was aborted");
    return LT_OK;
}

static lt_status open(lt_comm *self, lt_device *device)
{
    (void)device;
    self->rank = 0;
    self->size = 1;
    return LT_OK;
}

static void close(lt_comm *self)
{
    (void)self;
}

static lt_status allreduce(lt_comm *self, lt_tensor *tensor, lt_reduce op, lt_request **request)
{
    (void)tensor;
    (void)op;
    (void)request;
    return check(self);
}

static lt_status copy(lt_comm *self, const lt_tensor *from, lt_tensor *to, int64_t count)
{
    LT_TRY(check(self));
    if (count != lt_tensor_count(from))
        return lt_fail(LT_E_SHAPE, "comm: %lld elements announced, the tensor has %lld",
                       (long long)count, (long long)lt_tensor_count(from));
    return lt_tensor_copy(to, from);
}

static lt_status allgather(lt_comm *self, const lt_tensor *part, lt_tensor *whole,
                           const int64_t *count, lt_request **request)
{
    (void)request;
    return copy(self, part, whole, count[0]);
}

static lt_status reducescatter(lt_comm *self, const lt_tensor *whole, lt_tensor *part,
                               const int64_t *count, lt_reduce op, lt_request **request)
{
    (void)op;
    (void)request;
    return copy(self, whole, part, count[0]);
}

static lt_status broadcast(lt_comm *self, lt_tensor *tensor, int root, lt_request **request)
{
    (void)tensor;
    (void)root;
    (void)request;
    return check(self);
}

static lt_status wait(lt_request *request)
{
    (void)request;
    return LT_OK;
}

static void abort_group(lt_comm *self)
{
    atomic_store(&((self_comm *)self)->aborted, true);
}

const lt_comm_ops lt_comm_self = {
    .kind = "self",
    .bytes = sizeof(self_comm),
    .open = open,
    .close = close,
    .allreduce = allreduce,
    .allgather = allgather,
    .reducescatter = reducescatter,
    .broadcast = broadcast,
    .barrier = check,
    .wait = wait,
    .abort = abort_group,
};
