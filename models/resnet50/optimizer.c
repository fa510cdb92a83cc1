/* The optimizer and the schedule that the arguments describe. */

#include "session.h"

#include "lather/ext/fail.h"
#include "lather/shampoo.h"

#include <stdlib.h>
#include <string.h>

static lt_decay_scope scope(const arguments *a)
{
    return a->norm_weight_decay ? LT_DECAY_ALL : LT_DECAY_WEIGHTS;
}

static lt_status open_sgd(session *s)
{
    const arguments *a = &s->args;
    lt_sgd_config c = {.momentum = a->momentum,
                       .dampening = a->dampening,
                       .nesterov = a->nesterov && a->momentum > 0,
                       .weight_decay = a->weight_decay,
                       .decay_scope = scope(a)};
    return lt_optim_sgd(&s->optim, &s->params, &c);
}

static lt_status open_adagrad(session *s)
{
    const arguments *a = &s->args;
    lt_adagrad_config c = {
        .eps = a->epsilon, .weight_decay = a->weight_decay, .decay_scope = scope(a)};
    return lt_optim_adagrad(&s->optim, &s->params, &c);
}

static lt_status open_adam(session *s)
{
    const arguments *a = &s->args;
    lt_adam_config c = {.beta1 = a->beta1,
                        .beta2 = a->beta2,
                        .eps = a->epsilon,
                        .weight_decay = a->weight_decay,
                        .decoupled = a->optim == OPTIM_ADAMW,
                        .decay_scope = scope(a)};
    return lt_optim_adam(&s->optim, &s->params, &c);
}

/* "0.5,0" into numbers >= 0; how many, or -1 if it is something else. */
static int parse_powers(const char *text, double value[LT_MAX_DIMS])
{
    for (int count = 0; count < LT_MAX_DIMS;) {
        char *end;
        value[count] = strtod(text, &end);
        if (end == text || !(value[count] >= 0) || (*end && *end != ','))
            return -1;
        count++;
        if (!*end)
            return count;
        text = end + 1;
    }
    return -1;
}

/* "0.5": one power for all factors; "2:0.5,0": those of blocks with two dimensions. */
static lt_status set_exponents(lt_exponents *e, const char *text)
{
    double value[LT_MAX_DIMS];
    const char *colon = strchr(text, ':');
    int order = colon ? atoi(text) : 1;
    if (order < 1 || order > LT_MAX_DIMS || parse_powers(colon ? colon + 1 : text, value) != order)
        return lt_fail(LT_E_ARG, "--inverse-exponent: '%s' is neither E nor ORDER:E,...", text);
    for (int o = order; o <= (colon ? order : LT_MAX_DIMS); o++)
        for (int d = 0; d < o; d++) {
            e->value[o][d] = value[colon ? d : 0];
            e->set[o][d] = true;
        }
    return LT_OK;
}

static lt_status open_shampoo(session *s)
{
    const arguments *a = &s->args;
    lt_shampoo_config c = LT_SHAMPOO_DEFAULTS;
    c.beta1 = a->beta1;
    c.beta2 = a->beta2;
    c.beta3 = a->beta3;
    c.epsilon = a->epsilon;
    c.momentum = a->momentum;
    c.dampening = a->dampening;
    c.nesterov = a->nesterov && a->momentum > 0;
    c.weight_decay = a->weight_decay;
    c.decay_type = (lt_decay_type)a->weight_decay_type;
    c.decay_scope = scope(a);
    c.peak_lr = a->peak_lr > 0 ? a->peak_lr : a->lr;
    c.max_preconditioner_dim = a->max_preconditioner_dim;
    c.precondition_frequency = a->precondition_frequency;
    c.start_preconditioning_step = a->start_preconditioning_step;
    c.use_bias_correction = a->use_bias_correction;
    c.grafting = (lt_grafting)a->grafting;
    c.grafting_beta2 = a->grafting_beta2;
    c.grafting_epsilon = a->grafting_epsilon;
    c.preconditioner = (lt_preconditioner)a->preconditioner;
    c.epsilon_rule = (lt_epsilon_rule)a->epsilon_rule;
    c.rank_rtol = a->rank_rtol;
    c.rank_atol = a->rank_atol;
    c.target_dimensionality = (int)a->target_dimensionality;
    c.trace_scaling = a->trace_scaling;
    c.drop_weighting = a->drop_weighting;
    c.merge_order = (lt_merge_order)a->merge_order;
    c.tolerated_failures = (int)a->tolerated_failures;
    for (size_t i = 0; i < a->inverse_exponent.count; i++)
        LT_TRY(set_exponents(&c.inverse_exponent, a->inverse_exponent.item[i]));
    return lt_optim_shampoo(&s->optim, &s->params, &c);
}

lt_status session_open_optimizer(session *s)
{
    switch (s->args.optim) {
    case OPTIM_SGD:
        return open_sgd(s);
    case OPTIM_ADAGRAD:
        return open_adagrad(s);
    case OPTIM_SHAMPOO:
        return open_shampoo(s);
    default:
        return open_adam(s);
    }
}

static lt_status parse_milestones(const lt_option_list *list, lt_schedule *schedule)
{
    if (list->count > LT_MAX_MILESTONES)
        return lt_fail(LT_E_ARG, "--milestone: given %zu times, at most %d", list->count,
                       LT_MAX_MILESTONES);
    for (size_t i = 0; i < list->count; i++) {
        char *end;
        schedule->milestone[i] = strtod(list->item[i], &end);
        if (*end || end == list->item[i])
            return lt_fail(LT_E_ARG, "--milestone: '%s' is no number", list->item[i]);
    }
    schedule->milestones = (int)list->count;
    return LT_OK;
}

static double choose_epochs(const arguments *a, int64_t per_epoch)
{
    const double imagenet = 90;
    if (a->epochs > 0)
        return a->epochs;
    return a->max_steps ? (double)a->max_steps / (double)per_epoch : imagenet;
}

lt_status session_open_schedule(session *s)
{
    const arguments *a = &s->args;
    int64_t per_epoch = s->batches_per_epoch / a->grad_accum;
    double epochs = choose_epochs(a, per_epoch);
    s->schedule = (lt_schedule){
        .kind = (lt_schedule_kind)a->sched,
        .lr = a->lr,
        .min_lr = a->min_lr,
        .warmup_epochs = a->warmup_epochs,
        .warmup_lr = a->warmup_lr,
        .epochs = epochs,
        .steps_per_epoch = per_epoch,
        .gamma = a->gamma,
        .step_epochs = a->step_epochs,
        .power = a->power,
    };
    LT_TRY(parse_milestones(&a->milestone, &s->schedule));
    s->total_steps = (int64_t)(epochs * (double)per_epoch + 0.5);
    if (a->max_steps && a->max_steps < s->total_steps)
        s->total_steps = a->max_steps;
    return lt_schedule_check(&s->schedule);
}
