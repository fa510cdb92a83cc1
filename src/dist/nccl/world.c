/* Opening and closing of the communicators "nccl" of a process. A watcher thread polls for asynchronous errors of NCCL,
 * aborts of other ranks, and captured steps that exceed their deadline. */

#include "dist/nccl/world.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/thread.h"
#include "dist/comm/comm.h"
#include "dist/rendezvous/rendezvous.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { TICK_MS = 100 };

static void drop_launch_event(lt_nccl_world *w)
{
    if (w->launched)
        w->api->event_destroy(w->launched);
    w->launched = NULL;
}

void lt_nccl_abort_all(lt_nccl_world *w, const char *why, bool tell)
{
    if (w->aborted)
        return;
    w->aborted = true;
    snprintf(w->why, sizeof w->why, "%s", why);
    for (lt_nccl_comm *c = w->first; c; c = c->next) {
        w->api->abort(c->group);
        c->aborted_group = c->group;
        c->group = NULL;
    }
    drop_launch_event(w);
    if (tell && w->rendezvous)
        lt_rendezvous_abort(w->rendezvous, w->why);
}

lt_status lt_nccl_abort_error(const lt_nccl_world *w)
{
    return w->aborted ? lt_fail(LT_E_COMM, "%s", w->why) : LT_OK;
}

/* --- Captured steps: the device launches their collectives without requests --- */

void lt_nccl_note_captured(lt_nccl_world *w, const lt_comm *comm)
{
    w->captured = true;
    w->deadline = comm->deadline;
}

/* Rejects the launch of a captured step on aborted groups. Holds the mutex until after_launch(), so that an abort
 * happens either before the launch or after it, when NCCL ends the launched calls. */
static lt_status before_launch(void *context)
{
    lt_nccl_world *w = context;
    pthread_mutex_lock(&w->mutex);
    lt_status st = w->captured ? lt_nccl_abort_error(w) : LT_OK;
    if (st)
        pthread_mutex_unlock(&w->mutex);
    return st;
}

/* Records an event for the deadline; if that fails, this launch has no deadline. */
static void after_launch(void *context)
{
    lt_nccl_world *w = context;
    drop_launch_event(w);
    if (w->captured && w->deadline > 0 && !w->api->record_main(w->device, &w->launched))
        w->expires = lt_clock_seconds() + w->deadline;
    pthread_mutex_unlock(&w->mutex);
}

static void set_launch_hooks(lt_nccl_world *w, bool on)
{
    const lt_nccl_launch_hooks hooks = {w, before_launch, after_launch};
    w->api->set_launch_hooks(w->device, on ? &hooks : NULL);
}

/* Aborts if the last launch exceeds its deadline. Device errors are reported by the call that synchronizes. */
static void check_launch_deadline(lt_nccl_world *w)
{
    char why[LT_LINK_TEXT];
    bool done = false;
    if (!w->launched)
        return;
    if (w->api->event_query(w->launched, &done) || done) {
        drop_launch_event(w);
        return;
    }
    if (lt_clock_seconds() < w->expires)
        return;
    snprintf(why, sizeof why,
             "comm nccl: a captured step on rank %d of %d exceeded its deadline of %g s", w->rank,
             w->size, w->deadline);
    lt_nccl_abort_all(w, why, true);
}

/* --- The watcher --- */

static void poll_failures(lt_nccl_world *w)
{
    char why[LT_LINK_TEXT];
    if (w->rendezvous && lt_rendezvous_poll_abort(w->rendezvous, why, sizeof why)) {
        lt_nccl_abort_all(w, why, false);
        return;
    }
    for (lt_nccl_comm *c = w->first; c; c = c->next)
        if (w->api->async_error(c->group)) {
            snprintf(why, sizeof why, "comm nccl: on rank %d of %d: %s", w->rank, w->size,
                     lt_error_message());
            lt_nccl_abort_all(w, why, true);
            return;
        }
    check_launch_deadline(w);
}

static void *watch_failures(void *context)
{
    lt_nccl_world *w = context;
    const bool is_set = !w->api->set_device(w->device);
    pthread_mutex_lock(&w->mutex);
    while (!w->stop) {
        const struct timespec t = lt_timespec_from_seconds(lt_clock_seconds() + 1e-3 * TICK_MS);
        if (is_set && !w->aborted)
            poll_failures(w);
        pthread_cond_timedwait(&w->wake, &w->mutex, &t);
    }
    pthread_mutex_unlock(&w->mutex);
    return NULL;
}

void lt_nccl_add_comm(lt_nccl_world *w, lt_nccl_comm *c, lt_nccl_group *group)
{
    c->world = w;
    c->group = group;
    c->next = w->first;
    w->first = c;
    w->open++;
}

static void free_world(lt_nccl_world *w)
{
    drop_launch_event(w);
    lt_rendezvous_close(&w->rendezvous);
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->mutex);
    lt_free(w);
}

void lt_nccl_stop_world(lt_nccl_world *w)
{
    set_launch_hooks(w, false);
    pthread_mutex_lock(&w->mutex);
    w->stop = true;
    pthread_cond_broadcast(&w->wake);
    pthread_mutex_unlock(&w->mutex);
    pthread_join(w->watcher, NULL);
    if (w->rendezvous && !w->aborted)
        lt_rendezvous_leave(w->rendezvous);
    free_world(w);
}

typedef struct rank_gpu {
    char host[LT_NCCL_GPU_NAME], gpu[LT_NCCL_GPU_NAME];
} rank_gpu;

static lt_status check_gpus_differ(rank_gpu *all, int size)
{
    for (int r = 0; r < size; r++) {
        all[r].host[LT_NCCL_GPU_NAME - 1] = all[r].gpu[LT_NCCL_GPU_NAME - 1] = 0;
        for (int q = 0; q < r; q++)
            if (!strcmp(all[q].host, all[r].host) && !strcmp(all[q].gpu, all[r].gpu))
                return lt_fail(LT_E_ARG,
                               "comm nccl: ranks %d and %d have the same GPU, %s on %s; start at "
                               "most one rank per GPU",
                               q, r, all[r].gpu, all[r].host);
    }
    return LT_OK;
}

static lt_status gather_and_check_gpus(const lt_nccl_world *w, int size)
{
    rank_gpu mine = {.host = ""};
    LT_TRY(w->api->gpu_name(w->device, mine.gpu));
    gethostname(mine.host, sizeof mine.host - 1);
    if (!w->rendezvous)
        return LT_OK;
    rank_gpu *all = NULL;
    LT_TRY(LT_ALLOC(&all, size));
    lt_status st = lt_rendezvous_allgather(w->rendezvous, &mine, all, sizeof mine);
    if (!st)
        st = check_gpus_differ(all, size);
    lt_free(all);
    return st;
}

static lt_status init_rank(const lt_nccl_world *w, const lt_nccl_start *start,
                           lt_nccl_group **group)
{
    char id[LT_NCCL_ID] = {0};
    LT_TRY(w->api->set_device(w->device));
    LT_TRY(gather_and_check_gpus(w, start->size));
    if (!start->rank)
        LT_TRY(w->api->unique_id(id));
    if (w->rendezvous)
        LT_TRY(lt_rendezvous_broadcast(w->rendezvous, id, sizeof id));
    return w->api->init_rank(group, w->device, id, start->rank, start->size);
}

static lt_nccl_world *new_world(const lt_nccl_api *api, void *device,
                                struct lt_rendezvous *rendezvous)
{
    lt_nccl_world *w = lt_alloc(1, sizeof *w);
    if (!w)
        return NULL;
    w->api = api;
    w->device = device;
    w->rendezvous = rendezvous;
    pthread_mutex_init(&w->mutex, NULL);
    lt_cond_init(&w->wake);
    return w;
}

lt_status lt_nccl_open_with(lt_comm *comm, const lt_nccl_api *api, void *device,
                            const lt_nccl_start *start)
{
    struct lt_rendezvous *rendezvous = start->rendezvous;
    lt_nccl_group *group = NULL;
    lt_nccl_world *w = new_world(api, device, rendezvous);
    if (!w) {
        lt_rendezvous_close(&rendezvous);
        return LT_E_NOMEM;
    }
    lt_status st = init_rank(w, start, &group);
    if (!st && pthread_create(&w->watcher, NULL, watch_failures, w)) {
        api->abort(group);
        api->finish_abort(group);
        st = lt_fail(LT_E_NOMEM, "comm nccl: cannot start a thread");
    }
    if (st) {
        char why[LT_LINK_TEXT];
        snprintf(why, sizeof why, "%s", lt_error_message());
        if (rendezvous)
            lt_rendezvous_abort(rendezvous, why);
        free_world(w);
        return lt_fail(st, "%s", why);
    }
    comm->rank = w->rank = start->rank;
    comm->size = w->size = start->size;
    set_launch_hooks(w, true);
    pthread_mutex_lock(&w->mutex);
    lt_nccl_add_comm(w, (lt_nccl_comm *)comm, group);
    pthread_mutex_unlock(&w->mutex);
    return LT_OK;
}
