/* Attention: cuDNN's fused kernels in 16 bits, else composed of matrix products.
 *
 * The gradient's kernel adds nothing atomically, so that results are reproducible; it writes a matrix of scores to
 * its workspace. A limited number of sequences at a time keeps that small. */

#include "tensor/backend/cuda/kernels/attention.h"

#include "attention_graph.h"
#include "tensor/backend/cuda/dnn/dnn_first_run.h"
#include "tensor/backend/cuda/kernels.h"

#include "lather/log.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    KEY = 768,
    BYTES = 2,
    WIDEST = 128,
    TILE = 128,
    ALIGNMENT = 16,
    ALIGNED = ALIGNMENT / BYTES
};

static const size_t most_scores = (size_t)256 << 20, most_workspace = (size_t)512 << 20; /* bytes */

/* A range of a call's sequences. Views are [B,T,heads,d] except LSE; without data if absent. */
typedef struct call {
    const lt_attention_config *config;
    lt_attention_problem problem;
    lt_view view[LT_ATTENTION_SLOTS];
} call;

static const int slots_of_views[] = {LT_ATTENTION_Q,  LT_ATTENTION_K,  LT_ATTENTION_V,
                                     LT_ATTENTION_Y,  LT_ATTENTION_DY, LT_ATTENTION_DQ,
                                     LT_ATTENTION_DK, LT_ATTENTION_DV};
enum { VIEWS = sizeof slots_of_views / sizeof *slots_of_views };

/* Returns the most bytes of scores in memory at once: a small part of the device's memory. */
static size_t score_limit(const lt_cuda *c)
{
    const size_t part = c->properties.memory_bytes / 512;
    return part < most_scores ? part : most_scores;
}

static bool is_aligned(const lt_view *v)
{
    bool is = (uintptr_t)v->data % ALIGNMENT == 0 && v->stride[3] == 1;
    for (int d = 0; d < 3; d++)
        is = is && (v->shape.dim[d] == 1 || (v->stride[d] > 0 && v->stride[d] % ALIGNED == 0));
    return is;
}

/* Returns whether this version of cuDNN computes it correctly. Source: conditions in NVIDIA's cudnn-frontend, class
 * SDPA. */
static bool version_supports(const lt_attention_problem *p)
{
    const size_t version = cudnnGetVersion();
    return version != 91000 && version != 91001
           && !(p->backward && version <= 91500 && p->keys % TILE);
}

/* Returns whether cuDNN may have a kernel for it. */
static bool may_use_cudnn(const lt_cuda *c, const call *k)
{
    const lt_attention_problem *p = &k->problem;
    const lt_view *lse = &k->view[LT_ATTENTION_LSE];
    bool may = c->fused != LT_FUSED_OFF && lt_cuda_is_16_bit(p->dtype) && p->width % ALIGNED == 0
               && p->width <= WIDEST && lse->dtype == LT_F32
               && (uintptr_t)lse->data % ALIGNMENT == 0 && !(p->causal && p->queries > p->keys)
               && version_supports(p);
    for (int i = 0; i < VIEWS; i++) {
        const lt_view *v = &k->view[slots_of_views[i]];
        may = may && (!v->data || (v->dtype == p->dtype && is_aligned(v)));
    }
    return may;
}

/* Strides of dimensions of size 1 are arbitrary: they are set to those of a contiguous view. */
static lt_attention_strides normalized_strides(const lt_view *v)
{
    const int64_t *d = v->shape.dim, row = d[2] * d[3];
    return (lt_attention_strides){.batch = d[0] > 1 && v->data ? v->stride[0] : d[1] * row,
                                  .row = d[1] > 1 && v->data ? v->stride[1] : row,
                                  .head = d[2] > 1 && v->data ? v->stride[2] : d[3]};
}

static void describe_problem(call *k, bool backward)
{
    const lt_view *q = &k->view[LT_ATTENTION_Q], *keys = &k->view[LT_ATTENTION_K];
    k->problem = (lt_attention_problem){.dtype = q->dtype,
                                        .causal = k->config->causal,
                                        .backward = backward,
                                        .batch = q->shape.dim[0],
                                        .heads = q->shape.dim[2],
                                        .kv_heads = keys->shape.dim[2],
                                        .queries = q->shape.dim[1],
                                        .keys = keys->shape.dim[1],
                                        .width = q->shape.dim[3]};
    for (int i = 0; i < VIEWS; i++)
        if (lt_attention_has_slot(&k->problem, slots_of_views[i]))
            k->problem.stride[slots_of_views[i]] = normalized_strides(&k->view[slots_of_views[i]]);
}

static void make_key(const lt_attention_problem *p, char key[KEY])
{
    int used = snprintf(
        key, KEY,
        "attention%s %s%s %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64,
        p->backward ? "_grad" : "", lt_dtype_name(p->dtype), p->causal ? " causal" : "", p->batch,
        p->heads, p->kv_heads, p->queries, p->keys, p->width);
    for (int i = 0; i < VIEWS; i++) {
        const lt_attention_strides *s = &p->stride[slots_of_views[i]];
        used += snprintf(key + used, (size_t)(KEY - used), " %" PRId64 " %" PRId64 " %" PRId64,
                         s->batch, s->head, s->row);
    }
}

/* Scalars that are passed to cuDNN by value. */
typedef struct numbers {
    float scale, one, masked;
    int32_t keys, queries;
} numbers;

static numbers get_scalars(const call *k)
{
    enum { KNOWS_INFINITY = 91000 }; /* earlier versions require the least finite number */
    return (numbers){.scale = (float)k->config->scale,
                     .one = 1,
                     .masked = cudnnGetVersion() < KNOWS_INFINITY ? -FLT_MAX : -INFINITY,
                     .keys = (int32_t)k->problem.keys,
                     .queries = (int32_t)k->problem.queries};
}

static size_t slot_bytes(const call *k, int slot)
{
    const lt_attention_problem *p = &k->problem;
    return slot == LT_ATTENTION_SUMS ? (size_t)(p->batch * p->heads * p->queries) * sizeof(float)
                                     : (size_t)lt_shape_count(k->view[slot].shape) * BYTES;
}

static bool needs_workspace_memory(const call *k, int slot)
{
    const bool is_gradient = slot >= LT_ATTENTION_DQ && slot <= LT_ATTENTION_DV;
    return slot == LT_ATTENTION_SUMS || (is_gradient && !k->view[slot].data);
}

/* Assigns memory to each tensor of the graph, in the workspace if the call has none, and runs the plan. */
static lt_status run_plan(lt_cuda *c, const call *k, const lt_dnn_plan *plan)
{
    numbers n = get_scalars(k);
    void *const by_value[] = {&n.scale, &n.one, &n.masked, &n.keys, &n.queries};
    void *memory[LT_ATTENTION_SLOTS], *workspace = NULL;
    int slot[LT_ATTENTION_SLOTS], count = 0;
    size_t bytes = lt_cuda_pad_bytes(plan->workspace), at = bytes;
    for (int i = 0; i < LT_ATTENTION_SLOTS; i++)
        if (lt_attention_has_slot(&k->problem, i) && needs_workspace_memory(k, i))
            bytes += lt_cuda_pad_bytes(slot_bytes(k, i));
    if (bytes)
        LT_TRY(lt_cuda_workspace(c, LT_CUDA_MAIN, bytes, &workspace));
    for (int i = 0; i < LT_ATTENTION_SLOTS; i++) {
        if (!lt_attention_has_slot(&k->problem, i))
            continue;
        const bool is_value = i >= LT_ATTENTION_SCALE && i < LT_ATTENTION_FORWARD_SLOTS;
        slot[count] = i;
        memory[count] = is_value ? by_value[i - LT_ATTENTION_SCALE] : k->view[i].data;
        if (needs_workspace_memory(k, i)) {
            memory[count] = (char *)workspace + at;
            at += lt_cuda_pad_bytes(slot_bytes(k, i));
        }
        count++;
    }
    return lt_dnn_plan_run(plan, c->cudnn, slot, memory, count, workspace);
}

/* Autotuning of a call. */
typedef struct tuning {
    lt_cuda *c;
    lt_dnn_cache *cache;
    const call *call;
    const char *key;
    bool no_memory; /* a candidate failed for lack of memory */
} tuning;

static lt_status run_candidate_plan(void *context, const lt_dnn_plan *plan)
{
    const tuning *t = context;
    return run_plan(t->c, t->call, plan);
}

/* Returns whether a plan of the config runs. */
static bool try_config(tuning *t, const lt_dnn_config *config, int number, lt_dnn_plan *plan)
{
    lt_status st = lt_dnn_build_plan(t->c, t->cache, config, plan);
    if (!st && plan->workspace > most_workspace)
        st = lt_fail(LT_E_UNSUPPORTED, "cudnn: %zu bytes of workspace, at most %zu",
                     plan->workspace, most_workspace);
    if (!st)
        st = lt_dnn_first_run(t->c, t->cache, config, most_workspace, run_candidate_plan, t, plan);
    if (!st) {
        lt_dnn_log_plan(t->c, t->key, number, plan, 0, true);
        return true;
    }
    t->no_memory = t->no_memory || st == LT_E_NOMEM;
    lt_dnn_log_failure(t->c, t->key, config);
    lt_dnn_plan_clear(plan);
    t->c->api->last_error(); /* handled here: the next launch must not report it */
    return false;
}

/* Finds the first proposed config whose plan runs: all are compiled at run time, which is slow. plan->plan: NULL if
 * none runs. */
static void find_running_plan(tuning *t, lt_dnn_plan *plan)
{
    const lt_dnn_rules rules = {true, true, most_workspace};
    lt_dnn_graph g = {0};
    lt_dnn_configs configs = {0};
    bool found = false;
    const bool proposed = !lt_attention_build_graph(&g, &t->call->problem)
                          && !lt_dnn_propose_configs(&configs, &g, t->cache->device, &rules);
    for (int i = 0; proposed && i < configs.count && !found; i++)
        found = try_config(t, &configs.item[i], i, plan);
    if (!found)
        lt_dnn_log_plan(t->c, t->key, configs.count, plan, 0, true);
    lt_dnn_configs_clear(&configs);
    lt_dnn_reset_graph(&g);
}

/* If no plan runs, attention is composed, in later processes too, except for lack of memory. */
static lt_status choose_plan(lt_cuda *c, lt_dnn_cache *cache, const call *k, const char *key,
                             lt_dnn_plan **out)
{
    lt_dnn_plan plan = {0};
    tuning t = {c, cache, k, key, false};
    if (c->capturing)
        return lt_fail(LT_E_DEVICE,
                       "cuda:%d: %s: attention of a new shape in a captured step; a step must "
                       "run uncaptured before it is captured",
                       c->ordinal, c->operation);
    find_running_plan(&t, &plan);
    if (plan.plan || !t.no_memory)
        lt_dnn_cache_write(c, cache, key, &plan);
    return lt_dnn_cache_add(cache, key, plan, out);
}

/* Returns whether a plan of an earlier process runs in this one; the first call runs it twice. */
static bool test_disk_plan(lt_cuda *c, const call *k, lt_dnn_plan *plan)
{
    if (!plan->plan || !plan->untested || c->capturing)
        return true;
    plan->untested = run_plan(c, k, plan) != LT_OK;
    if (plan->untested) {
        lt_log(LT_LOG_WARN, "tensor",
               "cuda:%d: %s: a plan from disk did not run, another one is chosen: %s", c->ordinal,
               c->operation, lt_error_message());
        c->api->last_error();
    }
    return !plan->untested;
}

/* Finds or chooses a plan; plan->plan: NULL if attention is composed. */
static lt_status get_plan(lt_cuda *c, const call *k, lt_dnn_plan **plan)
{
    lt_dnn_cache *cache = NULL;
    char key[KEY];
    LT_TRY(lt_dnn_get_cache(c, &cache));
    make_key(&k->problem, key);
    LT_TRY(lt_dnn_cache_find(c, cache, key, true, plan));
    return *plan && test_disk_plan(c, k, *plan) ? LT_OK : choose_plan(c, cache, k, key, plan);
}

static const lt_view *or_null(const lt_view *v)
{
    return v->data ? v : NULL;
}

static lt_status run_composed(lt_cuda *c, const call *k)
{
    const lt_view *v = k->view;
    const lt_attention_composed composed = {k->config, score_limit(c)};
    const lt_attention_grad g = {.dy = &v[LT_ATTENTION_DY],
                                 .q = &v[LT_ATTENTION_Q],
                                 .k = &v[LT_ATTENTION_K],
                                 .v = &v[LT_ATTENTION_V],
                                 .y = &v[LT_ATTENTION_Y],
                                 .lse = &v[LT_ATTENTION_LSE],
                                 .dq = or_null(&v[LT_ATTENTION_DQ]),
                                 .dk = or_null(&v[LT_ATTENTION_DK]),
                                 .dv = or_null(&v[LT_ATTENTION_DV])};
    return k->problem.backward ? lt_attention_compose_grad(c, &composed, &g)
                               : lt_attention_compose(c, &composed, g.q, g.k, g.v, g.y, g.lse);
}

/* Returns the call for sequences first to first + count - 1. */
static call slice_sequences(const call *k, int64_t first, int64_t count)
{
    call part = *k;
    part.problem.batch = count;
    for (int i = 0; i < LT_ATTENTION_SLOTS; i++) {
        lt_view *v = &part.view[i];
        v->shape.dim[0] = count;
        if (v->data)
            v->data = (char *)v->data + first * v->stride[0] * (int64_t)lt_dtype_size(v->dtype);
    }
    return part;
}

/* Returns the number of sequences per slice, such that all slices' LSE have the alignment of the first. */
static int64_t slice_length(const lt_cuda *c, const lt_attention_problem *p)
{
    const int64_t rows = (p->queries + TILE - 1) / TILE * TILE;
    const int64_t columns = (p->keys + TILE - 1) / TILE * TILE;
    const int64_t most = (int64_t)score_limit(c) / (p->heads * rows * columns * BYTES);
    if (!p->backward || most >= p->batch)
        return p->batch;
    const int64_t slices = most < 1 ? p->batch : (p->batch + most - 1) / most;
    int64_t length = (p->batch + slices - 1) / slices;
    while (length * p->heads * p->queries * (int64_t)sizeof(float) % ALIGNMENT)
        length++;
    return length;
}

static lt_status run_sliced(lt_cuda *c, const call *k)
{
    if (!may_use_cudnn(c, k))
        return run_composed(c, k);
    const int64_t length = slice_length(c, &k->problem);
    for (int64_t first = 0; first < k->problem.batch; first += length) {
        const int64_t left = k->problem.batch - first;
        const call part = slice_sequences(k, first, left < length ? left : length);
        lt_dnn_plan *plan = NULL;
        LT_TRY(get_plan(c, &part, &plan));
        LT_TRY(plan && plan->plan ? run_plan(c, &part, plan) : run_composed(c, &part));
    }
    return LT_OK;
}

/* Returns the gradient dx, or, if it is not wanted, a view like x without data. */
static lt_view gradient_or_empty(const lt_view *dx, const lt_view *x)
{
    lt_view v = dx ? *dx : *x;
    if (!dx)
        v.data = NULL;
    return v;
}

static lt_status run_entry(lt_cuda *c, const char *entry, const lt_attention_config *config,
                           const lt_attention_grad *g)
{
    call all = {.config = config};
    all.view[LT_ATTENTION_Q] = *g->q;
    all.view[LT_ATTENTION_K] = *g->k;
    all.view[LT_ATTENTION_V] = *g->v;
    all.view[LT_ATTENTION_Y] = *g->y;
    all.view[LT_ATTENTION_LSE] = *g->lse;
    if (g->dy) {
        all.view[LT_ATTENTION_DY] = *g->dy;
        all.view[LT_ATTENTION_DQ] = gradient_or_empty(g->dq, g->q);
        all.view[LT_ATTENTION_DK] = gradient_or_empty(g->dk, g->k);
        all.view[LT_ATTENTION_DV] = gradient_or_empty(g->dv, g->v);
    }
    describe_problem(&all, g->dy != NULL);
    LT_TRY(lt_cuda_begin(c, entry));
    LT_TRY(lt_cuda_prefix_operation(c, run_sliced(c, &all)));
    return lt_cuda_end(c);
}

static lt_status attention(void *ctx, const lt_attention_config *config, const lt_view *q,
                           const lt_view *k, const lt_view *v, const lt_view *y, const lt_view *lse)
{
    const lt_attention_grad forward = {.q = q, .k = k, .v = v, .y = y, .lse = lse};
    return run_entry(ctx, "attention", config, &forward);
}

static lt_status attention_grad(void *ctx, const lt_attention_config *config,
                                const lt_attention_grad *g)
{
    return run_entry(ctx, "attention_grad", config, g);
}

void lt_cuda_install_attention(lt_backend *be)
{
    be->attention = attention;
    be->attention_grad = attention_grad;
}
