/* Progress thread: takes requests, moves their messages and completes them in order of issue. Fails all requests when
 * the group is aborted or a request exceeds its deadline. */

#include "base/alloc.h"
#include "base/clock.h"
#include "base/os.h"
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

void lt_progress_abort(lt_progress *p, const char *why, bool is_remote)
{
    if (p->aborted)
        return;
    snprintf(p->why, sizeof p->why, "%s", why);
    p->is_remote_abort = is_remote;
    p->aborted = true;
    pthread_cond_signal(&p->wake);
}

void lt_endpoint_free(lt_endpoint *endpoint)
{
    lt_free(endpoint->free_workspace);
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

/* Marks a request done. A close has no waiter: it frees its endpoint. */
static void complete_request(lt_collective *c)
{
    if (c->call.what != LT_COMM_CLOSE) {
        c->done = true;
        return;
    }
    lt_endpoint_free(c->endpoint);
    lt_collective_free(c);
}

/* Messages that were sent before another process's abort still arrive, so that a rank with the same error reports its own. Returns true
 * once no message has moved for a while. */
static bool remote_abort_due(lt_progress *p, double last_move)
{
    static const double quiet = 0.25;
    if (!(p->abort_told > 0)) {
        if (!p->link->ops->was_aborted(p->link))
            return false;
        p->abort_told = lt_clock_seconds();
    }
    return lt_clock_seconds() - (last_move > p->abort_told ? last_move : p->abort_told) > quiet;
}

/* Advances all active requests, without the mutex. *is_remote: another process has aborted. */
static lt_status advance_all(lt_progress *p, bool aborted, double *last_move, bool *moved,
                             bool *is_remote)
{
    lt_status st = LT_OK;
    *moved = *is_remote = false;
    for (lt_collective *c = p->active; c && !st; c = c->next)
        st = lt_collective_advance(c, moved);
    if (*moved && p->link->ops->poll)
        *last_move = lt_clock_seconds();
    if (aborted)
        p->link->ops->was_aborted(p->link); /* discards messages that still arrive */
    if (st || aborted || !remote_abort_due(p, *last_move))
        return st;
    *is_remote = true;
    return lt_fail(LT_E_COMM, "%s", p->link->why);
}

/* Completes each finished request that has no unfinished predecessor on its endpoint. */
static void complete_finished(lt_progress *p)
{
    bool any = false;
    for (lt_collective *c = p->active; c; c = c->next)
        c->endpoint->blocked = false;
    lt_collective **at = &p->active;
    while (*at) {
        lt_collective *c = *at;
        if (!c->finished || c->endpoint->blocked) {
            c->endpoint->blocked = true;
            at = &c->next;
            continue;
        }
        *at = c->next;
        complete_request(c);
        any = true;
    }
    p->active_end = at;
    if (any)
        pthread_cond_broadcast(&p->cond_done);
}

/* Cancels all transfers: no memory of a request is accessed after this. Locks the mutex again before it returns. */
static void fail_all(lt_progress *p)
{
    pthread_mutex_unlock(&p->mutex);
    if (!p->is_remote_abort && !p->abort_complete)
        p->link->ops->tell_abort(p->link, p->why);
    for (lt_collective *c = p->active; c; c = c->next)
        lt_collective_cancel(c);
    pthread_mutex_lock(&p->mutex);
    for (lt_collective *c = p->active, *next; c; c = next) {
        next = c->next;
        complete_request(c);
    }
    p->active = NULL;
    p->active_end = &p->active;
    p->abort_complete = true;
    pthread_cond_broadcast(&p->cond_done);
}

/* Returns the earliest expiry of a request, 0 if none expires; *late gets an expired request or NULL. */
static double next_expiry(const lt_progress *p, const lt_collective **late)
{
    double first = 0, now = 0;
    *late = NULL;
    for (const lt_collective *c = p->active; c; c = c->next) {
        const double expiry = lt_collective_expiry(c);
        if (!(expiry > 0))
            continue;
        if (!(now > 0))
            now = lt_clock_seconds();
        if (expiry <= now && !*late)
            *late = c;
        if (!(first > 0) || expiry < first)
            first = expiry;
    }
    return first;
}

static void abort_expired(lt_progress *p, const lt_collective *c)
{
    char why[LT_LINK_TEXT], what[LT_LINK_TEXT - 64];
    lt_collective_text(c, what, sizeof what);
    snprintf(why, sizeof why, "comm %s: deadline exceeded: %s", p->link->ops->kind, what);
    lt_progress_abort(p, why, false);
}

static void sleep_until(lt_progress *p, double time)
{
    lt_cond_wait_until(&p->wake, &p->mutex, time);
}

/* Returns the seconds until the next poll of the link: 0 while data moves, short while requests are active, else long
 * enough to notice aborts of other ranks. */
static double poll_interval(const lt_progress *p, double last_move, double now)
{
    static const double spin = 500e-6, active = 50e-6, idle = 0.1, aborted = 1e-3;
    if (p->aborted || p->abort_told > 0)
        return aborted;
    if (!p->active)
        return idle;
    return now - last_move > spin ? active : 0;
}

/* Sleeps until a request may be able to advance; called when none did. */
static void sleep_until_work(lt_progress *p, double last_move)
{
    const lt_collective *late;
    double expiry = next_expiry(p, &late);
    if (p->submitted || p->woken || (p->aborted && !p->abort_complete))
        return;
    if (late) {
        abort_expired(p, late);
    } else if (p->link->ops->poll) {
        double now = lt_clock_seconds(), seconds = poll_interval(p, last_move, now);
        if (seconds > 0)
            sleep_until(p, now + seconds);
    } else if (expiry > 0) {
        sleep_until(p, expiry);
    } else {
        pthread_cond_wait(&p->wake, &p->mutex);
    }
}

static void run_progress_loop(lt_progress *p)
{
    double last_move = 0;
    while (!p->stop || p->submitted || p->active) {
        bool is_remote, moved;
        take_submitted(p);
        p->woken = false;
        if (p->aborted && (!p->abort_complete || p->active))
            fail_all(p);
        const bool aborted = p->aborted;
        pthread_mutex_unlock(&p->mutex);
        lt_status st = advance_all(p, aborted, &last_move, &moved, &is_remote);
        pthread_mutex_lock(&p->mutex);
        if (st) /* error messages are thread-local: keep a copy for the requests' threads */
            lt_progress_abort(p, lt_error_message(), is_remote);
        complete_finished(p);
        if (!moved && !st && !(p->stop && !p->active))
            sleep_until_work(p, last_move);
    }
}

static void *run_progress_thread(void *context)
{
    lt_progress *p = context;
    lt_profile_thread("comm");
    lt_sched_slice_shorten(); /* else messages wait for whole time slices when ranks compute on all cores */
    bool ok = p->link->ops->open(p->link);
    pthread_mutex_lock(&p->mutex);
    p->opened = ok ? LT_OK : LT_E_COMM;
    p->ready = true;
    pthread_cond_broadcast(&p->cond_done);
    if (ok)
        run_progress_loop(p);
    bool aborted = p->aborted;
    pthread_mutex_unlock(&p->mutex);
    if (ok)
        p->link->ops->close(p->link, aborted);
    return NULL;
}

static void free_progress(lt_progress *p)
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
    if (lt_thread_start(&p->thread, run_progress_thread, p)) {
        free_progress(p);
        return lt_fail(LT_E_COMM, "comm: cannot start the progress thread");
    }
    pthread_mutex_lock(&p->mutex);
    while (!p->ready)
        pthread_cond_wait(&p->cond_done, &p->mutex);
    lt_status st = p->opened;
    pthread_mutex_unlock(&p->mutex);
    if (!st) {
        st = LT_ALLOC(&p->context, (size_t)link->size);
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
    free_progress(p);
}
