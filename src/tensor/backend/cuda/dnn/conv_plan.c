/* Autotuning and execution of convolutions' graphs.
 *
 * If a call has an alternative, composed of other entries, it is a candidate too: a fused kernel of an older class
 * can be slower than a plain one of a newer class followed by a kernel of this project. The decision for it is cached
 * as a plan without a descriptor. */

#include "conv_plan.h"

#include "dnn_first_run.h"

#include "lather/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY = 512, MOST_TRIED = 16 };

static const size_t most_workspace = (size_t)512 << 20; /* bytes */

/* Plan-cache key: everything that autotuning depends on. */
static void make_key(const lt_cuda *c, const lt_conv_call *call, char key[KEY])
{
    static const char *const among[] = {"", " or composed", " or composed, by --fused on"};
    const lt_conv_problem *p = &call->problem;
    const lt_conv2d_config *g = &p->config;
    const int64_t *x = p->x, *w = p->w;
    const int which = !call->other ? 0 : call->fused && c->fused == LT_FUSED_ON ? 2 : 1;
    snprintf(key, KEY,
             "%s %s x %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " w %" PRId64 " %" PRId64
             " %" PRId64 " %" PRId64 " s %d %d p %d %d d %d %d%s%s",
             lt_conv_forms[p->form].name, lt_dtype_name(p->dtype), x[0], x[1], x[2], x[3], w[0],
             w[1], w[2], w[3], g->stride_h, g->stride_w, g->pad_h, g->pad_w, g->dilation_h,
             g->dilation_w, among[which], call->pixels ? " of pixels" : "");
}

/* Candidates: execution plans, then the call's alternative if it is allowed. */
typedef struct tuning {
    lt_cuda *c;
    lt_conv_call *call;
    lt_dnn_cache *cache;
    const char *key;
    lt_dnn_graph graph;
    lt_dnn_configs configs;
    lt_dnn_plan plan[MOST_TRIED];
    int config[MOST_TRIED]; /* engine config of each plan */
    int count;
    bool compiled; /* the plans are of run-time compiled kernels */
    size_t workspace_bytes;
    void *workspace;
} tuning;

static lt_status run_plan(lt_cuda *c, const lt_conv_call *call, const lt_dnn_plan *plan,
                          void *workspace)
{
    int tensor[LT_CONV_SLOTS];
    for (int i = 0; i < LT_CONV_SLOTS; i++)
        tensor[i] = i;
    if (call->before)
        LT_TRY(call->before(c, call));
    LT_TRY(lt_dnn_plan_run(plan, c->cudnn, tensor, call->memory,
                           lt_conv_forms[call->problem.form].slots, workspace));
    return call->after ? call->after(c, call) : LT_OK;
}

/* The other entries end; this one is resumed. */
static lt_status run_unfused(lt_cuda *c, const lt_conv_call *call)
{
    const char *operation = c->operation;
    lt_status st = call->other(c, call);
    lt_status entered = lt_cuda_begin(c, operation);
    return st ? st : entered;
}

static lt_status run_candidate_plan(void *context, const lt_dnn_plan *plan)
{
    const tuning *t = context;
    return run_plan(t->c, t->call, plan, t->workspace);
}

static lt_status run_candidate(void *context, int i)
{
    tuning *t = context;
    return i < t->count ? lt_dnn_first_run(t->c, t->cache, &t->configs.item[t->config[i]],
                                           t->workspace_bytes, run_candidate_plan, t, &t->plan[i])
                        : run_unfused(t->c, t->call);
}

/* Returns whether a plan of the config was added. */
static bool add_plan(tuning *t, int config, lt_status *st)
{
    lt_dnn_plan *plan = &t->plan[t->count];
    lt_status one = lt_dnn_build_plan(t->c, t->cache, &t->configs.item[config], plan);
    if (!one && plan->workspace <= most_workspace) {
        t->config[t->count++] = config;
        if (plan->workspace > t->workspace_bytes)
            t->workspace_bytes = plan->workspace;
        return true;
    }
    if (one)
        lt_dnn_log_failure(t->c, t->key, &t->configs.item[config]);
    lt_dnn_plan_clear(plan);
    *st = one ? one : *st;
    return false;
}

/* Run-time compiled kernels take seconds each to build, so they are used only if there are no others. */
static lt_status make_plans(tuning *t)
{
    lt_status st = LT_OK;
    for (int compiled = 0; compiled < 2 && !t->count; compiled++)
        for (int i = 0; i < t->configs.count && t->count < (compiled ? 1 : MOST_TRIED); i++)
            if (t->configs.item[i].compiled == (bool)compiled && add_plan(t, i, &st))
                t->compiled = compiled;
    return t->count ? LT_OK : st;
}

static void clear_plans(tuning *t)
{
    while (t->count > 0)
        lt_dnn_plan_clear(&t->plan[--t->count]);
}

static void clear_tuning(tuning *t)
{
    clear_plans(t);
    lt_dnn_configs_clear(&t->configs);
    lt_dnn_reset_graph(&t->graph);
}

/* Builds the candidates that cuDNN's heuristics propose. Not finding one is no failure if the call has an
 * alternative. */
static lt_status propose_candidates(tuning *t)
{
    const lt_dnn_rules rules = {t->c->deterministic, t->c->tf32, most_workspace};
    lt_status st = lt_conv_build_graph(&t->graph, &t->call->problem);
    if (!st)
        st = lt_dnn_propose_configs(&t->configs, &t->graph, t->cache->device, &rules);
    if (!st)
        st = make_plans(t);
    return t->call->other ? LT_OK : st;
}

/* Returns the number of candidates. If candidates are not timed, the alternative is preferred to compiled kernels. */
static int count_candidates(tuning *t)
{
    const lt_conv_call *call = t->call;
    const bool forced = call->fused && t->c->fused == LT_FUSED_ON;
    if (call->other && !forced && t->c->deterministic && t->compiled)
        clear_plans(t);
    return t->count + (call->other && !(forced && t->count));
}

/* Assigns memory to all tensors of the graph, and `bytes` of workspace to its plan. */
static lt_status assign_memory(lt_cuda *c, lt_conv_call *call, size_t bytes, void **workspace)
{
    const int slots = lt_conv_forms[call->problem.form].slots;
    size_t extra = lt_cuda_pad_bytes(bytes);
    for (int i = 0; i < slots; i++)
        extra += lt_cuda_pad_bytes(call->work[i]);
    LT_TRY(lt_operands_open(c, call->operand, slots, extra, workspace));
    char *at = (char *)*workspace + (*workspace ? lt_cuda_pad_bytes(bytes) : 0);
    for (int i = 0; i < slots; i++) {
        call->memory[i] = call->operand[i].view ? call->operand[i].use.data : at;
        at += call->operand[i].view ? 0 : lt_cuda_pad_bytes(call->work[i]);
    }
    return LT_OK;
}

/* Moves the best candidate to the cache. */
static lt_status cache_candidate(tuning *t, int best, lt_dnn_plan **out)
{
    lt_dnn_plan chosen = {0};
    if (best < t->count) {
        chosen = t->plan[best];
        t->plan[best] = (lt_dnn_plan){0};
    }
    lt_dnn_cache_write(t->c, t->cache, t->key, &chosen);
    return lt_dnn_cache_add(t->cache, t->key, chosen, out);
}

static void log_candidates(const tuning *t, int candidates, const float *milliseconds, int best)
{
    static const lt_dnn_plan composed = {0};
    for (int i = 0; i < candidates; i++)
        lt_dnn_log_plan(t->c, t->key, i, i < t->count ? &t->plan[i] : &composed, milliseconds[i],
                        i == best);
}

static lt_status time_candidates(tuning *t, lt_dnn_plan **out)
{
    float milliseconds[MOST_TRIED + 1];
    int best = 0;
    lt_status st = propose_candidates(t);
    const int candidates = st ? 0 : count_candidates(t);
    if (!st)
        st = assign_memory(t->c, t->call, t->workspace_bytes, &t->workspace);
    t->call->trying = true;
    if (!st)
        st = lt_cuda_find_fastest(t->c, candidates, run_candidate, t, milliseconds, &best);
    t->call->trying = false;
    if (st)
        return st;
    log_candidates(t, candidates, milliseconds, best);
    return cache_candidate(t, best, out);
}

/* Times the candidates on the call's operands: the run that follows overwrites the result. */
static lt_status choose_plan(lt_cuda *c, lt_conv_call *call, lt_dnn_cache *cache, const char *key,
                             lt_dnn_plan **out)
{
    tuning t = {.c = c, .call = call, .cache = cache, .key = key};
    if (c->capturing)
        return lt_fail(LT_E_DEVICE,
                       "cuda:%d: %s: a convolution of a new shape in a captured step; a step "
                       "must run uncaptured before it is captured",
                       c->ordinal, c->operation);
    lt_status st = time_candidates(&t, out);
    clear_tuning(&t);
    return st;
}

static lt_status get_plan(lt_cuda *c, lt_conv_call *call, lt_dnn_plan **out)
{
    lt_dnn_cache *cache = NULL;
    char key[KEY];
    LT_TRY(lt_dnn_get_cache(c, &cache));
    make_key(c, call, key);
    LT_TRY(lt_dnn_cache_find(c, cache, key, call->other != NULL, out));
    return *out ? LT_OK : choose_plan(c, call, cache, key, out);
}

bool lt_conv_may_fuse(const lt_conv_problem *p)
{
    enum { CHANNELS = 8 }; /* fused kernels require a multiple */
    return lt_cuda_is_16_bit(p->dtype) && p->config.groups == 1 && p->x[1] % CHANNELS == 0
           && p->y[1] % CHANNELS == 0;
}

lt_conv_call lt_conv_make_call(lt_conv_form form, const lt_conv2d_config *config, const lt_view *x,
                               const lt_view *w, const lt_view *y)
{
    const int written = lt_conv_forms[form].written;
    const lt_view *const view[] = {x, w, y};
    lt_conv_call call = {.problem = {.form = form, .config = *config, .dtype = y->dtype},
                         .config = config,
                         .x = x,
                         .w = w,
                         .y = y};
    memcpy(call.problem.x, x->shape.dim, sizeof call.problem.x);
    memcpy(call.problem.w, w->shape.dim, sizeof call.problem.w);
    memcpy(call.problem.y, y->shape.dim, sizeof call.problem.y);
    for (int i = 0; i < 3; i++)
        call.operand[i] = (lt_operand){.view = view[i],
                                       .dtype = y->dtype,
                                       .fits = lt_view_is_channels_last(view[i]),
                                       .written = i == written};
    call.operand[LT_CONV_W].keeps = written != LT_CONV_W;
    call.operand[LT_CONV_W].refresh = written == LT_CONV_Y;
    return call;
}

/* Returns LT_OK if its dtype is supported, else LT_E_UNSUPPORTED. */
static lt_status check_dtype(const lt_cuda *c, const lt_conv_call *call)
{
    const lt_dtype dtype = call->problem.dtype;
    if (dtype != LT_F32 && dtype != LT_F16 && dtype != LT_BF16)
        return lt_fail(LT_E_UNSUPPORTED, "cuda:%d: %s of %s; there are f32, f16 and bf16",
                       c->ordinal, c->operation, lt_dtype_name(dtype));
    return LT_OK;
}

/* Replaces a plan of an earlier process that does not run in this one. */
static lt_status replace_and_run_plan(lt_cuda *c, lt_conv_call *call)
{
    lt_dnn_cache *cache = NULL;
    lt_dnn_plan *plan = NULL;
    char key[KEY];
    lt_log(LT_LOG_WARN, "tensor",
           "cuda:%d: %s: a plan from disk did not run, another one is chosen: %s", c->ordinal,
           c->operation, lt_error_message());
    c->api->last_error(); /* handled here: the next launch must not report it */
    make_key(c, call, key);
    LT_TRY(lt_dnn_get_cache(c, &cache));
    LT_TRY(choose_plan(c, call, cache, key, &plan));
    return lt_conv_run(c, call);
}

static lt_status run_call(lt_cuda *c, lt_conv_call *call)
{
    lt_dnn_plan *plan = NULL;
    void *workspace;
    LT_TRY(check_dtype(c, call));
    if (call->fused && c->fused == LT_FUSED_OFF)
        return run_unfused(c, call);
    lt_status st = get_plan(c, call, &plan);
    if (st || !plan)
        return st;
    if (!plan->plan)
        return run_unfused(c, call);
    LT_TRY(assign_memory(c, call, plan->workspace, &workspace));
    st = run_plan(c, call, plan, workspace);
    if (st)
        return plan->untested && !c->capturing ? replace_and_run_plan(c, call) : st;
    plan->untested = false;
    return lt_operands_close(c, call->operand, lt_conv_forms[call->problem.form].slots);
}

lt_status lt_conv_run(lt_cuda *c, lt_conv_call *call)
{
    return lt_cuda_prefix_operation(c, run_call(c, call));
}
