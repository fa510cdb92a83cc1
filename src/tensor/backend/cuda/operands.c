/* Operands in the dtype and layout that a library requires, and autotuning. */

#include "operands.h"

#include "cast_cache.h"
#include "kernels.h"
#include "strided_iter.h"

#include <stdlib.h>

enum { WANTED = 16, ROUNDS = 4, REPEATS = 8, MOST_CANDIDATES = 32 };

static const float short_time = 0.1F; /* milliseconds: launches by the host count below */

static size_t operand_bytes(const lt_operand *o)
{
    return (size_t)lt_shape_count(o->view->shape) * lt_dtype_size(o->dtype);
}

bool lt_operand_is_aligned(const lt_view *view)
{
    return (uintptr_t)view->data % WANTED == 0;
}

static bool is_present(const lt_operand *o)
{
    return o->view && o->view->data;
}

static bool is_used_directly(const lt_operand *o)
{
    return o->fits && o->view->dtype == o->dtype && lt_operand_is_aligned(o->view);
}

static bool is_cached_cast(const lt_operand *o)
{
    return o->keeps && o->view->version;
}

/* Returns whether a copy has the view's order in memory. */
static bool is_in_copy_order(const lt_view *v)
{
    return v->shape.ndim == 4 ? lt_view_is_channels_last(v) : lt_view_is_contiguous(v);
}

/* Captured passes repeat the cast, unless optimizers update it. */
static lt_status use_cached_cast(lt_cuda *c, lt_operand *o)
{
    const size_t bytes = operand_bytes(o);
    lt_cached_cast *w = lt_cast_find(c, o->view->data, o->dtype, bytes);
    if (!w)
        LT_TRY(lt_cast_new(c, bytes, &w));
    o->use.data = w->copy.data;
    w->copy = o->use;
    w->same_order = is_in_copy_order(o->view);
    w->follows = w->follows && w->same_order;
    const bool follows = c->capturing && w->follows, renews = c->capturing && o->refresh;
    const bool same = w->value.data && w->value.version == o->view->version;
    w->value = *o->view;
    return follows || (same && !renews) ? LT_OK : lt_cuda_table()->cast(c, o->view, &o->use);
}

static lt_status refresh_casts(void *ctx, const lt_view *value)
{
    lt_cuda *c = ctx;
    for (lt_cached_cast *w = c->part[LT_CUDA_CASTS].data; w; w = w->next)
        if (w->follows && w->value.data == value->data) {
            w->value.version = value->version;
            LT_TRY(lt_cuda_table()->cast(c, value, &w->copy));
        }
    return LT_OK;
}

const lt_weight_ops lt_cuda_weights = {lt_cast_set_follow, refresh_casts};

lt_status lt_operands_open(lt_cuda *c, lt_operand *operand, int count, size_t extra,
                           void **workspace)
{
    const char *operation = c->operation;
    char *block = NULL;
    size_t total = lt_cuda_pad_bytes(extra), at = 0;
    for (int i = 0; i < count; i++)
        if (is_present(&operand[i]) && !is_used_directly(&operand[i])
            && !is_cached_cast(&operand[i]))
            total += lt_cuda_pad_bytes(operand_bytes(&operand[i]));
    if (total)
        LT_TRY(lt_cuda_workspace(c, LT_CUDA_MAIN, total, (void **)&block));
    for (int i = 0; i < count; i++) {
        lt_operand *o = &operand[i];
        if (!is_present(o))
            continue;
        o->use = *o->view;
        if (is_used_directly(o))
            continue;
        o->use.dtype = o->dtype;
        lt_view_set_dense_strides(&o->use);
        if (is_cached_cast(o)) {
            LT_TRY(use_cached_cast(c, o));
            continue;
        }
        o->use.data = block + at;
        at += lt_cuda_pad_bytes(operand_bytes(o));
        if (!o->written)
            LT_TRY(lt_cuda_table()->cast(c, o->view, &o->use));
    }
    *workspace = block ? block + at : NULL;
    return lt_cuda_begin(c, operation); /* the casts were other entries */
}

lt_status lt_operands_close(lt_cuda *c, const lt_operand *operand, int count)
{
    for (int i = 0; i < count; i++)
        if (is_present(&operand[i]) && operand[i].written && !is_used_directly(&operand[i]))
            LT_TRY(lt_cuda_table()->cast(c, &operand[i].use, operand[i].view));
    return LT_OK;
}

static int compare_floats(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* A failed candidate also sets the runtime's last error, which the end of the entry must not report. */
static lt_status reset_error(const lt_cuda *c, lt_status st)
{
    if (st)
        c->api->last_error();
    return st;
}

/* Candidates. */
typedef struct candidates {
    int count;
    lt_cuda_candidate_fn *run;
    void *context;
    float *milliseconds; /* or NULL */
} candidates;

static void record_time(const candidates *of, int i, float time)
{
    if (of->milliseconds)
        of->milliseconds[i] = time;
}

/* Times of the candidates. */
typedef struct timing {
    float time[MOST_CANDIDATES][ROUNDS];
    lt_cuda_graph_exec graph[MOST_CANDIDATES]; /* REPEATS runs; NULL: run by the host */
    bool fails[MOST_CANDIDATES];
    lt_status last; /* the last failure */
} timing;

/* Captures REPEATS runs of candidate i. Returns NULL if it cannot be captured. */
static lt_cuda_graph_exec capture_runs(lt_cuda *c, const candidates *of, int i)
{
    const lt_cuda_stream main = c->stream[LT_CUDA_MAIN];
    lt_cuda_graph graph = NULL;
    lt_cuda_graph_exec exec = NULL;
    lt_status st = LT_OK;
    if (!c->api->capture_begin(main)) {
        c->capturing = true;
        for (int run = 0; run < REPEATS && !st; run++)
            st = of->run(of->context, i);
        c->capturing = false;
        if (!c->api->capture_end(main, &graph) && !st && c->api->graph_instantiate(&exec, graph))
            exec = NULL;
        if (graph)
            c->api->graph_destroy(graph);
    }
    c->api->last_error(); /* set by a failed capture */
    return exec;
}

static lt_status run_timed(lt_cuda *c, const candidates *of, lt_cuda_graph_exec graph, int i)
{
    if (!graph)
        return of->run(of->context, i);
    LT_CUDA_TRY(c, "cudaGraphLaunch", c->api->graph_launch(graph, c->stream[LT_CUDA_MAIN]));
    return LT_OK;
}

/* Sets *time to the milliseconds of a run. */
static lt_status time_once(lt_cuda *c, const candidates *of, const lt_cuda_event event[2],
                           lt_cuda_graph_exec graph, int i, float *time)
{
    const lt_cuda_stream main = c->stream[LT_CUDA_MAIN];
    LT_CUDA_TRY(c, "cudaEventRecord", c->api->event_record(event[0], main));
    LT_TRY(run_timed(c, of, graph, i));
    LT_CUDA_TRY(c, "cudaEventRecord", c->api->event_record(event[1], main));
    LT_CUDA_TRY(c, "cudaEventSynchronize", c->api->event_sync(event[1]));
    LT_CUDA_TRY(c, "cudaEventElapsedTime", c->api->event_milliseconds(time, event[0], event[1]));
    *time /= graph ? REPEATS : 1;
    return LT_OK;
}

/* Runs each candidate once, in odd rounds in reverse order. event NULL: does not time them. */
static void run_round(lt_cuda *c, const candidates *of, const lt_cuda_event *event, int round,
                      timing *t)
{
    for (int k = 0; k < of->count; k++) {
        const int i = round % 2 ? of->count - 1 - k : k;
        if (t->fails[i])
            continue;
        lt_status st = event ? time_once(c, of, event, t->graph[i], i, &t->time[i][round])
                             : of->run(of->context, i);
        t->fails[i] = reset_error(c, st) != LT_OK;
        t->last = st ? st : t->last;
    }
}

/* Returns whether a candidate takes less than short_time in round 0. */
static bool is_any_short(const candidates *of, const timing *t)
{
    bool found = false;
    for (int i = 0; i < of->count; i++)
        found = found || (!t->fails[i] && t->time[i][0] < short_time);
    return found;
}

/* A device's clock changes as it warms up: rounds in alternating direction expose all candidates to the same clocks.
 * Short candidates are timed in captured runs, as in a recorded step: the host takes longer to launch them. */
static lt_status time_candidates(lt_cuda *c, const candidates *of, const lt_cuda_event event[2],
                                 int *best)
{
    timing t = {.last = LT_OK};
    float least = 0;
    LT_ASSERT(of->count <= MOST_CANDIDATES);
    run_round(c, of, NULL, 0, &t);
    run_round(c, of, event, 0, &t);
    const bool captured = is_any_short(of, &t);
    for (int i = 0; i < of->count && captured; i++)
        t.graph[i] = t.fails[i] ? NULL : capture_runs(c, of, i);
    for (int round = captured ? 0 : 1; round < ROUNDS; round++)
        run_round(c, of, event, round, &t);
    for (int i = 0; i < of->count; i++)
        if (t.graph[i])
            c->api->graph_exec_destroy(t.graph[i]);
    *best = -1;
    for (int i = 0; i < of->count; i++) {
        qsort(t.time[i], ROUNDS, sizeof *t.time[i], compare_floats);
        const float median = (t.time[i][ROUNDS / 2 - 1] + t.time[i][ROUNDS / 2]) / 2;
        record_time(of, i, t.fails[i] ? -1 : median);
        if (t.fails[i] || (*best >= 0 && median >= least))
            continue;
        *best = i;
        least = median;
    }
    return *best < 0 ? t.last : LT_OK;
}

static lt_status find_first_working(const lt_cuda *c, const candidates *of, int *best)
{
    lt_status st = lt_fail(LT_E_UNSUPPORTED, "cuda: no candidate to choose from");
    for (*best = 0; *best < of->count; ++*best) {
        st = reset_error(c, of->run(of->context, *best));
        if (!st)
            return LT_OK;
        record_time(of, *best, -1);
    }
    return st;
}

lt_status lt_cuda_find_fastest(lt_cuda *c, int count, lt_cuda_candidate_fn *run, void *context,
                               float *milliseconds, int *best)
{
    const candidates of = {count, run, context, milliseconds};
    lt_cuda_event event[2] = {NULL, NULL};
    for (int i = 0; i < count; i++)
        record_time(&of, i, 0);
    if (c->deterministic || count < 2 || c->capturing)
        return find_first_working(c, &of, best);
    lt_status st = LT_OK;
    for (int i = 0; i < 2 && !st; i++)
        st = lt_cuda_check(c, LT_CUDA_RUNTIME, c->api->event_create(&event[i], true),
                           "cudaEventCreateWithFlags");
    if (!st)
        st = time_candidates(c, &of, event, best);
    for (int i = 0; i < 2; i++)
        if (event[i])
            c->api->event_destroy(event[i]);
    return st;
}
