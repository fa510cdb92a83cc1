/* One collective on one rank: its transfers to and from every other rank, and the sum in between. */

#include "base/alloc.h"
#include "base/hash.h"
#include "base/trace.h"
#include "dist/collectives/collectives.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { WINDOW = 2 }; /* collectives of one endpoint in flight: one is summed, one moves */
enum { ROOTED = 8 }; /* of them where all data goes from or to one rank, whose link alone is busy */
enum { NUMBERS = 16 }; /* that have tags of their own: many more than are in flight */
enum { TEXT = 160 };

static bool reduces(const lt_collective *self)
{
    return self->call.what == LT_COMM_ALLREDUCE || self->call.what == LT_COMM_REDUCESCATTER;
}

bool lt_collective_is_message(const lt_collective *self)
{
    return self->call.what == LT_COMM_SEND || self->call.what == LT_COMM_RECV;
}

lt_status lt_collective_new(lt_collective **out, lt_endpoint *end, const lt_comm_call *call)
{
    size_t n = (size_t)end->size;
    lt_collective *self = lt_alloc(1, sizeof *self + 2 * (n + 1) * sizeof *self->offset);
    if (!self)
        return LT_E_NOMEM;
    self->endpoint = end;
    self->call = *call;
    for (int r = 0; r <= end->size; r++)
        self->offset[r] = lt_call_offset(call, r, end->size);
    self->received = self->offset + n + 1;
    for (int r = 0; r <= end->size && call->received_count; r++)
        self->received[r] = lt_call_received_offset(call, r);
    self->call.count = self->call.received_count = NULL;
    self->transfer = lt_alloc(2 * n, sizeof *self->transfer);
    self->term = lt_alloc(n, sizeof *self->term);
    if (!self->transfer || !self->term) {
        lt_collective_free(self);
        return LT_E_NOMEM;
    }
    *out = self;
    return LT_OK;
}

void lt_collective_free(lt_collective *self)
{
    lt_free(self->transfer);
    lt_free(self->term);
    lt_free(self->scratch);
    lt_free(self);
}

static int transfers(const lt_collective *self)
{
    return lt_collective_is_message(self) ? 1 : 2 * (self->endpoint->size - 1);
}

/* --- The header: so that ranks that do different things find out, and say what each of them does --- */

/* elements: of an all-to-all, those of one message; without any a rank may know no dtype. */
static lt_header header_of(const lt_collective *self, int64_t elements)
{
    const lt_comm_call *c = &self->call;
    const bool message = lt_collective_is_message(self);
    const bool alltoall = c->what == LT_COMM_ALLTOALL;
    const size_t offsets = alltoall ? 0 : ((size_t)self->endpoint->size + 1) * sizeof *self->offset;
    return (lt_header){.what = message ? LT_COMM_SEND : (int32_t)c->what,
                       .op = (int32_t)c->op,
                       .dtype = alltoall && !elements ? 0 : (int32_t)c->dtype,
                       .root = message ? 0 : c->root,
                       .elements = alltoall ? elements : c->elements,
                       .number = message ? 0 : self->number,
                       .counts = lt_fnv1a(LT_FNV1A_BEGIN, self->offset, offsets)};
}

static int world_rank(const lt_collective *self, int r)
{
    const lt_endpoint *e = self->endpoint;
    return r >= 0 && r < e->size ? e->world[r] : r;
}

static void header_text(const lt_collective *self, const lt_header *h, char *text, size_t bytes)
{
    lt_comm_call call = {.what = (lt_comm_what)h->what,
                         .op = (lt_reduce)h->op,
                         .dtype = (lt_dtype)h->dtype,
                         .root = world_rank(self, h->root),
                         .elements = h->elements};
    bool known = h->what >= 0 && h->what <= LT_COMM_ALLTOALL && h->dtype >= 0 && h->dtype <= LT_U8;
    if (known)
        lt_call_text(&call, text, bytes);
    else
        snprintf(text, bytes, "something else");
    if (call.what == LT_COMM_SEND) /* to or from: the ranks are named beside it */
        snprintf(text, bytes, "a message of %" PRId64 " %s", h->elements,
                 lt_dtype_name(call.dtype));
    if (known && call.what == LT_COMM_ALLTOALL)
        snprintf(text, bytes, "an alltoall with %" PRId64 " %s between the two", h->elements,
                 lt_dtype_name(call.dtype));
}

/* Fails where the other rank's header is not this one's. */
static lt_status check_header(const lt_collective *self, const lt_transfer *t)
{
    const int64_t *at = self->received + t->channel.peer;
    const lt_header mine = header_of(self, at[1] - at[0]), *theirs = &t->header;
    const lt_endpoint *e = self->endpoint;
    char a[TEXT], b[TEXT], own[LT_RANK_TEXT], peer[LT_RANK_TEXT];
    if (!memcmp(&mine, theirs, sizeof mine))
        return LT_OK;
    header_text(self, &mine, a, sizeof a);
    header_text(self, theirs, b, sizeof b);
    bool counts = !strcmp(a, b) && mine.number == theirs->number;
    return lt_fail(LT_E_COMM,
                   "comm %s: ranks do different things: number %" PRIu64
                   " is %s on %s, number %" PRIu64 " is %s%s on %s",
                   e->progress->link->ops->kind, mine.number, a,
                   lt_endpoint_rank(e, e->rank, own, sizeof own), theirs->number, b,
                   counts ? " with other counts" : "",
                   lt_endpoint_rank(e, t->channel.peer, peer, sizeof peer));
}

/* State of an unfinished transfer, the ones that say most about the peer first. */
static int lack_of(const lt_transfer *t)
{
    return t->channel.sends ? 2 : t->headed ? 1 : 0;
}

/* Names the ranks with that lack; whether there are any. */
static bool name_lack(const lt_collective *self, int lack, char *text, size_t bytes)
{
    static const char *const what[] = {"nothing came from", "data is missing from",
                                       "data is not taken by"};
    enum { NAMED = 4 };
    char peer[LT_RANK_TEXT];
    int named = 0;
    for (int i = 0; i < transfers(self); i++) {
        const lt_transfer *t = &self->transfer[i];
        const size_t used = strlen(text);
        if (t->done || lack_of(t) != lack || named++ >= NAMED)
            continue;
        snprintf(text + used, bytes - used, "%s%s %s", named > 1 ? "," : "; ",
                 named > 1 ? "" : what[lack],
                 lt_endpoint_rank(self->endpoint, t->channel.peer, peer, sizeof peer));
    }
    return named > 0;
}

void lt_collective_text(const lt_collective *self, char *text, size_t bytes)
{
    char what[TEXT], own[LT_RANK_TEXT];
    lt_comm_call call = self->call;
    call.root = world_rank(self, call.root);
    lt_call_text(&call, what, sizeof what);
    snprintf(text, bytes, "%s, number %" PRIu64 ", on %s", what, self->number,
             lt_endpoint_rank(self->endpoint, self->endpoint->rank, own, sizeof own));
    if (self->protocol.ops)
        self->protocol.ops->text(self->protocol.context, text, bytes);
    for (int lack = 0; self->started && lack < 3; lack++)
        if (name_lack(self, lack, text, bytes))
            return;
}

/* --- Transfers --- */

static size_t part_bytes(const lt_collective *self, int rank)
{
    return (size_t)(self->offset[rank + 1] - self->offset[rank]) * lt_dtype_size(self->call.dtype);
}

static size_t part_at(const lt_collective *self, int rank)
{
    return (size_t)self->offset[rank] * lt_dtype_size(self->call.dtype);
}

/* The chunk in scratch that peer's term goes to. */
static char *scratch_of(const lt_collective *self, int peer)
{
    return self->scratch
           + part_bytes(self, self->endpoint->rank)
                 * (size_t)(peer - (peer > self->endpoint->rank));
}

/* Messages have tags of their own by number and phase; those of sends and receives the group's first. */
static lt_channel channel_to(const lt_collective *self, int peer, bool sends)
{
    const int tag = 2 + 2 * (int)(self->number % NUMBERS) + self->phase;
    return (lt_channel){
        .peer = peer, .sends = sends, .tag = lt_collective_is_message(self) ? 0 : tag};
}

static void set(lt_transfer *t, const char *in, char *out, size_t bytes)
{
    t->in = in;
    t->out = out;
    t->bytes = bytes;
}

/* The data of the first phase between this rank and peer. */
static void set_data(const lt_collective *self, lt_transfer *to, lt_transfer *from, int peer)
{
    const lt_comm_call *c = &self->call;
    int me = self->endpoint->rank;
    size_t all = (size_t)c->elements * lt_dtype_size(c->dtype);
    if (reduces(self)) {
        set(to, (const char *)c->in + part_at(self, peer), NULL, part_bytes(self, peer));
        set(from, NULL, scratch_of(self, peer), part_bytes(self, me));
    } else if (c->what == LT_COMM_ALLGATHER) {
        set(to, c->in, NULL, part_bytes(self, me));
        set(from, NULL, (char *)c->out + part_at(self, peer), part_bytes(self, peer));
    } else if (c->what == LT_COMM_ALLTOALL) {
        size_t size = lt_dtype_size(c->dtype), at = (size_t)self->received[peer] * size;
        set(to, (const char *)c->in + part_at(self, peer), NULL, part_bytes(self, peer));
        set(from, NULL, (char *)c->out + at, (size_t)self->received[peer + 1] * size - at);
    } else if (c->what == LT_COMM_BROADCAST) {
        set(to, c->in, NULL, me == c->root ? all : 0);
        set(from, NULL, c->out, peer == c->root ? all : 0);
    }
}

static void set_transfers(lt_collective *self)
{
    int n = self->endpoint->size, me = self->endpoint->rank;
    for (int i = 1; i < n; i++) {
        lt_transfer *to = &self->transfer[2 * i - 2], *from = to + 1;
        int target = (me + i) % n, source = (me + n - i) % n;
        lt_transfer unused = {0};
        int64_t elements = self->offset[target + 1] - self->offset[target];
        *to = (lt_transfer){.channel = channel_to(self, target, true),
                            .header = header_of(self, elements)};
        *from = (lt_transfer){.channel = channel_to(self, source, false)};
        set_data(self, to, &unused, target);
        set_data(self, &unused, from, source);
    }
}

static void set_message(lt_collective *self)
{
    const lt_comm_call *c = &self->call;
    lt_transfer *t = self->transfer;
    *t = (lt_transfer){.channel = channel_to(self, c->root, c->what == LT_COMM_SEND),
                       .header = header_of(self, 0)};
    set(t, c->in, c->out, (size_t)c->elements * lt_dtype_size(c->dtype));
}

/* The second phase of an all-reduce: an all-gather of the sums. */
static void set_gather(lt_collective *self)
{
    int n = self->endpoint->size, me = self->endpoint->rank;
    char *out = self->call.out;
    self->phase = 1;
    for (int i = 1; i < n; i++) {
        lt_transfer *to = &self->transfer[2 * i - 2], *from = to + 1;
        int target = (me + i) % n, source = (me + n - i) % n;
        *to = (lt_transfer){.channel = channel_to(self, target, true), .headed = true};
        *from = (lt_transfer){.channel = channel_to(self, source, false), .headed = true};
        set(to, out + part_at(self, me), NULL, part_bytes(self, me));
        set(from, NULL, out + part_at(self, source), part_bytes(self, source));
    }
    self->left = transfers(self);
}

/* Memory for the other ranks' terms: the endpoint's spare where that is large enough. */
static lt_status take_scratch(lt_collective *self)
{
    lt_endpoint *e = self->endpoint;
    size_t bytes = part_bytes(self, e->rank) * (size_t)(e->size - 1);
    if (!reduces(self) || !bytes)
        return LT_OK;
    if (e->spare_bytes >= bytes) {
        self->scratch = e->spare;
        self->scratch_bytes = e->spare_bytes;
        e->spare = NULL;
        e->spare_bytes = 0;
        return LT_OK;
    }
    enum { ALIGNMENT = 64 };
    self->scratch = lt_alloc_aligned(ALIGNMENT, bytes);
    self->scratch_bytes = bytes;
    return self->scratch ? LT_OK
                         : lt_fail(LT_E_NOMEM,
                                   "comm %s: no memory for %zu bytes from other ranks, on rank %d",
                                   e->progress->link->ops->kind, bytes, e->world[e->rank]);
}

static void give_scratch(lt_collective *self)
{
    lt_endpoint *e = self->endpoint;
    if (self->scratch_bytes > e->spare_bytes) {
        lt_free(e->spare);
        e->spare = self->scratch;
        e->spare_bytes = self->scratch_bytes;
    } else {
        lt_free(self->scratch);
    }
    self->scratch = NULL;
    self->scratch_bytes = 0;
}

/* Sends and receives between two ranks run one after the other, so that headers and data stay in
 * order. */
static bool *is_busy(const lt_collective *self)
{
    return &self->endpoint->busy[2 * self->call.root + (self->call.what == LT_COMM_SEND)];
}

/* A broadcast, or a sum that one rank gets. */
static bool is_rooted(const lt_collective *self)
{
    const int64_t *at = self->offset;
    const int size = self->endpoint->size;
    if (self->call.what != LT_COMM_REDUCESCATTER)
        return self->call.what == LT_COMM_BROADCAST;
    for (int r = 0; r < size; r++)
        if (at[r + 1] - at[r] == at[size])
            return true;
    return false;
}

static bool may_start(const lt_collective *self)
{
    if (lt_collective_is_message(self))
        return !*is_busy(self);
    return self->endpoint->running < (is_rooted(self) ? ROOTED : WINDOW);
}

/* What a rank has for itself. */
static void copy_own(const lt_collective *self)
{
    const lt_comm_call *c = &self->call;
    const int me = self->endpoint->rank;
    const size_t size = lt_dtype_size(c->dtype);
    if (!part_bytes(self, me))
        return;
    if (c->what == LT_COMM_ALLGATHER && (char *)c->out + part_at(self, me) != c->in)
        memcpy((char *)c->out + part_at(self, me), c->in, part_bytes(self, me));
    else if (c->what == LT_COMM_ALLTOALL)
        memcpy((char *)c->out + (size_t)self->received[me] * size,
               (const char *)c->in + part_at(self, me), part_bytes(self, me));
}

static lt_status start(lt_collective *self)
{
    LT_TRY(take_scratch(self));
    self->started = true;
    self->left = transfers(self);
    if (lt_collective_is_message(self)) {
        *is_busy(self) = true;
        set_message(self);
        return LT_OK;
    }
    self->endpoint->running++;
    set_transfers(self);
    copy_own(self);
    return LT_OK;
}

static void sum(lt_collective *self)
{
    int me = self->endpoint->rank, n = self->endpoint->size;
    int64_t count = self->offset[me + 1] - self->offset[me];
    bool whole = self->call.what == LT_COMM_ALLREDUCE;
    if (!count)
        return;
    int64_t span = lt_trace_begin();
    for (int r = 0; r < n; r++)
        self->term[r] =
            r == me ? (const char *)self->call.in + part_at(self, me) : scratch_of(self, r);
    lt_reduce_terms((char *)self->call.out + (whole ? part_at(self, me) : 0), self->term, n, count,
                    self->call.dtype, self->call.op);
    lt_trace_end(span, LT_PROFILE_COMM, "sum", (int64_t)part_bytes(self, me) * (n + 1));
}

/* Posts the next message of a transfer: its header, or a piece of its data. */
static lt_status post(const lt_collective *self, lt_transfer *t)
{
    const bool sends = t->channel.sends;
    const size_t rest = t->bytes - t->posted, piece = rest < LT_PIECE_BYTES ? rest : LT_PIECE_BYTES;
    if (!t->headed)
        return lt_channel_post(self->endpoint, &t->channel, sends ? &t->header : NULL,
                               sends ? NULL : &t->header, sizeof t->header);
    const size_t at = t->posted;
    t->posted += piece;
    return lt_channel_post(self->endpoint, &t->channel, sends ? t->in + at : NULL,
                           sends ? NULL : t->out + at, piece);
}

/* The header goes alone, since data of another size must not be received; of the data several messages are in
 * flight, so that the link is busy while one of them is agreed on and while this thread naps. */
static bool may_post(const lt_transfer *t)
{
    const int in_flight = t->channel.in_flight;
    return t->headed ? t->posted < t->bytes && in_flight < LT_CHANNEL_IN_FLIGHT : !in_flight;
}

/* Whether the oldest message in flight has arrived, and what follows from it. */
static lt_status test_message(const lt_collective *self, lt_transfer *t, bool *arrived)
{
    LT_TRY(lt_channel_test(self->endpoint, &t->channel, arrived));
    if (!*arrived || t->headed)
        return LT_OK;
    t->headed = true;
    return t->channel.sends ? LT_OK : check_header(self, t);
}

static lt_status advance_transfer(lt_collective *self, lt_transfer *t, bool *moved)
{
    while (!t->done) {
        if (may_post(t)) {
            LT_TRY(post(self, t));
        } else if (t->channel.in_flight) {
            bool arrived;
            LT_TRY(test_message(self, t, &arrived));
            if (!arrived)
                return LT_OK;
        } else {
            t->done = true;
            self->left--;
        }
        *moved = true;
    }
    return LT_OK;
}

static void finish(lt_collective *self)
{
    give_scratch(self);
    if (lt_collective_is_message(self))
        *is_busy(self) = false;
    else
        self->endpoint->running--;
    self->finished = true;
}

lt_status lt_collective_advance(lt_collective *self, bool *moved)
{
    const lt_protocol *other = &self->protocol;
    if (other->ops)
        return self->finished ? LT_OK : other->ops->advance(other->context, moved, &self->finished);
    if (self->finished || (!self->started && !may_start(self)))
        return LT_OK;
    if (!self->started)
        LT_TRY(start(self));
    for (int i = 0; i < transfers(self); i++)
        LT_TRY(advance_transfer(self, &self->transfer[i], moved));
    if (self->left)
        return LT_OK;
    *moved = true;
    if (reduces(self) && self->phase == 0)
        sum(self);
    if (self->call.what == LT_COMM_ALLREDUCE && self->phase == 0)
        set_gather(self);
    else
        finish(self);
    return LT_OK;
}

void lt_collective_cancel(lt_collective *self)
{
    if (self->protocol.ops && !self->finished)
        self->protocol.ops->cancel(self->protocol.context);
    for (int i = 0; self->started && i < transfers(self); i++)
        lt_channel_cancel(self->endpoint, &self->transfer[i].channel);
}
