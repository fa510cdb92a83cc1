/* Common to LARS, LAMB and Lion: batches of parameters, so that the workspace is small; for LARS and LAMB their norms
 * and their trust ratios. A batch is a list of batched kernels, each of which is one backend call with a job per parameter. */
#ifndef LT_OPTIM_TRUST_H
#define LT_OPTIM_TRUST_H

#include "optim/registry/registry.h"

enum { LT_TRUST_RULES = 6 };

/* First member of their structs. */
typedef struct lt_trust {
    lt_optim base;
    lt_trust_kernel kernel;
    bool always_adapt;
    lt_tensor *scratch; /* updates of a batch; NULL before the first step */
    lt_tensor *table;   /* f64: rows of lt_trust_row, a column per slot; then the number 1 */
    int64_t attempt;    /* the step whose slots due[] has */
    size_t count; /* slots in due[]: state in fewer bytes adds those of a step in several calls */
    /* Workspace: one per slot; LT_TRUST_RULES jobs per slot. */
    const lt_slot **due;
    int64_t *at;     /* offset of due[i]'s update in scratch */
    int64_t *column; /* column of due[i] in table; -1: its ratio is 1 */
    lt_trust_item *item;
    lt_vec_job *job;
    lt_vec_list *list;
    lt_view *view;
} lt_trust;

typedef enum lt_trust_row {
    LT_TRUST_WEIGHT,
    LT_TRUST_UPDATE,
    LT_TRUST_RATIO,
    LT_TRUST_ROWS
} lt_trust_row;

/* Range of parameters that are processed together: due[begin] to due[end - 1]. */
typedef struct lt_trust_batch {
    size_t begin, end;
} lt_trust_batch;

/* Creates an optimizer whose struct begins with lt_trust, by lt_optim_new(); and its destroy entry. */
lt_status lt_trust_new(lt_optim **out, const lt_optim_ops *ops, const lt_params *params,
                       double weight_decay, lt_decay_scope scope);
void lt_trust_destroy(lt_optim *self);
/* Returns true once the first step has allocated the workspace. */
bool lt_trust_has_workspace(const lt_optim *self);

/* Reads the trust ratio of the last step: the number "trust_ratio" of --optim-stats. */
lt_stats_fn lt_trust_measure_ratio;

typedef lt_status lt_trust_fn(lt_trust *t, lt_trust_batch batch);
/* Runs a step: calls update for each batch. */
lt_status lt_trust_step_in_batches(lt_trust *t, lt_trust_fn *update);

/* Returns a view of due[i]'s update in the workspace. */
lt_view lt_trust_update_view(const lt_trust *t, size_t i);

/* Fills in the job of due[i], which starts as y = a; returns false if it needs none. */
typedef bool lt_trust_rule(const lt_trust *t, size_t i, lt_vec_job *job);
/* Applies up to LT_TRUST_RULES rules to each parameter in turn, in one pass over its memory where the backend can. */
lt_status lt_trust_run_rules(lt_trust *t, lt_trust_batch batch, lt_trust_rule *const *rule,
                             size_t rules);
/* u = g: the rule that copies the gradient, unscaled and clipped */
lt_trust_rule lt_trust_copy_gradient;
/* u += weight_decay w: the rule that adds weight decay */
lt_trust_rule lt_trust_add_decay;
/* Multiplies the job's alpha by due[i]'s trust ratio. */
void lt_trust_scale_by_ratio(const lt_trust *t, size_t i, lt_vec_job *job);

/* Computes the trust ratios of a batch from the norms of its weights and of its gradients (still scaled), or of its
 * updates. */
lt_status lt_trust_compute_ratios(lt_trust *t, lt_trust_batch batch, bool of_gradients);

#endif
