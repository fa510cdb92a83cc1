/* Partial reduction on the progress thread. A rank sends each bucket when it is ready, chunk by chunk to the chunks'
 * owners, and reports to rank 0 after the last one. The first reports determine the set of participating ranks, which
 * rank 0 sends to all. Then each rank adds the set's terms of its chunk in rank order, divides by the set's size and
 * sends the mean to all. An excluded rank stops sending its terms, but still reduces its own chunk.
 *
 * Channels between each pair of ranks, per direction; messages of an update are ordered within a channel:
 *  - data: header and chunk of each bucket, then an end header;
 *  - control: a report to rank 0, also from an excluded rank; the set from rank 0;
 *  - mean: the sender's reduced chunks. */

#include "dist/collectives/partial_progress.h"

#include "base/alloc.h"
#include "base/trace.h"

#include <stdio.h>
#include <string.h>

/* Tags of a group, above those of its collectives. */
enum { TAG_DATA = 40, TAG_CONTROL, TAG_MEAN };

/* Returns the byte offset of a rank's chunk of a bucket. */
static size_t chunk_offset(const lt_partial *p, const lt_partial_bucket *b, int rank)
{
    const lt_comm_call call = {.elements = b->elements};
    return (size_t)lt_call_chunk_offset(&call, rank, p->size) * lt_dtype_size(p->config.dtype);
}

size_t lt_partial_chunk_bytes(const lt_partial *p, const lt_partial_bucket *b, int rank)
{
    return chunk_offset(p, b, rank + 1) - chunk_offset(p, b, rank);
}

static lt_status test_in_flight(const lt_partial *p, lt_channel *c, bool *moved)
{
    for (bool done = true; done && c->in_flight;) {
        LT_TRY(lt_channel_test(p->endpoint, c, &done));
        *moved |= done;
    }
    return LT_OK;
}

/* --- Terms --- */

static bool is_excluded(const lt_partial *p)
{
    return p->has_set && !p->set[p->rank];
}

/* Sends the header of the next bucket if it is ready, or the end header. */
static lt_status send_header(lt_partial *p, lt_partial_pair *l, bool *posted)
{
    const bool all = l->out.bucket == p->config.buckets;
    *posted = true;
    if (all || is_excluded(p)) {
        l->out_ended = true;
        l->out_complete = all;
        return lt_channel_post(p->endpoint, &l->data_out, &p->end[all], NULL,
                               sizeof(lt_partial_header));
    }
    lt_partial_bucket *b = &p->bucket[l->out.bucket];
    l->header_sent = *posted = atomic_load(&b->ready);
    return *posted ? lt_channel_post(p->endpoint, &l->data_out, &b->header, NULL,
                                     sizeof(lt_partial_header))
                   : LT_OK;
}

/* Sends the next data message of a bucket. */
static lt_status send_data(lt_partial *p, lt_partial_pair *l)
{
    const lt_partial_bucket *b = &p->bucket[l->out.bucket];
    const int peer = l->data_out.peer;
    const size_t rest = lt_partial_chunk_bytes(p, b, peer) - l->out.at;
    const size_t bytes = rest < LT_MESSAGE_BYTES ? rest : LT_MESSAGE_BYTES;
    const char *from = b->in + chunk_offset(p, b, peer) + l->out.at;
    l->out.at += bytes;
    p->count.sent += bytes;
    if (bytes == rest) {
        l->out = (lt_partial_cursor){l->out.bucket + 1, 0};
        l->header_sent = false;
    }
    return bytes ? lt_channel_post(p->endpoint, &l->data_out, from, NULL, bytes) : LT_OK;
}

static lt_status send_terms(lt_partial *p, lt_partial_pair *l, bool *moved)
{
    LT_TRY(test_in_flight(p, &l->data_out, moved));
    for (bool posted = true;
         posted && !l->out_ended && l->data_out.in_flight < LT_CHANNEL_IN_FLIGHT;) {
        LT_TRY(l->header_sent ? send_data(p, l) : send_header(p, l, &posted));
        *moved |= posted;
    }
    return LT_OK;
}

static lt_status check_header(const lt_partial *p, const lt_partial_pair *l)
{
    const lt_partial_header *h = &l->received;
    if (h->update == p->update && h->bucket >= LT_PARTIAL_END
        && h->bucket < (int32_t)p->config.buckets)
        return LT_OK;
    const lt_endpoint *e = p->endpoint;
    char own[LT_RANK_TEXT], peer[LT_RANK_TEXT];
    return lt_fail(
        LT_E_COMM, "comm %s: mismatched calls: update %lld on %s, bucket %d of update %lld on %s",
        e->progress->link->ops->kind, (long long)p->update,
        lt_endpoint_rank_text(e, p->rank, own, sizeof own), h->bucket, (long long)h->update,
        lt_endpoint_rank_text(e, l->data_in.peer, peer, sizeof peer));
}

/* Handles a received header: the peer's data of that bucket follows, or nothing after an end header. */
static lt_status begin_receiving_bucket(const lt_partial *p, lt_partial_pair *l)
{
    LT_TRY(check_header(p, l));
    l->reads_header = false;
    l->in_ended = l->received.bucket == LT_PARTIAL_END;
    l->in = (lt_partial_cursor){l->in_ended ? 0 : (size_t)l->received.bucket, 0};
    return LT_OK;
}

/* Posts a receive of the peer's next data for this rank's chunk, or of its next header. */
static lt_status receive_next(lt_partial *p, lt_partial_pair *l, bool *posted)
{
    const lt_partial_bucket *b = &p->bucket[l->in.bucket];
    const size_t all = lt_partial_chunk_bytes(p, b, p->rank),
                 rest = l->reads_header ? 0 : all - l->in.at;
    const size_t bytes = rest < LT_MESSAGE_BYTES ? rest : LT_MESSAGE_BYTES;
    char *to = b->term + all * (size_t)l->data_in.peer + l->in.at;
    *posted = true;
    if (bytes) {
        l->in.at += bytes;
        p->count.received += bytes;
        return lt_channel_post(p->endpoint, &l->data_in, NULL, to, bytes);
    }
    *posted = !l->data_in.in_flight; /* the kind of the following message is unknown until then */
    l->reads_header = l->reads_header || *posted;
    return *posted
               ? lt_channel_post(p->endpoint, &l->data_in, NULL, &l->received, sizeof l->received)
               : LT_OK;
}

static lt_status receive_terms(lt_partial *p, lt_partial_pair *l, bool *moved)
{
    for (bool again = true; again && !l->in_ended;) {
        bool done, posted = false;
        LT_TRY(lt_channel_test(p->endpoint, &l->data_in, &done));
        if (done && l->reads_header)
            LT_TRY(begin_receiving_bucket(p, l));
        if (!l->in_ended && l->data_in.in_flight < LT_CHANNEL_IN_FLIGHT)
            LT_TRY(receive_next(p, l, &posted));
        again = done || posted;
        *moved |= again;
    }
    return LT_OK;
}

/* --- The set of participating ranks --- */

/* Returns true if all buckets are ready and sent to all ranks. */
static bool all_sent(const lt_partial *p)
{
    for (size_t b = 0; b < p->config.buckets; b++)
        if (!atomic_load(&p->bucket[b].ready))
            return false;
    for (int r = 0; r < p->size; r++)
        if (r != p->rank
            && !(p->pair[r].out_ended && p->pair[r].out_complete && !p->pair[r].data_out.in_flight))
            return false;
    return true;
}

static void apply_participant_set(lt_partial *p)
{
    p->has_set = true;
    if (p->set[p->rank])
        return;
    atomic_store(&p->late, true);
    if (p->config.late)
        p->config.late(p->config.context);
}

/* Counts a rank's report, on rank 0. */
static void count_report(lt_partial *p, int rank, bool complete)
{
    if (!complete || p->has_set)
        return;
    if (!p->has_given)
        p->set[rank] = true;
    p->done++;
}

static lt_status send_participant_set(lt_partial *p)
{
    apply_participant_set(p);
    for (int r = 1; r < p->size; r++)
        LT_TRY(lt_channel_post(p->endpoint, &p->pair[r].control_out, p->set, NULL,
                               (size_t)p->size * sizeof *p->set));
    return LT_OK;
}

/* Rank 0: receives reports, in rank order if several have arrived, and sends the set. */
static lt_status collect_reports(lt_partial *p, bool *moved)
{
    if (!p->own_sent && all_sent(p)) {
        p->own_sent = *moved = true;
        count_report(p, 0, true);
    }
    if (!p->has_set && (p->has_given || p->done >= p->config.needed))
        LT_TRY(send_participant_set(p));
    for (int r = 1; r < p->size; r++) {
        lt_partial_pair *l = &p->pair[r];
        bool done;
        LT_TRY(lt_channel_test(p->endpoint, &l->control_in, &done));
        if (done) {
            l->control_in_done = *moved = true;
            count_report(p, r, l->report.complete);
        }
        if (!p->has_set && p->done >= p->config.needed)
            LT_TRY(send_participant_set(p));
        LT_TRY(test_in_flight(p, &l->control_out, moved));
        l->control_out_done = p->has_set && !l->control_out.in_flight;
    }
    return LT_OK;
}

/* Other ranks: report when all is sent, or when the set excludes this rank. */
static lt_status send_report(lt_partial *p, bool *moved)
{
    lt_partial_pair *l = &p->pair[0];
    bool done;
    LT_TRY(lt_channel_test(p->endpoint, &l->control_in, &done));
    if (done) {
        l->control_in_done = *moved = true;
        apply_participant_set(p);
    }
    if (!p->own_sent && (is_excluded(p) || all_sent(p))) {
        p->own_sent = *moved = true;
        l->report = (lt_partial_header){
            .update = p->update, .bucket = LT_PARTIAL_END, .complete = !is_excluded(p)};
        LT_TRY(lt_channel_post(p->endpoint, &l->control_out, &l->report, NULL, sizeof l->report));
    }
    LT_TRY(test_in_flight(p, &l->control_out, moved));
    l->control_out_done = p->own_sent && !l->control_out.in_flight;
    return LT_OK;
}

/* --- The mean --- */

static bool may_sum(const lt_partial *p)
{
    if (!p->has_set || p->summed || (p->set[p->rank] && !p->own_sent))
        return false;
    for (int r = 0; r < p->size; r++)
        if (r != p->rank && p->set[r] && !p->pair[r].in_ended)
            return false;
    return true;
}

/* Lists the set's terms of this rank's chunk of a bucket, in rank order. Returns their count. */
static int list_terms(const lt_partial *p, const lt_partial_bucket *b, const void **term)
{
    int terms = 0;
    for (int r = 0; r < p->size; r++)
        if (p->set[r])
            term[terms++] = r == p->rank
                                ? b->in + chunk_offset(p, b, r)
                                : b->term + lt_partial_chunk_bytes(p, b, p->rank) * (size_t)r;
    return terms;
}

static lt_status sum_terms(lt_partial *p)
{
    const void **term = NULL;
    LT_TRY(LT_ALLOC(&term, p->size));
    const lt_comm_call call = {.dtype = p->config.dtype, .op = LT_REDUCE_MEAN};
    const int64_t span = lt_trace_begin();
    for (size_t i = 0; i < p->config.buckets; i++) {
        const lt_partial_bucket *b = &p->bucket[i];
        const size_t bytes = lt_partial_chunk_bytes(p, b, p->rank);
        const int64_t count = (int64_t)(bytes / lt_dtype_size(p->config.dtype));
        const int terms = list_terms(p, b, term);
        if (count)
            lt_reduce_terms(b->out + chunk_offset(p, b, p->rank), term, terms, count, &call);
        p->count.used +=
            (uint64_t)(terms - p->set[p->rank]) * lt_partial_chunk_bytes(p, b, p->rank);
    }
    lt_trace_end(span, LT_PROFILE_COMM, "sum", (int64_t)p->count.used);
    lt_free(term);
    p->summed = true;
    return LT_OK;
}

/* Posts the next message of the mean of rank's chunks; *posted is false if all are posted. */
static lt_status post_mean(lt_partial *p, lt_channel *c, lt_partial_cursor *at, int rank,
                           bool *posted)
{
    while (at->bucket < p->config.buckets
           && at->at == lt_partial_chunk_bytes(p, &p->bucket[at->bucket], rank))
        *at = (lt_partial_cursor){at->bucket + 1, 0};
    *posted = at->bucket < p->config.buckets;
    if (!*posted)
        return LT_OK;
    const lt_partial_bucket *b = &p->bucket[at->bucket];
    char *data = b->out + chunk_offset(p, b, rank) + at->at;
    const size_t rest = lt_partial_chunk_bytes(p, b, rank) - at->at;
    const size_t bytes = rest < LT_MESSAGE_BYTES ? rest : LT_MESSAGE_BYTES;
    at->at += bytes;
    p->count.sent += c->sends ? bytes : 0;
    return lt_channel_post(p->endpoint, c, c->sends ? data : NULL, c->sends ? NULL : data, bytes);
}

static lt_status transfer_mean(lt_partial *p, lt_channel *c, lt_partial_cursor *at, int rank,
                               bool *moved)
{
    LT_TRY(test_in_flight(p, c, moved));
    for (bool posted = true; posted && c->in_flight < LT_CHANNEL_IN_FLIGHT;) {
        LT_TRY(post_mean(p, c, at, rank, &posted));
        *moved |= posted;
    }
    return LT_OK;
}

/* --- Update --- */

static lt_status start_pair(lt_partial *p, int peer)
{
    lt_partial_pair *l = &p->pair[peer];
    *l = (lt_partial_pair){.control_out_done = p->rank && peer, .control_in_done = p->rank && peer};
    l->data_out = (lt_channel){.peer = peer, .tag = TAG_DATA, .sends = true};
    l->data_in = (lt_channel){.peer = peer, .tag = TAG_DATA, .sends = false};
    l->control_out = (lt_channel){.peer = peer, .tag = TAG_CONTROL, .sends = true};
    l->control_in = (lt_channel){.peer = peer, .tag = TAG_CONTROL, .sends = false};
    l->mean_out = (lt_channel){.peer = peer, .tag = TAG_MEAN, .sends = true};
    l->mean_in = (lt_channel){.peer = peer, .tag = TAG_MEAN, .sends = false};
    l->reads_header = true;
    LT_TRY(lt_channel_post(p->endpoint, &l->data_in, NULL, &l->received, sizeof l->received));
    if (!p->rank)
        return lt_channel_post(p->endpoint, &l->control_in, NULL, &l->report, sizeof l->report);
    if (peer)
        return LT_OK;
    return lt_channel_post(p->endpoint, &l->control_in, NULL, p->set,
                           (size_t)p->size * sizeof *p->set);
}

static lt_status start_update(lt_partial *p)
{
    p->started = true;
    for (int r = 0; r < p->size; r++)
        if (r != p->rank)
            LT_TRY(start_pair(p, r));
    return LT_OK;
}

static bool is_done(const lt_partial *p)
{
    if (!p->summed)
        return false;
    for (int r = 0; r < p->size; r++) {
        const lt_partial_pair *l = &p->pair[r];
        if (r == p->rank)
            continue;
        if (!l->out_ended || l->data_out.in_flight || !l->in_ended || !l->control_out_done
            || !l->control_in_done)
            return false;
        if (l->mean_to.bucket < p->config.buckets || l->mean_out.in_flight
            || l->mean_from.bucket < p->config.buckets || l->mean_in.in_flight)
            return false;
    }
    return true;
}

static lt_status advance_pair(lt_partial *p, int peer, bool *moved)
{
    lt_partial_pair *l = &p->pair[peer];
    LT_TRY(send_terms(p, l, moved));
    LT_TRY(receive_terms(p, l, moved));
    if (p->summed)
        LT_TRY(transfer_mean(p, &l->mean_out, &l->mean_to, p->rank, moved));
    return p->has_set ? transfer_mean(p, &l->mean_in, &l->mean_from, peer, moved) : LT_OK;
}

static lt_status advance_update(void *context, bool *moved, bool *finished)
{
    lt_partial *p = context;
    if (!p->started)
        LT_TRY(start_update(p));
    for (int r = 0; r < p->size; r++)
        if (r != p->rank)
            LT_TRY(advance_pair(p, r, moved));
    LT_TRY(p->rank ? send_report(p, moved) : collect_reports(p, moved));
    if (may_sum(p)) {
        *moved = true;
        LT_TRY(sum_terms(p));
    }
    *finished = is_done(p);
    if (*finished)
        p->count.dropped = p->count.received - p->count.used;
    *moved |= *finished;
    return LT_OK;
}

static void cancel_update(void *context)
{
    lt_partial *p = context;
    for (int r = 0; p->started && r < p->size; r++) {
        lt_partial_pair *l = &p->pair[r];
        lt_channel *all[] = {&l->data_out,   &l->data_in,  &l->control_out,
                             &l->control_in, &l->mean_out, &l->mean_in};
        for (size_t i = 0; i < sizeof all / sizeof *all && r != p->rank; i++)
            lt_channel_cancel(p->endpoint, all[i]);
    }
}

/* Appends the ranks whose terms are missing. */
static void append_missing_ranks(const void *context, char *text, size_t bytes)
{
    const lt_partial *p = context;
    enum { NAMED = 4 };
    char peer[LT_RANK_TEXT];
    int named = 0;
    for (int r = 0; p->started && r < p->size; r++) {
        const size_t used = strlen(text);
        if (r != p->rank && !p->pair[r].in_ended && named++ < NAMED)
            snprintf(text + used, bytes - used, "%s %s", named > 1 ? "," : "; data is missing from",
                     lt_endpoint_rank_text(p->endpoint, r, peer, sizeof peer));
    }
}

const lt_protocol_ops lt_partial_protocol = {advance_update, cancel_update, append_missing_ranks};
