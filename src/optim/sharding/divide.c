/* Sharding of an optimizer's state: assigns an owner to each part. Owners compute, then all gather: Shi et al., "A
 * Distributed Data-Parallel PyTorch Implementation of the Distributed Shampoo Optimizer", 2023 (arXiv 2309.06497),
 * section 4.1; for other optimizers Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion
 * Parameter Models", SC 2020, stage 1. */

#include "assign.h"
#include "base/alloc.h"
#include "dist/consensus.h"
#include "optim/low_precision/quantized_state.h"
#include "shard.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static int64_t part_cost(const lt_shard *s, const lt_part *part)
{
    const int64_t align = 64;
    switch (s->config.balance) {
    case LT_BALANCE_COST: /* in picoseconds */
        return (int64_t)(part->nanoseconds * 1000);
    case LT_BALANCE_MEMORY:
        return part->state_bytes;
    case LT_BALANCE_BYTES:
    case LT_BALANCE_POLYNOMIAL: /* computed by weigh_by_polynomial() */
        break;
    }
    int64_t bytes = part->elements * (int64_t)lt_dtype_size(s->config.dtype);
    return (bytes + align - 1) / align * align;
}

/* Sets the cost of each parameter's first part to the bytes of its value, gradient and state, and of its other
 * parts to 0: one rank owns all. Parts of a parameter are consecutive. */
static void set_costs_to_param_bytes(const lt_shard *s, int64_t *cost)
{
    const int64_t value_and_grad = 2 * (int64_t)sizeof(float);
    size_t first = 0;
    for (size_t i = 0; i < s->count; i++) {
        if (s->part[i].slot != s->part[first].slot)
            first = i;
        cost[i] = 0;
        cost[first] += s->part[i].state_bytes + value_and_grad * s->part[i].elements;
    }
}

static double evaluate_polynomial(const lt_balance_polynomial *p, const lt_shape *dims)
{
    double sum = 0;
    for (int d = 0; d < dims->ndim; d++) {
        double value = 0;
        for (int k = LT_BALANCE_COEFFICIENTS - 1; k >= 0; k--)
            value = value * (double)dims->dim[d] + p->coefficient[k];
        sum += fmax(p->least, value);
    }
    return sum;
}

/* Scales costs so that the most expensive part costs 2^40, as lt_assign() adds integers. */
static lt_status weigh_by_polynomial(const lt_shard *s, int64_t *cost)
{
    double most = 0;
    for (size_t i = 0; i < s->count; i++) {
        const double c = evaluate_polynomial(&s->config.polynomial, &s->part[i].dims);
        if (!(c >= 0 && c <= 1e300))
            return lt_fail(LT_E_ARG,
                           "balance polynomial: a part of parameter %s has cost %g, "
                           "which is negative or not finite",
                           s->part[i].slot->param->name, c);
        most = fmax(most, c);
    }
    for (size_t i = 0; i < s->count && most > 0; i++)
        cost[i] =
            llround(ldexp(evaluate_polynomial(&s->config.polynomial, &s->part[i].dims) / most, 40));
    return LT_OK;
}

static lt_status compute_part_costs(const lt_shard *s, int64_t *cost)
{
    if (s->config.balance == LT_BALANCE_POLYNOMIAL && !s->config.shard_params)
        return weigh_by_polynomial(s, cost);
    for (size_t i = 0; i < s->count; i++)
        cost[i] = part_cost(s, &s->part[i]);
    if (s->config.shard_params)
        set_costs_to_param_bytes(s, cost);
    return LT_OK;
}

/* Returns true for balances that follow the reference implementation: greedy only. */
static bool is_greedy(lt_balance balance)
{
    return balance == LT_BALANCE_BYTES || balance == LT_BALANCE_POLYNOMIAL;
}

static void set_part_owners(lt_shard *s, const int *owner)
{
    for (size_t i = 0; i < s->count; i++) {
        const bool joined = s->config.shard_params && i && s->part[i].slot == s->part[i - 1].slot;
        s->part[i].owner = joined ? s->part[i - 1].owner : owner[i];
    }
}

static lt_status choose_owners(lt_optim *o, lt_shard *s)
{
    int64_t *cost = lt_alloc(s->count, sizeof *cost);
    int *owner = lt_alloc(s->count, sizeof *owner);
    lt_status st = cost && owner ? LT_OK : LT_E_NOMEM;
    if (!st)
        st = compute_part_costs(s, cost);
    if (!st)
        st = lt_assign(cost, s->count, s->ranks, owner);
    if (!st && !is_greedy(s->config.balance))
        st = lt_assign_improve(cost, s->count, s->ranks, owner);
    if (!st && s->ops->prefer_local && !is_greedy(s->config.balance))
        st = s->ops->prefer_local(o, cost, owner);
    if (!st)
        set_part_owners(s, owner);
    lt_free(cost);
    lt_free(owner);
    return st;
}

/* Computes the offsets of the ranks' segments, and of the parts in them. */
static void compute_segment_offsets(lt_shard *s)
{
    for (size_t i = 0; i < s->count; i++)
        s->elements[s->part[i].owner] += s->part[i].elements;
    for (int r = 1; r < s->ranks; r++)
        s->begin[r] = s->begin[r - 1] + s->elements[r - 1] + 1;
    for (int r = 0; r < s->ranks; r++)
        s->elements[r] = 0;
    for (size_t i = 0; i < s->count; i++) {
        lt_part *p = &s->part[i];
        p->at = s->begin[p->owner] + s->elements[p->owner];
        s->elements[p->owner] += p->elements;
    }
    for (int r = 0; r < s->ranks; r++)
        s->elements[r]++; /* the status flag */
}

static lt_status make_shard_group(lt_shard *s)
{
    lt_comm *comm = s->config.comm;
    const int all = lt_comm_size(comm), size = s->config.group ? s->config.group : all;
    s->group = comm;
    s->first = lt_comm_rank(comm) / size * size;
    if (size != all) {
        LT_TRY(lt_comm_split(comm, lt_comm_rank(comm) / size, lt_comm_rank(comm), &s->group));
        s->owns_group = true;
    }
    s->rank = lt_comm_rank(s->group);
    s->ranks = lt_comm_size(s->group);
    return LT_OK;
}

static lt_status plan_sharding(lt_optim *o, lt_shard *s)
{
    s->count = lt_shard_part_count(o);
    LT_TRY(LT_ALLOC(&s->part, s->count));
    LT_TRY(LT_ALLOC(&s->elements, s->ranks));
    LT_TRY(LT_ALLOC(&s->begin, s->ranks));
    for (size_t i = 0; i < s->count; i++)
        lt_shard_fill_part(o, i, &s->part[i]);
    LT_TRY(choose_owners(o, s));
    compute_segment_offsets(s);
    /* In the master dtype parameters take as few bytes as updates, and are exact. */
    s->differences = !o->ops->parts && !s->config.gather_params && s->config.dtype != LT_F32;
    return s->ops->allocate(o);
}

/* Passes the owners to the optimizer and frees the state of other ranks' parts. */
static void set_owners(lt_optim *o)
{
    const lt_shard *s = o->shard;
    if (o->ops->parts) {
        o->ops->parts->set_owners(o, s->part, s->rank);
        return;
    }
    for (size_t i = 0; i < o->count; i++) {
        lt_slot *slot = &o->slot[i];
        slot->owner = s->part[i].owner;
        slot->not_owned = slot->owner != s->rank;
        for (int k = 0; k < LT_MAX_STATE; k++) {
            lt_tensor_free(&slot->state[k]);
            lt_quantized_free(&slot->quantized[k]);
        }
    }
}

static lt_status check_shard_config(const lt_optim *o, const lt_shard_config *c)
{
    const int all = lt_comm_size(c->comm);
    if (o->shard)
        return lt_fail(LT_E_ARG, "%s: state is already sharded", o->ops->name);
    if (o->attempt > 0)
        return lt_fail(LT_E_ARG, "%s: state must be sharded before the first step", o->ops->name);
    if (c->group < 0 || (c->group > 0 && all % c->group))
        return lt_fail(LT_E_ARG, "%s: groups of %d do not divide %d ranks", o->ops->name, c->group,
                       all);
    if (c->dtype != LT_F32 && c->dtype != LT_BF16 && c->dtype != LT_F16)
        return lt_fail(LT_E_ARG, "%s: dtype must be f32, bf16 or f16", o->ops->name);
    if (c->shard_params && (c->dtype != LT_F32 || c->group))
        return lt_fail(
            LT_E_ARG,
            "%s: sharded parameters are gathered in f32 over all ranks; got dtype %s and groups "
            "of %d",
            o->ops->name, lt_dtype_name(c->dtype), c->group);
    if (o->ops->visit && !o->ops->parts && !o->ops->visits_numbers)
        return lt_fail(LT_E_UNSUPPORTED,
                       "%s: cannot be sharded: it has state that is not per "
                       "parameter",
                       o->ops->name);
    return LT_OK;
}

static lt_status check_attachable(const lt_optim *o, const lt_shard_config *c,
                                  const lt_shard_ops *ops)
{
    LT_TRY(check_shard_config(o, c));
    return c->shard_params || ops != &lt_flat_ops ? lt_optim_check_takes_shards(o) : LT_OK;
}

/* Checks that all ranks have the same configuration, before they wait for each other. */
static lt_status check_same_on_all_ranks(const lt_optim *o, const lt_shard_config *c)
{
    int64_t elements = 0;
    for (size_t i = 0; i < o->count; i++)
        elements += lt_tensor_count(o->slot[i].param->value);
    char text[512];
    const double *p = c->polynomial.coefficient;
    snprintf(text, sizeof text,
             "optimizer %s, balance %d (%g %g %g %g %g %g, %g), groups of %d, dtype %d, gathers "
             "%s, %zu parts, %" PRId64 " elements",
             o->ops->name, (int)c->balance, p[0], p[1], p[2], p[3], p[4], p[5], c->polynomial.least,
             c->group, (int)c->dtype,
             c->shard_params    ? "nothing"
             : c->gather_params ? "parameters"
                                : "updates",
             lt_shard_part_count(o), elements);
    return lt_comm_check_same(c->comm, "the sharded optimizer", text);
}

lt_status lt_shard_attach(lt_optim *optim, const lt_shard_config *config, const lt_shard_ops *ops,
                          void *data)
{
    LT_TRY(lt_comm_agree_on_status(config->comm, check_attachable(optim, config, ops)));
    LT_TRY(check_same_on_all_ranks(optim, config));
    lt_shard *s = optim->shard = lt_alloc(1, sizeof *s);
    if (s)
        *s = (lt_shard){.config = *config, .ops = ops, .data = data};
    lt_status st = lt_comm_agree_on_status(config->comm, s ? LT_OK : LT_E_NOMEM);
    LT_ASSERT(st || s);
    if (!st)
        st = lt_comm_agree_on_status(config->comm, make_shard_group(s));
    if (!st)
        st = lt_comm_agree_on_status(config->comm, plan_sharding(optim, s));
    if (st) {
        if (s && s->owns_group) /* another rank may have no group to close */
            lt_comm_abort(s->group);
        lt_shard_free(optim);
        return st;
    }
    set_owners(optim);
    return LT_OK;
}

lt_status lt_optim_shard(lt_optim *optim, const lt_shard_config *config)
{
    return lt_shard_attach(optim, config, &lt_flat_ops, NULL);
}
