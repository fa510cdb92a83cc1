/* The numbers of an event that this rank owns: sums of regions, rules, numbers of the optimizer's own, and spectra of
 * factors, a group of them per event. */

#include "measure.h"

#include "optim/slots.h"
#include "tensor/tensor.h"

#include "lather/detail/spectrum.h"

#include <string.h>

static bool has_update(const lt_optim_stats *s, const lt_stat_param *p)
{
    return p->slot && p->param->has_grad && !s->skipped;
}

/* --- Norms --- */

static lt_status open_tensors(const lt_optim_stats *s, const lt_stat_param *p,
                              lt_host_tensor tensor[LT_STAT_TENSORS])
{
    const lt_tensor *value = p->param->value;
    const bool updated = has_update(s, p);
    const lt_tensor *from[LT_STAT_TENSORS] = {
        [LT_STAT_AFTER] = updated ? value : NULL,
        [LT_STAT_BEFORE] = updated ? p->before : value,
        [LT_STAT_LAST] = updated && p->last && lt_tensor_has_memory(p->last) ? p->last : NULL,
        [LT_STAT_GRAD] = updated ? p->param->grad : NULL,
    };
    for (int t = 0; t < LT_STAT_TENSORS; t++)
        LT_TRY(lt_host_tensor_open(&tensor[t], from[t]));
    return LT_OK;
}

static lt_status sum_regions(const lt_optim_stats *s, size_t param)
{
    const lt_stat_param *p = &s->param[param];
    lt_host_tensor tensor[LT_STAT_TENSORS] = {{.copy = NULL}};
    lt_status st = open_tensors(s, p, tensor);
    for (size_t i = p->region; !st && i < p->region + p->regions; i++) {
        const lt_optim_block *b = &s->region[i].block;
        if (s->region[i].mine)
            st = lt_stats_sum_region(tensor, b->offset, b->extent, lt_stats_sums(s, i),
                                     lt_stats_nonzero(s, param));
    }
    for (int t = 0; t < LT_STAT_TENSORS; t++)
        lt_host_tensor_close(&tensor[t]);
    return st;
}

/* --- Rules --- */

/* Describes the parameter's blocks after the step: their rules and grafting ratios. */
static void describe_blocks(const lt_optim_stats *s, const lt_stat_param *p)
{
    for (size_t k = 0; k < p->blocks; k++) {
        lt_optim_block b = {.graft_ratio = (double)NAN};
        double *number = lt_stats_block(s, p->region + k);
        if (!s->region[p->region + k].mine || !s->optim->ops->stat_block(s->optim, p->slot, k, &b))
            continue;
        number[0] = b.rule;
        number[1] = b.graft_ratio;
    }
}

static lt_status measure_rule(const lt_optim_stats *s, size_t param)
{
    const lt_stat_param *p = &s->param[param];
    double *number = lt_stats_param(s, param), own[LT_MAX_STATS];
    lt_optim_rule rule = LT_RULE_ELEMENTWISE;
    if (!s->region[p->region].mine)
        return LT_OK;
    if (p->blocks)
        rule = (lt_optim_rule)lt_stats_block(s, p->region)[0];
    for (int k = 0; k < LT_MAX_STATS; k++)
        own[k] = (double)NAN;
    if (s->optim->ops->stats)
        LT_TRY(s->optim->ops->stats(s->optim, p->slot, &rule, own));
    number[0] = rule;
    memcpy(number + 1, own, sizeof own);
    return LT_OK;
}

/* --- Factors --- */

static size_t block_index(const lt_optim_stats *s, size_t region)
{
    return region - s->param[s->region[region].param].region;
}

static void keep_spectrum(const lt_spectrum *spectrum, double *kept)
{
    kept[LT_FACTOR_MIN] = spectrum->min;
    kept[LT_FACTOR_MAX] = spectrum->max;
    kept[LT_FACTOR_CONDITION] = spectrum->condition;
    kept[LT_FACTOR_EFFECTIVE_RANK] = spectrum->effective_rank;
    kept[LT_FACTOR_BELOW_EPSILON] = spectrum->below_epsilon;
    kept[LT_FACTOR_OFF_DIAGONAL] = spectrum->off_diagonal;
    kept[LT_FACTOR_EPSILON] = spectrum->epsilon;
    memcpy(kept + LT_FACTOR_QUANTILE, spectrum->quantile, sizeof spectrum->quantile);
}

/* Measures the spectrum if its group's turn has come, and copies the numbers to the event's. */
static lt_status measure_factor(lt_optim_stats *s, size_t index, int64_t attempt)
{
    lt_stat_factor *f = &s->factor[index];
    const lt_stat_region *r = &s->region[f->region];
    const lt_stat_param *p = &s->param[r->param];
    const bool turn = attempt / s->every % s->groups == f->group && has_update(s, p);
    double *kept = s->kept + index * LT_FACTOR_STATS;
    lt_optim_factor out = {.numbers_only = !turn};
    lt_status st =
        s->optim->ops->stat_factor(s->optim, p->slot, block_index(s, f->region), f->dim, &out);
    lt_spectrum spectrum;
    if (!st && turn && out.matrix) {
        st = lt_spectrum_compute(&spectrum, out.matrix, out.basis, out.epsilon, out.is_relative);
        if (!st)
            keep_spectrum(&spectrum, kept);
        f->measured = st ? f->measured : attempt;
        st = st == LT_E_ARG ? LT_OK : st; /* not finite: the optimizer itself reports that */
    }
    lt_tensor_free(&out.temporary[0]);
    lt_tensor_free(&out.temporary[1]);
    kept[LT_FACTOR_ROOT_AGE] = out.age < 0 ? (double)NAN : (double)out.age;
    kept[LT_FACTOR_RESIDUAL] = out.residual;
    kept[LT_FACTOR_FAILURES] = (double)out.failures;
    kept[LT_FACTOR_SPECTRUM_AGE] = f->measured ? (double)(attempt - f->measured) : (double)NAN;
    memcpy(lt_stats_factor(s, index), kept, LT_FACTOR_STATS * sizeof *kept);
    return st;
}

static lt_status measure_factors(lt_optim_stats *s, int64_t attempt)
{
    for (size_t i = 0; i < s->factors; i++)
        if (s->region[s->factor[i].region].mine)
            LT_TRY(measure_factor(s, i, attempt));
    return LT_OK;
}

lt_status lt_stats_measure(lt_optim_stats *s, int64_t attempt)
{
    lt_scalars scalars;
    LT_TRY(lt_optim_read_scalars(s->optim, &scalars));
    s->skipped = !scalars.finite;
    s->grad_scale = s->skipped ? 0 : scalars.grad_scale;
    for (size_t i = 0; i < s->params; i++) {
        if (!s->param[i].mine)
            continue;
        LT_TRY(sum_regions(s, i));
        if (!has_update(s, &s->param[i]))
            continue;
        describe_blocks(s, &s->param[i]);
        LT_TRY(measure_rule(s, i));
    }
    return measure_factors(s, attempt);
}
