/* State on other ranks: rank 0 writes it into the one file, in the order of visiting. */

#include "base/alloc.h"
#include "dist/agree.h"
#include "optim/shard.h"
#include "train/checkpoint.h"

#include "lather/ext/comm.h"

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
    if (entry->tensor || lt_comm_rank(q->comm) != 0)
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

static lt_status visit(const lt_checkpoint_parts *parts, lt_state_visitor *visitor)
{
    if (parts->optim)
        LT_TRY(lt_optim_visit(parts->optim, visitor));
    return parts->dp ? lt_data_parallel_visit(parts->dp, visitor) : LT_OK;
}

lt_status lt_checkpoint_meet(const lt_checkpoint_parts *parts, const lt_checkpoint_state *state,
                             lt_checkpoint_queue *queue)
{
    queue->comm = parts->comm;
    queue->local = parts->local;
    if (!parts->comm || lt_comm_size(parts->comm) == 1)
        return parts->dp ? lt_data_parallel_gather(parts->dp) : LT_OK;
    lt_state_visitor visitor = {.entry = list_entry, .number = keep_number, .context = queue};
    lt_status st = parts->dp ? lt_data_parallel_gather(parts->dp) : LT_OK;
    if (!st)
        st = visit(parts, &visitor);
    st = lt_comm_agree(parts->comm, st);
    if (!st && parts->optim)
        st = lt_shard_share_counters(parts->optim);
    queue->groups_at = queue->count;
    return st || !parts->local ? st : lt_checkpoint_meet_groups(parts, state, queue);
}

/* Elements are sent as they lie in memory, and only the owner knows how its state lies: the message
 * is row-major. */
lt_status lt_checkpoint_send_tensor(lt_comm *comm, const lt_tensor *tensor)
{
    lt_tensor *rows = NULL;
    lt_request *request = NULL;
    lt_status st =
        lt_tensor_new(&rows, comm->device, lt_tensor_dtype(tensor), lt_tensor_shape(tensor));
    if (!st)
        st = lt_tensor_copy(rows, tensor);
    if (!st)
        st = lt_comm_send_begin(comm, rows, 0, &request);
    if (!st)
        st = lt_request_wait(&request);
    lt_tensor_free(&rows);
    return st;
}

/* The first group's first rank is the one that writes. */
static lt_status send_entry(void *context, const lt_state_entry *entry)
{
    const lt_checkpoint_parts *parts = context;
    const lt_local_steps *local = parts->local;
    lt_comm *comm = parts->comm;
    const int group = local ? lt_local_steps_group(local) : 0;
    const int rank = local ? lt_comm_rank(lt_local_steps_comm(local)) : lt_comm_rank(comm);
    if (!entry->tensor || entry->owner != rank || (entry->owner == 0 && !group))
        return LT_OK;
    return lt_checkpoint_send_tensor(comm, entry->tensor);
}

lt_status lt_checkpoint_send(const lt_checkpoint_parts *parts, const lt_checkpoint_queue *queue)
{
    lt_checkpoint_parts all = *parts;
    lt_state_visitor visitor = {.entry = send_entry, .number = keep_number, .context = &all};
    LT_TRY(visit(parts, &visitor));
    return parts->local ? lt_checkpoint_send_group(parts, queue) : LT_OK;
}

lt_status lt_checkpoint_receive(void *queue, void *host, size_t bytes)
{
    lt_checkpoint_queue *q = queue;
    const lt_state_entry *e = &q->entry[q->done++];
    lt_device *device = q->comm->device;
    lt_tensor *t = NULL;
    lt_request *request = NULL;
    lt_status st = lt_tensor_new(&t, device, e->dtype, e->extent);
    if (!st)
        st = lt_comm_recv_begin(q->comm, t, e->owner, &request);
    if (!st)
        st = lt_request_wait(&request);
    if (st) /* the sender must not wait for ever */
        lt_comm_abort(q->comm);
    if (!st && host)
        st = lt_tensor_read(t, host, bytes);
    lt_tensor_free(&t);
    return st;
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
    *queue = (lt_checkpoint_queue){0};
}
