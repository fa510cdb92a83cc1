/* Message schedules of a sharded optimizer: the intersection of each part with each rank's shard, by index
 * arithmetic. */

#include "assign.h"
#include "base/alloc.h"
#include "sharded.h"

/* --- Runs --- */

/* Intersection of a part with a rank's shard. */
typedef struct listing {
    const lt_shard_spec *spec;
    lt_chunk_list *list; /* NULL: elements are only counted */
    int64_t elements;
    size_t index;
    bool in_owner_buffer; /* chunks of the part's owner buffer, else of the rank's own tensor */
    lt_status status;
} listing;

/* Appends a run to a chunk if it continues the last row or is the next row; returns false if neither. */
static bool extend_chunk(lt_chunk *last, size_t index, int64_t at, int64_t count)
{
    if (last->index != index)
        return false;
    if (last->rows == 1 && at == last->at + last->count) {
        last->count += count;
        return true;
    }
    if (count != last->count || (last->rows > 1 && at != last->at + last->rows * last->step))
        return false;
    last->step = last->rows == 1 ? at - last->at : last->step;
    last->rows++;
    return true;
}

static void add_run(listing *l, int64_t at, int64_t count)
{
    lt_chunk_list *list = l->list;
    l->elements += count;
    if (!list)
        return;
    const int64_t message = list->elements;
    list->elements += count;
    /* chunks of two messages are separated by a header */
    const lt_chunk *last = list->count ? &list->chunk[list->count - 1] : NULL;
    if (last && last->message + last->rows * last->count == message
        && extend_chunk(&list->chunk[list->count - 1], l->index, at, count))
        return;
    if (!l->status)
        l->status = LT_GROW(&list->chunk, &list->capacity, list->count + 1);
    if (!l->status)
        list->chunk[list->count++] = (lt_chunk){l->index, at, 0, count, 1, message};
}

/* Maps a row of the view to a row of the shard; returns false if it is outside. */
static bool row_of_shard(const lt_shard_spec *p, int64_t row, int64_t *out)
{
    int64_t step = 1;
    *out = 0;
    for (int d = p->view.ndim - 2; d >= 0; d--) {
        const int64_t at = row % p->view.dim[d] - p->offset.dim[d];
        if (at < 0 || at >= p->extent.dim[d])
            return false;
        *out += at * step;
        step *= p->extent.dim[d];
        row /= p->view.dim[d];
    }
    return true;
}

/* Intersects count elements from stored element `from` on, at owner_at in the owner buffer, with the shard. */
static void intersect_run(listing *l, int64_t from, int64_t count, int64_t owner_at)
{
    const lt_shard_spec *p = l->spec;
    const int last = p->view.ndim - 1;
    const int64_t width = p->view.dim[last], begin = p->offset.dim[last];
    const int64_t end = begin + p->extent.dim[last];
    for (int64_t n, row; count > 0; from += n, owner_at += n, count -= n) {
        const int64_t at = from % width;
        n = width - at < count ? width - at : count;
        const int64_t low = at > begin ? at : begin, high = at + n < end ? at + n : end;
        if (low < high && row_of_shard(p, from / width, &row))
            add_run(l, l->in_owner_buffer ? owner_at + low - at : row * (end - begin) + low - begin,
                    high - low);
    }
}

static void intersect_part(listing *l, const lt_part_layout *part)
{
    const int last = part->whole.ndim - 1;
    int64_t at[LT_MAX_DIMS] = {0};
    for (int d = 0; d >= 0;) {
        int64_t from = 0, owner_at = 0;
        for (int k = 0; k <= last; k++) {
            from = from * part->whole.dim[k] + part->offset.dim[k] + at[k];
            owner_at += at[k] * part->stride[k];
        }
        intersect_run(l, from, part->extent.dim[last], owner_at);
        for (d = last - 1; d >= 0; d--) {
            if (++at[d] < part->extent.dim[d])
                break;
            at[d] = 0;
        }
    }
}

/* --- Owners --- */

static const lt_shard_spec *shard_of_rank(const struct lt_sharded_optim *p, int rank, size_t k)
{
    return &p->spec[(size_t)rank * p->own.count + k];
}

/* Counts the elements of a part that each rank holds, [ranks]. Equal shards of copies of the model are counted
 * once. */
static void count_local_elements(lt_optim *o, size_t part, int64_t *local)
{
    const struct lt_sharded_optim *p = lt_sharded_of(o);
    const size_t k = (size_t)(o->shard->part[part].slot - o->slot);
    const lt_part_layout b = lt_sharded_part_layout(o, part);
    for (int r = 0; r < o->shard->ranks; r++) {
        int same = 0;
        while (same < r
               && (p->copy_of[same]
                   || !lt_shard_spec_equal(shard_of_rank(p, same, k), shard_of_rank(p, r, k))))
            same++;
        listing l = {.spec = shard_of_rank(p, r, k)};
        if (same == r)
            intersect_part(&l, &b);
        local[r] = same == r ? l.elements : local[same];
    }
}

lt_status lt_sharded_prefer_local(lt_optim *o, const int64_t *cost, int *owner)
{
    const lt_shard *s = o->shard;
    int64_t *local = NULL;
    LT_TRY(LT_ALLOC(&local, s->count * (size_t)s->ranks));
    for (size_t i = 0; i < s->count; i++)
        count_local_elements(o, i, local + i * (size_t)s->ranks);
    lt_assign_prefer_local(cost, local, s->count, s->ranks, owner);
    lt_free(local);
    return LT_OK;
}

/* --- Schedules --- */

/* Returns true if `rank`, of this copy, sends its elements of a part to the part's owner: the owner itself if it
 * holds them, else one of the holders, chosen by the part's number. */
static bool is_sender_of_part(const struct lt_sharded_optim *p, const lt_optim *o, size_t part,
                              int rank)
{
    const size_t k = (size_t)(o->shard->part[part].slot - o->slot);
    const lt_shard_spec *own = shard_of_rank(p, rank, k);
    const int owner = o->shard->part[part].owner;
    int before = 0, holders = 0;
    for (int m = 0; m < lt_comm_size(p->copy); m++) {
        const int other = p->member[m];
        if (!lt_shard_spec_equal(shard_of_rank(p, other, k), own))
            continue;
        if (other == owner)
            return rank == owner;
        before += other < rank;
        holders++;
    }
    return (int)(part % (size_t)holders) == before;
}

/* Lists the chunks of a part that rank `holder` has, in the owner buffer or in the holder's tensor. */
static lt_status add_part_chunks(const struct lt_sharded_optim *p, lt_optim *o, size_t part,
                                 int holder, bool in_owner_buffer, lt_chunk_list *list)
{
    const size_t k = (size_t)(o->shard->part[part].slot - o->slot);
    const lt_part_layout b = lt_sharded_part_layout(o, part);
    listing l = {.spec = shard_of_rank(p, holder, k),
                 .list = list,
                 .index = in_owner_buffer ? part : k,
                 .in_owner_buffer = in_owner_buffer};
    intersect_part(&l, &b);
    return l.status;
}

/* A message between two ranks of the world: to the owner of parts (pull), or from it. */
typedef struct message {
    int from, to;
    bool pull;
    bool in_owner_buffer; /* chunks refer to the owner buffer */
} message;

static lt_status add_message_chunks(const struct lt_sharded_optim *p, lt_optim *o, const message *m,
                                    lt_chunk_list *list)
{
    const lt_shard *s = o->shard;
    const int owner = m->pull ? m->to : m->from, holder = m->pull ? m->from : m->to;
    list->elements++; /* the header */
    for (size_t i = 0; i < s->count; i++)
        if (s->part[i].owner == owner && (!m->pull || is_sender_of_part(p, o, i, holder)))
            LT_TRY(add_part_chunks(p, o, i, holder, m->in_owner_buffer, list));
    return LT_OK;
}

static lt_status plan_schedule(const struct lt_sharded_optim *p, lt_optim *o,
                               lt_message_schedule *r, bool pull)
{
    const int ranks = lt_comm_size(r->comm), me = o->shard->rank;
    LT_TRY(LT_ALLOC(&r->sent, (size_t)ranks * 4));
    r->received = r->sent + ranks;
    r->sent_at = r->received + ranks;
    r->received_at = r->sent_at + ranks;
    for (int i = 0; i < ranks; i++) {
        const int other = pull ? p->member[i] : i;
        r->sent_at[i] = r->out.elements;
        LT_TRY(add_message_chunks(p, o, &(message){me, other, pull, !pull}, &r->out));
        r->sent[i] = r->out.elements - r->sent_at[i];
        r->received_at[i] = r->in.elements;
        LT_TRY(add_message_chunks(p, o, &(message){other, me, pull, pull}, &r->in));
        r->received[i] = r->in.elements - r->received_at[i];
    }
    return LT_OK;
}

lt_status lt_sharded_plan_messages(struct lt_sharded_optim *p, lt_optim *o)
{
    p->pull.comm = p->copy;
    p->push.comm = p->world;
    LT_TRY(plan_schedule(p, o, &p->pull, true));
    return plan_schedule(p, o, &p->push, false);
}

static void free_schedule(lt_message_schedule *r)
{
    lt_free(r->out.chunk);
    lt_free(r->in.chunk);
    lt_free(r->sent);
    *r = (lt_message_schedule){0};
}

void lt_sharded_free_messages(struct lt_sharded_optim *p)
{
    free_schedule(&p->pull);
    free_schedule(&p->push);
}
