/* First runs of execution plans. */

#include "dnn_first_run.h"

#include "lather/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* Arguments of lt_dnn_prove(). */
typedef struct trial {
    lt_cuda *c;
    lt_dnn_cache *cache;
    const lt_dnn_choice *choice;
    size_t most;
    lt_dnn_run_fn *run;
    void *context;
} trial;

/* Rebuilds the plan in this way and runs it. Replaces *plan if it runs. */
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
           "cuda:%d: %s: a plan of engine %" PRId64 " did not run; rebuilt %s it %s%s",
           t->c->ordinal, t->c->operation, t->choice->number, lt_dnn_way_name(way),
           st ? "fails: " : "runs", st ? lt_error_message() : "");
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
        c->api->last_error(); /* the next launch must not report a failed one */
        if (way == (int)plan->way || again(&t, (lt_dnn_way)way, plan))
            continue;
        cache->way = (lt_dnn_way)way;
        return LT_OK;
    }
    return lt_fail(st, "%s", why);
}
