/* Engine configs and execution plans of cuDNN 9. Source: the cuDNN 9 backend API reference, "Heuristics", "Engine",
 * "Execution plan" and "Deviceless ahead-of-time compilation". */

#include "dnn_plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NOTES = 16, MOST_PROPOSED = 96 };

/* Creates the properties of the device that this attribute describes. */
static lt_status make_device(cudnnBackendDescriptor_t *out, cudnnBackendAttributeName_t name,
                             cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
    cudnnBackendDescriptor_t d = NULL;
    lt_status st = LT_OK;
    lt_dnn_create(&st, &d, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, "device");
    lt_dnn_set(&st, d, name, type, count, values);
    lt_dnn_finalize(&st, d, "device");
    if (st)
        lt_dnn_destroy(&d);
    else
        *out = d;
    return st;
}

lt_status lt_dnn_device_properties(cudnnBackendDescriptor_t *out, const char *json,
                                   cudnnHandle_t handle)
{
    return json ? make_device(out, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                              (int64_t)strlen(json), json)
                : make_device(out, CUDNN_ATTR_DEVICEPROP_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
}

lt_status lt_dnn_device_by_ordinal(cudnnBackendDescriptor_t *out, int ordinal)
{
    const int32_t number = ordinal;
    return make_device(out, CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32, 1, &number);
}

static lt_status get_text(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name, char **out)
{
    int64_t length = 0;
    LT_TRY(lt_dnn_check(cudnnBackendGetAttribute(d, name, CUDNN_TYPE_CHAR, 0, &length, NULL),
                        "cudnnBackendGetAttribute, text"));
    char *text = calloc((size_t)length + 1, 1);
    if (!text)
        return lt_fail(LT_E_NOMEM, "cudnn: no memory for a text of %" PRId64 " bytes", length);
    lt_status st =
        lt_dnn_check(cudnnBackendGetAttribute(d, name, CUDNN_TYPE_CHAR, length, &length, text),
                     "cudnnBackendGetAttribute, text");
    if (st)
        free(text);
    else
        *out = text;
    return st;
}

lt_status lt_dnn_device_text(cudnnBackendDescriptor_t device, char **text)
{
    return get_text(device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, text);
}

/* Returns the heuristics' results as engine configs that the caller destroys. */
static lt_status take_configs(cudnnBackendDescriptor_t heuristics, cudnnBackendDescriptor_t *config,
                              int most, int *count)
{
    int64_t found = 0;
    lt_status st = LT_OK;
    *count = 0;
    for (int i = 0; i < most; i++) {
        lt_dnn_create(&st, &config[i], CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, "engine config");
        LT_TRY(st);
        *count = i + 1;
    }
    LT_TRY(
        lt_dnn_check(cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                              CUDNN_TYPE_BACKEND_DESCRIPTOR, most, &found, config),
                     "cudnnBackendGetAttribute, heuristics"));
    while (*count > found)
        lt_dnn_destroy(&config[--*count]);
    return LT_OK;
}

static lt_status query_heuristics(const lt_dnn_graph *graph, cudnnBackendDescriptor_t device,
                                  cudnnBackendHeurMode_t mode, cudnnBackendDescriptor_t *config,
                                  int most, int *count)
{
    cudnnBackendDescriptor_t h = NULL;
    lt_status st = LT_OK;
    *count = 0;
    lt_dnn_create(&st, &h, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, "heuristics");
    lt_dnn_set(&st, h, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
               &graph->graph);
    lt_dnn_set(&st, h, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    lt_dnn_set(&st, h, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &device);
    lt_dnn_finalize(&st, h, "heuristics");
    if (!st)
        st = take_configs(h, config, most, count);
    lt_dnn_destroy(&h);
    return st;
}

static bool has_note(const int *note, int64_t count, int which)
{
    for (int64_t i = 0; i < count; i++)
        if (note[i] == which)
            return true;
    return false;
}

/* Reads the properties of an engine config. Returns false if that fails. */
static bool read_config(lt_dnn_config *c, bool *exact)
{
    int64_t count = 0, behaviors = 0, numerics = 0, bytes = 0;
    int behavior[NOTES], numeric[NOTES]; /* both are enumerations, which are ints */
    lt_status st = LT_OK;
    lt_dnn_create(&st, &c->engine, CUDNN_BACKEND_ENGINE_DESCRIPTOR, "engine");
    if (st
        || cudnnBackendGetAttribute(c->descriptor, CUDNN_ATTR_ENGINECFG_ENGINE,
                                    CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &c->engine)
        || cudnnBackendGetAttribute(c->engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1,
                                    &count, &c->number)
        || cudnnBackendGetAttribute(c->engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE,
                                    CUDNN_TYPE_BEHAVIOR_NOTE, NOTES, &behaviors, behavior)
        || cudnnBackendGetAttribute(c->engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                    CUDNN_TYPE_NUMERICAL_NOTE, NOTES, &numerics, numeric))
        return false;
    if (cudnnBackendGetAttribute(c->descriptor, CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE,
                                 CUDNN_TYPE_INT64, 1, &count, &bytes)
        == CUDNN_STATUS_SUCCESS)
        c->workspace = (size_t)bytes;
    c->compiled = has_note(behavior, behaviors, CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION);
    c->tensor_core = has_note(numeric, numerics, CUDNN_NUMERICAL_NOTE_TENSOR_CORE)
                     || has_note(numeric, numerics, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS);
    c->nondeterministic = has_note(numeric, numerics, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
    /* Such engines exceed the error bound of a sum of rounded products. */
    *exact = !has_note(numeric, numerics, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION)
             && !has_note(numeric, numerics, CUDNN_NUMERICAL_NOTE_FFT)
             && !has_note(numeric, numerics, CUDNN_NUMERICAL_NOTE_WINOGRAD);
    return true;
}

/* Returns whether all factors of the graph are f32: then tensor cores imply TF32. */
static bool is_f32(const lt_dnn_graph *graph)
{
    return !strstr(graph->text, "f16[");
}

static bool is_allowed(const lt_dnn_config *c, const lt_dnn_rules *rules, bool f32)
{
    return !(rules->deterministic && c->nondeterministic)
           && !(f32 && !rules->tf32 && c->tensor_core) && c->workspace <= rules->workspace;
}

static void clear_config(lt_dnn_config *c)
{
    lt_dnn_destroy(&c->engine);
    lt_dnn_destroy(&c->descriptor);
}

/* Adds the configs that are allowed; takes ownership of all. */
static void add_allowed_configs(lt_dnn_configs *out, cudnnBackendDescriptor_t *config, int count,
                                const lt_dnn_rules *rules, bool f32)
{
    for (int i = 0; i < count; i++) {
        lt_dnn_config c = {.descriptor = config[i]};
        bool exact = false;
        if (read_config(&c, &exact) && exact && is_allowed(&c, rules, f32)
            && out->count < LT_DNN_CONFIGS)
            out->item[out->count++] = c;
        else
            clear_config(&c);
    }
}

lt_status lt_dnn_propose_configs(lt_dnn_configs *out, const lt_dnn_graph *graph,
                                 cudnnBackendDescriptor_t device, const lt_dnn_rules *rules)
{
    /* The second is queried only if the first yields nothing. */
    static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
    cudnnBackendDescriptor_t config[MOST_PROPOSED];
    lt_status st = LT_OK;
    int count, proposed = 0;
    out->count = 0;
    for (size_t i = 0; i < sizeof modes / sizeof *modes && !out->count; i++) {
        st = query_heuristics(graph, device, modes[i], config, MOST_PROPOSED, &count);
        proposed += count;
        add_allowed_configs(out, config, count, rules, is_f32(graph));
    }
    if (out->count)
        return LT_OK;
    if (proposed)
        return lt_fail(LT_E_UNSUPPORTED,
                       "cudnn: none of %d engines is allowed (deterministic %d, tf32 %d, at most "
                       "%zu bytes of workspace) for %s",
                       proposed, rules->deterministic, rules->tf32, rules->workspace, graph->text);
    return st ? st : lt_fail(LT_E_UNSUPPORTED, "cudnn: no engine for %s", graph->text);
}

void lt_dnn_configs_clear(lt_dnn_configs *configs)
{
    while (configs->count > 0)
        clear_config(&configs->item[--configs->count]);
}

static lt_status read_workspace(lt_dnn_plan *p)
{
    int64_t count = 0, bytes = 0;
    LT_TRY(lt_dnn_check(cudnnBackendGetAttribute(p->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                                 CUDNN_TYPE_INT64, 1, &count, &bytes),
                        "cudnnBackendGetAttribute, workspace"));
    p->workspace = (size_t)bytes;
    return LT_OK;
}

/* Finalizes a plan, or clears it if st or that is a failure. */
static lt_status finalize_plan(lt_dnn_plan *p, lt_status st)
{
    lt_dnn_finalize(&st, p->plan, "plan");
    if (!st)
        st = read_workspace(p);
    if (st)
        lt_dnn_plan_clear(p);
    return st;
}

/* Makes a plan of a config for the device that this attribute specifies. */
static lt_status make_plan(lt_dnn_plan *out, const lt_dnn_config *config,
                           cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                           const void *device)
{
    lt_status st = LT_OK;
    *out = (lt_dnn_plan){.engine = config->number, .compiled = config->compiled};
    lt_dnn_create(&st, &out->plan, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, "plan");
    lt_dnn_set(&st, out->plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
               CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config->descriptor);
    lt_dnn_set(&st, out->plan, name, type, 1, device);
    return finalize_plan(out, st);
}

lt_status lt_dnn_plan_new(lt_dnn_plan *out, const lt_dnn_config *config,
                          cudnnBackendDescriptor_t device)
{
    return make_plan(out, config, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
                     CUDNN_TYPE_BACKEND_DESCRIPTOR, &device);
}

lt_status lt_dnn_plan_new_by_handle(lt_dnn_plan *out, const lt_dnn_config *config,
                                    cudnnHandle_t handle)
{
    return make_plan(out, config, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, &handle);
}

lt_status lt_dnn_plan_text(const lt_dnn_plan *plan, char **text)
{
    return get_text(plan->plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, text);
}

/* Returns the engine in a plan's text, or -1. */
static int64_t parse_engine(const char *text)
{
    static const char key[] = "\"engineId\":";
    const char *found = strstr(text, key);
    return found ? strtoll(found + sizeof key - 1, NULL, 10) : -1;
}

lt_status lt_dnn_plan_load(lt_dnn_plan *out, const char *text, cudnnBackendDescriptor_t device)
{
    lt_status st = LT_OK;
    *out = (lt_dnn_plan){.engine = parse_engine(text), .untested = true};
    lt_dnn_create(&st, &out->plan, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, "plan");
    lt_dnn_set(&st, out->plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
               (int64_t)strlen(text), text);
    lt_dnn_set(&st, out->plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR,
               1, &device);
    return finalize_plan(out, st);
}

/* Only kernels for Hopper have a knob for the shape of thread block clusters. */
lt_dnn_class lt_dnn_classify_plan(const char *text)
{
    return strstr(text, "\"CUDNN_KNOB_TYPE_TILE_CGA_M\"") ? LT_DNN_HOPPER : LT_DNN_OLDER;
}

void lt_dnn_plan_clear(lt_dnn_plan *plan)
{
    lt_dnn_destroy(&plan->plan);
    plan->workspace = 0;
}

lt_status lt_dnn_plan_run(const lt_dnn_plan *plan, cudnnHandle_t handle, const int *tensor,
                          void *const *memory, int count, void *workspace)
{
    int64_t uid[LT_DNN_TENSORS];
    void *pointer[LT_DNN_TENSORS];
    cudnnBackendDescriptor_t pack = NULL;
    lt_status st = LT_OK;
    LT_ASSERT(count <= LT_DNN_TENSORS);
    for (int i = 0; i < count; i++) {
        uid[i] = tensor[i] + 1;
        pointer[i] = memory[i];
    }
    lt_dnn_create(&st, &pack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, "variant pack");
    lt_dnn_set(&st, pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, uid);
    lt_dnn_set(&st, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count,
               pointer);
    lt_dnn_set(&st, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    lt_dnn_finalize(&st, pack, "variant pack");
    if (!st)
        st = lt_dnn_check(cudnnBackendExecute(handle, plan->plan, pack), "cudnnBackendExecute");
    lt_dnn_destroy(&pack);
    return st;
}
