/* State on other ranks: rank 0 writes it into the one file, in the order of visiting. */

#include "base/alloc.h"
#include "checkpoint.h"
#include "dist/agree.h"
#include "dist/place.h"
#include "optim/low_precision/quantized_state.h"
#include "optim/sharding/shard.h"

#include "lather/ext/comm.h"
#include "lather/ext/fail.h"

static lt_status keep_number(void *context, const char *name, int64_t *value)
{
    (void)context;
    (void)name;
    (void)value;
    return LT_OK;
}

/* Groups of ranks with one copy of the state each: the owner's number is its rank in the first. */
static lt_status list_entry(void *context, const lt_state_entry *entry)
{
    lt_checkpoint_queue *q = context;
    if (entry->box)
        return lt_checkpoint_list_boxes(q, entry->box, entry->dtype);
    if (entry->tensor || entry->quantized || lt_comm_rank(q->comm) != 0)
        return LT_OK;
    lt_state_entry *grown = lt_grow(q->entry, &q->capacity, q->count + 1, sizeof *grown);
    if (!grown)
        return LT_E_NOMEM;
    q->entry = grown;
    q->entry[q->count] = *entry;
    if (q->local) /* there an owner is a rank of the group */
        q->entry[q->count].owner = lt_local_steps_rank(q->local, 0, entry->owner);
    q->count++;
    return LT_OK;
}

typedef lt_status boxes_fn(lt_checkpoint_queue *queue, const lt_param *param,
                           const lt_tensor *tensor);

/* All that rank 0 writes of other ranks', in the order of the files. */
static lt_status visit(const lt_checkpoint_parts *parts, lt_state_visitor *visitor, boxes_fn *boxes,
                       lt_checkpoint_queue *queue)
{
    for (size_t i = 0; i < parts->params->count; i++)
        LT_TRY(boxes(queue, parts->params->item[i], parts->params->item[i]->value));
    if (parts->optim)
        LT_TRY(lt_optim_visit(parts->optim, visitor));
    for (size_t i = 0; i < parts->extra_count; i++)
        LT_TRY(boxes(queue, parts->extra[i].param, parts->extra[i].tensor));
    return parts->dp ? lt_data_parallel_visit(parts->dp, visitor) : LT_OK;
}

static lt_status list_boxes(lt_checkpoint_queue *queue, const lt_param *param,
                            const lt_tensor *tensor)
{
    return lt_checkpoint_list_boxes(queue, param, lt_tensor_dtype(tensor));
}

static lt_status send_boxes(lt_checkpoint_queue *queue, const lt_param *param,
                            const lt_tensor *tensor)
{
    return lt_checkpoint_send_boxes(queue, param, tensor);
}

lt_status lt_checkpoint_meet(const lt_checkpoint_parts *parts, const lt_checkpoint_state *state,
                             lt_checkpoint_queue *queue)
{
    queue->comm = parts->comm;
    queue->local = parts->local;
    lt_status st = lt_checkpoint_find_boxes(
        queue, parts->params, parts->extra_count + LT_MAX_STATE * parts->params->count);
    if (!st && parts->dp)
        st = lt_data_parallel_gather(parts->dp);
    if (!parts->comm || lt_comm_size(parts->comm) == 1)
        return st;
    lt_state_visitor visitor = {.entry = list_entry, .number = keep_number, .context = queue};
    if (!st)
        st = visit(parts, &visitor, list_boxes, queue);
    st = lt_comm_agree(parts->comm, st);
    if (!st && parts->optim)
        st = lt_shard_share_counters(parts->optim);
    queue->groups_at = queue->count;
    return st || !parts->local ? st : lt_checkpoint_meet_groups(parts, state, queue);
}

static lt_status send_quantized(lt_comm *comm, const lt_quantized *state)
{
    lt_tensor *shown = NULL;
    LT_TRY(lt_quantized_show(state, &shown));
    lt_status st = lt_place_send(comm, shown, 0);
    lt_tensor_free(&shown);
    return st;
}

typedef struct sending {
    const lt_checkpoint_parts *parts;
    const lt_checkpoint_queue *queue;
} sending;

/* The first group's first rank is the one that writes. */
static lt_status send_entry(void *context, const lt_state_entry *entry)
{
    const sending *s = context;
    const lt_checkpoint_parts *parts = s->parts;
    const lt_local_steps *local = parts->local;
    lt_comm *comm = parts->comm;
    const int group = local ? lt_local_steps_group(local) : 0;
    const int rank = local ? lt_comm_rank(lt_local_steps_comm(local)) : lt_comm_rank(comm);
    if (entry->box)
        return lt_checkpoint_send_boxes(s->queue, entry->box, entry->tensor);
    if ((!entry->tensor && !entry->quantized) || entry->owner != rank
        || (entry->owner == 0 && !group))
        return LT_OK;
    return entry->quantized ? send_quantized(comm, entry->quantized)
                            : lt_place_send(comm, entry->tensor, 0);
}

lt_status lt_checkpoint_send(const lt_checkpoint_parts *parts, const lt_checkpoint_queue *queue)
{
    sending all = {parts, queue};
    lt_checkpoint_queue boxes = *queue;
    lt_state_visitor visitor = {.entry = send_entry, .number = keep_number, .context = &all};
    LT_TRY(visit(parts, &visitor, send_boxes, &boxes));
    return parts->local ? lt_checkpoint_send_group(parts, queue) : LT_OK;
}

lt_status lt_checkpoint_receive(void *queue, void *host, size_t bytes)
{
    lt_checkpoint_queue *q = queue;
    const lt_state_entry *e = &q->entry[q->done++];
    LT_ASSERT(!host || bytes == (size_t)lt_shape_count(e->extent) * lt_dtype_size(e->dtype));
    return lt_place_receive(q->comm, e->dtype, e->extent, e->owner, host);
}

void lt_checkpoint_drain(lt_checkpoint_queue *queue)
{
    lt_status st = LT_OK;
    while (!st && queue->done < queue->count)
        st = lt_checkpoint_receive(queue, NULL, 0);
    lt_free(queue->entry);
    lt_free(queue->names);
    lt_tensor_free(&queue->numbers);
    lt_tensor_free(&queue->scaling);
    lt_place_map_free(&queue->map);
    lt_free(queue->boxes);
    *queue = (lt_checkpoint_queue){0};
}
