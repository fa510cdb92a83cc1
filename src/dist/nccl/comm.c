/* The communicator "nccl": the library's collectives as calls of NCCL, which run on a queue of the
 * device's own. Needs no header of NCCL.
 *
 * A call waits on the device for what was queued before it. In a captured step waiting for a request
 * is an order on the device too; else the thread waits, so that a failure or a passed deadline is
 * that call's.
 *
 * Messages between two ranks are held back until something waits for one or a collective follows, and
 * then go as one group: NCCL would wait for ever if both ranks sent first. */

#include "dist/comm.h"

#include "base/alloc.h"
#include "dist/nccl/world.h"

#include <sched.h>
#include <stdio.h>
#include <time.h>

enum { SPINS = 2000, TEXT = 160 };

/* What failed in the middle of a call leaves the ranks at different places: the end of the group.
 * With the mutex locked. */
static lt_status fatal(lt_nccl_comm *c, const lt_comm_call *call)
{
    char what[TEXT], reason[LT_LINK_TEXT / 2], why[LT_LINK_TEXT];
    snprintf(reason, sizeof reason, "%s", lt_error_message());
    snprintf(why, sizeof why, "comm nccl: %s on rank %d of %d: %s",
             lt_call_text(call, what, sizeof what), c->base.rank, c->base.size, reason);
    lt_nccl_end_all(c->world, why, true);
    return lt_nccl_aborted(c->world);
}

static bool parts_are_equal(const lt_comm_call *call, int size)
{
    for (int r = 1; r < size; r++)
        if (call->count[r] != call->count[0])
            return false;
    return true;
}

/* Parts that differ in length: a broadcast from, or a reduction to, each rank that has one. */
static lt_status each_part(const lt_nccl_comm *c, const lt_comm_call *call)
{
    const lt_nccl_api *api = c->world->api;
    const size_t element = lt_dtype_size(call->dtype);
    const bool gather = call->what == LT_COMM_ALLGATHER;
    size_t at = 0;
    for (int r = 0; r < c->base.size; r++) {
        lt_comm_call part = *call;
        part.root = r;
        part.elements = call->count[r];
        part.count = NULL;
        if (gather) {
            part.out = (char *)call->out + at;
            part.in = r == c->base.rank ? call->in : part.out;
        } else {
            part.in = (const char *)call->in + at;
        }
        if (part.elements)
            LT_TRY((gather ? api->broadcast : api->reduce)(c->group, &part));
        at += (size_t)call->count[r] * element;
    }
    return LT_OK;
}

static lt_status add_call(const lt_nccl_comm *c, const lt_comm_call *call)
{
    const lt_nccl_api *api = c->world->api;
    switch (call->what) {
    case LT_COMM_ALLREDUCE:
        return api->allreduce(c->group, call);
    case LT_COMM_REDUCESCATTER:
        return parts_are_equal(call, c->base.size)
                   ? api->reduce_scatter(c->group, call, call->count[0])
                   : each_part(c, call);
    case LT_COMM_ALLGATHER:
        return parts_are_equal(call, c->base.size) ? api->gather(c->group, call, call->count[0])
                                                   : each_part(c, call);
    case LT_COMM_BROADCAST:
        return api->broadcast(c->group, call);
    case LT_COMM_SEND:
        return api->send(c->group, call);
    case LT_COMM_RECV:
        return api->recv(c->group, call);
    case LT_COMM_BARRIER:
    case LT_COMM_CLOSE:
        break;
    }
    return api->barrier(c->group);
}

static bool is_message(const lt_nccl_request *r)
{
    return r->call.what == LT_COMM_SEND || r->call.what == LT_COMM_RECV;
}

/* Begins r alone, or (r NULL) all messages that are held back. With the mutex locked. */
static lt_status issue(lt_nccl_comm *c, lt_nccl_request *r)
{
    const lt_nccl_api *api = c->world->api;
    lt_nccl_request *from = r ? r : c->requests;
    const lt_comm_call *call = &from->call;
    lt_status st = api->begin(c->group);
    const bool begun = !st;
    for (lt_nccl_request *q = from; q && !st; q = r ? NULL : q->next)
        if (!q->mark) {
            call = &q->call;
            st = add_call(c, call);
        }
    if (begun) {
        lt_status end = api->end(c->group);
        st = st ? st : end;
    }
    for (lt_nccl_request *q = from; q && !st; q = r ? NULL : q->next)
        if (!q->mark) {
            q->captured = api->is_captured(c->group);
            if (q->captured)
                lt_nccl_note_recorded(c->world, &c->base);
            st = api->mark(c->group, &q->mark);
        }
    return st ? fatal(c, call) : LT_OK;
}

static lt_status issue_messages(lt_nccl_comm *c)
{
    const lt_nccl_request *r = c->requests;
    while (r && r->mark)
        r = r->next;
    return r ? issue(c, NULL) : LT_OK;
}

static void append(lt_nccl_comm *c, lt_nccl_request *r)
{
    lt_nccl_request **end = &c->requests;
    while (*end)
        end = &(*end)->next;
    *end = r;
}

static void forget(lt_nccl_comm *c, lt_nccl_request *r)
{
    lt_nccl_request **at = &c->requests;
    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
    if (r->mark)
        c->world->api->drop(r->mark);
    lt_free(r);
}

/* With the mutex locked. */
static lt_status start(lt_nccl_comm *c, lt_nccl_request *r)
{
    LT_TRY(lt_nccl_aborted(c->world));
    if (!is_message(r)) {
        LT_TRY(issue_messages(c));
        LT_TRY(issue(c, r));
    }
    r->call.count = NULL; /* was lent */
    append(c, r);
    return LT_OK;
}

static lt_status begin(lt_comm *self, const lt_comm_call *call, lt_request **request)
{
    lt_nccl_comm *c = (lt_nccl_comm *)self;
    lt_nccl_world *w = c->world;
    const bool nothing = !call->elements && call->what != LT_COMM_BARRIER;
    lt_nccl_request *r = lt_alloc(1, sizeof *r);
    *request = NULL;
    if (!r)
        return LT_E_NOMEM;
    r->base.comm = self;
    r->call = *call;
    r->expires = self->deadline > 0 ? lt_nccl_now() + self->deadline : 0;
    pthread_mutex_lock(&w->mutex);
    lt_status st = nothing ? lt_nccl_aborted(w) : start(c, r);
    pthread_mutex_unlock(&w->mutex);
    if (st || nothing)
        lt_free(r);
    else
        *request = &r->base;
    return st;
}

/* Whether r is done; past its deadline the group is at its end. With the mutex locked. */
static lt_status look(lt_nccl_comm *c, lt_nccl_request *r, bool *done)
{
    lt_nccl_world *w = c->world;
    char what[TEXT], why[LT_LINK_TEXT];
    *done = false;
    LT_TRY(lt_nccl_aborted(w));
    if (w->api->is_done(r->mark, done) || w->api->health(c->group))
        return fatal(c, &r->call);
    if (*done || !(r->expires > 0) || lt_nccl_now() < r->expires)
        return LT_OK;
    snprintf(why, sizeof why, "comm nccl: %s on rank %d of %d is not done after %g s",
             lt_call_text(&r->call, what, sizeof what), c->base.rank, c->base.size,
             c->base.deadline);
    lt_nccl_end_all(w, why, true);
    return lt_nccl_aborted(w);
}

/* With the mutex locked, but not while it waits. */
static lt_status finish(lt_nccl_comm *c, lt_nccl_request *r)
{
    lt_nccl_world *w = c->world;
    bool done = false;
    lt_status st = lt_nccl_aborted(w);
    if (!st && !r->mark)
        st = issue_messages(c);
    if (!st && r->captured) /* outside of its recording, which was thrown away: never mind */
        return w->api->is_captured(c->group) ? w->api->follow(r->mark) : LT_OK;
    for (int tries = 0; !st; tries++) {
        st = look(c, r, &done);
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

static lt_status wait(lt_request *request)
{
    lt_nccl_request *r = (lt_nccl_request *)request;
    lt_nccl_comm *c = (lt_nccl_comm *)request->comm;
    pthread_mutex_lock(&c->world->mutex);
    lt_status st = finish(c, r);
    forget(c, r);
    pthread_mutex_unlock(&c->world->mutex);
    return st;
}

static lt_status split(lt_comm *self, int color, int key, lt_comm *out)
{
    lt_nccl_comm *c = (lt_nccl_comm *)self;
    lt_nccl_world *w = c->world;
    lt_nccl_group *group = NULL;
    if (color < 0)
        return lt_fail(LT_E_ARG, "comm nccl: split by color %d; NCCL's are >= 0", color);
    pthread_mutex_lock(&w->mutex);
    lt_status st = lt_nccl_aborted(w);
    if (!st)
        st = issue_messages(c);
    if (!st)
        st = w->api->split(c->group, color, key, &group, &out->rank, &out->size);
    if (!st)
        lt_nccl_enlist(w, (lt_nccl_comm *)out, group);
    pthread_mutex_unlock(&w->mutex);
    return st;
}

static void close_end(lt_comm *self)
{
    lt_nccl_comm *c = (lt_nccl_comm *)self;
    lt_nccl_world *w = c->world;
    pthread_mutex_lock(&w->mutex);
    while (c->requests) {
        (void)!finish(c, c->requests);
        forget(c, c->requests);
    }
    lt_nccl_comm **at = &w->first;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    if (c->group)
        w->api->leave(c->group);
    if (c->dead)
        w->api->bury(c->dead);
    const bool last = --w->open == 0;
    pthread_mutex_unlock(&w->mutex);
    if (last)
        lt_nccl_stop_world(w);
}

static void abort_group(lt_comm *self)
{
    lt_nccl_world *w = ((lt_nccl_comm *)self)->world;
    char why[LT_LINK_TEXT];
    snprintf(why, sizeof why, "comm nccl: rank %d of %d aborted the group", self->rank, self->size);
    pthread_mutex_lock(&w->mutex);
    lt_nccl_end_all(w, why, true);
    pthread_mutex_unlock(&w->mutex);
}

static lt_status no_open(lt_comm *self)
{
    (void)self;
    return lt_fail(LT_E_UNSUPPORTED, "comm: nccl is opened by lt_nccl_open_with()");
}

const lt_comm_ops lt_comm_nccl = {
    .kind = "nccl",
    .bytes = sizeof(lt_nccl_comm),
    .open = no_open,
    .close = close_end,
    .begin = begin,
    .wait = wait,
    .split = split,
    .abort = abort_group,
};
