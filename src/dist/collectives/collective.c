/* State machine of one collective on one rank: transfers to and from every other rank, and the sum between them. */

#include "base/alloc.h"
#include "base/hash.h"
#include "base/trace.h"
#include "dist/collectives/collectives.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    MAX_RUNNING = 2
}; /* concurrent collectives per endpoint: one is summed while another is transferred */
enum {
    MAX_RUNNING_ROOTED = 8
}; /* concurrent collectives in which one rank sends or receives all data: only its link is busy */
enum {
    TAG_CYCLE = 16
}; /* number of tags that consecutive collectives cycle through; more than are in flight */
enum { FIRST_ROUND_TAG = LT_GROUP_TAGS - TAG_CYCLE };
enum { TEXT = 160 };

static bool is_reduction(const lt_collective *self)
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
        self->offset[r] = lt_call_chunk_offset(call, r, end->size);
    self->received_offset = self->offset + n + 1;
    for (int r = 0; r <= end->size && call->received_count; r++)
        self->received_offset[r] = lt_call_received_offset(call, r);
    self->small = lt_small_applies(self);
    self->sum = lt_engine_sum_of(self);
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
    lt_free(self->workspace);
    lt_free(self);
}

static int transfer_count(const lt_collective *self)
{
    if (lt_collective_is_message(self))
        return 1;
    return self->small ? 2 : 2 * (self->endpoint->size - 1);
}

double lt_collective_expiry(const lt_collective *self)
{
    static const double round_seconds = 0.1;
    return self->expires > 0 && self->small ? self->expires + round_seconds * self->phase
                                            : self->expires;
}

/* --- Header --- */

/* Returns the header of this call. elements: those of an all-to-all message; with 0 the dtype may be unknown. */
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
    lt_comm_call call = {.what = (lt_comm_call_kind)h->what,
                         .op = (lt_reduce)h->op,
                         .dtype = (lt_dtype)h->dtype,
                         .root = world_rank(self, h->root),
                         .elements = h->elements};
    bool known = h->what >= 0 && h->what <= LT_COMM_ALLTOALL && h->dtype >= 0 && h->dtype <= LT_U8;
    if (known)
        lt_call_text(&call, text, bytes);
    else
        snprintf(text, bytes, "an unknown call");
    if (call.what == LT_COMM_SEND) /* without "to rank": the caller's message names both ranks */
        snprintf(text, bytes, "a message of %" PRId64 " %s", h->elements,
                 lt_dtype_name(call.dtype));
    if (known && call.what == LT_COMM_ALLTOALL)
        snprintf(text, bytes, "an alltoall with %" PRId64 " %s between these ranks", h->elements,
                 lt_dtype_name(call.dtype));
}

/* Fails if the other rank's header differs from this rank's. */
static lt_status check_header(const lt_collective *self, const lt_transfer *t)
{
    const int64_t *at = self->received_offset + t->channel.peer;
    const lt_header mine = header_of(self, at[1] - at[0]), *theirs = &t->header;
    const lt_endpoint *e = self->endpoint;
    char a[TEXT], b[TEXT], own[LT_RANK_TEXT], peer[LT_RANK_TEXT];
    if (!memcmp(&mine, theirs, sizeof mine))
        return LT_OK;
    header_text(self, &mine, a, sizeof a);
    header_text(self, theirs, b, sizeof b);
    bool counts = !strcmp(a, b) && mine.number == theirs->number;
    return lt_fail(LT_E_COMM,
                   "comm %s: mismatched calls: number %" PRIu64 " is %s on %s, number %" PRIu64
                   " is %s%s on %s",
                   e->progress->link->ops->kind, mine.number, a,
                   lt_endpoint_rank_text(e, e->rank, own, sizeof own), theirs->number, b,
                   counts ? " with other counts" : "",
                   lt_endpoint_rank_text(e, t->channel.peer, peer, sizeof peer));
}

/* States of an unfinished transfer, the most informative first. */
typedef enum wait_state { NO_HEADER, NO_DATA, NOT_SENT, WAIT_STATES } wait_state;

static wait_state wait_state_of(const lt_transfer *t)
{
    return t->channel.sends ? NOT_SENT : t->headed ? NO_DATA : NO_HEADER;
}

/* Appends the ranks in that state to text; returns false if no rank is. */
static bool append_waiting_ranks(const lt_collective *self, wait_state state, char *text,
                                 size_t bytes)
{
    static const char *const what[] = {[NO_HEADER] = "received nothing from",
                                       [NO_DATA] = "data is missing from",
                                       [NOT_SENT] = "data was not accepted by"};
    enum { NAMED = 4 };
    char peer[LT_RANK_TEXT];
    int named = 0;
    for (int i = 0; i < transfer_count(self); i++) {
        const lt_transfer *t = &self->transfer[i];
        const size_t used = strlen(text);
        if (t->done || wait_state_of(t) != state || named++ >= NAMED)
            continue;
        snprintf(text + used, bytes - used, "%s%s %s", named > 1 ? "," : "; ",
                 named > 1 ? "" : what[state],
                 lt_endpoint_rank_text(self->endpoint, t->channel.peer, peer, sizeof peer));
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
             lt_endpoint_rank_text(self->endpoint, self->endpoint->rank, own, sizeof own));
    if (self->protocol.ops)
        self->protocol.ops->text(self->protocol.context, text, bytes);
    const size_t used = strlen(text);
    if (self->sum && self->phase)
        snprintf(text + used, bytes - used, "; all ranks entered it, MPI names none");
    for (int state = 0; self->started && !(self->sum && self->phase) && state < WAIT_STATES;
         state++)
        if (append_waiting_ranks(self, (wait_state)state, text, bytes))
            return;
}

/* --- Transfers --- */

static size_t chunk_bytes(const lt_collective *self, int rank)
{
    return (size_t)(self->offset[rank + 1] - self->offset[rank]) * lt_dtype_size(self->call.dtype);
}

static size_t chunk_byte_offset(const lt_collective *self, int rank)
{
    return (size_t)self->offset[rank] * lt_dtype_size(self->call.dtype);
}

/* Returns the workspace for peer's term of this rank's chunk. */
static char *term_buffer(const lt_collective *self, int peer)
{
    return self->workspace
           + chunk_bytes(self, self->endpoint->rank)
                 * (size_t)(peer - (peer > self->endpoint->rank));
}

/* Tags cycle with number and phase; sends and receives use the group's first tag. Rounds of small data after the first have
 * other tags: no rank takes a header for a block. */
static lt_channel make_channel(const lt_collective *self, int peer, bool sends)
{
    const int turn = (int)(self->number % TAG_CYCLE);
    const int tag =
        self->small && self->phase ? FIRST_ROUND_TAG + turn : 2 + 2 * turn + self->phase;
    return (lt_channel){
        .peer = peer, .sends = sends, .tag = lt_collective_is_message(self) ? 0 : tag};
}

static void set_buffers(lt_transfer *t, const char *in, char *out, size_t bytes)
{
    t->in = in;
    t->out = out;
    t->bytes = bytes;
}

/* Sets the buffers of the first phase between this rank and peer. */
static void set_first_phase_buffers(const lt_collective *self, lt_transfer *to, lt_transfer *from,
                                    int peer)
{
    const lt_comm_call *c = &self->call;
    int me = self->endpoint->rank;
    size_t all = (size_t)c->elements * lt_dtype_size(c->dtype);
    if (is_reduction(self)) {
        set_buffers(to, (const char *)c->in + chunk_byte_offset(self, peer), NULL,
                    chunk_bytes(self, peer));
        set_buffers(from, NULL, term_buffer(self, peer), chunk_bytes(self, me));
    } else if (c->what == LT_COMM_ALLGATHER && c->tree) {
        lt_pieces_of_shards(self, peer, to, from);
    } else if (c->what == LT_COMM_ALLGATHER) {
        set_buffers(to, c->in, NULL, chunk_bytes(self, me));
        set_buffers(from, NULL, (char *)c->out + chunk_byte_offset(self, peer),
                    chunk_bytes(self, peer));
    } else if (c->what == LT_COMM_ALLTOALL) {
        size_t size = lt_dtype_size(c->dtype), at = (size_t)self->received_offset[peer] * size;
        set_buffers(to, (const char *)c->in + chunk_byte_offset(self, peer), NULL,
                    chunk_bytes(self, peer));
        set_buffers(from, NULL, (char *)c->out + at,
                    (size_t)self->received_offset[peer + 1] * size - at);
    } else if (c->what == LT_COMM_BROADCAST) {
        set_buffers(to, (const char *)c->in + (c->tree ? chunk_byte_offset(self, peer) : 0), NULL,
                    me != c->root ? 0
                    : c->tree     ? chunk_bytes(self, peer)
                                  : all);
        set_buffers(from, NULL, (char *)c->out + (c->tree ? chunk_byte_offset(self, me) : 0),
                    peer != c->root ? 0
                    : c->tree       ? chunk_bytes(self, me)
                                    : all);
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
        *to = (lt_transfer){.channel = make_channel(self, target, true),
                            .header = header_of(self, elements)};
        *from = (lt_transfer){.channel = make_channel(self, source, false)};
        if (self->sum) /* headers only */
            continue;
        set_first_phase_buffers(self, to, &unused, target);
        set_first_phase_buffers(self, &unused, from, source);
    }
}

static void set_message_transfer(lt_collective *self)
{
    const lt_comm_call *c = &self->call;
    lt_transfer *t = self->transfer;
    *t = (lt_transfer){.channel = make_channel(self, c->root, c->what == LT_COMM_SEND),
                       .header = header_of(self, 0)};
    set_buffers(t, c->in, c->out, (size_t)c->elements * lt_dtype_size(c->dtype));
}

/* Sets up the second phase: an all-gather of an all-reduce's sums, of a broadcast's pieces, which the root has, or of an
 * all-gather's. */
static void start_gather_phase(lt_collective *self)
{
    const int n = self->endpoint->size, me = self->endpoint->rank;
    const int root = self->call.what == LT_COMM_BROADCAST ? self->call.root : -1;
    char *out = self->call.out;
    self->phase = 1;
    for (int i = 1; i < n; i++) {
        lt_transfer *to = &self->transfer[2 * i - 2], *from = to + 1;
        int target = (me + i) % n, source = (me + n - i) % n;
        *to = (lt_transfer){.channel = make_channel(self, target, true), .headed = true};
        *from = (lt_transfer){.channel = make_channel(self, source, false), .headed = true};
        set_buffers(to, out + lt_piece_byte_offset(self, me), NULL,
                    target == root ? 0 : lt_piece_bytes(self, me));
        set_buffers(from, NULL, out + lt_piece_byte_offset(self, source),
                    me == root ? 0 : lt_piece_bytes(self, source));
    }
    self->pending = transfer_count(self);
}

/* Sets up a round of small.c: the number of the phase. */
static void set_small_round(lt_collective *self)
{
    lt_transfer *to = &self->transfer[0], *from = to + 1;
    const bool headed = self->phase > 0;
    *to = (lt_transfer){.headed = headed, .header = header_of(self, 0)};
    *from = (lt_transfer){.headed = headed};
    lt_small_round(self, self->phase, to, from);
    to->channel = make_channel(self, to->channel.peer, true);
    from->channel = make_channel(self, from->channel.peer, false);
    self->pending = transfer_count(self);
}

/* Allocates memory for the other ranks' terms, or reuses the endpoint's if large enough. */
static lt_status acquire_workspace(lt_collective *self)
{
    lt_endpoint *e = self->endpoint;
    size_t bytes = self->small ? lt_small_workspace_bytes(self)
                               : chunk_bytes(self, e->rank) * (size_t)(e->size - 1);
    if (self->sum || !(is_reduction(self) || self->small) || !bytes)
        return LT_OK;
    if (e->free_bytes >= bytes) {
        self->workspace = e->free_workspace;
        self->workspace_bytes = e->free_bytes;
        e->free_workspace = NULL;
        e->free_bytes = 0;
        return LT_OK;
    }
    enum { ALIGNMENT = 64 };
    self->workspace = lt_alloc_aligned(ALIGNMENT, bytes);
    self->workspace_bytes = bytes;
    return self->workspace
               ? LT_OK
               : lt_fail(LT_E_NOMEM,
                         "comm %s: out of memory: %zu bytes for data of other ranks, on rank %d",
                         e->progress->link->ops->kind, bytes, e->world[e->rank]);
}

static void release_workspace(lt_collective *self)
{
    lt_endpoint *e = self->endpoint;
    if (self->workspace_bytes > e->free_bytes) {
        lt_free(e->free_workspace);
        e->free_workspace = self->workspace;
        e->free_bytes = self->workspace_bytes;
    } else {
        lt_free(self->workspace);
    }
    self->workspace = NULL;
    self->workspace_bytes = 0;
}

/* Returns the flag that serializes the sends to a peer, or the receives, to keep headers and data in order. */
static bool *busy_flag(const lt_collective *self)
{
    return &self->endpoint->busy[2 * self->call.root + (self->call.what == LT_COMM_SEND)];
}

/* Returns true for a broadcast, or a reduction to a single rank. */
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
        return !*busy_flag(self);
    return self->endpoint->running < (is_rooted(self) ? MAX_RUNNING_ROOTED : MAX_RUNNING);
}

/* Copies this rank's own contribution to its output. */
static void copy_own(const lt_collective *self)
{
    const lt_comm_call *c = &self->call;
    const int me = self->endpoint->rank;
    const size_t size = lt_dtype_size(c->dtype);
    if (!chunk_bytes(self, me))
        return;
    if (c->what == LT_COMM_ALLGATHER && (char *)c->out + chunk_byte_offset(self, me) != c->in)
        memcpy((char *)c->out + chunk_byte_offset(self, me), c->in, chunk_bytes(self, me));
    else if (c->what == LT_COMM_ALLTOALL)
        memcpy((char *)c->out + (size_t)self->received_offset[me] * size,
               (const char *)c->in + chunk_byte_offset(self, me), chunk_bytes(self, me));
}

static lt_status start_collective(lt_collective *self)
{
    LT_TRY(acquire_workspace(self));
    self->started = true;
    self->pending = transfer_count(self);
    if (lt_collective_is_message(self)) {
        *busy_flag(self) = true;
        set_message_transfer(self);
        return LT_OK;
    }
    self->endpoint->running++;
    if (self->small) {
        lt_small_begin(self);
        set_small_round(self);
        return LT_OK;
    }
    set_transfers(self);
    copy_own(self);
    if (self->sum)
        self->turn = self->endpoint->next_turn++;
    return LT_OK;
}

static void sum_terms(lt_collective *self)
{
    int me = self->endpoint->rank, n = self->endpoint->size;
    int64_t count = self->offset[me + 1] - self->offset[me];
    bool whole = self->call.what == LT_COMM_ALLREDUCE;
    if (!count)
        return;
    int64_t span = lt_trace_begin();
    for (int r = 0; r < n; r++)
        self->term[r] = r == me ? (const char *)self->call.in + chunk_byte_offset(self, me)
                                : term_buffer(self, r);
    lt_reduce_terms((char *)self->call.out + (whole ? chunk_byte_offset(self, me) : 0), self->term,
                    n, count, &self->call);
    lt_trace_end(span, LT_PROFILE_COMM, "sum", (int64_t)chunk_bytes(self, me) * (n + 1));
}

/* Posts the next message of a transfer: its header, or up to LT_MESSAGE_BYTES of its data. */
static lt_status post_next_message(const lt_collective *self, lt_transfer *t)
{
    const bool sends = t->channel.sends;
    const size_t rest = t->bytes - t->posted;
    const size_t bytes = rest < LT_MESSAGE_BYTES ? rest : LT_MESSAGE_BYTES;
    if (!t->headed)
        return lt_channel_post(self->endpoint, &t->channel, sends ? &t->header : NULL,
                               sends ? NULL : &t->header, sizeof t->header);
    const size_t at = t->posted;
    t->posted += bytes;
    return lt_channel_post(self->endpoint, &t->channel, sends ? t->in + at : NULL,
                           sends ? NULL : t->out + at, bytes);
}

/* The header is sent alone: data of a mismatched call must not be received. Several data messages are in flight, which
 * keeps the link busy during a message's rendezvous and while this thread sleeps. */
static bool may_post(const lt_transfer *t)
{
    const int in_flight = t->channel.in_flight;
    return t->headed ? t->posted < t->bytes && in_flight < LT_CHANNEL_IN_FLIGHT : !in_flight;
}

/* Tests the oldest message in flight; checks a header that has arrived. */
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
            LT_TRY(post_next_message(self, t));
        } else if (t->channel.in_flight) {
            bool arrived;
            LT_TRY(test_message(self, t, &arrived));
            if (!arrived)
                return LT_OK;
        } else {
            t->done = true;
            self->pending--;
        }
        *moved = true;
    }
    return LT_OK;
}

static void finish_collective(lt_collective *self)
{
    release_workspace(self);
    if (lt_collective_is_message(self))
        *busy_flag(self) = false;
    else
        self->endpoint->running--;
    self->finished = true;
}

/* Hands a sum to MPI in its turn, once all headers have been exchanged: the one message in flight is then the sum. */
static lt_status start_engine_phase(lt_collective *self, bool *moved)
{
    lt_link *link = self->endpoint->progress->link;
    lt_channel *channel = &self->transfer->channel;
    if (self->endpoint->turn != self->turn)
        return LT_OK;
    if (!self->sum(link, &self->call, &channel->handle[channel->oldest]))
        return lt_fail(LT_E_COMM, "comm mpi: %.300s", link->why);
    self->endpoint->turn++;
    self->phase = self->pending = channel->in_flight = 1;
    self->transfer->done = false;
    *moved = true;
    return LT_OK;
}

/* Begins the next phase or round, or ends the collective. */
static void end_phase(lt_collective *self)
{
    const lt_comm_call *c = &self->call;
    if (self->small && ++self->phase < lt_small_rounds(self)) {
        set_small_round(self);
        return;
    }
    if (self->small)
        lt_small_finish(self);
    else if (self->sum)
        lt_engine_finish(self);
    else if (is_reduction(self) && self->phase == 0)
        sum_terms(self);
    if (!self->small && self->phase == 0
        && (c->what == LT_COMM_ALLREDUCE
            || ((c->what == LT_COMM_BROADCAST || c->what == LT_COMM_ALLGATHER) && c->tree)))
        start_gather_phase(self);
    else
        finish_collective(self);
}

lt_status lt_collective_advance(lt_collective *self, bool *moved)
{
    const lt_protocol *other = &self->protocol;
    if (other->ops)
        return self->finished ? LT_OK : other->ops->advance(other->context, moved, &self->finished);
    if (self->finished || (!self->started && !may_start(self)))
        return LT_OK;
    if (!self->started)
        LT_TRY(start_collective(self));
    for (int i = 0; i < transfer_count(self); i++)
        LT_TRY(advance_transfer(self, &self->transfer[i], moved));
    if (self->pending)
        return LT_OK;
    if (self->sum && !self->phase)
        return start_engine_phase(self, moved);
    *moved = true;
    end_phase(self);
    return LT_OK;
}

void lt_collective_cancel(lt_collective *self)
{
    if (self->protocol.ops && !self->finished)
        self->protocol.ops->cancel(self->protocol.context);
    for (int i = 0; self->started && i < transfer_count(self); i++)
        lt_channel_cancel(self->endpoint, &self->transfer[i].channel);
}
