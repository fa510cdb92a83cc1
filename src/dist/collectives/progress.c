/* The communication thread: it takes requests, moves their messages, reports them in order of issue,
 * and ends all when the group is aborted or a request has no time left. */

#include "base/alloc.h"
#include "base/clock.h"
#include "dist/collectives/collectives.h"

#include "lather/profile.h"

#include <signal.h>
#include <stdio.h>
#include <time.h>

void lt_engine_add(lt_engine *e, lt_work *work)
{
    work->next = NULL;
    *e->inbox_end = work;
    e->inbox_end = &work->next;
    pthread_cond_signal(&e->wake);
}

void lt_engine_abort(lt_engine *e, const char *why, bool from_outside)
{
    if (e->aborted)
        return;
    snprintf(e->why, sizeof e->why, "%s", why);
    e->from_outside = from_outside;
    e->aborted = true;
    pthread_cond_signal(&e->wake);
}

void lt_end_free(lt_end *end)
{
    lt_free(end->spare);
    lt_free(end->busy);
    lt_free(end->world);
    lt_free(end);
}

static void take_inbox(lt_engine *e)
{
    *e->active_end = e->inbox;
    if (e->inbox)
        e->active_end = e->inbox_end;
    e->inbox = NULL;
    e->inbox_end = &e->inbox;
}

/* A close has nobody who waits for it: it takes its end along. */
static void report(lt_work *w)
{
    if (w->call.what != LT_COMM_CLOSE) {
        w->done = true;
        return;
    }
    lt_end_free(w->end);
    lt_work_free(w);
}

/* Without the mutex: moves what can be moved. Not *ok: why says so, *outside that another process
 * does. */
static bool sweep(lt_engine *e, bool *ok, bool *outside, char *why)
{
    bool moved = false;
    *ok = true;
    *outside = false;
    for (lt_work *w = e->active; w && *ok; w = w->next)
        moved |= lt_work_advance(w, ok, why);
    if (*ok && e->link->ops->was_aborted(e->link)) {
        snprintf(why, LT_LINK_TEXT, "%s", e->link->why);
        *ok = false;
        *outside = true;
    }
    return moved;
}

/* Reports the finished requests that no unfinished one precedes. */
static void report_finished(lt_engine *e)
{
    bool any = false;
    for (lt_work *w = e->active; w; w = w->next)
        w->end->held = false;
    lt_work **at = &e->active;
    while (*at) {
        lt_work *w = *at;
        if (!w->finished || w->end->held) {
            w->end->held = true;
            at = &w->next;
            continue;
        }
        *at = w->next;
        report(w);
        any = true;
    }
    e->active_end = at;
    if (any)
        pthread_cond_broadcast(&e->news);
}

/* Nobody's memory is touched after this. Called and returns with the mutex locked. */
static void fail_all(lt_engine *e)
{
    pthread_mutex_unlock(&e->mutex);
    if (!e->from_outside && !e->told)
        e->link->ops->tell_abort(e->link, e->why);
    for (lt_work *w = e->active; w; w = w->next)
        lt_work_cancel(w);
    pthread_mutex_lock(&e->mutex);
    for (lt_work *w = e->active, *next; w; w = next) {
        next = w->next;
        report(w);
    }
    e->active = NULL;
    e->active_end = &e->active;
    e->told = true;
    pthread_cond_broadcast(&e->news);
}

/* The earliest time at which a request runs out, 0: none; one that has, in *late. */
static double next_expiry(const lt_engine *e, const lt_work **late)
{
    double first = 0, now = 0;
    *late = NULL;
    for (const lt_work *w = e->active; w; w = w->next) {
        if (!(w->expires > 0))
            continue;
        if (!(now > 0))
            now = lt_clock_seconds();
        if (w->expires <= now && !*late)
            *late = w;
        if (!(first > 0) || w->expires < first)
            first = w->expires;
    }
    return first;
}

static void expire(lt_engine *e, const lt_work *w)
{
    char why[LT_LINK_TEXT], what[LT_LINK_TEXT / 2];
    lt_work_text(w, what, sizeof what);
    snprintf(why, sizeof why, "comm %s: not done within its deadline: %s", e->link->ops->kind,
             what);
    lt_engine_abort(e, why, false);
}

static void sleep_until(lt_engine *e, double time)
{
    struct timespec t = {.tv_sec = (time_t)time};
    t.tv_nsec = (long)(1e9 * (time - (double)t.tv_sec));
    pthread_cond_timedwait(&e->wake, &e->mutex, &t);
}

/* How long to wait before a polled link is asked again: not at all while data flows, shortly while
 * something is pending; else only for the words of a rank that aborts. */
static double pause_of(const lt_engine *e, double last_move, double now)
{
    static const double patience = 500e-6, nap = 50e-6, idle = 0.1, ending = 1e-3;
    if (e->aborted)
        return ending;
    if (!e->active)
        return idle;
    return now - last_move > patience ? nap : 0;
}

/* Nothing moved. */
static void rest(lt_engine *e, double last_move)
{
    const lt_work *late;
    double expiry = next_expiry(e, &late);
    if (e->inbox || (e->aborted && !e->told))
        return;
    if (late) {
        expire(e, late);
    } else if (e->link->ops->poll) {
        double now = lt_clock_seconds(), seconds = pause_of(e, last_move, now);
        if (seconds > 0)
            sleep_until(e, now + seconds);
    } else if (expiry > 0) {
        sleep_until(e, expiry);
    } else {
        pthread_cond_wait(&e->wake, &e->mutex);
    }
}

static void serve(lt_engine *e)
{
    char why[LT_LINK_TEXT];
    double last_move = 0;
    while (!e->stop || e->inbox || e->active) {
        bool ok, outside, moved;
        take_inbox(e);
        if (e->aborted && (!e->told || e->active))
            fail_all(e);
        pthread_mutex_unlock(&e->mutex);
        moved = sweep(e, &ok, &outside, why);
        if (moved && e->link->ops->poll)
            last_move = lt_clock_seconds();
        pthread_mutex_lock(&e->mutex);
        if (!ok)
            lt_engine_abort(e, why, outside);
        report_finished(e);
        if (!moved && ok && !(e->stop && !e->active))
            rest(e, last_move);
    }
}

static void *run(void *context)
{
    lt_engine *e = context;
    lt_profile_thread("comm");
    bool ok = e->link->ops->open(e->link);
    pthread_mutex_lock(&e->mutex);
    e->opened = ok ? LT_OK : LT_E_COMM;
    e->ready = true;
    pthread_cond_broadcast(&e->news);
    if (ok)
        serve(e);
    bool aborted = e->aborted;
    pthread_mutex_unlock(&e->mutex);
    if (ok)
        e->link->ops->close(e->link, aborted);
    return NULL;
}

static void make_locks(lt_engine *e)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&e->mutex, NULL);
    pthread_cond_init(&e->wake, &attributes);
    pthread_cond_init(&e->news, NULL);
    pthread_condattr_destroy(&attributes);
}

/* Signals are for the program's own threads. */
static int start_thread(lt_engine *e)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int failed = pthread_create(&e->thread, NULL, run, e);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

static void destroy(lt_engine *e)
{
    pthread_cond_destroy(&e->news);
    pthread_cond_destroy(&e->wake);
    pthread_mutex_destroy(&e->mutex);
    lt_free(e->context);
    lt_free(e->link);
    lt_free(e);
}

lt_status lt_engine_new(lt_engine **out, lt_link *link)
{
    lt_engine *e = lt_alloc(1, sizeof *e);
    if (!e) {
        lt_free(link);
        return LT_E_NOMEM;
    }
    e->link = link;
    e->inbox_end = &e->inbox;
    e->active_end = &e->active;
    make_locks(e);
    if (start_thread(e)) {
        destroy(e);
        return lt_fail(LT_E_COMM, "comm: no thread for communication can be started");
    }
    pthread_mutex_lock(&e->mutex);
    while (!e->ready)
        pthread_cond_wait(&e->news, &e->mutex);
    lt_status st = e->opened;
    pthread_mutex_unlock(&e->mutex);
    if (!st) {
        e->context = lt_alloc((size_t)link->size, sizeof *e->context);
        st = e->context ? LT_OK : LT_E_NOMEM;
    } else {
        st = lt_fail(LT_E_COMM, "comm %s: %s", link->ops->kind, link->why);
    }
    if (st) {
        lt_engine_free(e);
        return st;
    }
    *out = e;
    return LT_OK;
}

void lt_engine_free(lt_engine *e)
{
    pthread_mutex_lock(&e->mutex);
    e->stop = true;
    pthread_cond_signal(&e->wake);
    pthread_mutex_unlock(&e->mutex);
    pthread_join(e->thread, NULL);
    destroy(e);
}
