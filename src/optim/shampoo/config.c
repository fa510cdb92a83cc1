/* Ranges of Shampoo's config. */

#include "optim/shampoo/shampoo.h"

#include <math.h>

typedef struct range {
    const char *name;
    size_t offset; /* of a double in the config */
    double low, high;
    bool below_high; /* high itself is out */
} range;

#define FIELD(name) #name, offsetof(lt_shampoo_config, name)
static const range ranges[] = {
    {FIELD(beta1), 0, 1, true},
    {FIELD(beta2), 0, 1, false},
    {FIELD(beta3), 0, 1, true},
    {FIELD(epsilon), 0, HUGE_VAL, true},
    {FIELD(momentum), 0, 1, true},
    {FIELD(dampening), 0, 1, false},
    {FIELD(weight_decay), 0, HUGE_VAL, true},
    {FIELD(grafting_beta2), 0, 1, false},
    {FIELD(grafting_epsilon), 0, HUGE_VAL, true},
    {FIELD(rank_atol), 0, HUGE_VAL, true},
    {FIELD(trace_scaling), 0, HUGE_VAL, true},
};
#undef FIELD

static lt_status check_ranges(const lt_shampoo_config *c)
{
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        const range *r = &ranges[i];
        double value = *(const double *)(const void *)((const char *)c + r->offset);
        if (!(value >= r->low && (r->below_high ? value < r->high : value <= r->high)))
            return lt_fail(LT_E_ARG, "shampoo: %s %g is not in [%g,%g%c", r->name, value, r->low,
                           r->high, r->below_high ? ')' : ']');
    }
    return LT_OK;
}

static lt_status check_steps(const lt_shampoo_config *c)
{
    if (c->max_preconditioner_dim < 0)
        return lt_fail(LT_E_ARG, "shampoo: max_preconditioner_dim is below 1");
    if (c->precondition_frequency < 1)
        return lt_fail(LT_E_ARG, "shampoo: precondition_frequency is below 1");
    if (c->start_preconditioning_step < c->precondition_frequency)
        return lt_fail(LT_E_ARG,
                       "shampoo: start_preconditioning_step is below precondition_frequency");
    if (c->target_dimensionality < 0)
        return lt_fail(LT_E_ARG, "shampoo: target_dimensionality is below 1");
    if (c->tolerated_failures < 0)
        return lt_fail(LT_E_ARG, "shampoo: tolerated_failures is below 0");
    return LT_OK;
}

static lt_status check_exponents(const lt_exponents *e)
{
    for (int order = 0; order <= LT_MAX_DIMS; order++)
        for (int d = 0; d < LT_MAX_DIMS; d++)
            if (e->set[order][d] && !(e->value[order][d] >= 0 && isfinite(e->value[order][d])))
                return lt_fail(LT_E_ARG,
                               "shampoo: inverse_exponent %g of order %d, dimension %d is not a "
                               "number >= 0",
                               e->value[order][d], order, d);
    return LT_OK;
}

static void fill_defaults(lt_shampoo_config *c)
{
    static const double beta2[] = {
        [LT_GRAFTING_NONE] = 1,       [LT_GRAFTING_SGD] = 1,      [LT_GRAFTING_ADAGRAD] = 1,
        [LT_GRAFTING_RMSPROP] = 0.99, [LT_GRAFTING_ADAM] = 0.999,
    };
    if (c->beta3 < 0)
        c->beta3 = c->beta1;
    if (c->grafting_beta2 < 0)
        c->grafting_beta2 = beta2[c->grafting];
    if (c->start_preconditioning_step == -1)
        c->start_preconditioning_step = c->precondition_frequency;
}

lt_status lt_shampoo_check(lt_shampoo_config *c)
{
    bool by_lr = c->decay_type == LT_DECAY_CORRECTED || c->decay_type == LT_DECAY_INDEPENDENT;
    fill_defaults(c);
    LT_TRY(check_ranges(c));
    LT_TRY(check_steps(c));
    LT_TRY(check_exponents(&c->inverse_exponent));
    if (!(c->epsilon > 0) && c->epsilon_rule != LT_EPSILON_PSEUDO_INVERSE)
        return lt_fail(LT_E_ARG, "shampoo: epsilon is 0; only the pseudo-inverse works without");
    if (by_lr && !(c->peak_lr > 0 && isfinite(c->peak_lr)))
        return lt_fail(LT_E_ARG, "shampoo: peak_lr %g is not above 0", c->peak_lr);
    if (isnan(c->rank_rtol))
        return lt_fail(LT_E_ARG, "shampoo: rank_rtol is not a number");
    return LT_OK;
}
