/* Common to LARS and LAMB: parameters in batches, so that scratch memory stays small, the norms of a
 * batch, and its trust ratios. A batch is a list of batched kernels, each of them one call of the backend
 * with a job per parameter. */
#ifndef LT_OPTIM_TRUST_H
#define LT_OPTIM_TRUST_H

#include "optim/registry/registry.h"

enum { LT_TRUST_RULES = 6 };

/* First member of both. */
typedef struct lt_trust {
    lt_optim base;
    lt_trust_kernel kernel;
    bool always_adapt;
    lt_tensor *scratch; /* the updates of a batch; NULL before the first step */
    lt_tensor *table;   /* f64: rows of lt_trust_row, a column per slot; the number 1 */
    /* Workspace: one per slot; of job LT_TRUST_RULES. */
    const lt_slot **due;
    int64_t *at;     /* of due[i]: where its update begins in scratch */
    int64_t *column; /* of due[i]; -1: its ratio is 1 */
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

/* due[begin] to due[end - 1]. */
typedef struct lt_trust_batch {
    size_t begin, end;
} lt_trust_batch;

/* As lt_optim_new(), for ops whose struct begins with lt_trust; and what destroy calls. */
lt_status lt_trust_new(lt_optim **out, const lt_optim_ops *ops, const lt_params *params,
                       double weight_decay, lt_decay_scope scope);
void lt_trust_destroy(lt_optim *self);
/* Returns true once the first step has made the scratch memory. */
bool lt_trust_is_prepared(const lt_optim *self);

typedef lt_status lt_trust_fn(lt_trust *t, lt_trust_batch batch);
/* A step: update for each batch. */
lt_status lt_trust_each(lt_trust *t, lt_trust_fn *update);

/* The place of due[i]'s update. */
lt_view lt_trust_update_view(const lt_trust *t, size_t i);

/* Fills in the job of due[i], which is y = a unless it says otherwise; false: it needs none. */
typedef bool lt_trust_rule(const lt_trust *t, size_t i, lt_vec_job *job);
/* The rules one after the other for each parameter, in one pass over its memory where the backend has such.
 * At most LT_TRUST_RULES. */
lt_status lt_trust_vec(lt_trust *t, lt_trust_batch batch, lt_trust_rule *const *rule, size_t rules);
/* u = g, unscaled and clipped. */
lt_trust_rule lt_trust_take_gradient;
/* u += weight_decay w. */
lt_trust_rule lt_trust_decay;
/* job's alpha is multiplied by due[i]'s ratio. */
void lt_trust_scale(const lt_trust *t, size_t i, lt_vec_job *job);

/* The ratios of a batch, from the norms of its weights and of its gradients (to be unscaled), or of its
 * updates. */
lt_status lt_trust_ratios(lt_trust *t, lt_trust_batch batch, bool of_gradients);

#endif
