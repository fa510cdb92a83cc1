/* Execution plans of cuDNN that a device keeps, in memory and on disk, and their lines in the plan log. */

#include "dnn_cache.h"

#include "tensor/backend/cuda/plan_log.h"

#include "lather/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DISK_KEY = 4096 };

static const char composed[] = "composed"; /* text of a plan without a descriptor */

static void release_plan(void *plan)
{
    lt_dnn_plan_clear(plan);
    free(plan);
}

static void close_cache(lt_cuda *c, void *data)
{
    lt_dnn_cache *cache = data;
    (void)c;
    lt_plan_cache_free(&cache->plans);
    lt_dnn_destroy(&cache->device);
    lt_dnn_destroy(&cache->by_ordinal);
    free(cache->device_text);
    free(cache);
}

/* Writes device and library to the plan log. */
static void log_device(const lt_cuda *c, const lt_dnn_cache *cache)
{
    const lt_cuda_properties *p = &c->properties;
    char text[256];
    snprintf(text, sizeof text,
             "%s, compute capability %d.%d, %d multiprocessors, %zu MiB, cudnn %zu", p->name,
             p->major, p->minor, p->multiprocessors, p->memory_bytes >> 20, cudnnGetVersion());
    lt_plan_log_remark(c, "device", text);
    if (cache->device_text)
        lt_plan_log_remark(c, "as cudnn describes it", cache->device_text);
}

lt_status lt_dnn_get_cache(lt_cuda *c, lt_dnn_cache **out)
{
    lt_cuda_part *part = &c->part[LT_CUDA_DNN_PLANS];
    *out = part->data;
    if (*out)
        return LT_OK;
    lt_dnn_cache *cache = calloc(1, sizeof *cache);
    if (!cache)
        return lt_fail(LT_E_NOMEM, "cuda:%d: no memory", c->ordinal);
    lt_status st = lt_plan_cache_new(&cache->plans, NULL, release_plan);
    if (!st)
        st = lt_dnn_device_properties(&cache->device, NULL, c->cudnn);
    if (!st && lt_dnn_device_text(cache->device, &cache->device_text))
        lt_log(LT_LOG_WARN, "tensor",
               "cuda:%d: cudnn does not describe the device, so plans are not written to disk: %s",
               c->ordinal, lt_error_message());
    if (st) {
        close_cache(c, cache);
        return st;
    }
    part->data = *out = cache;
    part->close = close_cache;
    log_device(c, cache);
    return LT_OK;
}

/* On disk, a plan's key includes the version of cuDNN, the kind of device, its driver and the conditions for engines. */
static void make_disk_key(const lt_cuda *c, const char *key, char disk[DISK_KEY])
{
    const lt_cuda_properties *p = &c->properties;
    int driver = 0, runtime = 0;
    (void)c->api->versions(&driver, &runtime);
    snprintf(disk, DISK_KEY,
             "%s\ncudnn %zu\ntf32 %d deterministic %d\n%s, %d.%d, %d multiprocessors, L2 %zu, "
             "shared %zu, driver %d",
             key, cudnnGetVersion(), c->tf32, c->deterministic, p->name, p->major, p->minor,
             p->multiprocessors, p->cache_bytes, p->shared_bytes, driver);
}

lt_status lt_dnn_cache_add(lt_dnn_cache *cache, const char *key, lt_dnn_plan plan,
                           lt_dnn_plan **out)
{
    *out = malloc(sizeof **out);
    if (!*out) {
        lt_dnn_plan_clear(&plan);
        return lt_fail(LT_E_NOMEM, "cuda: no memory for a plan");
    }
    **out = plan;
    return lt_plan_cache_add(cache->plans, key, *out);
}

lt_status lt_dnn_cache_find(lt_cuda *c, lt_dnn_cache *cache, const char *key, bool may_be_none,
                            lt_dnn_plan **out)
{
    char disk[DISK_KEY];
    lt_dnn_plan plan = {0};
    *out = lt_plan_cache_find(cache->plans, key);
    if (*out || c->capturing || !cache->device_text)
        return LT_OK;
    make_disk_key(c, key, disk);
    char *text = lt_plan_cache_read(cache->plans, disk);
    if (!text)
        return LT_OK;
    const bool none = may_be_none && !strcmp(text, composed);
    const bool loaded = none || lt_dnn_plan_load(&plan, text, cache->device) == LT_OK;
    free(text);
    if (loaded)
        lt_dnn_log_plan(c, key, 0, &plan, 0, true);
    return loaded ? lt_dnn_cache_add(cache, key, plan, out) : LT_OK;
}

void lt_dnn_cache_write(lt_cuda *c, const lt_dnn_cache *cache, const char *key,
                        const lt_dnn_plan *plan)
{
    char disk[DISK_KEY], *text = NULL;
    if (!cache->device_text)
        return;
    make_disk_key(c, key, disk);
    if (plan->plan && lt_dnn_plan_text(plan, &text))
        return;
    (void)lt_plan_cache_write(cache->plans, disk, text ? text : composed);
    free(text);
}

/* --- Lines of the plan log --- */

static const char *const source_names[LT_DNN_DEVICE_SOURCES] = {
    [LT_DNN_BY_PROPERTIES] = "for the handle's properties",
    [LT_DNN_BY_ORDINAL] = "for the device's number",
    [LT_DNN_BY_HANDLE] = "for the handle"};

const char *lt_dnn_device_source_name(lt_dnn_device_source source)
{
    return source_names[source];
}

static const char *plan_kind_name(const lt_dnn_plan *plan)
{
    char *text;
    if (!plan->plan)
        return "composed";
    if (plan->untested)
        return "from disk";
    if (plan->compiled || lt_dnn_plan_text(plan, &text))
        return "compiled";
    const bool hopper = lt_dnn_classify_plan(text) == LT_DNN_HOPPER;
    free(text);
    return hopper ? "hopper" : "older";
}

void lt_dnn_log_plan(const lt_cuda *c, const char *key, int candidate, const lt_dnn_plan *plan,
                     float milliseconds, bool chosen)
{
    if (!lt_plan_log_is_enabled())
        return;
    lt_plan_log(c, &(lt_plan_line){
                       .key = key,
                       .kind = plan_kind_name(plan),
                       .candidate = candidate,
                       .engine = plan->plan ? plan->engine : -1,
                       .workspace = plan->workspace,
                       .milliseconds = milliseconds,
                       .chosen = chosen,
                       .note = plan->plan ? lt_dnn_device_source_name(plan->device_source) : NULL});
}

void lt_dnn_log_failure(const lt_cuda *c, const char *key, const lt_dnn_config *config)
{
    lt_plan_log(c, &(lt_plan_line){.key = key,
                                   .kind = "none",
                                   .candidate = -1,
                                   .engine = config->number,
                                   .milliseconds = -1,
                                   .note = lt_error_message()});
}
