/* Sharded parameters: exchanges the ranks' shards, checks them, and makes logical parameters. Exactness:
 * docs/adr/0032-run-optimizers-on-whole-parameters.md. */

#include "base/alloc.h"
#include "base/hash.h"
#include "dist/consensus.h"
#include "sharded.h"
#include "tensor/tensor.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { JOBS = 256 }; /* jobs of one batched kernel */

/* --- Exchange of shards --- */

/* One rank's shard of one parameter, and whether its tensor is contiguous in each order. */
typedef struct shard_record {
    lt_shard_spec spec;
    int32_t row_major, channels_last;
} shard_record;

static shard_record make_shard_record(const lt_param *param)
{
    const lt_view v = lt_tensor_view(param->value);
    shard_record h = {.spec = lt_param_shard_spec(param)};
    h.row_major = lt_view_is_contiguous(&v);
    h.channels_last = v.shape.ndim == 4 && lt_view_is_channels_last(&v)
                      && lt_shape_equal(h.spec.view, h.spec.logical)
                      && lt_shape_equal(h.spec.extent, v.shape);
    return h;
}

static lt_status agree_on_names(const struct lt_sharded_optim *p)
{
    uint64_t hash = LT_FNV1A_BEGIN;
    int64_t elements = 0;
    char text[128];
    for (size_t k = 0; k < p->own.count; k++) {
        const lt_shard_spec spec = lt_param_shard_spec(p->own.item[k]);
        elements += lt_shape_count(spec.logical);
        hash = lt_fnv1a(hash, p->own.item[k]->name, strlen(p->own.item[k]->name) + 1);
        for (int d = 0; d < spec.logical.ndim; d++)
            hash = lt_fnv1a(hash, &spec.logical.dim[d], sizeof spec.logical.dim[d]);
    }
    snprintf(text, sizeof text,
             "%zu parameters of %" PRId64 " elements, with names and shapes %016" PRIx64,
             p->own.count, elements, hash);
    return lt_comm_check_same(p->world, "the trained model", text);
}

/* Finds the members of this copy, and the first rank of every rank's copy, as ranks of world. */
static lt_status find_model_copies(struct lt_sharded_optim *p)
{
    const int ranks = lt_comm_size(p->world), members = lt_comm_size(p->copy);
    const int32_t me = lt_comm_rank(p->world);
    int64_t *bytes = lt_alloc((size_t)ranks, sizeof *bytes);
    lt_status st = lt_comm_agree_on_status(p->world, bytes ? LT_OK : LT_E_NOMEM);
    for (int r = 0; r < ranks && bytes; r++)
        bytes[r] = sizeof me;
    LT_ASSERT(st || members <= ranks);
    if (!st)
        st = lt_comm_allgather_host(p->copy, &me, bytes, p->member);
    if (!st)
        st = lt_comm_allgather_host(p->world, &p->member[0], bytes, p->copy_of);
    lt_free(bytes);
    return st;
}

/* Chooses the order of each parameter: row-major or channels-last on all ranks. */
static lt_status find_memory_orders(struct lt_sharded_optim *p, const shard_record *all)
{
    const int ranks = lt_comm_size(p->world);
    for (size_t k = 0; k < p->own.count; k++) {
        int row_major = 0, channels_last = 0;
        for (int r = 0; r < ranks; r++) {
            row_major += all[(size_t)r * p->own.count + k].row_major;
            channels_last += all[(size_t)r * p->own.count + k].channels_last;
        }
        p->channels_last[k] = row_major < ranks;
        if (row_major < ranks && channels_last < ranks)
            return lt_fail(
                row_major || channels_last ? LT_E_ARG : LT_E_UNSUPPORTED,
                "optim: %s is row-major on %d of %d ranks and an unreshaped channels-last shard "
                "on %d: all ranks need one memory format",
                p->own.item[k]->name, row_major, ranks, channels_last);
    }
    return LT_OK;
}

/* --- Shards of a copy --- */

static bool shards_overlap(const lt_shard_spec *a, const lt_shard_spec *b)
{
    for (int d = 0; d < a->view.ndim; d++)
        if (a->offset.dim[d] >= b->offset.dim[d] + b->extent.dim[d]
            || b->offset.dim[d] >= a->offset.dim[d] + a->extent.dim[d])
            return false;
    return true;
}

/* Checks a shard against those of lower ranks of the copy; *new: none of them is equal. */
static lt_status check_shard(const shard_record *all, size_t count, const int *copy_of, int rank,
                             size_t k, const char *name, bool *new)
{
    const lt_shard_spec *own = &all[(size_t)rank * count + k].spec;
    char a[LT_SHARD_SPEC_TEXT], b[LT_SHARD_SPEC_TEXT];
    *new = true;
    for (int r = 0; r < rank; r++) {
        const lt_shard_spec *other = &all[(size_t)r * count + k].spec;
        if (copy_of[r] != copy_of[rank])
            continue;
        if (lt_shard_spec_equal(own, other)) {
            *new = false;
            continue;
        }
        if (!lt_shape_equal(own->view, other->view) || shards_overlap(own, other))
            return lt_fail(LT_E_ARG,
                           "optim: %s: rank %d holds %s, rank %d %s: shards must be equal or "
                           "disjoint regions of one view",
                           name, r, lt_shard_spec_text(other, b), rank, lt_shard_spec_text(own, a));
    }
    return LT_OK;
}

/* Checks that a copy's shards are a whole parameter: disjoint, with as many elements. */
static lt_status check_copy_is_complete(const struct lt_sharded_optim *p, const shard_record *all,
                                        int first, size_t k)
{
    const int ranks = lt_comm_size(p->world);
    const int64_t want = lt_shape_count(all[k].spec.logical);
    int64_t elements = 0;
    for (int r = 0; r < ranks; r++) {
        bool new = false;
        if (p->copy_of[r] != first)
            continue;
        LT_TRY(check_shard(all, p->own.count, p->copy_of, r, k, p->own.item[k]->name, &new));
        elements += new ? lt_shard_spec_count(&all[(size_t)r * p->own.count + k].spec) : 0;
    }
    if (elements != want)
        return lt_fail(LT_E_ARG,
                       "optim: %s has %" PRId64
                       " elements, the ranks of rank %d's copy hold %" PRId64,
                       p->own.item[k]->name, want, first, elements);
    return LT_OK;
}

static lt_status check_shards(const struct lt_sharded_optim *p, const shard_record *all)
{
    for (int r = 0; r < lt_comm_size(p->world); r++)
        for (size_t k = 0; k < p->own.count && p->copy_of[r] == r; k++)
            LT_TRY(check_copy_is_complete(p, all, r, k));
    return LT_OK;
}

/* --- Construction --- */

static lt_status gather_and_check_shards(struct lt_sharded_optim *p, shard_record *all,
                                         int64_t *bytes, shard_record *own)
{
    const int ranks = lt_comm_size(p->world);
    for (int r = 0; r < ranks; r++)
        bytes[r] = (int64_t)(p->own.count * sizeof *own);
    for (size_t k = 0; k < p->own.count; k++)
        own[k] = make_shard_record(p->own.item[k]);
    LT_TRY(lt_comm_allgather_host(p->world, own, bytes, all));
    LT_TRY(find_memory_orders(p, all));
    LT_TRY(check_shards(p, all));
    for (int r = 0; r < ranks; r++)
        for (size_t k = 0; k < p->own.count; k++)
            p->spec[(size_t)r * p->own.count + k] = lt_sharded_stored_spec(
                &all[(size_t)r * p->own.count + k].spec, p->channels_last[k]);
    return LT_OK;
}

static lt_status exchange_shards(struct lt_sharded_optim *p)
{
    const size_t ranks = (size_t)lt_comm_size(p->world);
    shard_record *all = lt_alloc(ranks * p->own.count, sizeof *all);
    shard_record *own = lt_alloc(p->own.count, sizeof *own);
    int64_t *bytes = lt_alloc(ranks, sizeof *bytes);
    lt_status st = lt_comm_agree_on_status(p->world, all && own && bytes ? LT_OK : LT_E_NOMEM);
    if (!st)
        st = gather_and_check_shards(p, all, bytes, own);
    lt_free(bytes);
    lt_free(own);
    lt_free(all);
    return st;
}

/* Makes a logical parameter, in the memory order of its shards. */
static lt_status make_logical(lt_param *out, const lt_param *own, bool channels_last)
{
    const lt_shape shape = lt_param_shard_spec(own).logical;
    const lt_dtype dtype = lt_tensor_dtype(own->value);
    lt_device *device = lt_tensor_device(own->value);
    int64_t stride[LT_MAX_DIMS] = {0};
    *out = (lt_param){
        .role = own->role, .frozen = own->frozen, .fan_in = own->fan_in, .fan_out = own->fan_out};
    lt_format_strides(shape, channels_last ? LT_FORMAT_CHANNELS_LAST : LT_FORMAT_CONTIGUOUS,
                      stride);
    out->name = lt_format("%s", own->name);
    if (!out->name)
        return LT_E_NOMEM;
    LT_TRY(lt_tensor_new_meta(&out->value, device, dtype, shape, stride));
    return own->grad ? lt_tensor_new_meta(&out->grad, device, dtype, shape, stride) : LT_OK;
}

static lt_status make_logical_params(struct lt_sharded_optim *p, const lt_params *own)
{
    size_t k = 0;
    for (size_t i = 0; i < own->count; i++) {
        const bool trained = lt_param_is_trained(own->item[i]);
        /* parameters in the list are cleared on failure */
        LT_TRY(lt_params_add(&p->all, &p->logical[i]));
        LT_TRY(make_logical(&p->logical[i], own->item[i], trained && p->channels_last[k]));
        if (trained)
            p->number[k++] = i;
    }
    return LT_OK;
}

static lt_status make_lists(struct lt_sharded_optim *p, const lt_params *own)
{
    const size_t ranks = (size_t)lt_comm_size(p->world);
    for (size_t i = 0; i < own->count; i++)
        if (lt_param_is_trained(own->item[i]))
            LT_TRY(lt_params_add(&p->own, own->item[i]));
    if (!p->own.count)
        return lt_fail(LT_E_ARG, "optim: no parameter to train");
    p->logical = lt_alloc(own->count, sizeof *p->logical);
    p->number = lt_alloc(p->own.count, sizeof *p->number);
    p->channels_last = lt_alloc(p->own.count, sizeof *p->channels_last);
    p->version = lt_alloc(p->own.count, sizeof *p->version);
    p->spec = lt_alloc(ranks * p->own.count, sizeof *p->spec);
    p->copy_of = lt_alloc(ranks, sizeof *p->copy_of);
    p->member = lt_alloc((size_t)lt_comm_size(p->copy), sizeof *p->member);
    p->header_of = lt_alloc(ranks, sizeof *p->header_of);
    p->job = lt_alloc(JOBS, sizeof *p->job);
    p->jobs = JOBS;
    return p->logical && p->number && p->channels_last && p->version && p->spec && p->copy_of
                   && p->member && p->header_of && p->job
               ? LT_OK
               : LT_E_NOMEM;
}

lt_status lt_sharded_optim_new(lt_sharded_optim **out, const lt_params *own, lt_comm *world,
                               lt_comm *copy)
{
    struct lt_sharded_optim *p = lt_alloc(1, sizeof *p);
    lt_status st = lt_comm_agree_on_status(world, p ? LT_OK : LT_E_NOMEM);
    LT_ASSERT(st || p);
    if (!st) {
        p->world = world;
        p->copy = copy;
        st = lt_comm_agree_on_status(world, make_lists(p, own));
    }
    if (!st)
        st = agree_on_names(p);
    if (!st)
        st = find_model_copies(p);
    if (!st)
        st = exchange_shards(p);
    if (!st)
        st = lt_comm_agree_on_status(world, make_logical_params(p, own));
    if (st)
        lt_sharded_optim_free(&p);
    else
        *out = p;
    return st;
}

const lt_params *lt_sharded_optim_params(const lt_sharded_optim *sharded)
{
    return &sharded->all;
}

void lt_sharded_optim_free(lt_sharded_optim **sharded)
{
    struct lt_sharded_optim *p = *sharded;
    if (!p)
        return;
    lt_tensor **const tensors[] = {&p->value,       &p->grad,           &p->update,   &p->old,
                                   &p->narrow,      &p->sent,           &p->received, &p->header,
                                   &p->sent_narrow, &p->received_narrow};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        lt_tensor_free(tensors[i]);
    lt_sharded_free_messages(p);
    for (size_t i = 0; i < p->all.count; i++)
        lt_param_clear(&p->logical[i]);
    lt_params_clear(&p->all);
    lt_params_clear(&p->own);
    lt_free(p->job);
    lt_free(p->header_of);
    lt_free(p->member);
    lt_free(p->copy_of);
    lt_free(p->spec);
    lt_free(p->version);
    lt_free(p->channels_last);
    lt_free(p->number);
    lt_free(p->logical);
    lt_free(p);
    *sharded = NULL;
}
