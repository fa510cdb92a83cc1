/* The two exchanges of a step over sharded parameters: gradients to the owners of parts, values to all ranks that
 * hold them. Megatron-LM's layer-wise distributed Muon also sends matrices to their optimizer by all-to-all; here
 * the parts are Shampoo's blocks, and owners are chosen by cost. */

#include "base/trace.h"
#include "optim/slots.h"
#include "sharded.h"
#include "tensor/tensor.h"

#include "lather/ext/comm.h"

/* --- Packing --- */

static size_t param_index_of_chunk(const lt_optim *o, lt_buffer_kind end, size_t index)
{
    return end == LT_SHARD_VALUE || end == LT_SHARD_GRAD
               ? index
               : (size_t)(o->shard->part[index].slot - o->slot);
}

/* Returns the memory that a chunk's offsets refer to. */
static lt_view buffer_of_chunk(const lt_optim *o, lt_buffer_kind end, size_t index)
{
    const struct lt_sharded_optim *p = lt_sharded_of(o);
    switch (end) {
    case LT_SHARD_VALUE:
        return lt_tensor_view(p->own.item[index]->value);
    case LT_SHARD_GRAD:
        return lt_tensor_view(p->own.item[index]->grad);
    case LT_OWNER_VALUE:
        return o->shard->part[index].value;
    case LT_OWNER_GRAD:
        return o->shard->part[index].grad;
    case LT_OWNER_UPDATE:
        break;
    }
    lt_view v = lt_tensor_view(p->update);
    v.data = (char *)v.data + (size_t)o->shard->part[index].at * lt_dtype_size(v.dtype);
    return v;
}

static lt_view chunk_rows_view(lt_view v, int64_t at, const lt_chunk *chunk, int64_t step)
{
    v.data = (char *)v.data + (size_t)at * lt_dtype_size(v.dtype);
    v.shape = LT_SHAPE(chunk->rows, chunk->count);
    v.stride[0] = step;
    v.stride[1] = 1;
    v.version = 0;
    return v;
}

/* Runs the jobs in the workspace, if it is full or at the end. */
static lt_status run_jobs_if_full(lt_optim *o, size_t *jobs, bool all)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(o, &ctx);
    struct lt_sharded_optim *p = lt_sharded_of(o);
    if (!*jobs || (!all && *jobs < p->jobs))
        return LT_OK;
    const size_t count = *jobs;
    *jobs = 0;
    return be->vec(ctx, p->job, count, NULL); /* not skipped with the step */
}

/* Copies chunks between messages and memory, for parameters with a gradient or all. beta: factor of the old
 * contents when unpacking. */
typedef struct copying {
    const lt_chunk_list *list;
    lt_buffer_kind end;
    bool pack, all;
    double beta;
} copying;

static lt_status copy_chunks(lt_optim *o, const copying *c)
{
    struct lt_sharded_optim *p = lt_sharded_of(o);
    const lt_view flat = lt_tensor_view(c->pack ? p->sent : p->received);
    size_t jobs = 0;
    for (size_t i = 0; i < c->list->count; i++) {
        const lt_chunk *chunk = &c->list->chunk[i];
        if (!c->all && !p->own.item[param_index_of_chunk(o, c->end, chunk->index)]->has_grad)
            continue;
        const lt_view memory = chunk_rows_view(buffer_of_chunk(o, c->end, chunk->index), chunk->at,
                                               chunk, chunk->step);
        const lt_view message = chunk_rows_view(flat, chunk->message, chunk, chunk->count);
        p->job[jobs++] = (lt_vec_job){
            .op = LT_VEC_AXPBY,
            .alpha = 1,
            .beta = c->pack ? 0 : c->beta,
            .a = c->pack ? memory : message,
            .y = c->pack ? message : memory,
        };
        LT_TRY(run_jobs_if_full(o, &jobs, false));
    }
    return run_jobs_if_full(o, &jobs, true);
}

/* --- Messages --- */

static lt_view header_at(const lt_tensor *flat, int64_t at)
{
    lt_view v = lt_tensor_view(flat);
    v.data = (char *)v.data + (size_t)at * lt_dtype_size(v.dtype);
    v.shape = LT_SHAPE(1);
    v.stride[0] = 1;
    return v;
}

static lt_status write_headers(lt_optim *o, const lt_message_schedule *r, double number)
{
    struct lt_sharded_optim *p = lt_sharded_of(o);
    size_t jobs = 0;
    LT_TRY(lt_tensor_fill(p->header, number));
    for (int i = 0; i < lt_comm_size(r->comm); i++) {
        p->job[jobs++] = (lt_vec_job){
            .op = LT_VEC_AXPBY,
            .alpha = 1,
            .a = lt_tensor_view(p->header),
            .y = header_at(p->sent, r->sent_at[i]),
        };
        LT_TRY(run_jobs_if_full(o, &jobs, false));
    }
    return run_jobs_if_full(o, &jobs, true);
}

/* Reads the headers to header_of, by rank of the schedule's communicator. */
static lt_status read_headers(lt_optim *o, const lt_message_schedule *r)
{
    struct lt_sharded_optim *p = lt_sharded_of(o);
    for (int i = 0; i < lt_comm_size(r->comm); i++) {
        const lt_view v = header_at(p->received, r->received_at[i]);
        LT_TRY(lt_optim_read_device_scalar(o, &v, &p->header_of[i]));
    }
    return LT_OK;
}

/* Returns the first elements of a flat message tensor, which has the length of the longer schedule. */
static lt_tensor first_elements(const lt_tensor *flat, int64_t elements)
{
    lt_tensor t = *flat;
    t.shape = LT_SHAPE(elements);
    return t;
}

static lt_status exchange_all_to_all(const lt_message_schedule *r, const lt_tensor *sent,
                                     const lt_tensor *received)
{
    lt_request *request = NULL;
    lt_tensor in = first_elements(sent, r->out.elements),
              out = first_elements(received, r->in.elements);
    LT_TRY(lt_comm_alltoall_begin(r->comm, &in, &out, r->sent, r->received, &request));
    return lt_request_wait(&request);
}

/* Sends the packed messages with a header; narrow: in the communication dtype. */
static lt_status exchange_messages(lt_optim *o, const lt_message_schedule *r, double number,
                                   bool narrow)
{
    struct lt_sharded_optim *p = lt_sharded_of(o);
    LT_TRY(write_headers(o, r, number));
    if (!narrow) {
        LT_TRY(exchange_all_to_all(r, p->sent, p->received));
        return read_headers(o, r);
    }
    lt_tensor wide = first_elements(p->sent, r->out.elements);
    LT_TRY(lt_tensor_copy(p->sent_narrow, &wide));
    LT_TRY(exchange_all_to_all(r, p->sent_narrow, p->received_narrow));
    wide = first_elements(p->received, r->in.elements);
    LT_TRY(lt_tensor_copy(&wide, p->received_narrow));
    return read_headers(o, r);
}

/* --- Gradients and values to their owners --- */

enum { HASH = 1 << 16 }; /* times 2 plus a bit it is exact in f32 */

/* Returns a hash, below HASH, of which parameters have a gradient. */
static int hash_present_gradients(const struct lt_sharded_optim *p)
{
    uint32_t h = UINT32_C(2166136261); /* FNV-1a */
    for (size_t k = 0; k < p->own.count; k++)
        h = (h ^ p->own.item[k]->has_grad) * UINT32_C(16777619);
    return (int)((h >> 16 ^ h) % HASH);
}

static bool values_changed(const struct lt_sharded_optim *p)
{
    for (size_t k = 0; k < p->own.count; k++)
        if (p->own.item[k]->value->version != p->version[k])
            return true;
    return false;
}

static void remember_versions(struct lt_sharded_optim *p)
{
    for (size_t k = 0; k < p->own.count; k++)
        p->version[k] = p->own.item[k]->value->version;
}

/* Fails, naming a parameter whose gradient only some ranks of the model's replica have. */
static lt_status fail_absent_gradient(const lt_optim *o)
{
    const struct lt_sharded_optim *p = lt_sharded_of(o);
    lt_status st = LT_OK;
    for (size_t k = 0; k < p->own.count && !st; k++) {
        const lt_param *param = p->own.item[k];
        char what[256];
        snprintf(what, sizeof what, "%s: the gradient of %s", o->ops->name, param->name);
        st = lt_comm_check_same(p->copy, what, param->has_grad ? "present" : "absent");
    }
    LT_ASSERT(st); /* their hashes differ */
    return st;
}

static lt_status pull_values(lt_optim *o)
{
    struct lt_sharded_optim *p = lt_sharded_of(o);
    LT_TRY(copy_chunks(o, &(copying){&p->pull.out, LT_SHARD_VALUE, .pack = true, .all = true}));
    LT_TRY(exchange_messages(o, &p->pull, 0, false));
    LT_TRY(copy_chunks(o, &(copying){&p->pull.in, LT_OWNER_VALUE, .all = true}));
    remember_versions(p);
    return LT_OK;
}

static lt_status pull_gradients(lt_optim *o)
{
    struct lt_sharded_optim *p = lt_sharded_of(o);
    const int own = hash_present_gradients(p);
    bool changed = false;
    LT_TRY(copy_chunks(o, &(copying){&p->pull.out, LT_SHARD_GRAD, .pack = true}));
    LT_TRY(exchange_messages(o, &p->pull, 2 * own + values_changed(p), false));
    for (int r = 0; r < lt_comm_size(p->copy); r++) {
        const int header = (int)p->header_of[r];
        if (header / 2 != own)
            return fail_absent_gradient(o);
        changed = changed || header % 2;
    }
    LT_TRY(copy_chunks(o, &(copying){&p->pull.in, LT_OWNER_GRAD, .pack = false}));
    return changed ? pull_values(o) : LT_OK;
}

lt_status lt_sharded_pull_gradients(lt_optim *o)
{
    struct lt_sharded_optim *p = lt_sharded_of(o);
    const int64_t span = lt_trace_begin();
    char text[512];
    for (size_t k = 0; k < p->own.count; k++)
        o->slot[k].param->has_grad = p->own.item[k]->has_grad;
    lt_status st = pull_gradients(o);
    lt_trace_end(span, LT_PROFILE_OPTIM, "gradients to owners", 0);
    if (!st)
        return LT_OK;
    snprintf(text, sizeof text, "%s", lt_error_message());
    lt_comm_abort(p->world); /* otherwise the other ranks would wait forever */
    return lt_fail(st, "%s", text);
}

/* --- Values to their shards --- */

/* Computes y = alpha a + beta y over this rank's parts with a gradient; a or y NULL: the parts' values. Batched. */
static lt_status combine_parts(lt_optim *o, const lt_tensor *a, const lt_tensor *y, double alpha,
                               double beta)
{
    const lt_shard *s = o->shard;
    struct lt_sharded_optim *p = lt_sharded_of(o);
    size_t jobs = 0;
    for (size_t i = 0; i < s->count; i++) {
        const lt_part *part = &s->part[i];
        if (part->owner != s->rank || !part->slot->param->has_grad)
            continue;
        p->job[jobs++] = (lt_vec_job){
            .op = LT_VEC_AXPBY,
            .alpha = alpha,
            .beta = beta,
            .a = a ? lt_sharded_owner_view(o, i, a) : part->value,
            .y = y ? lt_sharded_owner_view(o, i, y) : part->value,
        };
        LT_TRY(run_jobs_if_full(o, &jobs, false));
    }
    return run_jobs_if_full(o, &jobs, true);
}

lt_status lt_sharded_save_old_values(lt_optim *o)
{
    return o->shard->differences ? combine_parts(o, NULL, lt_sharded_of(o)->old, 1, 0) : LT_OK;
}

static bool sends_updates(const lt_shard *s)
{
    return s->config.dtype != LT_F32 && !s->config.gather_params;
}

/* Rounds the update to the communication dtype, in the owner buffer too. */
static lt_status round_update(lt_optim *o)
{
    const lt_shard *s = o->shard;
    struct lt_sharded_optim *p = lt_sharded_of(o);
    if (s->differences || s->config.gather_params)
        LT_TRY(combine_parts(o, NULL, p->update, 1, 0));
    if (s->differences) {
        LT_TRY(combine_parts(o, p->old, p->update, -1, 1)); /* new - old */
        LT_TRY(combine_parts(o, p->old, NULL, 1, 0));
    }
    if (p->narrow) { /* otherwise this rank has no part */
        LT_TRY(lt_tensor_copy(p->narrow, p->update));
        LT_TRY(lt_tensor_copy(p->update, p->narrow));
    }
    return combine_parts(o, p->update, NULL, 1, sends_updates(s));
}

lt_status lt_sharded_pack(lt_optim *o)
{
    const struct lt_sharded_optim *p = lt_sharded_of(o);
    const bool narrow = o->shard->config.dtype != LT_F32;
    if (narrow)
        LT_TRY(round_update(o));
    return copy_chunks(
        o, &(copying){&p->push.out, narrow ? LT_OWNER_UPDATE : LT_OWNER_VALUE, .pack = true});
}

lt_status lt_sharded_send(lt_optim *o, int flag)
{
    return exchange_messages(o, &lt_sharded_of(o)->push, flag, o->shard->config.dtype != LT_F32);
}

lt_status lt_sharded_read_flag(const lt_optim *o, int rank, int *flag)
{
    *flag = (int)lt_sharded_of(o)->header_of[rank];
    return LT_OK;
}

lt_status lt_sharded_unpack(lt_optim *o)
{
    struct lt_sharded_optim *p = lt_sharded_of(o);
    LT_TRY(
        copy_chunks(o, &(copying){&p->push.in, LT_SHARD_VALUE, .beta = sends_updates(o->shard)}));
    for (size_t k = 0; k < p->own.count; k++)
        if (p->own.item[k]->has_grad)
            lt_tensor_bump_version(p->own.item[k]->value);
    remember_versions(p);
    return LT_OK;
}
