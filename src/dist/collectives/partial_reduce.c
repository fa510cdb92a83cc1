/* Partial reduction, calls of the rank's thread; partial_progress.c has those of the progress thread. */

#include "dist/collectives/partial_reduce.h"

#include "base/alloc.h"

/* --- Update --- */

lt_status lt_partial_begin(lt_partial *p, int64_t update, const bool *set)
{
    const lt_comm_call call = {.what = LT_COMM_PARTIAL,
                               .op = LT_REDUCE_MEAN,
                               .dtype = p->config.dtype,
                               .elements = p->bucket[0].elements};
    LT_ASSERT(!p->request);
    p->update = update;
    p->started = p->has_set = p->own_sent = p->summed = false;
    p->done = 0;
    p->count = (lt_partial_counts){0};
    p->has_given = set;
    for (int r = 0; r < p->size; r++)
        p->set[r] = set && set[r];
    for (int i = 0; i < 2; i++)
        p->end[i] = (lt_partial_header){.update = update, .bucket = LT_PARTIAL_END, .complete = i};
    for (size_t i = 0; i < p->config.buckets; i++) {
        p->bucket[i].header = (lt_partial_header){.update = update, .bucket = (int32_t)i};
        atomic_store(&p->bucket[i].ready, false);
    }
    atomic_store(&p->late, false);
    return lt_linked_begin_request(p->config.comm, &call, (lt_protocol){&lt_partial_protocol, p},
                                   &p->request);
}

void lt_partial_mark_ready(lt_partial *p, size_t bucket)
{
    atomic_store(&p->bucket[bucket].ready, true);
    lt_progress_wake(p->endpoint->progress);
}

bool lt_partial_is_late(const lt_partial *p)
{
    return atomic_load(&p->late);
}

lt_status lt_partial_wait(lt_partial *p)
{
    LT_TRY(lt_request_wait(&p->request));
    p->config.comm->bytes += p->count.sent;
    return LT_OK;
}

const void *lt_partial_bucket_mean(const lt_partial *p, size_t bucket)
{
    return p->bucket[bucket].out;
}

const bool *lt_partial_participants(const lt_partial *p)
{
    return p->set;
}

lt_partial_counts lt_partial_byte_counts(const lt_partial *p)
{
    return p->count;
}

/* --- Construction --- */

static lt_status make_bucket(const lt_partial *p, size_t i)
{
    enum { ALIGNMENT = 64 };
    lt_partial_bucket *b = &p->bucket[i];
    b->in = p->config.in[i];
    b->elements = p->config.elements[i];
    const size_t own = lt_partial_chunk_bytes(p, b, p->rank);
    const size_t terms = own ? own * (size_t)p->size : 1;
    b->out = lt_alloc_aligned(ALIGNMENT, (size_t)b->elements * lt_dtype_size(p->config.dtype));
    b->term = lt_alloc_aligned(ALIGNMENT, terms);
    return b->out && b->term ? LT_OK : LT_E_NOMEM;
}

static lt_status allocate_buffers(lt_partial *p)
{
    const size_t size = (size_t)p->size;
    LT_TRY(LT_ALLOC(&p->bucket, p->config.buckets));
    LT_TRY(LT_ALLOC(&p->pair, size));
    LT_TRY(LT_ALLOC(&p->set, size));
    for (size_t i = 0; i < p->config.buckets; i++)
        LT_TRY(make_bucket(p, i));
    return LT_OK;
}

lt_status lt_partial_new(lt_partial **out, const lt_partial_config *config)
{
    const int size = lt_comm_size(config->comm);
    lt_partial *p = NULL;
    LT_TRY(LT_ALLOC(&p, 1));
    p->config = *config;
    p->endpoint = lt_linked_get_endpoint(config->comm);
    p->rank = lt_comm_rank(config->comm);
    p->size = size;
    lt_status st = allocate_buffers(p);
    if (st)
        lt_partial_free(&p);
    else
        *out = p;
    return st;
}

void lt_partial_free(lt_partial **partial)
{
    lt_partial *p = *partial;
    *partial = NULL;
    if (!p)
        return;
    if (p->request)
        (void)!lt_request_wait(&p->request);
    for (size_t i = 0; p->bucket && i < p->config.buckets; i++) {
        lt_free(p->bucket[i].out);
        lt_free(p->bucket[i].term);
    }
    lt_free(p->bucket);
    lt_free(p->pair);
    lt_free(p->set);
    lt_free(p);
}
