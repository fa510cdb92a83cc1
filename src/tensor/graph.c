/* Graph capture and replay. A key passes the states eager, eager, captured, replayed. The first eager run
 * allocates state that lasts (execution plans, packed weights, optimizer state), the second the buffers of
 * every later step, because a capture cannot allocate. All runs take their memory in one scope of the
 * allocator.
 *
 * A capture that fails is discarded, and the step runs eagerly. After the second failure the key remains
 * eager. */

#include "lather/graph.h"

#include "base/alloc.h"
#include "tensor/tensor.h"

#include "lather/ext/fail.h"
#include "lather/log.h"

enum { MOST_KEYS = 16, EAGER_RUNS = 2, MOST_TRIES = 2 };

typedef struct entry {
    lt_graph_key key;
    void *graph; /* the backend's graph; NULL: not captured */
    int runs, tries;
} entry;

struct lt_graph {
    lt_device *device;
    uint64_t scope;
    entry entry[MOST_KEYS];
    int entries;
    lt_graph_stats stats;
};

static lt_status new_graph(lt_graph **out, lt_device *device)
{
    lt_graph *g = NULL;
    LT_TRY(LT_ALLOC(&g, 1));
    g->device = device;
    g->scope = lt_allocator_new_scope(device->allocator);
    *out = g;
    return LT_OK;
}

static bool same_key(lt_graph_key a, lt_graph_key b)
{
    return a.kind == b.kind && a.first == b.first && a.last == b.last && a.input == b.input
           && lt_shape_equal(a.shape, b.shape);
}

/* Returns the entry of a key, new if necessary; NULL if there are too many keys. */
static entry *find_or_add_entry(lt_graph *g, lt_graph_key key)
{
    for (int i = 0; i < g->entries; i++)
        if (same_key(g->entry[i].key, key))
            return &g->entry[i];
    if (g->entries == MOST_KEYS)
        return NULL;
    g->entry[g->entries].key = key;
    return &g->entry[g->entries++];
}

static lt_status run_in_scope(const lt_graph *g, lt_step_fn *step, void *arg)
{
    uint64_t before = lt_allocator_enter_scope(g->device->allocator, g->scope);
    lt_status st = step(arg);
    lt_allocator_enter_scope(g->device->allocator, before);
    return st;
}

static lt_status run_eagerly(lt_graph *g, lt_step_fn *step, void *arg)
{
    g->stats.eager++;
    return run_in_scope(g, step, arg);
}

/* Captures the step into e->graph, which remains NULL on failure. */
static lt_status capture_step(const lt_graph *g, entry *e, lt_step_fn *step, void *arg)
{
    lt_device *d = g->device;
    const lt_graph_ops *ops = d->backend->graphs;
    LT_TRY(ops->begin(d->ctx));
    d->capturing = true;
    lt_allocator_freeze(d->allocator, true);
    lt_status st = run_in_scope(g, step, arg);
    lt_allocator_freeze(d->allocator, false);
    d->capturing = false;
    if (!st)
        return ops->end(d->ctx, &e->graph);
    (void)ops->end(d->ctx, NULL); /* st is the failure to report */
    return st;
}

static void record_failed_capture(lt_graph *g, entry *e)
{
    e->graph = NULL;
    if (++e->tries < MOST_TRIES)
        return;
    if (!g->stats.failed)
        lt_log(LT_LOG_WARN, "graph", "graph capture failed, steps run eagerly: %s",
               lt_error_message());
    g->stats.failed = true;
}

static lt_status replay_step(lt_graph *g, const entry *e)
{
    g->stats.replays++;
    return g->device->backend->graphs->launch(g->device->ctx, e->graph);
}

lt_status lt_graph_run(lt_device *device, lt_graph **graph, lt_graph_key key, lt_step_fn *step,
                       void *arg)
{
    if (!device->backend->graphs || lt_allocator_is_off(device->allocator))
        return step(arg);
    if (!*graph)
        LT_TRY(new_graph(graph, device));
    lt_graph *g = *graph;
    LT_ASSERT(g->device == device);
    entry *e = find_or_add_entry(g, key);
    if (!e || e->runs < EAGER_RUNS || e->tries == MOST_TRIES) {
        if (e)
            e->runs++;
        return run_eagerly(g, step, arg);
    }
    if (!e->graph) {
        if (capture_step(g, e, step, arg)) {
            record_failed_capture(g, e);
            return run_eagerly(g, step, arg);
        }
        g->stats.captures++;
    }
    return replay_step(g, e);
}

void lt_graph_free(lt_graph **graph)
{
    lt_graph *g = *graph;
    if (!g)
        return;
    for (int i = 0; i < g->entries; i++)
        if (g->entry[i].graph)
            g->device->backend->graphs->free(g->device->ctx, g->entry[i].graph);
    lt_allocator_end_scope(g->device->allocator, g->scope);
    lt_free(g);
    *graph = NULL;
}

lt_graph_stats lt_graph_statistics(const lt_graph *graph)
{
    return graph ? graph->stats : (lt_graph_stats){0};
}
