/* Maps collectives of operations to those of an axis' communicator. A reduction to a root is a reduce-scatter whose root
 * has all elements: each other rank sends its elements once. */

#include "dist/mesh/mesh_collectives.h"

#include "base/alloc.h"
#include "dist/comm/comm.h"

static const lt_comm_call_kind comm_calls[] = {
    [LT_COLLECTIVE_ALLREDUCE] = LT_COMM_ALLREDUCE,
    [LT_COLLECTIVE_ALLREDUCE_MAX] = LT_COMM_ALLREDUCE,
    [LT_COLLECTIVE_ALLGATHER] = LT_COMM_ALLGATHER,
    [LT_COLLECTIVE_REDUCESCATTER] = LT_COMM_REDUCESCATTER,
    [LT_COLLECTIVE_BROADCAST] = LT_COMM_BROADCAST,
    [LT_COLLECTIVE_REDUCE] = LT_COMM_REDUCESCATTER,
};

/* Returns the view that this rank sends. */
static const lt_view *sent_view(const lt_collective_call *call)
{
    const bool in_place = call->what == LT_COLLECTIVE_ALLREDUCE
                          || call->what == LT_COLLECTIVE_ALLREDUCE_MAX
                          || call->what == LT_COLLECTIVE_BROADCAST;
    return in_place ? &call->out : &call->in;
}

static const int64_t *rank_counts(const lt_mesh_exchange *self, const lt_collective_call *call)
{
    if (call->what != LT_COLLECTIVE_REDUCE)
        return call->count;
    for (int r = 0; r < self->base.size; r++)
        self->count[r] = r == call->root ? lt_shape_count(call->in.shape) : 0;
    return self->count;
}

static lt_status check_call(const lt_mesh_exchange *self, const lt_collective_call *call)
{
    const lt_view *in = sent_view(call);
    const bool gets = call->what != LT_COLLECTIVE_REDUCE || self->base.rank == call->root;
    if (call->root < 0 || call->root >= self->base.size)
        return lt_fail(LT_E_ARG, "exchange: root %d, want 0 to %d", call->root,
                       self->base.size - 1);
    if (!in->data || !lt_view_is_dense(in) || (gets && !lt_view_is_dense(&call->out)))
        return lt_fail(LT_E_ARG, "exchange: %s needs dense views with data",
                       lt_call_name(comm_calls[call->what]));
    if (gets && call->out.dtype != in->dtype)
        return lt_fail(LT_E_SHAPE, "exchange: %s from %s to %s, want equal dtypes",
                       lt_call_name(comm_calls[call->what]), lt_dtype_name(in->dtype),
                       lt_dtype_name(call->out.dtype));
    return LT_OK;
}

static lt_status begin_exchange(lt_process_group *exchange, const lt_collective_call *call,
                                void **request)
{
    lt_mesh_exchange *self = (lt_mesh_exchange *)exchange;
    lt_request *begun = NULL;
    *request = NULL;
    LT_TRY(check_call(self, call));
    const lt_view *in = sent_view(call);
    const lt_view *whole = call->what == LT_COLLECTIVE_ALLGATHER ? &call->out : in;
    const lt_comm_call c = {.what = comm_calls[call->what],
                            .op = call->what == LT_COLLECTIVE_ALLREDUCE_MAX ? LT_REDUCE_MAX
                                                                            : LT_REDUCE_SUM,
                            .dtype = in->dtype,
                            .root = call->what == LT_COLLECTIVE_BROADCAST ? call->root : 0,
                            .elements = lt_shape_count(whole->shape),
                            .count = rank_counts(self, call),
                            .in = in->data,
                            .out = call->out.data};
    LT_TRY(lt_comm_begin(self->comm, &c, NULL, &begun));
    *request = begun;
    return LT_OK;
}

static lt_status wait_for_exchange(lt_process_group *exchange, void **request)
{
    lt_request *begun = *request;
    (void)exchange;
    *request = NULL;
    return lt_request_wait(&begun);
}

lt_status lt_mesh_exchange_open(lt_mesh_exchange *self, lt_comm *comm)
{
    const int size = lt_comm_size(comm);
    self->base = (lt_process_group){lt_comm_rank(comm), size, begin_exchange, wait_for_exchange};
    self->comm = comm;
    return LT_ALLOC(&self->count, (size_t)size);
}

void lt_mesh_exchange_close(lt_mesh_exchange *self)
{
    lt_comm_close(&self->comm);
    lt_free(self->count);
}
