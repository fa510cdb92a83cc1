/* From a cuDNN graph to an execution plan: device properties, engine configs that the heuristics propose, plans, and
 * their text for a cache. All but the run also works without a device, for described device properties. */
#ifndef LT_BACKEND_CUDA_DNN_PLAN_H
#define LT_BACKEND_CUDA_DNN_PLAN_H

#include "dnn_graph.h"

/* Class of an engine's kernel: compiled at run time, older tensor core instructions, or wgmma. */
typedef enum lt_dnn_class { LT_DNN_COMPILED, LT_DNN_OLDER, LT_DNN_HOPPER } lt_dnn_class;

/* Conditions for engines. */
typedef struct lt_dnn_rules {
    bool deterministic; /* results are bitwise reproducible */
    bool tf32;          /* factors of f32 may be rounded to TF32 */
    size_t workspace;   /* most bytes */
} lt_dnn_rules;

/* An engine config that the heuristics propose. */
typedef struct lt_dnn_config {
    cudnnBackendDescriptor_t descriptor, engine;
    int64_t number; /* engine id */
    size_t workspace;
    bool compiled, tensor_core, nondeterministic;
} lt_dnn_config;

enum { LT_DNN_CONFIGS = 64 };

typedef struct lt_dnn_configs {
    lt_dnn_config item[LT_DNN_CONFIGS];
    int count;
} lt_dnn_configs;

/* Creates the properties of a described device, or (json NULL) of the handle's. Destroy them with
 * cudnnBackendDestroyDescriptor(). */
LT_MUST_CHECK lt_status lt_dnn_device_properties(cudnnBackendDescriptor_t *out, const char *json,
                                                 cudnnHandle_t handle);
/* Creates the properties of the device with this ordinal. */
LT_MUST_CHECK lt_status lt_dnn_device_by_ordinal(cudnnBackendDescriptor_t *out, int ordinal);
/* Returns the description of a device, from malloc(). */
LT_MUST_CHECK lt_status lt_dnn_device_text(cudnnBackendDescriptor_t device, char **text);

/* Returns the proposed configs that the rules allow, best first. Errors: LT_E_UNSUPPORTED if there are no such
 * configs. */
LT_MUST_CHECK lt_status lt_dnn_propose_configs(lt_dnn_configs *out, const lt_dnn_graph *graph,
                                               cudnnBackendDescriptor_t device,
                                               const lt_dnn_rules *rules);
void lt_dnn_configs_clear(lt_dnn_configs *configs);

/* How a plan's device is specified. */
typedef enum lt_dnn_device_source {
    LT_DNN_BY_PROPERTIES, /* properties of the handle's, or of a described device */
    LT_DNN_BY_ORDINAL,    /* properties of the device with that ordinal */
    LT_DNN_BY_HANDLE,
    LT_DNN_DEVICE_SOURCES
} lt_dnn_device_source;

typedef struct lt_dnn_plan {
    cudnnBackendDescriptor_t plan;
    size_t workspace;
    int64_t engine; /* -1: unknown */
    bool compiled;
    bool untested; /* loaded from text and not run yet */
    lt_dnn_device_source device_source;
} lt_dnn_plan;

LT_MUST_CHECK lt_status lt_dnn_plan_new(lt_dnn_plan *out, const lt_dnn_config *config,
                                        cudnnBackendDescriptor_t device);
/* The same for the handle, LT_DNN_BY_HANDLE. */
LT_MUST_CHECK lt_status lt_dnn_plan_new_by_handle(lt_dnn_plan *out, const lt_dnn_config *config,
                                                  cudnnHandle_t handle);
/* Convert a plan to text, from malloc(), and back. Loading may fail because the text is of another version. */
LT_MUST_CHECK lt_status lt_dnn_plan_text(const lt_dnn_plan *plan, char **text);
LT_MUST_CHECK lt_status lt_dnn_plan_load(lt_dnn_plan *out, const char *text,
                                         cudnnBackendDescriptor_t device);
/* Returns the class of the plan with this text, which is not compiled. */
lt_dnn_class lt_dnn_classify_plan(const char *text);
void lt_dnn_plan_clear(lt_dnn_plan *plan);

/* Runs on the handle's stream; memory[i] is that of the graph's tensor tensor[i]. */
LT_MUST_CHECK lt_status lt_dnn_plan_run(const lt_dnn_plan *plan, cudnnHandle_t handle,
                                        const int *tensor, void *const *memory, int count,
                                        void *workspace);

#endif
