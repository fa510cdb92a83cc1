/* First runs of execution plans. */

#include "dnn_first_run.h"

#include "lather/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static lt_status build_plan(lt_cuda *c, lt_dnn_cache *cache, const lt_dnn_config *config,
                            lt_dnn_device_source source, lt_dnn_plan *out)
{
    lt_status st = LT_OK;
    *out = (lt_dnn_plan){0};
    if (source == LT_DNN_BY_ORDINAL && !cache->by_ordinal)
        LT_TRY(lt_dnn_device_by_ordinal(&cache->by_ordinal, c->ordinal));
    if (source == LT_DNN_BY_HANDLE)
        st = lt_dnn_plan_new_by_handle(out, config, c->cudnn);
    else
        st = lt_dnn_plan_new(out, config,
                             source == LT_DNN_BY_ORDINAL ? cache->by_ordinal : cache->device);
    out->device_source = source;
    return st;
}

lt_status lt_dnn_build_plan(lt_cuda *c, lt_dnn_cache *cache, const lt_dnn_config *config,
                            lt_dnn_plan *out)
{
    return build_plan(c, cache, config, cache->device_source, out);
}

/* Arguments of lt_dnn_first_run(). */
typedef struct attempt {
    lt_cuda *c;
    lt_dnn_cache *cache;
    const lt_dnn_config *config;
    size_t most;
    lt_dnn_run_fn *run;
    void *context;
} attempt;

/* Rebuilds the plan in this source and runs it. Replaces *plan if it runs. */
static lt_status rebuild_and_run(const attempt *t, lt_dnn_device_source source, lt_dnn_plan *plan)
{
    lt_dnn_plan other;
    lt_status st = build_plan(t->c, t->cache, t->config, source, &other);
    if (!st && other.workspace > t->most)
        st = lt_fail(LT_E_UNSUPPORTED, "cudnn: %zu bytes of workspace, there are %zu",
                     other.workspace, t->most);
    if (!st)
        st = t->run(t->context, &other);
    lt_log(LT_LOG_WARN, "tensor",
           "cuda:%d: %s: a plan of engine %" PRId64 " did not run; rebuilt %s it %s%s",
           t->c->ordinal, t->c->operation, t->config->number, lt_dnn_device_source_name(source),
           st ? "fails: " : "runs", st ? lt_error_message() : "");
    lt_dnn_plan_clear(st ? &other : plan);
    if (!st)
        *plan = other;
    return st;
}

lt_status lt_dnn_first_run(lt_cuda *c, lt_dnn_cache *cache, const lt_dnn_config *config,
                           size_t most, lt_dnn_run_fn *run, void *context, lt_dnn_plan *plan)
{
    const attempt t = {c, cache, config, most, run, context};
    char why[256];
    lt_status st = run(context, plan);
    if (!st || c->capturing) /* a plan that ran and cannot be captured is kept */
        return st;
    snprintf(why, sizeof why, "%s", lt_error_message());
    lt_log(LT_LOG_WARN, "tensor", "cuda:%d: %s: engine %" PRId64 ": %s", c->ordinal, c->operation,
           config->number, why);
    for (int source = 0; source < LT_DNN_DEVICE_SOURCES; source++) {
        c->api->last_error(); /* the next launch must not report a failed one */
        if (source == (int)plan->device_source
            || rebuild_and_run(&t, (lt_dnn_device_source)source, plan))
            continue;
        cache->device_source = (lt_dnn_device_source)source;
        return LT_OK;
    }
    return lt_fail(st, "%s", why);
}
