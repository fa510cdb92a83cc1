/* Communicator "nccl": collectives as NCCL calls on a dedicated stream, without NCCL's headers.
 *
 * A collective waits on the device for the work that the main stream had before it. While a step is being captured,
 * waiting for a request makes the main stream wait for its event; otherwise the host thread waits, and returns a failure
 * or an exceeded deadline.
 *
 * Sends and receives are deferred until one of them is waited for or a collective follows, and then start as one NCCL
 * group: two ranks that both send first would deadlock otherwise. */

#include "dist/comm/comm.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "dist/nccl/world.h"

#include <sched.h>
#include <stdio.h>
#include <time.h>

enum { SPINS = 2000, TEXT = 160 };

/* Aborts all groups: a call that failed on this rank only would leave the ranks out of step. The caller holds the
 * mutex. */
static lt_status abort_after_failure(lt_nccl_comm *c, const lt_comm_call *call)
{
    char what[TEXT], reason[LT_LINK_TEXT / 2], why[LT_LINK_TEXT];
    snprintf(reason, sizeof reason, "%s", lt_error_message());
    snprintf(why, sizeof why, "comm nccl: %s on rank %d of %d: %s",
             lt_call_text(call, what, sizeof what), c->world->rank, c->world->size, reason);
    lt_nccl_abort_all(c->world, why, true);
    return lt_nccl_abort_error(c->world);
}

static bool counts_are_equal(const lt_comm_call *call, int size)
{
    for (int r = 1; r < size; r++)
        if (call->count[r] != call->count[0])
            return false;
    return true;
}

/* All-gather or reduce-scatter of unequal shards: a broadcast from, or reduction to, each rank with a nonempty one. */
static lt_status run_shard_by_shard(const lt_nccl_comm *c, const lt_comm_call *call)
{
    const lt_nccl_api *api = c->world->api;
    const size_t element = lt_dtype_size(call->dtype);
    const bool gather = call->what == LT_COMM_ALLGATHER;
    size_t at = 0;
    for (int r = 0; r < c->base.size; r++) {
        lt_comm_call shard = *call;
        shard.root = r;
        shard.elements = call->count[r];
        shard.count = NULL;
        if (gather) {
            shard.out = (char *)call->out + at;
            shard.in = r == c->base.rank ? call->in : shard.out;
        } else {
            shard.in = (const char *)call->in + at;
        }
        if (shard.elements)
            LT_TRY((gather ? api->broadcast : api->reduce)(c->group, &shard));
        at += (size_t)call->count[r] * element;
    }
    return LT_OK;
}

/* All-to-all: a send and a receive per rank, this one included, within one NCCL group. */
static lt_status run_alltoall(const lt_nccl_comm *c, const lt_comm_call *call)
{
    const lt_nccl_api *api = c->world->api;
    const size_t element = lt_dtype_size(call->dtype);
    size_t sent = 0, received = 0;
    for (int r = 0; r < c->base.size; r++) {
        lt_comm_call shard = {.what = LT_COMM_SEND, .dtype = call->dtype, .root = r};
        shard.elements = call->count[r];
        shard.in = (const char *)call->in + sent;
        if (shard.elements)
            LT_TRY(api->send(c->group, &shard));
        shard.elements = call->received_count[r];
        shard.out = (char *)call->out + received;
        if (shard.elements)
            LT_TRY(api->recv(c->group, &shard));
        sent += (size_t)call->count[r] * element;
        received += (size_t)call->received_count[r] * element;
    }
    return LT_OK;
}

static lt_status call_nccl(const lt_nccl_comm *c, const lt_comm_call *call)
{
    const lt_nccl_api *api = c->world->api;
    switch (call->what) {
    case LT_COMM_ALLREDUCE:
        return api->allreduce(c->group, call);
    case LT_COMM_REDUCESCATTER:
        return counts_are_equal(call, c->base.size)
                   ? api->reduce_scatter(c->group, call, call->count[0])
                   : run_shard_by_shard(c, call);
    case LT_COMM_ALLGATHER:
        return counts_are_equal(call, c->base.size) ? api->allgather(c->group, call, call->count[0])
                                                    : run_shard_by_shard(c, call);
    case LT_COMM_BROADCAST:
        return api->broadcast(c->group, call);
    case LT_COMM_ALLTOALL:
        return run_alltoall(c, call);
    case LT_COMM_SEND:
        return api->send(c->group, call);
    case LT_COMM_RECV:
        return api->recv(c->group, call);
    case LT_COMM_BARRIER:
    case LT_COMM_CLOSE:
    case LT_COMM_PARTIAL:
        break;
    }
    return api->barrier(c->group);
}

static bool is_send_or_recv(const lt_nccl_request *r)
{
    return r->call.what == LT_COMM_SEND || r->call.what == LT_COMM_RECV;
}

/* Starts r, or all deferred sends and receives if r is NULL. The caller holds the mutex. */
static lt_status issue_requests(lt_nccl_comm *c, lt_nccl_request *r)
{
    const lt_nccl_api *api = c->world->api;
    lt_nccl_request *from = r ? r : c->requests;
    const lt_comm_call *call = &from->call;
    lt_status st = api->group_start(c->group);
    const bool started = !st;
    for (lt_nccl_request *q = from; q && !st; q = r ? NULL : q->next)
        if (!q->event) {
            call = &q->call;
            st = call_nccl(c, call);
        }
    if (started) {
        lt_status end = api->group_end(c->group);
        st = st ? st : end;
    }
    for (lt_nccl_request *q = from; q && !st; q = r ? NULL : q->next)
        if (!q->event) {
            q->captured = api->is_capturing(c->group);
            if (q->captured)
                lt_nccl_note_captured(c->world, &c->base);
            st = api->record(c->group, &q->event);
        }
    return st ? abort_after_failure(c, call) : LT_OK;
}

static lt_status issue_deferred_messages(lt_nccl_comm *c)
{
    const lt_nccl_request *r = c->requests;
    while (r && r->event)
        r = r->next;
    return r ? issue_requests(c, NULL) : LT_OK;
}

static void append_request(lt_nccl_comm *c, lt_nccl_request *r)
{
    lt_nccl_request **end = &c->requests;
    while (*end)
        end = &(*end)->next;
    *end = r;
}

static void free_request(lt_nccl_comm *c, lt_nccl_request *r)
{
    lt_nccl_request **at = &c->requests;
    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
    if (r->event)
        c->world->api->event_destroy(r->event);
    lt_free(r);
}

/* Starts or defers a request. The caller holds the mutex. */
static lt_status start_or_defer(lt_nccl_comm *c, lt_nccl_request *r)
{
    LT_TRY(lt_nccl_abort_error(c->world));
    if (!is_send_or_recv(r)) {
        LT_TRY(issue_deferred_messages(c));
        LT_TRY(issue_requests(c, r));
    }
    r->call.count = r->call.received_count = NULL; /* borrowed until here */
    append_request(c, r);
    return LT_OK;
}

static lt_status begin_collective(lt_comm *self, const lt_comm_call *call, lt_request **request)
{
    lt_nccl_comm *c = (lt_nccl_comm *)self;
    lt_nccl_world *w = c->world;
    const bool nothing =
        !call->elements && call->what != LT_COMM_BARRIER
        && !(call->what == LT_COMM_ALLTOALL && lt_call_received_offset(call, self->size));
    lt_nccl_request *r = lt_alloc(1, sizeof *r);
    *request = NULL;
    if (!r)
        return LT_E_NOMEM;
    r->base.comm = self;
    r->call = *call;
    r->expires = self->deadline > 0 ? lt_clock_seconds() + self->deadline : 0;
    pthread_mutex_lock(&w->mutex);
    lt_status st = nothing ? lt_nccl_abort_error(w) : start_or_defer(c, r);
    pthread_mutex_unlock(&w->mutex);
    if (st || nothing)
        lt_free(r);
    else
        *request = &r->base;
    return st;
}

/* Tests r and aborts all groups if it exceeds its deadline. The caller holds the mutex. */
static lt_status poll_request(lt_nccl_comm *c, lt_nccl_request *r, bool *done)
{
    lt_nccl_world *w = c->world;
    char what[TEXT], why[LT_LINK_TEXT];
    *done = false;
    LT_TRY(lt_nccl_abort_error(w));
    if (w->api->event_query(r->event, done) || w->api->async_error(c->group))
        return abort_after_failure(c, &r->call);
    if (*done || !(r->expires > 0) || lt_clock_seconds() < r->expires)
        return LT_OK;
    snprintf(why, sizeof why, "comm nccl: %s on rank %d of %d exceeded its deadline of %g s",
             lt_call_text(&r->call, what, sizeof what), w->rank, w->size, c->base.deadline);
    lt_nccl_abort_all(w, why, true);
    return lt_nccl_abort_error(w);
}

/* Waits for r. The caller holds the mutex, which is released while sleeping. */
static lt_status wait_until_done(lt_nccl_comm *c, lt_nccl_request *r)
{
    lt_nccl_world *w = c->world;
    bool done = false;
    lt_status st = lt_nccl_abort_error(w);
    if (!st && !r->event)
        st = issue_deferred_messages(c);
    if (!st && r->captured) /* after a discarded capture nothing runs */
        return w->api->is_capturing(c->group) ? w->api->main_wait(r->event) : LT_OK;
    for (int tries = 0; !st; tries++) {
        st = poll_request(c, r, &done);
        if (st || done)
            break;
        pthread_mutex_unlock(&w->mutex);
        if (tries < SPINS)
            sched_yield();
        else
            nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
        pthread_mutex_lock(&w->mutex);
    }
    return st;
}

static lt_status wait_for_request(lt_request *request)
{
    lt_nccl_request *r = (lt_nccl_request *)request;
    lt_nccl_comm *c = (lt_nccl_comm *)request->comm;
    pthread_mutex_lock(&c->world->mutex);
    lt_status st = wait_until_done(c, r);
    free_request(c, r);
    pthread_mutex_unlock(&c->world->mutex);
    return st;
}

static lt_status split_comm(lt_comm *self, int color, int key, lt_comm *out)
{
    lt_nccl_comm *c = (lt_nccl_comm *)self;
    lt_nccl_world *w = c->world;
    lt_nccl_group *group = NULL;
    if (color < 0)
        return lt_fail(LT_E_ARG, "comm nccl: split by color %d, want 0 or more", color);
    pthread_mutex_lock(&w->mutex);
    lt_status st = lt_nccl_abort_error(w);
    if (!st)
        st = issue_deferred_messages(c);
    if (!st)
        st = w->api->split(c->group, color, key, &group, &out->rank, &out->size);
    if (!st)
        lt_nccl_add_comm(w, (lt_nccl_comm *)out, group);
    pthread_mutex_unlock(&w->mutex);
    return st;
}

static void close_comm(lt_comm *self)
{
    lt_nccl_comm *c = (lt_nccl_comm *)self;
    lt_nccl_world *w = c->world;
    pthread_mutex_lock(&w->mutex);
    while (c->requests) {
        (void)!wait_until_done(c, c->requests);
        free_request(c, c->requests);
    }
    lt_nccl_comm **at = &w->first;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    if (c->group)
        w->api->destroy(c->group);
    if (c->aborted_group)
        w->api->finish_abort(c->aborted_group);
    const bool last = --w->open == 0;
    pthread_mutex_unlock(&w->mutex);
    if (last)
        lt_nccl_stop_world(w);
}

static void abort_group(lt_comm *self)
{
    lt_nccl_world *w = ((lt_nccl_comm *)self)->world;
    char why[LT_LINK_TEXT];
    snprintf(why, sizeof why, "comm nccl: rank %d of %d aborted the group", w->rank, w->size);
    pthread_mutex_lock(&w->mutex);
    lt_nccl_abort_all(w, why, true);
    pthread_mutex_unlock(&w->mutex);
}

const lt_comm_ops lt_comm_nccl = {
    .kind = "nccl",
    .bytes = sizeof(lt_nccl_comm),
    .close = close_comm,
    .begin = begin_collective,
    .wait = wait_for_request,
    .split = split_comm,
    .abort = abort_group,
};
