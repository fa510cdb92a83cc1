/* The progress thread: takes requests, moves their messages, completes them in order of issue, and fails
 * all when the group is aborted or a request is past its deadline. */

#include "base/alloc.h"
#include "base/clock.h"
#include "base/sched_slice.h"
#include "base/thread.h"
#include "dist/collectives/collectives.h"

#include "lather/profile.h"

#include <stdio.h>

void lt_progress_submit(lt_progress *p, lt_collective *c)
{
    c->next = NULL;
    *p->submitted_end = c;
    p->submitted_end = &c->next;
    pthread_cond_signal(&p->wake);
}

void lt_progress_wake(lt_progress *p)
{
    pthread_mutex_lock(&p->mutex);
    p->woken = true;
    pthread_cond_signal(&p->wake);
    pthread_mutex_unlock(&p->mutex);
}

void lt_progress_abort(lt_progress *p, const char *why, bool from_outside)
{
    if (p->aborted)
        return;
    snprintf(p->why, sizeof p->why, "%s", why);
    p->from_outside = from_outside;
    p->aborted = true;
    pthread_cond_signal(&p->wake);
}

void lt_endpoint_free(lt_endpoint *endpoint)
{
    lt_free(endpoint->spare);
    lt_free(endpoint->busy);
    lt_free(endpoint->world);
    lt_free(endpoint);
}

static void take_submitted(lt_progress *p)
{
    *p->active_end = p->submitted;
    if (p->submitted)
        p->active_end = p->submitted_end;
    p->submitted = NULL;
    p->submitted_end = &p->submitted;
}

/* A close has no waiter, and frees its endpoint. */
static void complete(lt_collective *c)
{
    if (c->call.what != LT_COMM_CLOSE) {
        c->done = true;
        return;
    }
    lt_endpoint_free(c->endpoint);
    lt_collective_free(c);
}

/* Without the mutex: advances what can be. *from_outside: another process has aborted. */
static lt_status sweep(lt_progress *p, bool *moved, bool *from_outside)
{
    lt_status st = LT_OK;
    *moved = *from_outside = false;
    for (lt_collective *c = p->active; c && !st; c = c->next)
        st = lt_collective_advance(c, moved);
    if (st || !p->link->ops->was_aborted(p->link))
        return st;
    *from_outside = true;
    return lt_fail(LT_E_COMM, "%s", p->link->why);
}

/* Completes the finished requests that no unfinished one of their endpoint precedes. */
static void complete_finished(lt_progress *p)
{
    bool any = false;
    for (lt_collective *c = p->active; c; c = c->next)
        c->endpoint->held = false;
    lt_collective **at = &p->active;
    while (*at) {
        lt_collective *c = *at;
        if (!c->finished || c->endpoint->held) {
            c->endpoint->held = true;
            at = &c->next;
            continue;
        }
        *at = c->next;
        complete(c);
        any = true;
    }
    p->active_end = at;
    if (any)
        pthread_cond_broadcast(&p->cond_done);
}

/* Cancels all transfers, so that no memory of a request is touched after this. Called and returns with the
 * mutex locked. */
static void fail_all(lt_progress *p)
{
    pthread_mutex_unlock(&p->mutex);
    if (!p->from_outside && !p->abort_complete)
        p->link->ops->tell_abort(p->link, p->why);
    for (lt_collective *c = p->active; c; c = c->next)
        lt_collective_cancel(c);
    pthread_mutex_lock(&p->mutex);
    for (lt_collective *c = p->active, *next; c; c = next) {
        next = c->next;
        complete(c);
    }
    p->active = NULL;
    p->active_end = &p->active;
    p->abort_complete = true;
    pthread_cond_broadcast(&p->cond_done);
}

/* The earliest time at which a request runs out, 0: none; one that has, in *late. */
static double next_expiry(const lt_progress *p, const lt_collective **late)
{
    double first = 0, now = 0;
    *late = NULL;
    for (const lt_collective *c = p->active; c; c = c->next) {
        if (!(c->expires > 0))
            continue;
        if (!(now > 0))
            now = lt_clock_seconds();
        if (c->expires <= now && !*late)
            *late = c;
        if (!(first > 0) || c->expires < first)
            first = c->expires;
    }
    return first;
}

static void expire(lt_progress *p, const lt_collective *c)
{
    char why[LT_LINK_TEXT], what[LT_LINK_TEXT - 64];
    lt_collective_text(c, what, sizeof what);
    snprintf(why, sizeof why, "comm %s: not done within its deadline: %s", p->link->ops->kind,
             what);
    lt_progress_abort(p, why, false);
}

static void sleep_until(lt_progress *p, double time)
{
    const struct timespec t = lt_timespec(time);
    pthread_cond_timedwait(&p->wake, &p->mutex, &t);
}

/* Seconds until a polled link is polled again: 0 while data moves, short while requests are active; else
 * only aborts of other ranks are polled for. */
static double pause_of(const lt_progress *p, double last_move, double now)
{
    static const double patience = 500e-6, nap = 50e-6, idle = 0.1, ending = 1e-3;
    if (p->aborted)
        return ending;
    if (!p->active)
        return idle;
    return now - last_move > patience ? nap : 0;
}

/* Sleeps until there may be something to do: nothing moved. */
static void rest(lt_progress *p, double last_move)
{
    const lt_collective *late;
    double expiry = next_expiry(p, &late);
    if (p->submitted || p->woken || (p->aborted && !p->abort_complete))
        return;
    if (late) {
        expire(p, late);
    } else if (p->link->ops->poll) {
        double now = lt_clock_seconds(), seconds = pause_of(p, last_move, now);
        if (seconds > 0)
            sleep_until(p, now + seconds);
    } else if (expiry > 0) {
        sleep_until(p, expiry);
    } else {
        pthread_cond_wait(&p->wake, &p->mutex);
    }
}

static void serve(lt_progress *p)
{
    double last_move = 0;
    while (!p->stop || p->submitted || p->active) {
        bool from_outside, moved;
        take_submitted(p);
        p->woken = false;
        if (p->aborted && (!p->abort_complete || p->active))
            fail_all(p);
        pthread_mutex_unlock(&p->mutex);
        lt_status st = sweep(p, &moved, &from_outside);
        if (moved && p->link->ops->poll)
            last_move = lt_clock_seconds();
        pthread_mutex_lock(&p->mutex);
        if (st) /* the message is this thread's: the requests' threads get a copy */
            lt_progress_abort(p, lt_error_message(), from_outside);
        complete_finished(p);
        if (!moved && !st && !(p->stop && !p->active))
            rest(p, last_move);
    }
}

static void *run(void *context)
{
    lt_progress *p = context;
    lt_profile_thread("comm");
    lt_slice_shorten(); /* where ranks compute on all cores, messages would wait for whole slices */
    bool ok = p->link->ops->open(p->link);
    pthread_mutex_lock(&p->mutex);
    p->opened = ok ? LT_OK : LT_E_COMM;
    p->ready = true;
    pthread_cond_broadcast(&p->cond_done);
    if (ok)
        serve(p);
    bool aborted = p->aborted;
    pthread_mutex_unlock(&p->mutex);
    if (ok)
        p->link->ops->close(p->link, aborted);
    return NULL;
}

static void destroy(lt_progress *p)
{
    pthread_cond_destroy(&p->cond_done);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->mutex);
    lt_free(p->context);
    lt_free(p->link);
    lt_free(p);
}

lt_status lt_progress_new(lt_progress **out, lt_link *link)
{
    lt_progress *p = lt_alloc(1, sizeof *p);
    if (!p) {
        lt_free(link);
        return LT_E_NOMEM;
    }
    p->link = link;
    p->submitted_end = &p->submitted;
    p->active_end = &p->active;
    pthread_mutex_init(&p->mutex, NULL);
    lt_cond_init(&p->wake);
    pthread_cond_init(&p->cond_done, NULL);
    if (lt_thread_start(&p->thread, run, p)) {
        destroy(p);
        return lt_fail(LT_E_COMM, "comm: no thread for communication can be started");
    }
    pthread_mutex_lock(&p->mutex);
    while (!p->ready)
        pthread_cond_wait(&p->cond_done, &p->mutex);
    lt_status st = p->opened;
    pthread_mutex_unlock(&p->mutex);
    if (!st) {
        p->context = lt_alloc((size_t)link->size, sizeof *p->context);
        st = p->context ? LT_OK : LT_E_NOMEM;
    } else {
        st = lt_fail(LT_E_COMM, "comm %s: %s", link->ops->kind, link->why);
    }
    if (st) {
        lt_progress_free(p);
        return st;
    }
    *out = p;
    return LT_OK;
}

void lt_progress_free(lt_progress *p)
{
    pthread_mutex_lock(&p->mutex);
    p->stop = true;
    pthread_cond_signal(&p->wake);
    pthread_mutex_unlock(&p->mutex);
    pthread_join(p->thread, NULL);
    destroy(p);
}
