/* What contradicts what in Shampoo's config; ranges are those of its fields. */

#include "optim/registry.h"
#include "optim/shampoo/shampoo.h"

#include <inttypes.h>
#include <math.h>

static lt_status check_exponents(const lt_shampoo_config *c)
{
    const lt_exponents *e = &c->inverse_exponent;
    for (int order = 0; order <= LT_MAX_DIMS; order++)
        for (int d = 0; d < LT_MAX_DIMS; d++)
            if (e->set[order][d] && !(e->value[order][d] >= 0 && isfinite(e->value[order][d])))
                return lt_fail(LT_E_ARG,
                               "shampoo: inverse_exponent %g of order %d, dimension %d is not in "
                               "[0,inf)",
                               e->value[order][d], order, d);
    return LT_OK;
}

/* With the eigenvalue correction a block has one exponent, that of its first dimension. */
static lt_status check_single_exponents(const lt_shampoo_config *c)
{
    const lt_exponents *e = &c->inverse_exponent;
    for (int order = 2; order <= LT_MAX_DIMS; order++)
        for (int d = 1; d < order; d++)
            if (e->set[order][d] && !(e->set[order][0] && e->value[order][d] == e->value[order][0]))
                return lt_fail(LT_E_ARG,
                               "shampoo: inverse_exponent of order %d differs between dimensions "
                               "0 and %d: with preconditioner eigenvalue_corrected a block has one",
                               order, d);
    return LT_OK;
}

static lt_status check_start(const lt_shampoo_config *c)
{
    if (c->start_preconditioning_step >= c->precondition_frequency)
        return LT_OK;
    return lt_fail(LT_E_ARG,
                   "shampoo: start_preconditioning_step %" PRId64 " is not in [%" PRId64
                   ",inf) (precondition_frequency and more; -1: just that)",
                   c->start_preconditioning_step, c->precondition_frequency);
}

static lt_status check_contradictions(const lt_shampoo_config *c)
{
    bool corrected = c->preconditioner == LT_PRECONDITIONER_CORRECTED;
    bool pseudo = c->epsilon_rule == LT_EPSILON_PSEUDO_INVERSE;
    bool by_lr = c->decay_type == LT_DECAY_CORRECTED || c->decay_type == LT_DECAY_INDEPENDENT;
    if (!(c->epsilon > 0) && !pseudo)
        return lt_fail(LT_E_ARG, "shampoo: epsilon 0 is not in (0,inf); only the pseudo-inverse "
                                 "works without");
    if (corrected)
        LT_TRY(check_single_exponents(c));
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
    LT_TRY(lt_optim_check(&lt_optim_family_shampoo, c));
    fill_defaults(c);
    LT_TRY(check_exponents(c));
    LT_TRY(check_start(c));
    LT_TRY(check_contradictions(c));
    return lt_root_check(c, 0);
}
