/* Entries as threads of this process. A failed thread is restarted by its group's policy. A thread without progress
 * cannot be killed: the launch fails, and if the thread does not end, it and the memory that it uses are leaked. */

#include "base/alloc.h"
#include "base/clock.h"
#include "launch/launch.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

typedef struct member {
    const lt_launch_handle *group;
    lt_launch_node_threads *threads;
    lt_launch_values values;
    lt_launch_node_entry entry;
    lt_launch_gang_threads *gang;
    pthread_t thread;
    bool started;
    pthread_mutex_t lock; /* protects node */
    lt_launch_node *node;
    atomic_int done;
    lt_status status;
    char why[512];
    bool reported;
    long long progress; /* the node's progress counter at the last check */
    double moved;       /* lt_clock_seconds() at which progress last changed */
    bool hangs;
} member;

struct lt_launch_node_threads {
    const lt_launch *launch;
    member *member;
    int count;
    atomic_bool stopping;
};

static void set_node(member *m, lt_launch_node *node)
{
    pthread_mutex_lock(&m->lock);
    m->node = node;
    if (node && atomic_load(&m->threads->stopping))
        lt_launch_node_request_end(node);
    pthread_mutex_unlock(&m->lock);
}

static lt_status run_once(member *m)
{
    lt_launch_node *node = NULL;
    LT_TRY(lt_launch_node_open(&node, &m->values, m->gang));
    set_node(m, node);
    const lt_status st = lt_launch_node_run(node, m->entry, m->group->config.context);
    set_node(m, NULL);
    lt_launch_node_close(&node);
    return st;
}

static void *run_with_restarts(void *context)
{
    enum { SECOND_US = 1000000 };
    member *m = context;
    const lt_launch_node_config *c = &m->group->config;
    const int restarts = c->policy == LT_LAUNCH_NODE_RESTART ? c->restarts : 0;
    double wait = c->backoff;
    for (int i = 0; i <= restarts && !atomic_load(&m->threads->stopping); i++) {
        m->status = run_once(m);
        if (!m->status)
            break;
        snprintf(m->why, sizeof m->why, "%s", lt_error_message());
        if (i < restarts && !atomic_load(&m->threads->stopping)) {
            fprintf(m->threads->launch->log, "launch| %s.%d: %s; restart %d of %d\n", c->label,
                    m->values.index, m->why, i + 1, restarts);
            usleep((useconds_t)(wait * SECOND_US));
            wait *= 2;
        }
    }
    atomic_store(&m->done, 1);
    return NULL;
}

static int count_threads(const lt_launch *launch)
{
    int count = 0;
    for (const lt_launch_handle *h = launch->program->first; h; h = h->next)
        count += h->config.command ? 0 : h->config.count;
    return count;
}

static lt_status add_members_of_group(lt_launch_node_threads *threads, const lt_launch_handle *h)
{
    lt_launch_node_entry entry = h->config.entry;
    lt_launch_gang_threads *gang = NULL;
    int ranks = h->config.count;
    int64_t accum = 0;
    if (!entry)
        LT_TRY(lt_launch_load_module(h->config.module, &entry));
    if (h->config.kind == LT_LAUNCH_NODE_GANG) {
        if (threads->launch->config->slots && ranks > threads->launch->config->slots)
            return lt_fail(LT_E_ARG, "launch: %s needs %d ranks, but there are %d slots",
                           h->config.label, ranks, threads->launch->config->slots);
        LT_TRY(lt_launch_compute_gang_size(&h->config, 0, &ranks, &accum));
        LT_TRY(lt_launch_gang_threads_new(&gang, ranks));
    }
    for (int i = 0; i < ranks; i++) {
        member *m = &threads->member[threads->count++];
        m->group = h;
        m->threads = threads;
        m->entry = entry;
        m->gang = gang;
        m->values = (lt_launch_values){.program = threads->launch->program,
                                       .group = h,
                                       .place = &threads->launch->place,
                                       .index = i,
                                       .count = ranks,
                                       .grad_accum = accum};
        pthread_mutex_init(&m->lock, NULL);
    }
    return LT_OK;
}

static lt_status start_threads(lt_launch_node_threads *threads)
{
    for (const lt_launch_handle *h = threads->launch->program->first; h; h = h->next)
        if (!h->config.command)
            LT_TRY(add_members_of_group(threads, h));
    for (int i = 0; i < threads->count; i++) {
        if (pthread_create(&threads->member[i].thread, NULL, run_with_restarts, &threads->member[i])
            != 0)
            return lt_fail(LT_E_NOMEM, "launch: cannot start a thread for %s.%d",
                           threads->member[i].group->config.label, threads->member[i].values.index);
        threads->member[i].started = true;
    }
    return LT_OK;
}

lt_status lt_launch_node_threads_start(lt_launch_node_threads **out, const lt_launch *launch)
{
    lt_launch_node_threads *c = lt_alloc(1, sizeof *c);
    if (!c || !(c->member = lt_alloc((size_t)count_threads(launch) + 1, sizeof *c->member))) {
        lt_free(c);
        return LT_E_NOMEM;
    }
    c->launch = launch;
    const lt_status st = start_threads(c);
    if (st)
        (void)lt_launch_node_threads_stop(&c, 0);
    else
        *out = c;
    return st;
}

/* Returns true if the group may shrink and another of its nodes is left. */
static bool may_lose_node(const lt_launch_node_threads *threads, const member *m)
{
    if (m->group->config.policy != LT_LAUNCH_NODE_SHRINK || m->gang)
        return false;
    for (int i = 0; i < threads->count; i++) {
        const member *other = &threads->member[i];
        if (other != m && other->group == m->group && !other->reported)
            return true;
    }
    return false;
}

static long long read_progress(member *m)
{
    pthread_mutex_lock(&m->lock);
    const long long progress = m->node ? lt_launch_node_progress_count(m->node) : -1;
    pthread_mutex_unlock(&m->lock);
    return progress;
}

/* Returns true, once, if the node has made no progress for too long. */
static bool has_just_hung(member *m)
{
    const double now = lt_clock_seconds(), most = m->group->config.progress;
    const long long progress = read_progress(m);
    if (!(most > 0) || m->hangs)
        return false;
    if (progress < 0 || progress != m->progress || !(m->moved > 0))
        m->moved = now;
    m->progress = progress;
    m->hangs = now - m->moved > most;
    return m->hangs;
}

lt_status lt_launch_node_threads_poll(lt_launch_node_threads *threads, int *running)
{
    lt_status st = LT_OK;
    *running = 0;
    for (int i = 0; i < threads->count; i++) {
        member *m = &threads->member[i];
        if (!atomic_load(&m->done)) {
            *running += m->group->config.kind != LT_LAUNCH_NODE_SERVICE;
            if (has_just_hung(m))
                st = lt_fail(LT_E_COMM,
                             "launch: %s.%d has made no progress for %.2g s (progress = %g)",
                             m->group->config.label, m->values.index, lt_clock_seconds() - m->moved,
                             m->group->config.progress);
        } else if (m->status && !m->reported) {
            m->reported = true;
            if (may_lose_node(threads, m))
                fprintf(threads->launch->log, "launch| %s.%d failed: %s\n", m->group->config.label,
                        m->values.index, m->why);
            else
                st = lt_fail(LT_E_COMM, "launch: %s.%d failed: %s", m->group->config.label,
                             m->values.index, m->why);
        }
    }
    return st;
}

/* Waits for hung threads until all others have ended and the grace period is over. Returns true if some still hang. */
static bool wait_for_hung_threads(const lt_launch_node_threads *c, double grace)
{
    enum { AGAIN_US = 10000 };
    const double until = lt_clock_seconds() + grace;
    for (;;) {
        bool hung = false, others = false;
        for (int i = 0; i < c->count; i++) {
            const member *m = &c->member[i];
            const bool runs = m->started && !atomic_load(&m->done);
            hung = hung || (runs && m->hangs);
            others = others || (runs && !m->hangs);
        }
        if (!hung || (!others && lt_clock_seconds() > until))
            return hung;
        usleep(AGAIN_US);
    }
}

bool lt_launch_node_threads_stop(lt_launch_node_threads **threads, double grace)
{
    lt_launch_node_threads *c = *threads;
    if (!c)
        return true;
    *threads = NULL;
    atomic_store(&c->stopping, true);
    for (int i = 0; i < c->count; i++) {
        pthread_mutex_lock(&c->member[i].lock);
        if (c->member[i].node)
            lt_launch_node_request_end(c->member[i].node);
        pthread_mutex_unlock(&c->member[i].lock);
    }
    if (wait_for_hung_threads(c, grace))
        return false;
    for (int i = 0; i < c->count; i++) {
        member *m = &c->member[i];
        if (m->started)
            pthread_join(m->thread, NULL);
        pthread_mutex_destroy(&m->lock);
        if (m->gang && m->values.index == 0)
            lt_launch_gang_threads_free(&m->gang);
    }
    lt_free(c->member);
    lt_free(c);
    return true;
}
