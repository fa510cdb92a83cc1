/* muP. Yang et al., "Tensor Programs V: Tuning Large Neural Networks via Zero-Shot Hyperparameter Transfer", 2022
 * (arXiv 2203.03466), tables 3 and 8; for optimizers with matrices Qiu et al. 2025 (arXiv 2512.05620). With n, m the
 * ratios of inputs and outputs to the base model's, 1 where they do not grow:
 *
 *                     input, table,    hidden         output         (growing: m; n and m; n)
 *                     bias, norm
 *     values          1                1/sqrt(n)      1/n            times the base model's deviation
 *     gradients g     1/m              1/m            1              follows from these
 *     updates wanted  1                1/n            1/n            so that a layer's output changes as in the base
 *
 * An optimizer returns the size of its update for gradients of size g; the scale of the learning rate is the update
 * wanted over it. Learning rate times weight decay is 1/width: Qiu et al. */

#include "lather/mup.h"

#include "base/alloc.h"
#include "optim/slots.h"

#include "lather/ext/elementary.h"
#include "lather/ext/vec.h"

#include <math.h>
#include <string.h>

typedef struct growth {
    double in, out;               /* ratios to the base */
    double outputs, base_outputs; /* 1 if they do not grow */
} growth;

static double ratio(int64_t now, int64_t base)
{
    return base ? (double)now / (double)base : 1;
}

/* Compares a parameter with the base model's. A vector, or a table, is a matrix with a constant number of inputs. */
static growth compare(const lt_param *now, const lt_param *base, const char *last_norm)
{
    const int64_t count = lt_shape_count(lt_param_shard_spec(now).logical),
                  base_count = lt_shape_count(lt_param_shard_spec(base).logical);
    const bool is_matrix = now->fan_in && base->fan_in;
    const bool is_last = last_norm && !strncmp(now->name, last_norm, strlen(last_norm));
    if (is_last) /* the scale of the last layer, as if it were its weights */
        return (growth){ratio(count, base_count), 1, 1, 1};
    const int64_t out = is_matrix ? now->fan_out : count,
                  base_out = is_matrix ? base->fan_out : base_count;
    const bool grows = out != base_out;
    return (growth){.in = is_matrix ? ratio(now->fan_in, base->fan_in) : 1,
                    .out = ratio(out, base_out),
                    .outputs = grows ? (double)out : 1,
                    .base_outputs = grows ? (double)base_out : 1};
}

static lt_status check_pair(const lt_param *now, const lt_param *base)
{
    if (!base)
        return lt_fail(LT_E_ARG, "mup: the base model has no parameter %s", now->name);
    const int ndim = lt_param_shard_spec(now).logical.ndim,
              base_ndim = lt_param_shard_spec(base).logical.ndim;
    return ndim == base_ndim
               ? LT_OK
               : lt_fail(LT_E_ARG, "mup: %s has %d dimensions, but %d in the base model", now->name,
                         ndim, base_ndim);
}

/* --- Initial values --- */

static double value_scale(const growth *g)
{
    const bool grows_in = g->in > 1 || g->in<1, grows_out = g->out> 1 || g->out < 1;
    return !grows_in ? 1 : grows_out ? 1 / sqrt(g->in) : 1 / g->in;
}

static lt_status read_first(const lt_tensor *t, double *value)
{
    const size_t bytes = lt_tensor_bytes(t);
    void *host = lt_alloc(1, bytes);
    if (!host)
        return LT_E_NOMEM;
    lt_status st = lt_tensor_read(t, host, bytes);
    if (!st)
        *value = lt_tensor_dtype(t) == LT_F64 ? *(double *)host : (double)*(float *)host;
    lt_free(host);
    return st;
}

/* Brings a parameter to the deviation of the base, times the rule's scale. Both first elements are one random number
 * times their deviations, or the constant of their layer. */
static lt_status scale_value(const lt_param *now, const lt_param *base, const char *last_norm)
{
    double first, base_first;
    const growth g = compare(now, base, last_norm);
    LT_TRY(read_first(now->value, &first));
    LT_TRY(read_first(base->value, &base_first));
    const double scale = value_scale(&g) * (fabs(first) > 0 ? base_first / first : 1);
    return scale > 1 || scale < 1 ? lt_vec_axpby(now->value, scale, now->value, 0, NULL) : LT_OK;
}

lt_status lt_mup_scale_values(const lt_params *params, const lt_params *base, const char *last_norm)
{
    for (size_t i = 0; i < params->count; i++) {
        const lt_param *p = params->item[i], *b = lt_params_find(base, p->name);
        if (p->role == LT_PARAM_STAT || p->role == LT_PARAM_COUNT)
            continue;
        if (p->spec && !lt_shard_spec_is_whole(p->spec))
            return lt_fail(LT_E_UNSUPPORTED, "mup: %s is a shard", p->name);
        LT_TRY(check_pair(p, b));
        LT_TRY(scale_value(p, b, last_norm));
    }
    return LT_OK;
}

/* --- Learning rates and weight decay --- */

static double update_of(const lt_update_size *u, double outputs)
{
    return u->scale * lt_f64_pow(outputs, 2 * u->power - 1) * lt_f64_pow(u->block, -u->power);
}

/* Returns the scale of weight decay. L2 decay is normalized with the gradient: it keeps its proportion to it. */
static double decay_scale(const growth *g, lt_decay_type type, double lr_scale)
{
    const double width = fmax(g->in, g->out);
    if (type == LT_DECAY_L2)
        return 1 / (g->out * value_scale(g));
    return type == LT_DECAY_INDEPENDENT ? 1 / width : 1 / (width * lr_scale);
}

static lt_status scale_slot(lt_optim *optim, lt_slot *slot, const lt_optim *base,
                            const lt_slot *of_base, const char *last_norm)
{
    const growth g = compare(slot->param, of_base->param, last_norm);
    const lt_update_size size = optim->ops->update_size(optim, slot),
                         base_size = base->ops->update_size(base, of_base);
    const double scale = update_of(&base_size, g.base_outputs) / update_of(&size, g.outputs) / g.in;
    if (!isfinite(scale) || !(scale > 0))
        return lt_fail(LT_E_ARG, "mup: %s: scale %g of the learning rate of %s", optim->ops->name,
                       scale, slot->param->name);
    slot->lr_scale *= scale;
    slot->weight_decay *= decay_scale(&g, size.decay, scale);
    return LT_OK;
}

static const lt_slot *find_slot(const lt_optim *o, const char *name)
{
    for (size_t i = 0; i < o->count; i++)
        if (!strcmp(o->slot[i].param->name, name))
            return &o->slot[i];
    return NULL;
}

lt_status lt_mup_scale_optim(lt_optim *optim, const lt_optim *base, const char *last_norm)
{
    if (!optim->ops->update_size)
        return lt_fail(LT_E_UNSUPPORTED, "mup: no rule for the learning rate of %s",
                       optim->ops->name);
    if (optim->cautious)
        return lt_fail(LT_E_ARG,
                       "mup: %s: cautious updates have taken its weight decay: start them after",
                       optim->ops->name);
    for (size_t i = 0; i < optim->count; i++) {
        lt_slot *slot = &optim->slot[i];
        const lt_slot *of_base = find_slot(base, slot->param->name);
        LT_TRY(check_pair(slot->param, of_base ? of_base->param : NULL));
        LT_TRY(scale_slot(optim, slot, base, of_base, last_norm));
    }
    return LT_OK;
}
