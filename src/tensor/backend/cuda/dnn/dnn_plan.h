/* From a graph of cuDNN to something that runs: the device as cuDNN sees it, the engines that its
 * heuristics propose, plans, and their text for a cache. Works without a device too, for one that is
 * only described: then everything but the run. */
#ifndef LT_BACKEND_CUDA_DNN_PLAN_H
#define LT_BACKEND_CUDA_DNN_PLAN_H

#include "dnn_graph.h"

/* What kind of kernel an engine is: its speed follows from it (wgmma, older tensor core
 * instructions, or a kernel that is compiled when the plan is made). */
typedef enum lt_dnn_class { LT_DNN_COMPILED, LT_DNN_OLDER, LT_DNN_HOPPER } lt_dnn_class;

/* What a program allows. */
typedef struct lt_dnn_rules {
    bool deterministic; /* the same bits at every run */
    bool tf32;          /* products of f32 may be rounded to TF32 first */
    size_t workspace;   /* bytes at most */
} lt_dnn_rules;

/* A configuration that the heuristics propose, in their order. */
typedef struct lt_dnn_choice {
    cudnnBackendDescriptor_t config, engine;
    int64_t number; /* of the engine */
    size_t workspace;
    bool compiled, tensor_core, nondeterministic;
} lt_dnn_choice;

enum { LT_DNN_CHOICES = 64 };

typedef struct lt_dnn_choices {
    lt_dnn_choice item[LT_DNN_CHOICES];
    int count;
} lt_dnn_choices;

/* A device from its description, or (json NULL) the one that the handle is for. Destroy it with
 * cudnnBackendDestroyDescriptor(). */
LT_MUST_CHECK lt_status lt_dnn_device(cudnnBackendDescriptor_t *out, const char *json,
                                      cudnnHandle_t handle);
/* The device of this ordinal. */
LT_MUST_CHECK lt_status lt_dnn_device_of(cudnnBackendDescriptor_t *out, int ordinal);
/* Its description, from malloc(). */
LT_MUST_CHECK lt_status lt_dnn_device_text(cudnnBackendDescriptor_t device, char **text);

/* Everything that the rules allow. Errors: LT_E_UNSUPPORTED if that is nothing. */
LT_MUST_CHECK lt_status lt_dnn_propose(lt_dnn_choices *out, const lt_dnn_graph *graph,
                                       cudnnBackendDescriptor_t device, const lt_dnn_rules *rules);
void lt_dnn_choices_clear(lt_dnn_choices *choices);

/* How a plan is told for which device it is. */
typedef enum lt_dnn_way {
    LT_DNN_BY_PROPERTIES, /* of the handle's device, or of one that is described */
    LT_DNN_BY_ORDINAL,
    LT_DNN_BY_HANDLE, /* itself */
    LT_DNN_WAYS
} lt_dnn_way;

typedef struct lt_dnn_plan {
    cudnnBackendDescriptor_t plan;
    size_t workspace;
    int64_t engine; /* -1: not known */
    bool compiled;
    bool unproven; /* made of a text, and not run since */
    lt_dnn_way way;
} lt_dnn_plan;

LT_MUST_CHECK lt_status lt_dnn_plan_new(lt_dnn_plan *out, const lt_dnn_choice *choice,
                                        cudnnBackendDescriptor_t device);
/* The same for the handle's device, as programs did before there were descriptions of devices. */
LT_MUST_CHECK lt_status lt_dnn_plan_new_by(lt_dnn_plan *out, const lt_dnn_choice *choice,
                                           cudnnHandle_t handle);
/* The plan as text, from malloc(), and back. Errors of loading are no failure of a program: the
 * text may be of another version. */
LT_MUST_CHECK lt_status lt_dnn_plan_text(const lt_dnn_plan *plan, char **text);
LT_MUST_CHECK lt_status lt_dnn_plan_load(lt_dnn_plan *out, const char *text,
                                         cudnnBackendDescriptor_t device);
/* Of the plan with this text, if it is none that is compiled. */
lt_dnn_class lt_dnn_classify(const char *text);
void lt_dnn_plan_clear(lt_dnn_plan *plan);

/* Runs on the handle's stream; memory[i] is of the graph's tensor number tensor[i]. */
LT_MUST_CHECK lt_status lt_dnn_plan_run(const lt_dnn_plan *plan, cudnnHandle_t handle,
                                        const int *tensor, void *const *memory, int count,
                                        void *workspace);

#endif
