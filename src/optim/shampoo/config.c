/* Ranges of Shampoo's config, and what contradicts what. */

#include "optim/shampoo/shampoo.h"

#include <inttypes.h>
#include <limits.h>
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
    {FIELD(solver_tolerance), 0, 1, true},
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

static lt_status check_counts(const lt_shampoo_config *c)
{
    const struct {
        const char *name;
        int64_t value, low, high;
        const char *besides; /* values outside that mean something */
    } counts[] = {
        {"max_preconditioner_dim", c->max_preconditioner_dim, LT_NO_LIMIT, INT64_MAX,
         "; 0: no limit"},
        {"precondition_frequency", c->precondition_frequency, 1, INT64_MAX, ""},
        {"start_preconditioning_step", c->start_preconditioning_step, c->precondition_frequency,
         INT64_MAX, " (precondition_frequency and more; -1: just that)"},
        {"target_dimensionality", c->target_dimensionality, LT_NO_LIMIT, LT_MAX_DIMS,
         "; 0: no merging"},
        {"tolerated_failures", c->tolerated_failures, 0, INT_MAX, ""},
        {"solver_iterations", c->solver_iterations, 0, 10000, "; 0: the solver's own"},
        {"solver_order", c->solver_order, c->solver_order ? 2 : 0, 6, "; 0: 3"},
        {"refresh_threads", c->refresh_threads, 0, 1024, "; 0: 1"},
    };
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (counts[i].value < counts[i].low || counts[i].value > counts[i].high)
            return lt_fail(
                LT_E_ARG, "shampoo: %s %" PRId64 " is not in [%" PRId64 ",%" PRId64 "]%s",
                counts[i].name, counts[i].value, counts[i].low, counts[i].high, counts[i].besides);
    return LT_OK;
}

static lt_status check_choices(const lt_shampoo_config *c)
{
    const struct {
        const char *name;
        unsigned value, last;
    } choices[] = {
        {"grafting", (unsigned)c->grafting, LT_GRAFTING_ADAM},
        {"decay_type", (unsigned)c->decay_type, LT_DECAY_INDEPENDENT},
        {"preconditioner", (unsigned)c->preconditioner, LT_PRECONDITIONER_KL_EIGENDECOMPOSED},
        {"epsilon_rule", (unsigned)c->epsilon_rule, LT_EPSILON_RELATIVE},
        {"merge_order", (unsigned)c->merge_order, LT_MERGE_FORWARD},
        {"on_failure", (unsigned)c->on_failure, LT_ON_FAILURE_DIAGONAL},
        {"root_solver", (unsigned)c->root_solver, LT_ROOT_RATIONAL},
        {"refresh_timing", (unsigned)c->refresh_timing, LT_REFRESH_ASYNC},
    };
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++)
        if (choices[i].value > choices[i].last)
            return lt_fail(LT_E_ARG, "shampoo: %s has no value %u; they are in [0,%u]",
                           choices[i].name, choices[i].value, choices[i].last);
    return LT_OK;
}

static lt_status check_exponents(const lt_exponents *e)
{
    for (int order = 0; order <= LT_MAX_DIMS; order++)
        for (int d = 0; d < LT_MAX_DIMS; d++)
            if (e->set[order][d] && !(e->value[order][d] >= 0 && isfinite(e->value[order][d])))
                return lt_fail(LT_E_ARG,
                               "shampoo: inverse_exponent %g of order %d, dimension %d is not in "
                               "[0,inf)",
                               e->value[order][d], order, d);
    return LT_OK;
}

static lt_status check_contradictions(const lt_shampoo_config *c)
{
    bool corrected = c->preconditioner == LT_PRECONDITIONER_CORRECTED;
    bool pseudo = c->epsilon_rule == LT_EPSILON_PSEUDO_INVERSE;
    bool by_lr = c->decay_type == LT_DECAY_CORRECTED || c->decay_type == LT_DECAY_INDEPENDENT;
    if (!(c->epsilon > 0) && !pseudo)
        return lt_fail(LT_E_ARG, "shampoo: epsilon 0 is not in (0,inf); only the pseudo-inverse "
                                 "works without");
    if (corrected && pseudo)
        return lt_fail(LT_E_ARG, "shampoo: epsilon_rule pseudo_inverse contradicts preconditioner "
                                 "eigenvalue_corrected, which takes no inverse of a factor");
    if (c->diagonal_vectors && !corrected && (pseudo || c->trace_scaling > 0))
        return lt_fail(LT_E_ARG,
                       "shampoo: diagonal_vectors contradicts %s: a diagonal is damped "
                       "by epsilon alone",
                       pseudo ? "epsilon_rule pseudo_inverse" : "trace_scaling");
    if (by_lr && !(c->peak_lr > 0 && isfinite(c->peak_lr)))
        return lt_fail(LT_E_ARG, "shampoo: peak_lr %g is not in (0,inf)", c->peak_lr);
    if (isnan(c->rank_rtol))
        return lt_fail(LT_E_ARG, "shampoo: rank_rtol is not a number");
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
    LT_TRY(check_choices(c));
    fill_defaults(c);
    LT_TRY(check_ranges(c));
    LT_TRY(check_counts(c));
    LT_TRY(check_exponents(&c->inverse_exponent));
    LT_TRY(check_contradictions(c));
    return lt_root_check(c, 0);
}
