/* Weight averaging (schedule-free, primal, tail, EMA-Nesterov): Defazio et al., "The Road Less Scheduled", NeurIPS 2024
 * (arXiv 2405.15682), and "Generalized Primal Averaging" (arXiv 2512.17131); the formulas are in
 * lather/averaging.h.
 *
 * Invariants:
 * 1. y is a function of x and z, always computed by the same kernel. Checkpoints store x and z, so
 *    neither a resume nor an evaluation changes a later bit.
 * 2. During an update the parameters hold z (EMA-Nesterov: y): the optimizer needs no knowledge of the averaging,
 *    whatever its state and its sharding.
 * 3. While the parameters hold x nothing is updated; while they hold y nothing is saved. */

#include "averaging.h"

#include "base/alloc.h"
#include "optim/sharding/shard.h"
#include "optim/slots.h"
#include "tensor/tensor.h"

#include "lather/ext/elementary.h"

#include <inttypes.h>
#include <math.h>

struct lt_averaging {
    lt_averaging_config config;
    lt_param **param;   /* borrowed */
    lt_tensor **x, **z; /* averages x and iterates z (EMA-Nesterov: m), one per parameter */
    double *decay;      /* lr_scale * weight_decay per parameter, with decay_of_y */
    lt_optim_item *item;
    lt_vec_job *job;
    size_t count;
    /* including and excluding this step: sum of the iterates' weights, EMA-Nesterov: largest lr; coefficient of z in this
     * step's x, EMA-Nesterov: of m in y */
    double sum, sum_before, weight, weight_before;
    bool is_eval;
};

/* --- Life --- */

static lt_status check_decay_of_y(const lt_optim *o, const lt_averaging_config *c)
{
    if (c->decay_of_y && c->kind > LT_AVERAGING_PRIMAL)
        return lt_fail(LT_E_ARG, "%s: decay_of_y needs schedule-free or primal averaging",
                       o->ops->name);
    if (c->decay_of_y && !o->ops->decay_is_apart)
        return lt_fail(LT_E_UNSUPPORTED,
                       "%s: decay_of_y needs adamw, or sgd without momentum, whose weight decay "
                       "is separate from the update",
                       o->ops->name);
    if (c->decay_of_y && o->cautious)
        return lt_fail(LT_E_ARG,
                       "%s: decay_of_y contradicts cautious_mask and cautious_weight_decay, which "
                       "decay z",
                       o->ops->name);
    return LT_OK;
}

static lt_status check_lookahead(const char *name, const lt_averaging_config *c)
{
    if (!(c->lookahead >= 0 && isfinite(c->lookahead)))
        return lt_fail(LT_E_ARG, "%s: lookahead %g is not a number >= 0", name, c->lookahead);
    if (!(c->lookahead_decay >= 0 && c->lookahead_decay < 1))
        return lt_fail(LT_E_ARG, "%s: lookahead_decay %g is not in [0,1)", name,
                       c->lookahead_decay);
    if (c->lookahead_start < 1)
        return lt_fail(LT_E_ARG, "%s: lookahead_start %" PRId64 " is not >= 1", name,
                       c->lookahead_start);
    return !c->lookahead_end || c->lookahead_end > c->lookahead_start
               ? LT_OK
               : lt_fail(LT_E_ARG,
                         "%s: lookahead_end %" PRId64 " is not above lookahead_start %" PRId64,
                         name, c->lookahead_end, c->lookahead_start);
}

static lt_status check_averaging(const lt_optim *o, const lt_averaging_config *c)
{
    const char *name = o->ops->name;
    if (o->averaging || o->attempt)
        return lt_fail(LT_E_ARG, "%s: weight averaging must be enabled once, before the first step",
                       name);
    if (c->kind < LT_AVERAGING_SCHEDULE_FREE || c->kind > LT_AVERAGING_EMA_NESTEROV)
        return lt_fail(LT_E_ARG, "%s: invalid weight averaging kind %d", name, (int)c->kind);
    if (!(c->train_interp_coeff > 0 && c->train_interp_coeff <= 1))
        return lt_fail(LT_E_ARG, "%s: train_interp_coeff %g is not in (0,1]", name,
                       c->train_interp_coeff);
    if (!(c->eval_interp_coeff >= 0 && c->eval_interp_coeff < 1))
        return lt_fail(LT_E_ARG, "%s: eval_interp_coeff %g is not in [0,1)", name,
                       c->eval_interp_coeff);
    if (!(c->eval_coeff_lr_power >= 0 && isfinite(c->eval_coeff_lr_power)))
        return lt_fail(LT_E_ARG, "%s: eval_coeff_lr_power %g is not a number >= 0", name,
                       c->eval_coeff_lr_power);
    if (c->tail_start < 1)
        return lt_fail(LT_E_ARG, "%s: tail_start %" PRId64 " is not >= 1", name, c->tail_start);
    LT_TRY(check_lookahead(name, c));
    LT_TRY(check_decay_of_y(o, c));
    if (o->shard && o->shard->values)
        return lt_fail(LT_E_UNSUPPORTED, "%s: weight averaging does not support sharded parameters",
                       name);
    LT_TRY(lt_optim_require_kernel(o, o->device->backend->lerp != NULL, "lerp"));
    return lt_optim_require_kernel(o, o->device->backend->vec != NULL, "vec");
}

static bool looks_ahead(const struct lt_averaging *a)
{
    return a->config.kind == LT_AVERAGING_EMA_NESTEROV;
}

static lt_status make_iterates(struct lt_averaging *a, lt_param *param)
{
    const size_t i = a->count++;
    a->param[i] = param;
    LT_TRY(lt_tensor_new_like(&a->x[i], param->value, lt_tensor_dtype(param->value)));
    LT_TRY(lt_tensor_new_like(&a->z[i], param->value, lt_tensor_dtype(param->value)));
    LT_TRY(lt_tensor_copy(a->x[i], param->value));
    return looks_ahead(a) ? LT_OK : lt_tensor_copy(a->z[i], param->value);
}

static lt_status make_all_iterates(struct lt_averaging *a, const lt_params *params)
{
    LT_TRY(LT_ALLOC(&a->param, params->count));
    LT_TRY(LT_ALLOC(&a->x, params->count));
    LT_TRY(LT_ALLOC(&a->z, params->count));
    LT_TRY(LT_ALLOC(&a->item, params->count));
    LT_TRY(LT_ALLOC(&a->job, params->count));
    LT_TRY(LT_ALLOC(&a->decay, params->count));
    for (size_t i = 0; i < params->count; i++)
        if (lt_param_is_trained(params->item[i]))
            LT_TRY(make_iterates(a, params->item[i]));
    return LT_OK;
}

void lt_averaging_free(lt_optim *o)
{
    struct lt_averaging *a = o->averaging;
    if (!a)
        return;
    for (size_t i = 0; i < a->count; i++) {
        lt_tensor_free(&a->x[i]);
        lt_tensor_free(&a->z[i]);
    }
    lt_free(a->decay);
    lt_free(a->job);
    lt_free(a->item);
    lt_free(a->z);
    lt_free(a->x);
    lt_free(a->param);
    lt_free(a);
    o->averaging = NULL;
}

size_t lt_averaging_bytes(const lt_optim *o)
{
    size_t bytes = 0;
    for (size_t i = 0; o->averaging && i < o->averaging->count; i++)
        bytes += lt_tensor_bytes(o->averaging->x[i]) + lt_tensor_bytes(o->averaging->z[i]);
    return bytes;
}

/* --- A step --- */

bool lt_averaging_has_fixed_weight(const lt_optim *o)
{
    return !o->averaging || o->averaging->config.kind == LT_AVERAGING_PRIMAL;
}

/* Sets the coefficient of m in the y of the next step. */
static void compute_lookahead(struct lt_averaging *a, const lt_step *step)
{
    const lt_averaging_config *c = &a->config;
    const int64_t next = step->attempt + 1;
    const bool on = next >= c->lookahead_start && (!c->lookahead_end || next < c->lookahead_end);
    a->sum = fmax(a->sum, step->lr);
    a->weight = on && a->sum > 0 ? c->lookahead * step->lr / a->sum : 0;
}

/* Returns the weight of a step's iterate in a mean. */
static double weight_of_iterate(const lt_averaging_config *c, const lt_step *step)
{
    if (c->kind == LT_AVERAGING_TAIL)
        return step->attempt >= c->tail_start;
    return lt_f64_pow(step->lr, c->eval_coeff_lr_power);
}

lt_status lt_averaging_compute_weight(lt_optim *o, const lt_step *step)
{
    struct lt_averaging *a = o->averaging;
    if (!a)
        return LT_OK;
    if (a->is_eval)
        return lt_fail(LT_E_ARG,
                       "%s: step while the parameters hold the evaluation weights: call "
                       "lt_optim_train() first",
                       o->ops->name);
    a->sum_before = a->sum;
    a->weight_before = a->weight;
    if (looks_ahead(a)) {
        compute_lookahead(a, step);
        return LT_OK;
    }
    const double weight = weight_of_iterate(&a->config, step);
    a->sum += weight;
    a->weight = a->config.kind == LT_AVERAGING_PRIMAL ? 1 - a->config.eval_interp_coeff
                : a->sum > 0                          ? weight / a->sum
                                                      : 1; /* x = z before the first weight */
    return LT_OK;
}

void lt_averaging_undo_weight(lt_optim *o)
{
    struct lt_averaging *a = o->averaging;
    if (!a)
        return;
    a->sum = a->sum_before;
    a->weight = a->weight_before;
}

lt_status lt_averaging_begin_update(lt_optim *o)
{
    const struct lt_averaging *a = o->averaging;
    for (size_t i = 0; a && !looks_ahead(a) && i < a->count; i++)
        if (a->param[i]->has_grad)
            LT_TRY(lt_tensor_copy(a->param[i]->value, a->z[i]));
    return LT_OK;
}

enum { VALUES, X, Z };

static lt_tensor *tensor_of(const struct lt_averaging *a, int which, size_t i)
{
    return which == VALUES ? a->param[i]->value : which == X ? a->x[i] : a->z[i];
}

/* y = alpha from + beta y: of all parameters, or of those with a gradient; scalars: NULL, or those of a step, which may
 * be skipped. */
static lt_status combine(const lt_optim *o, int y, double alpha, int from, double beta, bool all,
                         const lt_scalars *scalars)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(o, &ctx);
    const struct lt_averaging *a = o->averaging;
    size_t count = 0;
    for (size_t i = 0; i < a->count; i++) {
        if (!all && !a->param[i]->has_grad)
            continue;
        lt_tensor_bump_version(tensor_of(a, y, i));
        a->job[count++] = (lt_vec_job){.op = LT_VEC_AXPBY,
                                       .alpha = alpha,
                                       .beta = beta,
                                       .a = lt_tensor_view(tensor_of(a, from, i)),
                                       .y = lt_tensor_view(tensor_of(a, y, i))};
    }
    return count ? be->vec(ctx, a->job, count, scalars) : LT_OK;
}

/* Replaces the values z by y: for all parameters, or for those with a gradient. */
static lt_status replace_z_by_y(const lt_optim *o, bool all)
{
    const double mu = o->averaging->config.train_interp_coeff;
    return mu > 0 ? combine(o, VALUES, mu, X, 1 - mu, all, NULL) : LT_OK;
}

lt_status lt_optim_start_averaging(lt_optim *o, const lt_params *params,
                                   const lt_averaging_config *config)
{
    LT_TRY(check_averaging(o, config));
    LT_TRY(LT_ALLOC(&o->averaging, 1));
    o->averaging->config = *config;
    if (config->kind == LT_AVERAGING_TAIL)
        o->averaging->config.train_interp_coeff = 0;
    lt_status st = make_all_iterates(o->averaging, params);
    if (!st && !looks_ahead(o->averaging))
        st =
            replace_z_by_y(o, true); /* invariant 1: not x, which mu_y x + (1 - mu_y) x may round */
    for (size_t i = 0; i < o->count && config->decay_of_y && !st; i++) {
        o->averaging->decay[i] = o->slot[i].lr_scale * o->slot[i].weight_decay;
        o->slot[i].weight_decay = 0;
    }
    if (st)
        lt_averaging_free(o);
    return st;
}

/* Adds the coefficient times m to the values x. */
static lt_status add_lookahead(const lt_optim *o, const lt_scalars *scalars)
{
    const double weight = o->averaging->weight;
    return weight > 0 ? combine(o, VALUES, weight, Z, 1, true, scalars) : LT_OK;
}

/* Updates m and x by the change from x to the values, unless the step is skipped, and switches these to y. */
static lt_status look_ahead(const lt_optim *o)
{
    const double gamma = o->averaging->config.lookahead_decay;
    LT_TRY(combine(o, X, 1, VALUES, -1, false, o->scalars)); /* the change */
    LT_TRY(combine(o, Z, 1 - gamma, X, gamma, false, o->scalars));
    LT_TRY(combine(o, X, 1, VALUES, 0, false, o->scalars));
    LT_TRY(combine(o, VALUES, 1, X, 0, true, o->scalars)); /* without a gradient: from y */
    return add_lookahead(o, o->scalars);
}

/* Decays the values z by share * iterate, unless the step is skipped; iterate: x or z before the step. */
static lt_status decay_iterates(const lt_optim *o, double share, lt_tensor *const *iterate)
{
    const struct lt_averaging *a = o->averaging;
    size_t count = 0;
    for (size_t i = 0; i < a->count; i++)
        if (a->param[i]->has_grad && a->decay[i] > 0 && share > 0)
            a->job[count++] = (lt_vec_job){.alpha = -share * a->decay[i],
                                           .beta = 1,
                                           .factor.lr = true,
                                           .a = lt_tensor_view(iterate[i]),
                                           .y = lt_tensor_view(a->param[i]->value)};
    return lt_optim_run_vec_jobs(o, a->job, count);
}

/* Moves x towards z, unless the step is skipped. */
static lt_status move_average_to_iterate(lt_optim *o)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(o, &ctx);
    const struct lt_averaging *a = o->averaging;
    size_t count = 0;
    for (size_t i = 0; i < a->count; i++)
        if (a->param[i]->has_grad)
            a->item[count++] = (lt_optim_item){.value = lt_tensor_view(a->x[i]),
                                               .state = {lt_tensor_view(a->z[i])}};
    return be->lerp(ctx, a->weight, a->item, count, o->scalars);
}

lt_status lt_averaging_end_update(lt_optim *o)
{
    const struct lt_averaging *a = o->averaging;
    if (!a)
        return LT_OK;
    if (looks_ahead(a))
        return look_ahead(o);
    LT_TRY(decay_iterates(o, a->config.train_interp_coeff, a->x));
    LT_TRY(decay_iterates(o, 1 - a->config.train_interp_coeff, a->z));
    for (size_t i = 0; i < a->count; i++)
        if (a->param[i]->has_grad)
            LT_TRY(lt_tensor_copy(a->z[i], a->param[i]->value));
    LT_TRY(move_average_to_iterate(o));
    return replace_z_by_y(o, false);
}

/* --- Evaluation --- */

lt_status lt_optim_eval(lt_optim *o)
{
    struct lt_averaging *a = o->averaging;
    if (!a || a->is_eval)
        return LT_OK;
    for (size_t i = 0; i < a->count; i++)
        LT_TRY(lt_tensor_copy(a->param[i]->value, a->x[i]));
    a->is_eval = true;
    return LT_OK;
}

lt_status lt_optim_train(lt_optim *o)
{
    struct lt_averaging *a = o->averaging;
    if (!a || !a->is_eval)
        return LT_OK;
    for (size_t i = 0; i < a->count; i++) {
        LT_TRY(lt_tensor_copy(a->x[i], a->param[i]->value)); /* a checkpoint may have been loaded */
        if (!looks_ahead(a))
            LT_TRY(lt_tensor_copy(a->param[i]->value, a->z[i]));
    }
    a->is_eval = false;
    return looks_ahead(a) ? add_lookahead(o, NULL) : replace_z_by_y(o, true);
}

bool lt_optim_is_eval(const lt_optim *o)
{
    return !o->averaging || o->averaging->is_eval;
}

bool lt_optim_is_averaged(const lt_optim *o)
{
    return o->averaging;
}

/* --- Checkpoints --- */

lt_status lt_averaging_visit(lt_optim *o, const lt_state_visitor *visitor)
{
    struct lt_averaging *a = o->averaging;
    if (!a)
        return LT_OK;
    if (!a->is_eval)
        return lt_fail(LT_E_ARG,
                       "%s: save while the parameters hold the training weights: call "
                       "lt_optim_eval() first",
                       o->ops->name);
    LT_TRY(lt_optim_visit_double(visitor, "lr_sum_bits", NULL, &a->sum));
    return looks_ahead(a) ? lt_optim_visit_double(visitor, "lookahead_bits", NULL, &a->weight)
                          : LT_OK;
}

lt_status lt_optim_visit_iterates(lt_optim *o, lt_state_visitor *visitor)
{
    const struct lt_averaging *a = o->averaging;
    for (size_t i = 0; a && i < a->count; i++) {
        lt_state_entry entry = lt_state_of(a->param[i], "weight_buffer");
        entry.tensor = a->z[i];
        LT_TRY(visitor->entry(visitor->context, &entry));
    }
    return LT_OK;
}
