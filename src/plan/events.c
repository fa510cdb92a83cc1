/* Jobs of a resource share it alike (processor sharing): n of them go min(1, width / n) as fast as one. Each
 * resource has a clock of its own, the service that a job had since the beginning, so that a job that comes or goes
 * changes the pace of that clock and no other job's record. Source: Kleinrock, "Time-shared systems: a theoretical
 * treatment", Journal of the ACM 14, 1967.
 *
 * 1. A job ends when its resource's clock shows `end`; the first one to end is found by looking at all, which are few.
 * 2. Each change of a resource makes its earlier events void: they carry the number of the change.
 * 3. Of events at one time the one that was made first is first. */

#include "plan/events.h"

#include "base/alloc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct job {
    double end; /* on the resource's clock */
    double latency;
    int done, there, next;
} job;

typedef struct resource {
    double clock, at; /* what the clock showed at a time */
    double width;
    double saved, burst; /* seconds of work that a pause has saved up, and may */
    int first, jobs;
    int64_t change;
} resource;

typedef struct event {
    double at;
    int64_t number, change; /* change: of a resource; -1: a notice */
    int id;
} event;

struct lt_events {
    lt_events_notice notice;
    void *context;
    resource *resource;
    job *job;
    event *heap;
    size_t resources, jobs, job_capacity, events, event_capacity;
    int free; /* jobs that are no more, linked */
    int64_t made;
    double now;
    bool failed;
};

enum { NONE = -1 };

lt_status lt_events_new(lt_events **out, int resources, lt_events_notice notice, void *context)
{
    lt_events *e = lt_alloc(1, sizeof *e);
    if (!e)
        return LT_E_NOMEM;
    *e = (lt_events){.notice = notice,
                     .context = context,
                     .free = NONE,
                     .resources = (size_t)resources,
                     .resource = lt_alloc((size_t)resources + 1, sizeof *e->resource)};
    if (!e->resource) {
        lt_free(e);
        return LT_E_NOMEM;
    }
    for (int i = 0; i < resources; i++)
        e->resource[i] = (resource){.width = 1, .first = NONE};
    *out = e;
    return LT_OK;
}

void lt_events_free(lt_events **events)
{
    lt_events *e = *events;
    if (e) {
        lt_free(e->resource);
        lt_free(e->job);
        lt_free(e->heap);
        lt_free(e);
    }
    *events = NULL;
}

void lt_events_widen(lt_events *e, int r, double width)
{
    e->resource[r].width = width;
}

void lt_events_save_up(lt_events *e, int r, double burst)
{
    e->resource[r].saved = e->resource[r].burst = burst;
}

double lt_events_now(const lt_events *e)
{
    return e->now;
}

/* --- Events by time --- */

static bool is_before(const event *a, const event *b)
{
    return a->at < b->at || (a->at <= b->at && a->number < b->number);
}

static void push(lt_events *e, event new)
{
    event *heap = lt_grow(e->heap, &e->event_capacity, e->events + 1, sizeof *heap);
    e->failed = e->failed || !heap;
    if (!heap)
        return;
    e->heap = heap;
    new.number = e->made++;
    size_t i = e->events++;
    for (; i && is_before(&new, &e->heap[(i - 1) / 2]); i = (i - 1) / 2)
        e->heap[i] = e->heap[(i - 1) / 2];
    e->heap[i] = new;
}

static event pop(lt_events *e)
{
    const event first = e->heap[0], last = e->heap[--e->events];
    size_t i = 0;
    for (size_t child = 1; child < e->events; child = 2 * i + 1) {
        child += child + 1 < e->events && is_before(&e->heap[child + 1], &e->heap[child]);
        if (!is_before(&e->heap[child], &last))
            break;
        e->heap[i] = e->heap[child];
        i = child;
    }
    e->heap[i] = last;
    return first;
}

void lt_events_tell(lt_events *e, double at, int id)
{
    if (id != NONE)
        push(e, (event){.at = at > e->now ? at : e->now, .change = NONE, .id = id});
}

/* --- Resources --- */

static double pace(const resource *r)
{
    return r->jobs > r->width ? r->width / r->jobs : 1;
}

static void bring_up(const lt_events *e, resource *r)
{
    r->clock += (e->now - r->at) * pace(r);
    if (!r->jobs) {
        r->saved += e->now - r->at;
        r->saved = r->saved < r->burst ? r->saved : r->burst;
    }
    r->at = e->now;
}

static int first_to_end(const lt_events *e, const resource *r)
{
    int first = r->first;
    for (int i = first; i != NONE; i = e->job[i].next)
        first = e->job[i].end < e->job[first].end ? i : first;
    return first;
}

/* When its next job ends: invariant 2. */
static void announce(lt_events *e, int id)
{
    resource *r = &e->resource[id];
    const int first = first_to_end(e, r);
    r->change++;
    if (first == NONE)
        return;
    const double rest = e->job[first].end - r->clock;
    push(e, (event){.at = e->now + (rest > 0 ? rest / pace(r) : 0), .change = r->change, .id = id});
}

static int take_job(lt_events *e)
{
    if (e->free != NONE) {
        const int i = e->free;
        e->free = e->job[i].next;
        return i;
    }
    job *jobs = lt_grow(e->job, &e->job_capacity, e->jobs + 1, sizeof *jobs);
    e->failed = e->failed || !jobs;
    if (!jobs)
        return NONE;
    e->job = jobs;
    return (int)e->jobs++;
}

void lt_events_begin(lt_events *e, const lt_events_job *new)
{
    resource *r = &e->resource[new->resource];
    const int i = take_job(e);
    if (i == NONE)
        return;
    bring_up(e, r);
    const double at_once = r->saved < new->seconds ? r->saved : new->seconds;
    r->saved -= at_once;
    e->job[i] = (job){.end = r->clock + new->seconds - at_once,
                      .latency = new->latency,
                      .done = new->done,
                      .there = new->there,
                      .next = r->first};
    r->first = i;
    r->jobs++;
    announce(e, new->resource);
}

static void unlink_job(lt_events *e, resource *r, int i)
{
    int *at = &r->first;
    while (*at != i)
        at = &e->job[*at].next;
    *at = e->job[i].next;
    r->jobs--;
    e->job[i].next = e->free;
    e->free = i;
}

/* The first job of a resource has ended: its clock shows exactly that. */
static void end_job(lt_events *e, int id)
{
    resource *r = &e->resource[id];
    const int i = first_to_end(e, r);
    const job ended = e->job[i];
    r->clock = ended.end > r->clock ? ended.end : r->clock;
    r->at = e->now;
    unlink_job(e, r, i);
    announce(e, id);
    lt_events_tell(e, e->now + ended.latency, ended.there);
    if (ended.done != NONE)
        e->notice(e->context, ended.done);
}

lt_status lt_events_run(lt_events *e)
{
    while (e->events && !e->failed) {
        const event now = pop(e);
        if (now.change != NONE && now.change != e->resource[now.id].change)
            continue;
        e->now = now.at;
        if (now.change == NONE)
            e->notice(e->context, now.id);
        else
            end_job(e, now.id);
    }
    return e->failed ? LT_E_NOMEM : LT_OK;
}
