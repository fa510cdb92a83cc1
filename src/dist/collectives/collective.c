/* One call on one rank as transfers to and from every other rank, and what is summed in between. */

#include "base/alloc.h"
#include "base/trace.h"
#include "dist/collectives/collectives.h"

#include <stdio.h>
#include <string.h>

/* A message is cut, so that the thread sees it move before it sleeps, and for MPI's count, an int. */
static const size_t piece_bytes = (size_t)1 << 19;

enum { WINDOW = 2 };   /* collectives of one end under way at once: one is summed, one moves */
enum { NUMBERS = 16 }; /* that have tags of their own: many more than WINDOW */

static bool reduces(const lt_work *w)
{
    return w->call.what == LT_COMM_ALLREDUCE || w->call.what == LT_COMM_REDUCESCATTER;
}

int lt_work_transfers(const lt_work *w)
{
    return lt_work_is_message(w) ? 1 : 2 * (w->end->size - 1);
}

lt_status lt_work_new(lt_work **out, lt_end *end, const lt_comm_call *call)
{
    size_t n = (size_t)end->size;
    lt_work *w = lt_alloc(1, sizeof *w + (n + 1) * sizeof *w->offset);
    if (!w)
        return LT_E_NOMEM;
    w->end = end;
    w->call = *call;
    for (int r = 0; r <= end->size; r++)
        w->offset[r] = lt_call_offset(call, r, end->size);
    w->call.count = NULL;
    w->transfer = lt_alloc(2 * n, sizeof *w->transfer);
    w->term = lt_alloc(n, sizeof *w->term);
    if (!w->transfer || !w->term) {
        lt_work_free(w);
        return LT_E_NOMEM;
    }
    *out = w;
    return LT_OK;
}

void lt_work_free(lt_work *w)
{
    lt_free(w->transfer);
    lt_free(w->term);
    lt_free(w->scratch);
    lt_free(w);
}

static size_t part_bytes(const lt_work *w, int rank)
{
    return (size_t)(w->offset[rank + 1] - w->offset[rank]) * lt_dtype_size(w->call.dtype);
}

static size_t part_at(const lt_work *w, int rank)
{
    return (size_t)w->offset[rank] * lt_dtype_size(w->call.dtype);
}

/* The chunk in scratch that peer's term goes to. */
static char *scratch_of(const lt_work *w, int peer)
{
    return w->scratch + part_bytes(w, w->end->rank) * (size_t)(peer - (peer > w->end->rank));
}

static void set(lt_transfer *t, const char *in, char *out, size_t bytes)
{
    t->in = in;
    t->out = out;
    t->bytes = bytes;
}

/* The data of the first phase between this rank and peer. */
static void plan_data(const lt_work *w, lt_transfer *to, lt_transfer *from, int peer)
{
    const lt_comm_call *c = &w->call;
    int me = w->end->rank;
    size_t all = (size_t)c->elements * lt_dtype_size(c->dtype);
    if (reduces(w)) {
        set(to, (const char *)c->in + part_at(w, peer), NULL, part_bytes(w, peer));
        set(from, NULL, scratch_of(w, peer), part_bytes(w, me));
    } else if (c->what == LT_COMM_ALLGATHER) {
        set(to, c->in, NULL, part_bytes(w, me));
        set(from, NULL, (char *)c->out + part_at(w, peer), part_bytes(w, peer));
    } else if (c->what == LT_COMM_BROADCAST) {
        set(to, c->in, NULL, me == c->root ? all : 0);
        set(from, NULL, c->out, peer == c->root ? all : 0);
    }
}

static void plan_collective(lt_work *w)
{
    int n = w->end->size, me = w->end->rank;
    for (int i = 1; i < n; i++) {
        lt_transfer *to = &w->transfer[2 * i - 2], *from = to + 1;
        int target = (me + i) % n, source = (me + n - i) % n;
        lt_transfer unused = {0};
        *to = (lt_transfer){.peer = target, .sends = true, .header = lt_work_header(w)};
        *from = (lt_transfer){.peer = source};
        plan_data(w, to, &unused, target);
        plan_data(w, &unused, from, source);
    }
}

static void plan_message(lt_work *w)
{
    const lt_comm_call *c = &w->call;
    lt_transfer *t = w->transfer;
    *t = (lt_transfer){
        .peer = c->root, .sends = c->what == LT_COMM_SEND, .header = lt_work_header(w)};
    set(t, c->in, c->out, (size_t)c->elements * lt_dtype_size(c->dtype));
}

/* All-reduce: every rank's sum of its chunk to all. */
static void plan_second(lt_work *w)
{
    int n = w->end->size, me = w->end->rank;
    char *out = w->call.out;
    for (int i = 1; i < n; i++) {
        lt_transfer *to = &w->transfer[2 * i - 2], *from = to + 1;
        int target = (me + i) % n, source = (me + n - i) % n;
        *to = (lt_transfer){.peer = target, .sends = true, .headed = true};
        *from = (lt_transfer){.peer = source, .headed = true};
        set(to, out + part_at(w, me), NULL, part_bytes(w, me));
        set(from, NULL, out + part_at(w, source), part_bytes(w, source));
    }
    w->phase = 1;
    w->left = lt_work_transfers(w);
}

/* Memory for the other ranks' terms, from the end's spare where that is large enough. */
static bool take_scratch(lt_work *w, char *why)
{
    lt_end *e = w->end;
    size_t bytes = part_bytes(w, e->rank) * (size_t)(e->size - 1);
    if (!reduces(w) || !bytes)
        return true;
    if (e->spare_bytes >= bytes) {
        w->scratch = e->spare;
        w->scratch_bytes = e->spare_bytes;
        e->spare = NULL;
        e->spare_bytes = 0;
        return true;
    }
    enum { ALIGNMENT = 64 };
    w->scratch = lt_alloc_aligned(ALIGNMENT, bytes);
    w->scratch_bytes = bytes;
    if (!w->scratch)
        snprintf(why, LT_LINK_TEXT, "comm %s: no memory for %zu bytes from other ranks, on rank %d",
                 e->engine->link->ops->kind, bytes, e->rank);
    return w->scratch;
}

static void give_scratch(lt_work *w)
{
    lt_end *e = w->end;
    if (w->scratch_bytes > e->spare_bytes) {
        lt_free(e->spare);
        e->spare = w->scratch;
        e->spare_bytes = w->scratch_bytes;
    } else {
        lt_free(w->scratch);
    }
    w->scratch = NULL;
    w->scratch_bytes = 0;
}

/* Messages between two ranks go one after the other, so that headers and data stay in order. */
static bool *lane(const lt_work *w)
{
    return &w->end->busy[2 * w->call.root + (w->call.what == LT_COMM_SEND)];
}

static bool may_start(const lt_work *w)
{
    return lt_work_is_message(w) ? !*lane(w) : w->end->running < WINDOW;
}

static bool start(lt_work *w, char *why)
{
    if (!take_scratch(w, why))
        return false;
    w->started = true;
    w->left = lt_work_transfers(w);
    if (lt_work_is_message(w)) {
        *lane(w) = true;
        plan_message(w);
        return true;
    }
    w->end->running++;
    plan_collective(w);
    if (w->call.what == LT_COMM_ALLGATHER && part_bytes(w, w->end->rank)) {
        char *own = (char *)w->call.out + part_at(w, w->end->rank);
        if (own != w->call.in)
            memcpy(own, w->call.in, part_bytes(w, w->end->rank));
    }
    return true;
}

static void sum(lt_work *w)
{
    int me = w->end->rank, n = w->end->size;
    int64_t count = w->offset[me + 1] - w->offset[me];
    bool whole = w->call.what == LT_COMM_ALLREDUCE;
    if (!count)
        return;
    int64_t span = lt_trace_begin();
    for (int r = 0; r < n; r++)
        w->term[r] = r == me ? (const char *)w->call.in + part_at(w, me) : scratch_of(w, r);
    lt_reduce_terms((char *)w->call.out + (whole ? part_at(w, me) : 0), w->term, n, count,
                    w->call.dtype, w->call.op);
    lt_trace_end(span, LT_PROFILE_COMM, "sum", (int64_t)part_bytes(w, me) * (n + 1));
}

/* Begins the next message of a transfer: its header, or a piece of its data. */
static bool post(lt_work *w, lt_transfer *t)
{
    const lt_end *e = w->end;
    lt_link *link = e->engine->link;
    int base = LT_GROUP_TAGS * e->context, mine = e->world[e->rank], other = e->world[t->peer];
    size_t rest = t->bytes - t->moved;
    t->piece = !t->headed ? sizeof t->header : rest < piece_bytes ? rest : piece_bytes;
    lt_message m = {
        .from = t->sends ? mine : other,
        .to = t->sends ? other : mine,
        .tag = lt_work_is_message(w) ? base : base + 2 + 2 * (int)(w->number % NUMBERS) + w->phase,
        .bytes = t->piece};
    if (t->sends)
        m.in = t->headed ? t->in + t->moved : (const char *)&t->header;
    else
        m.out = t->headed ? t->out + t->moved : (char *)&t->header;
    t->busy = true;
    bool ok =
        t->sends ? link->ops->send(link, &m, &t->handle) : link->ops->recv(link, &m, &t->handle);
    t->busy = ok;
    return ok;
}

static bool link_failed(const lt_work *w, const lt_transfer *t, char *why)
{
    const lt_end *e = w->end;
    snprintf(why, LT_LINK_TEXT, "comm %s: rank %d of %d, with rank %d: %.400s",
             e->engine->link->ops->kind, e->rank, e->size, t->peer, e->engine->link->why);
    return false;
}

/* Whether the message under way has ended, and what follows from it. */
static bool ended(lt_work *w, lt_transfer *t, bool *ok, char *why)
{
    lt_link *link = w->end->engine->link;
    bool done = false;
    *ok = link->ops->test(link, t->handle, &done);
    if (!*ok) {
        t->busy = false;
        return link_failed(w, t, why);
    }
    if (!done)
        return false;
    t->busy = false;
    if (t->headed) {
        t->moved += t->piece;
    } else {
        t->headed = true;
        *ok = t->sends || lt_work_check(w, t, why);
    }
    return *ok;
}

static bool advance_transfer(lt_work *w, lt_transfer *t, bool *ok, char *why)
{
    bool moved = false;
    while (!t->done) {
        if (t->busy) {
            if (!ended(w, t, ok, why))
                return moved;
        } else if (!t->headed || t->moved < t->bytes) {
            *ok = post(w, t);
            if (!*ok)
                return link_failed(w, t, why) || moved;
        } else {
            t->done = true;
            w->left--;
        }
        moved = true;
    }
    return moved;
}

static bool advance_all(lt_work *w, bool *ok, char *why)
{
    bool moved = false;
    for (int i = 0; *ok && i < lt_work_transfers(w); i++)
        if (!w->transfer[i].done)
            moved |= advance_transfer(w, &w->transfer[i], ok, why);
    return moved;
}

bool lt_work_advance(lt_work *w, bool *ok, char *why)
{
    *ok = true;
    if (w->finished)
        return false;
    if (!w->started) {
        if (!may_start(w))
            return false;
        *ok = start(w, why);
        if (!*ok)
            return false;
    }
    bool moved = advance_all(w, ok, why);
    if (!*ok || w->left)
        return moved;
    if (reduces(w) && w->phase == 0)
        sum(w);
    if (w->call.what == LT_COMM_ALLREDUCE && w->phase == 0) {
        plan_second(w);
        return true;
    }
    give_scratch(w);
    if (lt_work_is_message(w))
        *lane(w) = false;
    else
        w->end->running--;
    w->finished = true;
    return true;
}

void lt_work_cancel(lt_work *w)
{
    lt_link *link = w->end->engine->link;
    for (int i = 0; w->started && i < lt_work_transfers(w); i++)
        if (w->transfer[i].busy) {
            link->ops->cancel(link, w->transfer[i].handle);
            w->transfer[i].busy = false;
        }
}
