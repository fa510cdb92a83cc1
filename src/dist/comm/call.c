/* Argument checks of collectives, their description in messages, and their payload bytes. */

#include "dist/comm/call.h"

#include "tensor/tensor.h"

#include <inttypes.h>
#include <stdio.h>

enum { TEXT = 128 };

static const char *const names[] = {
    [LT_COMM_ALLREDUCE] = "allreduce", [LT_COMM_REDUCESCATTER] = "reducescatter",
    [LT_COMM_ALLGATHER] = "allgather", [LT_COMM_BROADCAST] = "broadcast",
    [LT_COMM_BARRIER] = "barrier",     [LT_COMM_CLOSE] = "close",
    [LT_COMM_SEND] = "send",           [LT_COMM_RECV] = "recv",
    [LT_COMM_ALLTOALL] = "alltoall",   [LT_COMM_PARTIAL] = "mean of the first ranks",
};

const char *lt_call_name(lt_comm_call_kind what)
{
    return names[what];
}

static const char *op_name(lt_reduce op)
{
    return op == LT_REDUCE_SUM ? "sum" : op == LT_REDUCE_MEAN ? "mean" : "max";
}

const char *lt_call_text(const lt_comm_call *call, char *text, size_t bytes)
{
    char what[TEXT], data[TEXT];
    snprintf(what, sizeof what, "%s", names[call->what]);
    if (call->what == LT_COMM_ALLREDUCE || call->what == LT_COMM_REDUCESCATTER)
        snprintf(what, sizeof what, "%s (%s)", names[call->what], op_name(call->op));
    snprintf(data, sizeof data, " of %" PRId64 " %s", call->elements, lt_dtype_name(call->dtype));
    if (call->what == LT_COMM_BARRIER || call->what == LT_COMM_CLOSE)
        snprintf(text, bytes, "%s", what);
    else if (call->what == LT_COMM_BROADCAST || call->what == LT_COMM_RECV)
        snprintf(text, bytes, "%s%s from rank %d", what, data, call->root);
    else if (call->what == LT_COMM_SEND)
        snprintf(text, bytes, "%s%s to rank %d", what, data, call->root);
    else
        snprintf(text, bytes, "%s%s", what, data);
    return text;
}

int64_t lt_call_piece_offset(const lt_comm_call *call, int rank, int size)
{
    const int64_t each = call->elements / size, longer = call->elements % size;
    return each * rank + (rank < longer ? rank : longer);
}

int64_t lt_call_chunk_offset(const lt_comm_call *call, int rank, int size)
{
    int64_t sum = 0;
    if (!call->count)
        return lt_call_piece_offset(call, rank, size);
    for (int r = 0; r < rank; r++)
        sum += call->count[r];
    return sum;
}

int64_t lt_call_received_offset(const lt_comm_call *call, int rank)
{
    int64_t sum = 0;
    for (int r = 0; r < rank; r++)
        sum += call->received_count[r];
    return sum;
}

/* Counts the bytes of an all-gather in pieces: parts of this rank's shard to the ranks of their pieces, then its piece. */
static void count_pieces(const lt_comm_call *call, int rank, int size, uint64_t *sent,
                         uint64_t *received)
{
    const int64_t begin = lt_call_chunk_offset(call, rank, size),
                  end = lt_call_chunk_offset(call, rank + 1, size),
                  from = lt_call_piece_offset(call, rank, size),
                  to = lt_call_piece_offset(call, rank + 1, size),
                  both = (end < to ? end : to) - (begin > from ? begin : from),
                  kept = both > 0 ? both : 0;
    const uint64_t element = lt_dtype_size(call->dtype);
    *sent = element * (uint64_t)(end - begin - kept + (size - 1) * (to - from));
    *received = element * (uint64_t)(call->elements - kept);
}

void lt_call_payload_bytes(const lt_comm_call *call, int rank, int size, uint64_t *sent,
                           uint64_t *received)
{
    uint64_t element = lt_dtype_size(call->dtype), others = (uint64_t)size - 1;
    uint64_t all = (uint64_t)call->elements * element;
    uint64_t own = element
                   * (uint64_t)(lt_call_chunk_offset(call, rank + 1, size)
                                - lt_call_chunk_offset(call, rank, size));
    *sent = *received = 0;
    switch (call->what) {
    case LT_COMM_ALLREDUCE:
        *sent = *received = all - own + others * own;
        break;
    case LT_COMM_REDUCESCATTER:
        *sent = all - own;
        *received = others * own;
        break;
    case LT_COMM_ALLGATHER:
        *sent = others * own;
        *received = all - own;
        if (call->tree)
            count_pieces(call, rank, size, sent, received);
        break;
    case LT_COMM_BROADCAST:
        *sent = rank == call->root ? others * all : 0;
        if (call->tree)
            *sent = rank == call->root ? all - own + others * own : (others - 1) * own;
        *received = rank == call->root ? 0 : all;
        break;
    case LT_COMM_ALLTOALL:
        *sent = all - own;
        *received =
            element * (uint64_t)(lt_call_received_offset(call, size) - call->received_count[rank]);
        break;
    case LT_COMM_SEND:
        *sent = all;
        break;
    case LT_COMM_RECV:
        *received = all;
        break;
    case LT_COMM_BARRIER:
    case LT_COMM_CLOSE:
    case LT_COMM_PARTIAL:
        break;
    }
}

/* Checks that a tensor can be communicated on comm; sets *data to its memory, and the call's dtype. */
static lt_status check_and_get_data(lt_comm_call *call, const lt_comm *comm,
                                    const lt_tensor *tensor, void **data)
{
    char text[LT_SHAPE_TEXT];
    LT_TRY(lt_tensor_materialize(tensor));
    lt_view view = lt_tensor_view(tensor);
    if (!view.data)
        return lt_fail(LT_E_ARG, "comm: %s: the tape already freed this tensor; use lt_tape_keep()",
                       names[call->what]);
    if (!lt_view_is_dense(&view))
        return lt_fail(LT_E_ARG, "comm: %s: tensor %s is not dense in memory", names[call->what],
                       lt_shape_text(view.shape, text));
    if (tensor->device->backend->host_memory != comm->device->backend->host_memory)
        return lt_fail(LT_E_ARG, "comm: %s: the tensor is on %s, the communicator is for %s",
                       names[call->what], lt_device_name(tensor->device),
                       lt_device_name(comm->device));
    call->dtype = view.dtype;
    *data = view.data;
    return LT_OK;
}

static lt_status check_reduction(const lt_comm_call *call)
{
    if (call->what != LT_COMM_ALLREDUCE && call->what != LT_COMM_REDUCESCATTER)
        return LT_OK;
    if (call->op != LT_REDUCE_SUM && call->op != LT_REDUCE_MEAN && call->op != LT_REDUCE_MAX)
        return lt_fail(LT_E_ARG, "comm: invalid reduction %d, want sum, mean or max",
                       (int)call->op);
    bool integers = call->dtype == LT_I32 || call->dtype == LT_I64;
    if (call->dtype == LT_U8 || (integers && call->op == LT_REDUCE_MEAN))
        return lt_fail(LT_E_UNSUPPORTED,
                       "comm: %s (%s) of %s is not supported; sum and max take f32 f64 f16 bf16 "
                       "i32 i64, mean takes f32 f64 f16 bf16",
                       names[call->what], op_name(call->op), lt_dtype_name(call->dtype));
    return LT_OK;
}

lt_status lt_call_fill_allreduce(lt_comm_call *call, const lt_comm *comm, lt_tensor *tensor,
                                 lt_reduce op)
{
    *call =
        (lt_comm_call){.what = LT_COMM_ALLREDUCE, .op = op, .elements = lt_tensor_count(tensor)};
    call->tree = lt_device_is_reproducible(comm->device);
    LT_TRY(check_and_get_data(call, comm, tensor, &call->out));
    call->in = call->out;
    return check_reduction(call);
}

lt_status lt_call_fill_bcast_send_recv(lt_comm_call *call, const lt_comm *comm,
                                       const lt_tensor *tensor, int root)
{
    call->root = root;
    call->elements = lt_tensor_count(tensor);
    if (root < 0 || root >= comm->size)
        return lt_fail(LT_E_ARG, "comm: %s: rank %d, want 0 to %d", names[call->what], root,
                       comm->size - 1);
    if (call->what != LT_COMM_BROADCAST && root == comm->rank)
        return lt_fail(LT_E_ARG, "comm: %s: rank %d is this rank", names[call->what], root);
    LT_TRY(check_and_get_data(call, comm, tensor, &call->out));
    call->in = call->out;
    enum { PIECES_RANKS = 4, PIECES_BYTES = 1 << 16 };
    call->tree = call->what == LT_COMM_BROADCAST && comm->size >= PIECES_RANKS
                 && call->elements * (int64_t)lt_dtype_size(call->dtype) >= PIECES_BYTES;
    return LT_OK;
}

static lt_status check_shard_counts(const lt_comm_call *call, const lt_comm *comm,
                                    const lt_tensor *shard, const lt_tensor *whole)
{
    const int64_t *count = call->count;
    for (int r = 0; r < comm->size; r++)
        if (count[r] < 0)
            return lt_fail(LT_E_ARG, "comm: %s: a count of %" PRId64 " for rank %d, want 0 or more",
                           names[call->what], count[r], r);
    if (count[comm->rank] && (!shard || lt_tensor_count(shard) != count[comm->rank]))
        return lt_fail(
            LT_E_SHAPE,
            "comm: %s: the shard of rank %d has %" PRId64 " elements, its count is %" PRId64,
            names[call->what], comm->rank, shard ? lt_tensor_count(shard) : 0, count[comm->rank]);
    if (call->elements && (!whole || lt_tensor_count(whole) != call->elements))
        return lt_fail(LT_E_SHAPE,
                       "comm: %s: the whole has %" PRId64 " elements, its shards %" PRId64,
                       names[call->what], whole ? lt_tensor_count(whole) : 0, call->elements);
    return LT_OK;
}

/* Returns true if an all-gather goes in pieces, as even as possible, after a shard's parts were sent to the ranks of their
 * pieces: of unequal shards the longest is then sent once instead of to each rank. */
static bool goes_in_pieces(const lt_comm_call *call, int size)
{
    enum { LEAST_SAVED = 1 << 18 }; /* bytes: a second phase costs a latency */
    int64_t longest = 0;
    for (int r = 0; r < size; r++)
        longest = call->count[r] > longest ? call->count[r] : longest;
    const int64_t others = size - 1, piece = (call->elements + others) / size;
    return (others * longest - longest - others * piece) * (int64_t)lt_dtype_size(call->dtype)
           >= LEAST_SAVED;
}

lt_status lt_call_fill_sharded(lt_comm_call *call, const lt_comm *comm, const lt_tensor *shard,
                               const lt_tensor *whole, const int64_t *count)
{
    void *small = NULL, *large = NULL;
    call->count = count;
    call->tree = lt_device_is_reproducible(comm->device);
    call->elements = lt_call_chunk_offset(call, comm->size, comm->size);
    LT_TRY(check_shard_counts(call, comm, shard, whole));
    if (call->elements) {
        LT_TRY(check_and_get_data(call, comm, whole, &large));
        lt_dtype dtype = call->dtype;
        if (count[comm->rank])
            LT_TRY(check_and_get_data(call, comm, shard, &small));
        if (call->dtype != dtype)
            return lt_fail(LT_E_SHAPE, "comm: %s: the whole is %s, the shard %s", names[call->what],
                           lt_dtype_name(dtype), lt_dtype_name(call->dtype));
    }
    bool gather = call->what == LT_COMM_ALLGATHER;
    if (gather)
        call->tree = call->elements && goes_in_pieces(call, comm->size);
    call->in = gather ? small : large;
    call->out = gather ? large : small;
    return check_reduction(call);
}

/* Checks one direction of an all-to-all; side: "to" or "from". */
static lt_status check_alltoall_counts(const lt_comm *comm, const char *side, const int64_t *count,
                                       const lt_tensor *tensor)
{
    int64_t sum = 0, has = tensor ? lt_tensor_count(tensor) : 0;
    for (int r = 0; r < comm->size; r++) {
        if (count[r] < 0)
            return lt_fail(LT_E_ARG,
                           "comm: alltoall: a count of %" PRId64 " %s rank %d, want 0 or more",
                           count[r], side, r);
        sum += count[r];
    }
    if (sum && sum != has)
        return lt_fail(LT_E_SHAPE,
                       "comm: alltoall: the tensor has %" PRId64 " elements, the counts %s ranks "
                       "add up to %" PRId64,
                       has, side, sum);
    return LT_OK;
}

lt_status lt_call_fill_alltoall(lt_comm_call *call, const lt_comm *comm, const lt_tensor *in,
                                const lt_tensor *out)
{
    void *from = NULL, *to = NULL;
    const int64_t *sent = call->count, *received = call->received_count;
    LT_TRY(check_alltoall_counts(comm, "to", sent, in));
    LT_TRY(check_alltoall_counts(comm, "from", received, out));
    if (sent[comm->rank] != received[comm->rank])
        return lt_fail(LT_E_ARG,
                       "comm: alltoall: rank %d sends itself %" PRId64
                       " elements and receives %" PRId64 " of them",
                       comm->rank, sent[comm->rank], received[comm->rank]);
    call->elements = lt_call_chunk_offset(call, comm->size, comm->size);
    if (lt_call_received_offset(call, comm->size))
        LT_TRY(check_and_get_data(call, comm, out, &to));
    lt_dtype dtype = call->dtype;
    if (call->elements)
        LT_TRY(check_and_get_data(call, comm, in, &from));
    if (from && to && call->dtype != dtype)
        return lt_fail(LT_E_SHAPE, "comm: alltoall: the input is %s, the output %s",
                       lt_dtype_name(call->dtype), lt_dtype_name(dtype));
    if (from && from == to)
        return lt_fail(LT_E_ARG, "comm: alltoall: in and out must not overlap");
    call->in = from;
    call->out = to;
    return LT_OK;
}
