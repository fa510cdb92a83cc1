/* Communicators over a link: their endpoints and the calls made by the owner's thread. */

#include "base/alloc.h"
#include "base/clock.h"
#include "base/plugins/plugin.h"
#include "dist/collectives/collectives.h"
#include "tensor/tensor.h"

#include <stdio.h>
#include <string.h>

typedef struct linked_comm {
    lt_comm base;
    lt_endpoint *endpoint;
} linked_comm;

static lt_endpoint *endpoint_of(const lt_comm *comm)
{
    return ((const linked_comm *)comm)->endpoint;
}

/* Returns the error of an abort, if there was one. The caller holds the mutex. */
static lt_status abort_error(const lt_progress *p)
{
    return p->aborted ? lt_fail(LT_E_COMM, "%s", p->why) : LT_OK;
}

static lt_status new_endpoint(lt_comm *comm, lt_progress *progress, const int *world, int size,
                              int rank)
{
    lt_endpoint *endpoint = NULL;
    LT_TRY(LT_ALLOC(&endpoint, 1));
    endpoint->world = lt_alloc((size_t)size, sizeof *endpoint->world);
    endpoint->busy = lt_alloc(2 * (size_t)size, sizeof *endpoint->busy);
    if (!endpoint->world || !endpoint->busy) {
        lt_endpoint_free(endpoint);
        return LT_E_NOMEM;
    }
    for (int r = 0; r < size; r++)
        endpoint->world[r] = world ? world[r] : r;
    endpoint->progress = progress;
    comm->rank = endpoint->rank = rank;
    comm->size = endpoint->size = size;
    ((linked_comm *)comm)->endpoint = endpoint;
    pthread_mutex_lock(&progress->mutex);
    progress->open++;
    pthread_mutex_unlock(&progress->mutex);
    return LT_OK;
}

/* Frees an endpoint on which no request was made. */
static void drop_endpoint(lt_comm *comm)
{
    lt_endpoint *endpoint = endpoint_of(comm);
    if (!endpoint)
        return;
    endpoint->progress->open--;
    lt_endpoint_free(endpoint);
}

lt_status lt_linked_open(lt_comm *const *out, lt_link *link)
{
    lt_progress *progress;
    LT_TRY(lt_progress_new(&progress, link));
    bool all = link->rank < 0;
    int endpoints = all ? link->size : 1;
    lt_status st = LT_OK;
    for (int i = 0; i < endpoints && !st; i++)
        st = new_endpoint(out[i], progress, NULL, link->size, all ? i : link->rank);
    if (st) {
        for (int i = 0; i < endpoints; i++)
            drop_endpoint(out[i]);
        lt_progress_free(progress);
    }
    return st;
}

/* Adds a request to the endpoint's list: those never waited for are freed with it. */
static void add_request(lt_endpoint *endpoint, lt_collective *c)
{
    c->before = endpoint->last;
    *(endpoint->last ? &endpoint->last->after : &endpoint->first) = c;
    endpoint->last = c;
}

static void remove_request(lt_endpoint *endpoint, lt_collective *c)
{
    *(c->before ? &c->before->after : &endpoint->first) = c->after;
    *(c->after ? &c->after->before : &endpoint->last) = c->before;
}

lt_endpoint *lt_linked_get_endpoint(lt_comm *comm)
{
    return comm->ops == &lt_comm_linked ? endpoint_of(comm) : NULL;
}

lt_status lt_comm_use_engine_sums(lt_comm *comm, bool on)
{
    lt_endpoint *e = lt_linked_get_endpoint(comm);
    const char *kind = e ? e->progress->link->ops->kind : comm->ops->kind;
    const void *sum;
    if (!e || e->context || strcmp(kind, "mpi") != 0)
        return lt_fail(LT_E_UNSUPPORTED, "comm %s: --sums engine needs mpi and all ranks", kind);
    LT_TRY(lt_plugin_open("comm mpi", kind, "lt_sum_mpi", &sum));
    e->sum = on ? *(lt_link_sum_fn *const *)sum : NULL;
    return LT_OK;
}

lt_status lt_linked_begin_request(lt_comm *self, const lt_comm_call *call, lt_protocol protocol,
                                  lt_request **request)
{
    lt_endpoint *endpoint = endpoint_of(self);
    lt_progress *p = endpoint->progress;
    lt_collective *c;
    LT_TRY(lt_collective_new(&c, endpoint, call));
    c->base.comm = self;
    c->protocol = protocol;
    c->expires = self->deadline > 0 ? lt_clock_seconds() + self->deadline : 0;
    pthread_mutex_lock(&p->mutex);
    lt_status st = abort_error(p);
    if (!st) {
        c->number = lt_collective_is_message(c) ? 0 : ++endpoint->issued;
        if (request)
            add_request(endpoint, c);
        lt_progress_submit(p, c);
    }
    pthread_mutex_unlock(&p->mutex);
    if (st)
        lt_collective_free(c);
    else if (request)
        *request = &c->base;
    return st;
}

static lt_status submit_request(lt_comm *self, const lt_comm_call *call, lt_request **request)
{
    return lt_linked_begin_request(self, call, (lt_protocol){.ops = NULL}, request);
}

static lt_status begin_collective(lt_comm *self, const lt_comm_call *call, lt_request **request)
{
    if (!self->device->backend->host_memory)
        return lt_fail(LT_E_UNSUPPORTED,
                       "comm %s: %s on %s, want a device with host memory (ref or cpu)",
                       endpoint_of(self)->progress->link->ops->kind, lt_call_name(call->what),
                       lt_device_name(self->device));
    return submit_request(self, call, request);
}

static lt_status wait_for_request(lt_request *request)
{
    lt_collective *c = (lt_collective *)request;
    lt_progress *p = c->endpoint->progress;
    pthread_mutex_lock(&p->mutex);
    while (!c->done)
        pthread_cond_wait(&p->cond_done, &p->mutex);
    remove_request(c->endpoint, c);
    lt_status st = c->finished ? LT_OK : abort_error(p);
    pthread_mutex_unlock(&p->mutex);
    lt_collective_free(c);
    return st;
}

/* A rank's arguments of a split, and its next free group number. */
typedef struct split_args {
    int64_t color, key, context;
} split_args;

static lt_status gather_split_args(lt_comm *self, split_args mine, split_args *all)
{
    enum { FIELDS = sizeof(split_args) / sizeof(int64_t) };
    int64_t *count = NULL;
    LT_TRY(LT_ALLOC(&count, self->size));
    for (int r = 0; r < self->size; r++)
        count[r] = FIELDS;
    lt_comm_call call = {.what = LT_COMM_ALLGATHER,
                         .dtype = LT_I64,
                         .count = count,
                         .in = &mine,
                         .out = all,
                         .elements = FIELDS * (int64_t)self->size};
    lt_request *request;
    lt_status st = submit_request(self, &call, &request);
    if (!st)
        st = wait_for_request(request);
    lt_free(count);
    return st;
}

/* Lists the ranks of this rank's color by (key, rank): member gets their ranks in self, *mine this rank's index.
 * Returns their count. */
static int list_split_members(const split_args *all, int size, int rank, int *member, int *mine)
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

/* Finds a group number, which selects tags, that no member uses. */
static lt_status choose_group_number(lt_comm *self, const split_args *all, int *context)
{
    lt_endpoint *endpoint = endpoint_of(self);
    lt_progress *p = endpoint->progress;
    *context = 0;
    for (int r = 0; r < self->size; r++)
        *context = all[r].context > *context ? (int)all[r].context : *context;
    if (*context >= p->link->tags / LT_GROUP_TAGS)
        return lt_fail(LT_E_UNSUPPORTED, "comm %s: too many splits: at most %d", p->link->ops->kind,
                       p->link->tags / LT_GROUP_TAGS - 1);
    pthread_mutex_lock(&p->mutex);
    p->context[endpoint->world[endpoint->rank]] = *context + 1;
    pthread_mutex_unlock(&p->mutex);
    return LT_OK;
}

static lt_status split_comm(lt_comm *self, int color, int key, lt_comm *out)
{
    lt_endpoint *endpoint = endpoint_of(self);
    lt_progress *p = endpoint->progress;
    split_args mine = {.color = color, .key = key},
               *all = lt_alloc((size_t)self->size, sizeof *all);
    int *member = lt_alloc((size_t)self->size, sizeof *member);
    lt_status st = all && member ? LT_OK : LT_E_NOMEM;
    pthread_mutex_lock(&p->mutex);
    mine.context = p->context[endpoint->world[endpoint->rank]];
    mine.context = mine.context ? mine.context : 1; /* 0: the group of all ranks */
    pthread_mutex_unlock(&p->mutex);
    if (!st)
        st = gather_split_args(self, mine, all);
    int context = 0, rank = 0;
    if (!st)
        st = choose_group_number(self, all, &context);
    if (!st) {
        int count = list_split_members(all, self->size, self->rank, member, &rank);
        for (int i = 0; i < count; i++)
            member[i] = endpoint->world[member[i]];
        st = new_endpoint(out, p, member, count, rank);
    }
    if (!st)
        endpoint_of(out)->context = context;
    lt_free(all);
    lt_free(member);
    return st;
}

/* Waits for this endpoint's requests and frees them. The caller holds the mutex. */
static void drain_requests(lt_endpoint *endpoint)
{
    lt_progress *p = endpoint->progress;
    while (endpoint->first) {
        lt_collective *c = endpoint->first;
        while (!c->done)
            pthread_cond_wait(&p->cond_done, &p->mutex);
        remove_request(endpoint, c);
        lt_collective_free(c);
    }
}

static void close_endpoint(lt_comm *self)
{
    lt_endpoint *endpoint = endpoint_of(self);
    lt_progress *p = endpoint->progress;
    lt_comm_call call = {.what = LT_COMM_CLOSE};
    pthread_mutex_lock(&p->mutex);
    drain_requests(endpoint);
    pthread_mutex_unlock(&p->mutex);
    /* The thread frees the endpoint when the other ranks have closed theirs: they would wait for one that cannot. */
    const lt_status st = submit_request(self, &call, NULL);
    pthread_mutex_lock(&p->mutex);
    if (st) {
        lt_progress_abort(p, "comm: no memory to close", false);
        lt_endpoint_free(endpoint);
    }
    bool last = --p->open == 0;
    pthread_mutex_unlock(&p->mutex);
    if (last)
        lt_progress_free(p);
}

static void abort_group(lt_comm *self)
{
    lt_progress *p = endpoint_of(self)->progress;
    char why[LT_LINK_TEXT], own[LT_RANK_TEXT];
    snprintf(why, sizeof why, "comm %s: %s aborted the group", p->link->ops->kind,
             lt_endpoint_rank_text(endpoint_of(self), self->rank, own, sizeof own));
    pthread_mutex_lock(&p->mutex);
    lt_progress_abort(p, why, false);
    while (!p->abort_complete)
        pthread_cond_wait(&p->cond_done, &p->mutex);
    pthread_mutex_unlock(&p->mutex);
}

const lt_comm_ops lt_comm_linked = {
    .kind = "linked",
    .bytes = sizeof(linked_comm),
    .close = close_endpoint,
    .begin = begin_collective,
    .wait = wait_for_request,
    .split = split_comm,
    .abort = abort_group,
};
