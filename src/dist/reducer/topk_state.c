/* Error feedback of --compress topk in checkpoints: "residual.I" of each node I, in the shape of each trained parameter.
 * Every rank of a node gathers the node's. ADR 0026. */

#include "dist/reducer/topk_state.h"

#include "base/alloc.h"
#include "dist/comm/comm.h"

#include <stdio.h>
#include <string.h>

enum { NAME = 32 };

void lt_topk_free_gathered(lt_topk_reducer *t)
{
    for (size_t i = 0; i < t->base.params->count && t->gathered; i++)
        lt_tensor_free(&t->gathered[i]);
    lt_free(t->gathered);
    t->gathered = NULL;
}

/* Allocates `gathered`, filled with zeros. */
static lt_status allocate_gathered(lt_topk_reducer *t)
{
    const lt_params *params = t->base.params;
    if (t->gathered)
        return LT_OK;
    lt_status st = LT_ALLOC(&t->gathered, params->count + 1);
    for (size_t i = 0; i < params->count && !st; i++) {
        const lt_param *p = params->item[i];
        if (!lt_param_is_trained(p))
            continue;
        st = lt_tensor_new_like(&t->gathered[i], p->value, t->wide);
        if (!st)
            st = lt_tensor_fill(t->gathered[i], 0);
    }
    return st;
}

static lt_tensor *gathered_residual(const lt_topk_reducer *t, const lt_param *param)
{
    for (size_t i = 0; i < t->base.params->count; i++)
        if (t->base.params->item[i] == param)
            return t->gathered[i];
    return NULL;
}

/* Copies the node's error feedback of a bucket to its parameters' tensors. */
static void copy_residual_to_gathered(const lt_topk_reducer *t, const lt_reducer_bucket *bucket,
                                      const lt_tensor *whole)
{
    const size_t size = lt_dtype_size(t->wide);
    const char *from = lt_topk_host_data(whole);
    for (size_t p = 0; p < bucket->parts; p++)
        memcpy(lt_topk_host_data(gathered_residual(t, bucket->part[p].param)),
               from + (size_t)bucket->part[p].offset * size,
               (size_t)bucket->part[p].elements * size);
}

static lt_status gather_bucket(lt_topk_reducer *t, size_t bucket)
{
    lt_topk_bucket *b = lt_topk_bucket_of(t, bucket);
    lt_tensor *part = NULL, *whole = NULL;
    const lt_shape all = LT_SHAPE(t->base.bucket[bucket].elements);
    lt_status st = lt_tensor_new(&whole, t->base.device, t->wide, all);
    if (!st && b->shard.elements)
        st = lt_tensor_new(&part, t->base.device, t->wide, LT_SHAPE(b->shard.elements));
    if (!st && part)
        st = lt_tensor_write(part, b->residual, lt_tensor_bytes(part));
    if (!st)
        st = lt_comm_allgather(t->comms.gather, part, whole, b->shard.count);
    if (!st)
        copy_residual_to_gathered(t, &t->base.bucket[bucket], whole);
    lt_tensor_free(&part);
    lt_tensor_free(&whole);
    return st;
}

lt_status lt_topk_gather(lt_reducer *self)
{
    lt_topk_reducer *t = (lt_topk_reducer *)self;
    LT_TRY(allocate_gathered(t));
    for (size_t i = 0; i < self->buckets; i++)
        LT_TRY(gather_bucket(t, i));
    return LT_OK;
}

static int first_rank_of_node(const lt_nodes *nodes, int node)
{
    int rank = 0;
    while (nodes->of[rank] != node)
        rank++;
    return rank;
}

lt_status lt_topk_visit(lt_reducer *self, lt_state_visitor *visitor)
{
    lt_topk_reducer *t = (lt_topk_reducer *)self;
    const lt_nodes *nodes = lt_topk_nodes(t);
    LT_TRY(allocate_gathered(t));
    for (size_t i = 0; i < self->params->count; i++) {
        const lt_param *p = self->params->item[i];
        for (int n = 0; n < nodes->count && t->gathered[i]; n++) {
            char name[NAME];
            snprintf(name, sizeof name, "residual.%d", n);
            lt_state_entry e = lt_state_of(p, name);
            e.owner = first_rank_of_node(nodes, n);
            e.dtype = t->wide;
            e.tensor = n == nodes->index ? t->gathered[i] : NULL;
            LT_TRY(visitor->entry(visitor->context, &e));
        }
    }
    return LT_OK;
}

/* Takes this rank's shards of loaded error feedback; no-op until the buckets are known. */
lt_status lt_topk_finish_load(lt_reducer *self)
{
    lt_topk_reducer *t = (lt_topk_reducer *)self;
    const int64_t size = (int64_t)lt_dtype_size(t->wide);
    int64_t from, to;
    if (!t->gathered || !self->buckets)
        return LT_OK;
    for (size_t i = 0; i < self->buckets; i++) {
        lt_topk_bucket *b = lt_topk_bucket_of(t, i);
        for (size_t p = 0; p < self->bucket[i].parts; p++) {
            const lt_reducer_part *part = &self->bucket[i].part[p];
            if (!lt_hier_shard_intersects(&b->shard, part, &from, &to))
                continue;
            const char *gathered = lt_topk_host_data(gathered_residual(t, part->param));
            memcpy((char *)b->residual + (from - b->shard.first) * size,
                   gathered + (from - part->offset) * size, (size_t)((to - from) * size));
        }
    }
    lt_topk_free_gathered(t);
    return LT_OK;
}
