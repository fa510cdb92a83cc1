/* The ends of a communicator "nccl" in one process: how they begin and end. A thread watches for
 * failures that NCCL finds by itself, and for what other ranks tell. */

#include "dist/nccl/world.h"

#include "base/alloc.h"
#include "dist/comm.h"
#include "dist/rendezvous/rendezvous.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TICK_MS = 100 };

double lt_nccl_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void forget_launch(lt_nccl_world *w)
{
    if (w->launched)
        w->api->drop(w->launched);
    w->launched = NULL;
}

/* The first abort counts. With the mutex locked. */
void lt_nccl_end_all(lt_nccl_world *w, const char *why, bool tell)
{
    if (w->aborted)
        return;
    w->aborted = true;
    snprintf(w->why, sizeof w->why, "%s", why);
    for (lt_nccl_comm *c = w->first; c; c = c->next) {
        w->api->abort(c->group);
        c->dead = c->group;
        c->group = NULL;
    }
    forget_launch(w);
    if (tell && w->star)
        lt_star_tell(w->star, w->why);
}

lt_status lt_nccl_aborted(const lt_nccl_world *w)
{
    return w->aborted ? lt_fail(LT_E_COMM, "%s", w->why) : LT_OK;
}

/* --- Recorded steps: their calls are not begun by this file, and nobody waits for them. --- */

void lt_nccl_note_recorded(lt_nccl_world *w, const lt_comm *comm)
{
    w->recorded = true;
    w->deadline = comm->deadline;
}

/* What was recorded must not run on groups that are gone. The mutex stays locked until it is on its
 * way: an abort comes before or after, and after means that NCCL ends it. */
static lt_status before_launch(void *context)
{
    lt_nccl_world *w = context;
    pthread_mutex_lock(&w->mutex);
    lt_status st = w->recorded ? lt_nccl_aborted(w) : LT_OK;
    if (st)
        pthread_mutex_unlock(&w->mutex);
    return st;
}

/* Without a mark there is no deadline for this launch: nothing to fail for. */
static void after_launch(void *context)
{
    lt_nccl_world *w = context;
    forget_launch(w);
    if (w->recorded && w->deadline > 0 && !w->api->mark_main(w->device, &w->launched))
        w->expires = lt_nccl_now() + w->deadline;
    pthread_mutex_unlock(&w->mutex);
}

static void set_gate(lt_nccl_world *w, bool on)
{
    const lt_nccl_gate gate = {w, before_launch, after_launch};
    w->api->gate(w->device, on ? &gate : NULL);
}

/* A fault of the device is told by whoever waits for it. */
static void look_at_launch(lt_nccl_world *w)
{
    char why[LT_LINK_TEXT];
    bool done = false;
    if (!w->launched)
        return;
    if (w->api->is_done(w->launched, &done) || done) {
        forget_launch(w);
        return;
    }
    if (lt_nccl_now() < w->expires)
        return;
    snprintf(why, sizeof why, "comm nccl: a recorded step on rank %d of %d is not done after %g s",
             w->rank, w->size, w->deadline);
    lt_nccl_end_all(w, why, true);
}

/* --- The watcher --- */

static void listen_and_look(lt_nccl_world *w)
{
    char why[LT_LINK_TEXT];
    if (w->star && lt_star_heard(w->star, why, sizeof why)) {
        lt_nccl_end_all(w, why, false);
        return;
    }
    for (lt_nccl_comm *c = w->first; c; c = c->next)
        if (w->api->health(c->group)) {
            snprintf(why, sizeof why, "comm nccl: on rank %d of %d: %s", c->base.rank, c->base.size,
                     lt_error_message());
            lt_nccl_end_all(w, why, true);
            return;
        }
    look_at_launch(w);
}

static void *watch(void *context)
{
    lt_nccl_world *w = context;
    const bool entered = !w->api->enter(w->device);
    pthread_mutex_lock(&w->mutex);
    while (!w->stop) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        t.tv_nsec += TICK_MS * 1000000L;
        t.tv_sec += t.tv_nsec / 1000000000L;
        t.tv_nsec %= 1000000000L;
        if (entered && !w->aborted)
            listen_and_look(w);
        pthread_cond_timedwait(&w->wake, &w->mutex, &t);
    }
    pthread_mutex_unlock(&w->mutex);
    return NULL;
}

/* Adds an end to its world. With the mutex locked. */
void lt_nccl_enlist(lt_nccl_world *w, lt_nccl_comm *c, lt_nccl_group *group)
{
    c->world = w;
    c->group = group;
    c->next = w->first;
    w->first = c;
    w->open++;
}

static void free_world(lt_nccl_world *w)
{
    forget_launch(w);
    lt_star_close(&w->star);
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->mutex);
    lt_free(w);
}

void lt_nccl_stop_world(lt_nccl_world *w)
{
    set_gate(w, false);
    pthread_mutex_lock(&w->mutex);
    w->stop = true;
    pthread_cond_broadcast(&w->wake);
    pthread_mutex_unlock(&w->mutex);
    pthread_join(w->watcher, NULL);
    if (w->star && !w->aborted)
        lt_star_leave(w->star);
    free_world(w);
}

/* Where a rank computes. */
typedef struct seat {
    char host[LT_NCCL_PLACE], gpu[LT_NCCL_PLACE];
} seat;

static lt_status check_seats(seat *all, int size)
{
    for (int r = 0; r < size; r++) {
        all[r].host[LT_NCCL_PLACE - 1] = all[r].gpu[LT_NCCL_PLACE - 1] = 0;
        for (int q = 0; q < r; q++)
            if (!strcmp(all[q].host, all[r].host) && !strcmp(all[q].gpu, all[r].gpu))
                return lt_fail(LT_E_ARG,
                               "comm nccl: ranks %d and %d have the same GPU, %s on %s: start at "
                               "most as many ranks on a machine as it has GPUs",
                               q, r, all[r].gpu, all[r].host);
    }
    return LT_OK;
}

static lt_status take_seats(const lt_nccl_world *w, int size)
{
    seat mine = {.host = ""};
    LT_TRY(w->api->place(w->device, mine.gpu));
    gethostname(mine.host, sizeof mine.host - 1);
    if (!w->star)
        return LT_OK;
    seat *all = lt_alloc((size_t)size, sizeof *all);
    if (!all)
        return LT_E_NOMEM;
    lt_status st = lt_star_collect(w->star, &mine, all, sizeof mine);
    if (!st)
        st = check_seats(all, size);
    lt_free(all);
    return st;
}

static lt_status join(const lt_nccl_world *w, const lt_nccl_start *start, lt_nccl_group **group)
{
    char id[LT_NCCL_ID] = {0};
    LT_TRY(w->api->enter(w->device));
    LT_TRY(take_seats(w, start->size));
    if (!start->rank)
        LT_TRY(w->api->unique_id(id));
    if (w->star)
        LT_TRY(lt_star_share(w->star, id, sizeof id));
    return w->api->join(group, w->device, id, start->rank, start->size);
}

static lt_nccl_world *new_world(const lt_nccl_api *api, void *device, struct lt_star *star)
{
    pthread_condattr_t clock;
    lt_nccl_world *w = lt_alloc(1, sizeof *w);
    if (!w)
        return NULL;
    w->api = api;
    w->device = device;
    w->star = star;
    pthread_mutex_init(&w->mutex, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&w->wake, &clock);
    pthread_condattr_destroy(&clock);
    return w;
}

lt_status lt_nccl_open_with(lt_comm *comm, const lt_nccl_api *api, void *device,
                            const lt_nccl_start *start)
{
    struct lt_star *star = start->star;
    lt_nccl_group *group = NULL;
    lt_nccl_world *w = new_world(api, device, star);
    if (!w) {
        lt_star_close(&star);
        return LT_E_NOMEM;
    }
    lt_status st = join(w, start, &group);
    if (!st && pthread_create(&w->watcher, NULL, watch, w)) {
        api->abort(group);
        api->bury(group);
        st = lt_fail(LT_E_NOMEM, "comm nccl: no thread");
    }
    if (st) {
        char why[LT_LINK_TEXT];
        snprintf(why, sizeof why, "%s", lt_error_message());
        if (star)
            lt_star_tell(star, why);
        free_world(w);
        return lt_fail(st, "%s", why);
    }
    comm->rank = w->rank = start->rank;
    comm->size = w->size = start->size;
    set_gate(w, true);
    pthread_mutex_lock(&w->mutex);
    lt_nccl_enlist(w, (lt_nccl_comm *)comm, group);
    pthread_mutex_unlock(&w->mutex);
    return LT_OK;
}
