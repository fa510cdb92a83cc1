/* Gathers an optimizer's sharded parameters in a flat buffer: a segment per rank, with the rank's parts in the
 * order of all parts, each dense in the parameter's own order of storage, and then a status flag of the rank's
 * step. There is no padding: a rank sends (ranks - 1) * (its elements + 1) * the dtype's size.
 *
 * In two levels the segments of ranks with the same local rank are adjacent: the first gather's result is this rank's part of
 * the second's, in its place. */

#include "base/alloc.h"
#include "dist/consensus.h"
#include "optim/slots.h"
#include "shard.h"
#include "tensor/tensor.h"

#include "lather/detail/topology.h"
#include "lather/ext/comm.h"

/* Two levels: between nodes, then within this rank's. */
typedef struct levels {
    lt_comm *peers, *node;
    int64_t *peer_elements;  /* [nodes] elements of this rank's peers */
    int64_t *local_elements; /* [ranks of the node] elements of each local rank's peers */
    lt_tensor *portion; /* elements of this rank's peers: a part of `whole`, or of `comm_whole` */
} levels;

typedef struct lt_flat {
    bool adds_updates;       /* shard_params: `updates` are added to this rank's parts */
    lt_tensor *updates;      /* then: updates of this rank's parts, concatenated; else NULL */
    lt_tensor *mine, *whole; /* this rank's segment; all segments; master dtype */
    lt_tensor *comm_own, *comm_whole; /* the same in the communication dtype, if different */
    lt_tensor *old;                   /* with differences: this rank's parameters before the step */
    lt_vec_job *job;                  /* workspace: one per part */
    levels levels;                    /* all NULL with one level */
} lt_flat;

static lt_flat *flat_of(const lt_shard *s)
{
    return s->data;
}

/* Lays out segments of a status flag only: with shard_params no values are gathered. */
static lt_status lay_out_flags(lt_optim *o, lt_shard *s)
{
    lt_flat *f = s->data;
    const int64_t mine = s->elements[s->rank] - 1;
    for (size_t i = 0; i < s->count; i++)
        s->part[i].at -= s->begin[s->part[i].owner];
    for (int r = 0; r < s->ranks; r++) {
        s->begin[r] = r;
        s->elements[r] = 1;
    }
    f->adds_updates = o->ops->parts && !s->config.gather_params;
    if (!f->adds_updates)
        return LT_OK;
    return lt_tensor_new(&f->updates, o->device, lt_device_master_dtype(o->device),
                         LT_SHAPE(mine ? mine : 1));
}

static lt_status make_buffers(lt_optim *o, lt_shard *s)
{
    lt_flat *f = s->data;
    const lt_dtype master = lt_device_master_dtype(o->device);
    if (s->config.shard_params)
        LT_TRY(lay_out_flags(o, s));
    const int64_t mine = s->elements[s->rank];
    const int64_t whole = s->begin[s->ranks - 1] + s->elements[s->ranks - 1];
    LT_TRY(lt_tensor_new(&f->mine, o->device, master, LT_SHAPE(mine)));
    LT_TRY(lt_tensor_new(&f->whole, o->device, master, LT_SHAPE(whole)));
    if (s->differences)
        LT_TRY(lt_tensor_new(&f->old, o->device, master, LT_SHAPE(mine)));
    if (s->config.dtype == LT_F32)
        return LT_OK;
    LT_TRY(lt_tensor_new(&f->comm_own, o->device, s->config.dtype, LT_SHAPE(mine)));
    return lt_tensor_new(&f->comm_whole, o->device, s->config.dtype, LT_SHAPE(whole));
}

static lt_status allocate_buffers(lt_optim *o)
{
    lt_shard *s = o->shard;
    lt_flat *f = NULL;
    LT_TRY(LT_ALLOC(&f, 1));
    s->data = f;
    LT_TRY(LT_ALLOC(&f->job, s->count));
    LT_TRY(make_buffers(o, s));
    for (size_t i = 0; i < s->count && o->ops->parts && !s->config.gather_params; i++)
        if (s->part[i].owner == s->rank)
            s->part[i].update =
                f->updates ? lt_shard_flat_view(o, i, f->updates, s->part[i].at)
                           : lt_shard_flat_view(o, i, f->mine, s->part[i].at - s->begin[s->rank]);
    return LT_OK;
}

static void free_levels(levels *l)
{
    lt_tensor_free(&l->portion);
    lt_comm_close(&l->node);
    lt_comm_close(&l->peers);
    lt_free(l->peer_elements);
    lt_free(l->local_elements);
    *l = (levels){0};
}

static void free_buffers(lt_shard *s)
{
    lt_flat *f = s->data;
    if (!f)
        return;
    free_levels(&f->levels);
    lt_tensor **const tensors[] = {&f->mine,       &f->whole, &f->comm_own,
                                   &f->comm_whole, &f->old,   &f->updates};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        lt_tensor_free(tensors[i]);
    lt_free(f->job);
    lt_free(f);
    s->data = NULL;
}

typedef enum direction { PACK, UNPACK } direction;

/* Copies all parts (or this rank's) that have a gradient between the parameters and a flat tensor, in which this
 * rank's segment begins at `origin`, by one batched kernel. */
static lt_status copy_parts(lt_optim *o, const lt_tensor *flat, int64_t origin, bool all,
                            direction to, double beta)
{
    const lt_shard *s = o->shard;
    const lt_flat *f = flat_of(s);
    size_t count = 0;
    for (size_t i = 0; i < s->count; i++) {
        const lt_part *p = &s->part[i];
        if (!p->slot->param->has_grad || (!all && p->owner != s->rank))
            continue;
        const lt_view value = lt_shard_part_view(o, i, p->slot->param->value);
        const lt_view place = lt_shard_flat_view(o, i, flat, p->at - origin);
        f->job[count++] = (lt_vec_job){
            .op = LT_VEC_AXPBY,
            .alpha = 1,
            .beta = beta,
            .a = to == PACK ? value : place,
            .y = to == PACK ? place : value,
        };
    }
    return lt_optim_run_vec_jobs(o, f->job, count);
}

static lt_status save_old_values(lt_optim *o)
{
    const lt_shard *s = o->shard;
    const lt_flat *f = flat_of(s);
    if (!s->differences)
        return LT_OK;
    const int64_t origin = s->begin[s->rank];
    LT_TRY(copy_parts(o, f->old, origin, false, PACK, 0));
    return copy_parts(o, f->mine, origin, false, PACK, 0);
}

/* Packs this rank's changed parts, or their differences, into its segment. */
static lt_status pack_segment(lt_optim *o)
{
    const lt_shard *s = o->shard;
    const lt_flat *f = flat_of(s);
    const int64_t origin = s->begin[s->rank];
    if (s->differences) {
        LT_TRY(copy_parts(o, f->mine, origin, false, PACK, -1)); /* new - old */
        return copy_parts(o, f->old, origin, false, UNPACK, 0);
    }
    if (s->config.shard_params)
        return LT_OK;
    if (!o->ops->parts || s->config.gather_params)
        return copy_parts(o, f->mine, origin, false, PACK, 0);
    return LT_OK; /* the optimizer wrote its updates there */
}

/* Returns the status flag of a rank whose segment begins at `at` of a flat tensor. */
static lt_view flag_of(const lt_shard *s, int rank, const lt_tensor *flat, int64_t at)
{
    lt_view v = lt_tensor_view(flat);
    v.data = (char *)v.data + lt_dtype_size(v.dtype) * (size_t)(at + s->elements[rank] - 1);
    v.shape = LT_SHAPE(1);
    return v;
}

static lt_status write_flag(const lt_optim *o, int flag)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(o, &ctx);
    const lt_view v = flag_of(o->shard, o->shard->rank, flat_of(o->shard)->mine, 0);
    return be->fill(ctx, flag, &v);
}

static lt_status read_flag(const lt_optim *o, int rank, int *flag)
{
    const lt_view v = flag_of(o->shard, rank, flat_of(o->shard)->whole, o->shard->begin[rank]);
    double value;
    LT_TRY(lt_optim_read_device_scalar(o, &v, &value));
    *flag = (int)value;
    return LT_OK;
}

static lt_status allgather(lt_comm *comm, const lt_tensor *mine, lt_tensor *whole,
                           const int64_t *elements)
{
    lt_request *request = NULL;
    LT_TRY(lt_comm_allgather_begin(comm, mine, whole, elements, &request));
    return lt_request_wait(&request);
}

static lt_status allgather_in_two_levels(lt_shard *s, const lt_tensor *mine, lt_tensor *whole)
{
    const levels *l = &flat_of(s)->levels;
    const uint64_t sent = lt_comm_bytes(l->peers) + lt_comm_bytes(l->node);
    LT_TRY(allgather(l->peers, mine, l->portion, l->peer_elements));
    LT_TRY(allgather(l->node, l->portion, whole, l->local_elements));
    s->config.comm->bytes += lt_comm_bytes(l->peers) + lt_comm_bytes(l->node) - sent;
    return LT_OK;
}

static lt_status allgather_segments(lt_shard *s)
{
    const lt_flat *f = flat_of(s);
    const lt_tensor *mine = f->comm_own ? f->comm_own : f->mine;
    lt_tensor *whole = f->comm_whole ? f->comm_whole : f->whole;
    const uint64_t sent = lt_comm_bytes(s->group);
    if (f->comm_own)
        LT_TRY(lt_tensor_copy(f->comm_own, f->mine));
    LT_TRY(f->levels.peers ? allgather_in_two_levels(s, mine, whole)
                           : allgather(s->group, mine, whole, s->elements));
    if (s->owns_group) /* the run's communicator counts all bytes */
        s->config.comm->bytes += lt_comm_bytes(s->group) - sent;
    return f->comm_whole ? lt_tensor_copy(f->whole, f->comm_whole) : LT_OK;
}

static lt_status gather_segments_with_flag(lt_optim *o, int flag)
{
    LT_TRY(write_flag(o, flag));
    return allgather_segments(o->shard);
}

/* Copies all gathered parts to the parameters. */
static lt_status unpack_parts(lt_optim *o)
{
    const lt_shard *s = o->shard;
    const lt_flat *f = flat_of(s);
    if (s->config.shard_params)
        return f->adds_updates ? copy_parts(o, f->updates, 0, false, UNPACK, 1) : LT_OK;
    const bool params = !s->differences && (!o->ops->parts || s->config.gather_params);
    return copy_parts(o, f->whole, 0, true, UNPACK, params ? 0 : 1);
}

const lt_shard_ops lt_flat_ops = {
    .allocate = allocate_buffers,
    .free = free_buffers,
    .begin = save_old_values,
    .pack = pack_segment,
    .send = gather_segments_with_flag,
    .flag = read_flag,
    .unpack = unpack_parts,
    .is_capturable = true,
};

/* --- Two levels --- */

/* Orders the segments by local rank, then node, and counts the elements of both levels. Returns the offset of this
 * rank's peers' segments. */
static int64_t lay_out_by_local_rank(lt_shard *s, const lt_nodes *nodes, const levels *l)
{
    int64_t at = 0, own = 0;
    for (size_t i = 0; i < s->count; i++)
        s->part[i].at -= s->begin[s->part[i].owner];
    for (int local = 0; local < nodes->ranks_per_node; local++) {
        const int64_t first = at;
        for (int node = 0; node < nodes->count; node++) {
            int r = 0;
            for (int before = 0; nodes->of[r] != node || before++ < local;)
                r++;
            s->begin[r] = at;
            at += s->elements[r];
            if (local == nodes->local)
                l->peer_elements[node] = s->elements[r];
        }
        l->local_elements[local] = at - first;
        own = local == nodes->local ? first : own;
    }
    for (size_t i = 0; i < s->count; i++)
        s->part[i].at += s->begin[s->part[i].owner];
    return own;
}

static lt_status open_levels(lt_optim *o, levels *l, const lt_nodes *nodes)
{
    lt_shard *s = o->shard;
    const lt_flat *f = flat_of(s);
    lt_tensor *whole = f->comm_whole ? f->comm_whole : f->whole;
    LT_TRY(LT_ALLOC(&l->peer_elements, nodes->count));
    LT_TRY(LT_ALLOC(&l->local_elements, nodes->ranks_per_node));
    LT_TRY(lt_tensor_materialize(whole));
    const int64_t first = lay_out_by_local_rank(s, nodes, l);
    char *data = lt_tensor_view(whole).data;
    return lt_tensor_new_borrowed(&l->portion, o->device, lt_tensor_dtype(whole),
                                  LT_SHAPE(l->local_elements[nodes->local]), LT_FORMAT_CONTIGUOUS,
                                  data + first * (int64_t)lt_dtype_size(lt_tensor_dtype(whole)));
}

lt_status lt_optim_shard_two_level(lt_optim *o, const struct lt_nodes *nodes)
{
    lt_shard *s = o->shard;
    if (!s)
        return lt_fail(LT_E_ARG, "%s: state is not sharded", o->ops->name);
    if (s->ops != &lt_flat_ops || s->owns_group || s->config.shard_params
        || !o->device->backend->host_memory || nodes->count < 2 || nodes->ranks_per_node < 2)
        return LT_OK;
    levels *l = &flat_of(s)->levels;
    lt_status st = lt_comm_agree_on_status(s->group, open_levels(o, l, nodes));
    if (!st)
        st = lt_nodes_open_peers(nodes, s->group, &l->peers);
    if (!st)
        st = lt_nodes_open_node(nodes, s->group, &l->node);
    return st;
}
