/* Reducer without compression: one all-reduce over all ranks. */

#include "dist/comm/comm.h"
#include "dist/reducer/kinds.h"
#include "tensor/tensor.h"

static lt_request **bucket_request(const lt_reducer *self, size_t bucket)
{
    return (lt_request **)self->bucket[bucket].own;
}

typedef struct plain {
    lt_reducer base;
    lt_reducer_bytes sent;
} plain;

/* Counts bytes as the collectives send them: other ranks' chunks to their owners, then the own sum to all. */
static void count_bytes(plain *p, const lt_tensor *flat)
{
    const lt_comm *comm = p->base.comm;
    const lt_nodes *nodes = p->base.nodes;
    const lt_comm_call call = {.elements = lt_tensor_count(flat)};
    const int rank = comm->rank;
    const int64_t own = lt_call_chunk_offset(&call, rank + 1, comm->size)
                        - lt_call_chunk_offset(&call, rank, comm->size);
    for (int r = 0; r < comm->size; r++) {
        const int64_t theirs = lt_call_chunk_offset(&call, r + 1, comm->size)
                               - lt_call_chunk_offset(&call, r, comm->size);
        const uint64_t bytes = (uint64_t)(own + theirs) * lt_dtype_size(lt_tensor_dtype(flat));
        if (r == rank)
            continue;
        *(nodes && nodes->of[r] == nodes->index ? &p->sent.within : &p->sent.between) += bytes;
    }
}

static lt_status begin_bucket(lt_reducer *self, size_t bucket)
{
    lt_tensor *flat = self->bucket[bucket].flat;
    LT_TRY(lt_comm_allreduce_begin(self->comm, flat, self->op, bucket_request(self, bucket)));
    count_bytes((plain *)self, flat);
    return LT_OK;
}

static lt_status finish_bucket(lt_reducer *self, size_t bucket)
{
    return lt_request_wait(bucket_request(self, bucket));
}

static void bytes_sent(const lt_reducer *self, lt_reducer_bytes *out)
{
    *out = ((const plain *)self)->sent;
}

const lt_reducer_ops lt_reducer_plain = {
    .kind = "plain",
    .bytes = sizeof(plain),
    .bucket_bytes = sizeof(lt_request *),
    .reduces_flags = true,
    .capturable = true,
    .begin = begin_bucket,
    .finish = finish_bucket,
    .sent = bytes_sent,
};
