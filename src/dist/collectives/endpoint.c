/* Communicators over a link: the ends of groups, and what their owners' threads do. */

#include "base/alloc.h"
#include "base/clock.h"
#include "dist/collectives/collectives.h"
#include "tensor/tensor.h"

#include <stdio.h>
#include <string.h>

typedef struct linked_comm {
    lt_comm base;
    lt_end *end;
} linked_comm;

static lt_end *end_of(const lt_comm *comm)
{
    return ((const linked_comm *)comm)->end;
}

/* With the mutex locked. */
static lt_status aborted(const lt_engine *e)
{
    return e->aborted ? lt_fail(LT_E_COMM, "%s", e->why) : LT_OK;
}

static lt_status new_end(lt_comm *comm, lt_engine *engine, const int *world, int size, int rank)
{
    lt_end *end = lt_alloc(1, sizeof *end);
    if (!end)
        return LT_E_NOMEM;
    end->world = lt_alloc((size_t)size, sizeof *end->world);
    end->busy = lt_alloc(2 * (size_t)size, sizeof *end->busy);
    if (!end->world || !end->busy) {
        lt_end_free(end);
        return LT_E_NOMEM;
    }
    for (int r = 0; r < size; r++)
        end->world[r] = world ? world[r] : r;
    end->engine = engine;
    comm->rank = end->rank = rank;
    comm->size = end->size = size;
    ((linked_comm *)comm)->end = end;
    pthread_mutex_lock(&engine->mutex);
    engine->open++;
    pthread_mutex_unlock(&engine->mutex);
    return LT_OK;
}

/* An end that no request was ever made of. */
static void drop_end(lt_comm *comm)
{
    lt_end *end = end_of(comm);
    if (!end)
        return;
    end->engine->open--;
    lt_end_free(end);
}

lt_status lt_linked_open(lt_comm *const *out, lt_link *link)
{
    lt_engine *engine;
    LT_TRY(lt_engine_new(&engine, link));
    bool all = link->rank < 0;
    int ends = all ? link->size : 1;
    lt_status st = LT_OK;
    for (int i = 0; i < ends && !st; i++)
        st = new_end(out[i], engine, NULL, link->size, all ? i : link->rank);
    if (st) {
        for (int i = 0; i < ends; i++)
            drop_end(out[i]);
        lt_engine_free(engine);
    }
    return st;
}

static lt_status no_open(lt_comm *self)
{
    (void)self;
    return lt_fail(LT_E_UNSUPPORTED, "comm: a link is opened by lt_linked_open()");
}

/* All requests of an end, so that those nobody waits for are freed with it. */
static void remember(lt_end *end, lt_work *w)
{
    w->before = end->last;
    *(end->last ? &end->last->after : &end->first) = w;
    end->last = w;
}

static void forget(lt_end *end, lt_work *w)
{
    *(w->before ? &w->before->after : &end->first) = w->after;
    *(w->after ? &w->after->before : &end->last) = w->before;
}

static lt_status submit(lt_comm *self, const lt_comm_call *call, lt_request **request)
{
    lt_end *end = end_of(self);
    lt_engine *e = end->engine;
    lt_work *w;
    LT_TRY(lt_work_new(&w, end, call));
    w->base.comm = self;
    w->expires = self->deadline > 0 ? lt_clock_seconds() + self->deadline : 0;
    pthread_mutex_lock(&e->mutex);
    lt_status st = aborted(e);
    if (!st) {
        w->number = lt_work_is_message(w) ? 0 : ++end->issued;
        if (request)
            remember(end, w);
        lt_engine_add(e, w);
    }
    pthread_mutex_unlock(&e->mutex);
    if (st)
        lt_work_free(w);
    else if (request)
        *request = &w->base;
    return st;
}

static lt_status begin(lt_comm *self, const lt_comm_call *call, lt_request **request)
{
    if (!self->device->backend->host_memory)
        return lt_fail(LT_E_UNSUPPORTED, "comm %s: %s on %s; there are only ref and cpu",
                       end_of(self)->engine->link->ops->kind, lt_call_name(call->what),
                       lt_device_name(self->device));
    return submit(self, call, request);
}

static lt_status wait(lt_request *request)
{
    lt_work *w = (lt_work *)request;
    lt_engine *e = w->end->engine;
    pthread_mutex_lock(&e->mutex);
    while (!w->done)
        pthread_cond_wait(&e->news, &e->mutex);
    forget(w->end, w);
    lt_status st = w->finished ? LT_OK : aborted(e);
    pthread_mutex_unlock(&e->mutex);
    lt_work_free(w);
    return st;
}

/* What each rank tells the others before a split. */
typedef struct wish {
    int64_t color, key, context;
} wish;

static lt_status gather_wishes(lt_comm *self, wish mine, wish *all)
{
    enum { FIELDS = sizeof(wish) / sizeof(int64_t) };
    int64_t *count = lt_alloc((size_t)self->size, sizeof *count);
    if (!count)
        return LT_E_NOMEM;
    for (int r = 0; r < self->size; r++)
        count[r] = FIELDS;
    lt_comm_call call = {.what = LT_COMM_ALLGATHER,
                         .dtype = LT_I64,
                         .count = count,
                         .in = &mine,
                         .out = all,
                         .elements = FIELDS * (int64_t)self->size};
    lt_request *request;
    lt_status st = submit(self, &call, &request);
    if (!st)
        st = wait(request);
    lt_free(count);
    return st;
}

/* The ranks of my color by (key, rank): member gets their ranks in self. */
static int choose(const wish *all, int size, int rank, int *member, int *mine)
{
    int count = 0;
    for (int r = 0; r < size; r++) {
        if (all[r].color != all[rank].color)
            continue;
        int at = count++;
        while (at > 0 && all[member[at - 1]].key > all[r].key) {
            member[at] = member[at - 1];
            at--;
        }
        member[at] = r;
    }
    for (int i = 0; i < count; i++)
        if (member[i] == rank)
            *mine = i;
    return count;
}

/* A number for the tags of the new group that no member uses. */
static lt_status next_context(lt_comm *self, const wish *all, int *context)
{
    lt_end *end = end_of(self);
    lt_engine *e = end->engine;
    *context = 0;
    for (int r = 0; r < self->size; r++)
        *context = all[r].context > *context ? (int)all[r].context : *context;
    if (*context >= e->link->tags / LT_GROUP_TAGS)
        return lt_fail(LT_E_UNSUPPORTED, "comm %s: more than %d splits", e->link->ops->kind,
                       e->link->tags / LT_GROUP_TAGS - 1);
    pthread_mutex_lock(&e->mutex);
    e->context[end->world[end->rank]] = *context + 1;
    pthread_mutex_unlock(&e->mutex);
    return LT_OK;
}

static lt_status split(lt_comm *self, int color, int key, lt_comm *out)
{
    lt_end *end = end_of(self);
    lt_engine *e = end->engine;
    wish mine = {.color = color, .key = key}, *all = lt_alloc((size_t)self->size, sizeof *all);
    int *member = lt_alloc((size_t)self->size, sizeof *member);
    lt_status st = all && member ? LT_OK : LT_E_NOMEM;
    pthread_mutex_lock(&e->mutex);
    mine.context = e->context[end->world[end->rank]];
    mine.context = mine.context ? mine.context : 1; /* 0 is the first group's */
    pthread_mutex_unlock(&e->mutex);
    if (!st)
        st = gather_wishes(self, mine, all);
    int context = 0, rank = 0;
    if (!st)
        st = next_context(self, all, &context);
    if (!st) {
        int count = choose(all, self->size, self->rank, member, &rank);
        for (int i = 0; i < count; i++)
            member[i] = end->world[member[i]];
        st = new_end(out, e, member, count, rank);
    }
    if (!st)
        end_of(out)->context = context;
    lt_free(all);
    lt_free(member);
    return st;
}

/* Until what this end has begun is done. With the mutex locked. */
static void drain(lt_end *end)
{
    lt_engine *e = end->engine;
    while (end->first) {
        lt_work *w = end->first;
        while (!w->done)
            pthread_cond_wait(&e->news, &e->mutex);
        forget(end, w);
        lt_work_free(w);
    }
}

static void close_end(lt_comm *self)
{
    lt_end *end = end_of(self);
    lt_engine *e = end->engine;
    lt_comm_call call = {.what = LT_COMM_CLOSE};
    pthread_mutex_lock(&e->mutex);
    drain(end);
    pthread_mutex_unlock(&e->mutex);
    /* The thread frees the end when the other ranks have closed theirs. */
    if (submit(self, &call, NULL))
        lt_end_free(end);
    pthread_mutex_lock(&e->mutex);
    bool last = --e->open == 0;
    pthread_mutex_unlock(&e->mutex);
    if (last)
        lt_engine_free(e);
}

static void abort_group(lt_comm *self)
{
    lt_engine *e = end_of(self)->engine;
    char why[LT_LINK_TEXT];
    snprintf(why, sizeof why, "comm %s: rank %d of %d aborted the group", e->link->ops->kind,
             self->rank, self->size);
    pthread_mutex_lock(&e->mutex);
    lt_engine_abort(e, why, false);
    while (!e->told)
        pthread_cond_wait(&e->news, &e->mutex);
    pthread_mutex_unlock(&e->mutex);
}

const lt_comm_ops lt_comm_linked = {
    .kind = "linked",
    .bytes = sizeof(linked_comm),
    .open = no_open,
    .close = close_end,
    .begin = begin,
    .wait = wait,
    .split = split,
    .abort = abort_group,
};
