/* First runs of plans, and what is said of them. */

#include "dnn_trial.h"

#include "tensor/backend/cuda/plan_log.h"

#include "lather/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const way_name[LT_DNN_WAYS] = {[LT_DNN_BY_PROPERTIES] =
                                                      "for the handle's properties",
                                                  [LT_DNN_BY_ORDINAL] = "for the device's number",
                                                  [LT_DNN_BY_HANDLE] = "for the handle"};

static lt_status make(lt_cuda *c, lt_dnn_cache *cache, const lt_dnn_choice *choice, lt_dnn_way way,
                      lt_dnn_plan *out)
{
    lt_status st = LT_OK;
    *out = (lt_dnn_plan){0};
    if (way == LT_DNN_BY_ORDINAL && !cache->by_ordinal)
        LT_TRY(lt_dnn_device_of(&cache->by_ordinal, c->ordinal));
    if (way == LT_DNN_BY_HANDLE)
        st = lt_dnn_plan_new_by(out, choice, c->cudnn);
    else
        st = lt_dnn_plan_new(out, choice,
                             way == LT_DNN_BY_ORDINAL ? cache->by_ordinal : cache->device);
    out->way = way;
    return st;
}

lt_status lt_dnn_make(lt_cuda *c, lt_dnn_cache *cache, const lt_dnn_choice *choice,
                      lt_dnn_plan *out)
{
    return make(c, cache, choice, cache->way, out);
}

/* What lt_dnn_prove() was given. */
typedef struct trial {
    lt_cuda *c;
    lt_dnn_cache *cache;
    const lt_dnn_choice *choice;
    size_t most;
    lt_dnn_run_fn *run;
    void *context;
} trial;

/* Made again in this way, and run. The plan is replaced if it runs. */
static lt_status again(const trial *t, lt_dnn_way way, lt_dnn_plan *plan)
{
    lt_dnn_plan other;
    lt_status st = make(t->c, t->cache, t->choice, way, &other);
    if (!st && other.workspace > t->most)
        st = lt_fail(LT_E_UNSUPPORTED, "cudnn: %zu bytes of workspace, there are %zu",
                     other.workspace, t->most);
    if (!st)
        st = t->run(t->context, &other);
    lt_log(LT_LOG_WARN, "tensor",
           "cuda:%d: %s: a plan of engine %" PRId64 " did not run; made %s it does%s%s",
           t->c->ordinal, t->c->operation, t->choice->number, way_name[way], st ? " not: " : "",
           st ? lt_error_message() : "");
    lt_dnn_plan_clear(st ? &other : plan);
    if (!st)
        *plan = other;
    return st;
}

lt_status lt_dnn_prove(lt_cuda *c, lt_dnn_cache *cache, const lt_dnn_choice *choice, size_t most,
                       lt_dnn_run_fn *run, void *context, lt_dnn_plan *plan)
{
    const trial t = {c, cache, choice, most, run, context};
    char why[256];
    lt_status st = run(context, plan);
    if (!st)
        return LT_OK;
    snprintf(why, sizeof why, "%s", lt_error_message());
    lt_log(LT_LOG_WARN, "tensor", "cuda:%d: %s: engine %" PRId64 ": %s", c->ordinal, c->operation,
           choice->number, why);
    for (int way = 0; way < LT_DNN_WAYS; way++) {
        c->api->last_error(); /* a failed launch must not show at the next one */
        if (way == (int)plan->way || again(&t, (lt_dnn_way)way, plan))
            continue;
        cache->way = (lt_dnn_way)way;
        return LT_OK;
    }
    return lt_fail(st, "%s", why);
}

static const char *kind_of(const lt_dnn_plan *plan)
{
    char *text;
    if (!plan->plan)
        return "composed";
    if (plan->unproven)
        return "from disk";
    if (plan->compiled || lt_dnn_plan_text(plan, &text))
        return "compiled";
    const bool hopper = lt_dnn_classify(text) == LT_DNN_HOPPER;
    free(text);
    return hopper ? "hopper" : "older";
}

void lt_dnn_log(const lt_cuda *c, const char *key, int candidate, const lt_dnn_plan *plan,
                float milliseconds, bool chosen)
{
    if (!lt_plan_log_wanted())
        return;
    lt_plan_log(c, &(lt_plan_line){.key = key,
                                   .kind = kind_of(plan),
                                   .candidate = candidate,
                                   .engine = plan->plan ? plan->engine : -1,
                                   .workspace = plan->workspace,
                                   .milliseconds = milliseconds,
                                   .chosen = chosen,
                                   .note = plan->plan ? way_name[plan->way] : NULL});
}

void lt_dnn_log_failure(const lt_cuda *c, const char *key, const lt_dnn_choice *choice)
{
    lt_plan_log(c, &(lt_plan_line){.key = key,
                                   .kind = "none",
                                   .candidate = -1,
                                   .engine = choice->number,
                                   .milliseconds = -1,
                                   .note = lt_error_message()});
}
