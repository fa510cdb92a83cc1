/* The numbers of an event: sums of regions, rules, numbers of the optimizer's own, and spectra of factors, a group of
 * them per event. Each rank computes those that it owns, then all are summed over ranks. */

#include "optim/sharding/shard.h"
#include "optim/slots.h"
#include "stats.h"
#include "tensor/tensor.h"

#include "lather/detail/backend.h"
#include "lather/profile.h"

#include <string.h>

/* --- Copies of the weights --- */

static lt_status copy_value(lt_tensor **to, const lt_tensor *value)
{
    if (!*to)
        LT_TRY(lt_tensor_new_like(to, value, lt_tensor_dtype(value)));
    LT_TRY(lt_tensor_allocate_raw(*to));
    const lt_view from = lt_tensor_view(value), copy = lt_tensor_view(*to);
    const lt_device *device = lt_tensor_device(value);
    if (memcmp(from.stride, copy.stride, sizeof from.stride) != 0)
        return lt_tensor_copy(*to, value);
    return device->backend->copy(device->ctx, copy.data, from.data, lt_tensor_bytes(value),
                                 LT_COPY_WITHIN);
}

lt_status lt_optim_stats_before(lt_optim_stats *s, int64_t attempt)
{
    const bool due = lt_optim_stats_is_due(s, attempt);
    const bool next = lt_optim_stats_is_due(s, attempt + 1) && !due;
    if (!due && !next)
        return LT_OK;
    const int64_t span = lt_profile_begin();
    for (size_t i = 0; i < s->params; i++) {
        lt_stat_param *p = &s->param[i];
        if (p->slot && p->mine)
            LT_TRY(copy_value(due ? &p->before : &p->last, p->param->value));
    }
    if (due)
        s->optim->keeps_grads = true;
    lt_profile_end(span, LT_PROFILE_PROGRAM, "optim stats: copy", 0);
    return LT_OK;
}

/* Frees the memory of the copies; if every step is measured, this one's is the next one's last. */
static void release_copies(lt_optim_stats *s)
{
    for (size_t i = 0; i < s->params; i++) {
        lt_stat_param *p = &s->param[i];
        lt_tensor *before = p->before;
        p->before = p->last;
        p->last = before;
        for (int k = 0; k < 2 && s->every > 1; k++)
            if (k ? p->before : p->last)
                lt_tensor_free_memory(k ? p->before : p->last);
    }
}

/* --- Norms --- */

static lt_status open_tensors(const lt_optim_stats *s, const lt_stat_param *p,
                              lt_host_tensor tensor[LT_STAT_TENSORS])
{
    const lt_tensor *value = p->param->value;
    const bool updated = lt_stats_is_updated(s, p);
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
            st = lt_stats_sum_region(tensor, b->offset, b->extent, s->of_region[i].sum,
                                     s->of_row + p->row);
    }
    for (int t = 0; t < LT_STAT_TENSORS; t++)
        lt_host_tensor_close(&tensor[t]);
    return st;
}

/* --- Rules --- */

static lt_status check_rule(const lt_optim_stats *s, const lt_stat_param *p, lt_optim_rule rule)
{
    return (unsigned)rule < LT_RULES ? LT_OK
                                     : lt_fail(LT_E_ARG, "%s: rule %d of %s is no lt_optim_rule",
                                               s->optim->ops->name, (int)rule, p->param->name);
}

/* Describes the parameter's blocks after the step: their rules and grafting ratios. */
static lt_status describe_blocks(const lt_optim_stats *s, const lt_stat_param *p)
{
    for (size_t k = 0; p->has_blocks && k < p->regions; k++) {
        lt_optim_block b = {.graft_ratio = (double)NAN};
        lt_region_numbers *number = &s->of_region[p->region + k];
        if (!s->region[p->region + k].mine || !s->optim->ops->stat_block(s->optim, p->slot, k, &b))
            continue;
        LT_TRY(check_rule(s, p, b.rule));
        number->rule = b.rule;
        number->graft_ratio = b.graft_ratio;
    }
    return LT_OK;
}

static lt_status measure_rule(const lt_optim_stats *s, size_t param)
{
    const lt_stat_param *p = &s->param[param];
    lt_param_numbers *number = &s->of_param[param];
    lt_optim_rule rule = LT_RULE_ELEMENTWISE;
    if (!s->region[p->region].mine)
        return LT_OK;
    if (p->has_blocks)
        rule = (lt_optim_rule)s->of_region[p->region].rule;
    for (int k = 0; k < LT_MAX_STATS; k++)
        number->own[k] = (double)NAN;
    if (s->optim->ops->stats)
        LT_TRY(s->optim->ops->stats(s->optim, p->slot, &rule, number->own));
    number->rule = rule;
    return check_rule(s, p, rule);
}

/* --- Factors --- */

/* Writes the factor's last spectrum to the event's numbers; NaN without one. */
static void put_spectrum(const lt_stat_factor *f, int64_t attempt, double *number)
{
    const lt_spectrum *spectrum = &f->spectrum;
    for (int k = 0; k < LT_FACTOR_STATS; k++)
        number[k] = (double)NAN;
    if (!f->measured)
        return;
    number[LT_FACTOR_MIN] = spectrum->min;
    number[LT_FACTOR_MAX] = spectrum->max;
    number[LT_FACTOR_CONDITION] = spectrum->condition;
    number[LT_FACTOR_EFFECTIVE_RANK] = spectrum->effective_rank;
    number[LT_FACTOR_BELOW_EPSILON] = spectrum->below_epsilon;
    number[LT_FACTOR_OFF_DIAGONAL] = spectrum->off_diagonal;
    number[LT_FACTOR_EPSILON] = spectrum->epsilon;
    number[LT_FACTOR_SPECTRUM_AGE] = (double)(attempt - f->measured);
    memcpy(number + LT_FACTOR_QUANTILE, spectrum->quantile, sizeof spectrum->quantile);
}

/* Fails unless a matrix that the optimizer gave has the size of the factor; NULL is one that it does not have. */
static lt_status check_size(const lt_optim_stats *s, const lt_stat_factor *f, const lt_tensor *m)
{
    char shape[LT_SHAPE_TEXT];
    const lt_shape is = m ? lt_tensor_shape(m) : LT_SHAPE(f->n, f->n);
    return lt_shape_equal(is, LT_SHAPE(f->n, f->n))
               ? LT_OK
               : lt_fail(LT_E_SHAPE,
                         "%s: stat_factor: matrix %s of %s, dimension %d, whose size is %lld",
                         s->optim->ops->name, lt_shape_text(is, shape),
                         s->param[s->region[f->region].param].param->name, f->dim, (long long)f->n);
}

/* Measures the spectrum if its group's turn has come. */
static lt_status measure_factor(lt_optim_stats *s, size_t index, int64_t attempt)
{
    lt_stat_factor *f = &s->factor[index];
    const lt_stat_param *p = &s->param[s->region[f->region].param];
    const bool turn = attempt / s->every % s->groups == f->group && lt_stats_is_updated(s, p);
    double *number = s->of_factor[index];
    lt_optim_factor out = {.numbers_only = !turn};
    lt_status st =
        s->optim->ops->stat_factor(s->optim, p->slot, f->region - p->region, f->dim, &out);
    if (!st)
        st = check_size(s, f, out.matrix);
    if (!st)
        st = check_size(s, f, out.basis);
    if (!st && turn && out.matrix) {
        st = lt_spectrum_compute(&f->spectrum, out.matrix, out.basis, out.epsilon, out.is_relative);
        f->measured = st ? f->measured : attempt;
        st = st == LT_E_ARG ? LT_OK : st; /* not finite: the optimizer itself reports that */
    }
    lt_tensor_free(&out.temporary[0]);
    lt_tensor_free(&out.temporary[1]);
    put_spectrum(f, attempt, number);
    number[LT_FACTOR_ROOT_AGE] = out.age < 0 ? (double)NAN : (double)out.age;
    number[LT_FACTOR_RESIDUAL] = out.residual;
    number[LT_FACTOR_FAILURES] = (double)out.failures;
    return st;
}

static lt_status measure_factors(lt_optim_stats *s, int64_t attempt)
{
    for (size_t i = 0; i < s->factors; i++)
        if (s->region[s->factor[i].region].mine)
            LT_TRY(measure_factor(s, i, attempt));
    return LT_OK;
}

/* --- An event --- */

static lt_status measure(lt_optim_stats *s, int64_t attempt)
{
    lt_scalars scalars;
    LT_TRY(lt_optim_read_scalars(s->optim, &scalars));
    s->skipped = !scalars.finite;
    s->grad_scale = s->skipped ? 0 : scalars.grad_scale;
    for (size_t i = 0; i < s->params; i++) {
        if (!s->param[i].mine)
            continue;
        LT_TRY(sum_regions(s, i));
        if (!lt_stats_is_updated(s, &s->param[i]))
            continue;
        LT_TRY(describe_blocks(s, &s->param[i]));
        LT_TRY(measure_rule(s, i));
    }
    return measure_factors(s, attempt);
}

static lt_status sum_over_ranks(const lt_optim_stats *s)
{
    const lt_shard *shard = s->optim->shard;
    const size_t bytes = s->numbers * sizeof *s->number;
    lt_tensor *all = NULL;
    lt_request *request;
    if (!shard || shard->ranks < 2)
        return LT_OK;
    LT_TRY(lt_tensor_new(&all, s->optim->device, LT_F64, LT_SHAPE((int64_t)s->numbers)));
    lt_status st = lt_tensor_write(all, s->number, bytes);
    if (!st)
        st = lt_comm_allreduce_begin(shard->group, all, LT_REDUCE_SUM, &request);
    if (!st)
        st = lt_request_wait(&request);
    if (!st)
        st = lt_tensor_read(all, s->number, bytes);
    lt_tensor_free(&all);
    return st;
}

lt_status lt_optim_stats_after(lt_optim_stats *s, int64_t attempt)
{
    if (!lt_optim_stats_is_due(s, attempt))
        return LT_OK;
    const int64_t span = lt_profile_begin();
    memset(s->number, 0, s->numbers * sizeof *s->number);
    lt_status st = measure(s, attempt);
    s->optim->keeps_grads = false;
    lt_optim_end_owned_update(s->optim);
    release_copies(s);
    st = st ? st : sum_over_ranks(s);
    lt_profile_end(span, LT_PROFILE_PROGRAM, "optim stats: measure", 0);
    return st;
}
