/* Cautious updates and weight decay, Hyperball: lather/cautious.h. All by vector kernels, parameter by parameter: a sign s in
 * {-1,0,1} becomes the mask (s^2 + s) / 2 of s > 0, or 1 - (s^2 - s) / 2 of s >= 0, and the number of ones in a mask is the
 * square of its norm, exactly. */

#include "cautious.h"

#include "base/alloc.h"
#include "optim/sharding/shard.h"
#include "optim/slots.h"
#include "tensor/tensor.h"

#include <math.h>

enum { U, MASK, OTHER, SCRATCHES };

struct lt_cautious {
    lt_cautious_config config;
    lt_tensor **before; /* copy of each slot's value */
    double *decay;      /* weight decay per lr that the optimizer no longer applies */
    double *radius;     /* norm that hyperball keeps; 0: none */
    lt_tensor *scratch[SCRATCHES];
    lt_tensor *one, *unit, *norm; /* [1] of 1, f64 [1] of 1, f64 [1] */
};

/* --- Life --- */

/* Takes over decoupled weight decay; with config.decay any. */
static lt_status take_decay(lt_optim *o, size_t i)
{
    struct lt_cautious *c = o->cautious;
    lt_slot *slot = &o->slot[i];
    const double factor = o->ops->decay_lr ? o->ops->decay_lr(o, slot) : 1;
    if (c->radius[i] > 0) {
        slot->weight_decay = 0;
        return LT_OK;
    }
    if (!c->config.mask && !c->config.decay)
        return LT_OK;
    const bool apart = (o->ops->decay_is_apart || o->ops->decay_lr) && !isnan(factor);
    if (!(slot->weight_decay > 0) || (!c->config.decay && !apart))
        return LT_OK;
    if (isnan(factor))
        return lt_fail(
            LT_E_ARG,
            "%s: cautious_weight_decay needs decay by lr alone, as with weight_decay_type "
            "decoupled",
            o->ops->name);
    c->decay[i] = slot->lr_scale * factor * slot->weight_decay;
    slot->weight_decay = 0;
    return LT_OK;
}

/* Measures a weight's norm. Waits for the device. */
static lt_status measure_radius(lt_optim *o, size_t i)
{
    struct lt_cautious *c = o->cautious;
    const lt_view value = lt_tensor_view(o->slot[i].param->value), out = lt_tensor_view(c->norm);
    if (!c->config.hyperball || value.shape.ndim < 2)
        return LT_OK;
    LT_TRY(o->device->backend->frobenius(o->device->ctx, &value, 1, &out));
    return lt_optim_read_device_scalar(o, &out, &c->radius[i]);
}

static lt_status make_copies(lt_optim *o)
{
    struct lt_cautious *c = o->cautious;
    int64_t most = 0;
    c->before = lt_alloc(o->count, sizeof(lt_tensor *));
    c->decay = lt_alloc(o->count, sizeof *c->decay);
    c->radius = lt_alloc(o->count, sizeof *c->radius);
    if (!c->before || !c->decay || !c->radius)
        return LT_E_NOMEM;
    LT_TRY(lt_tensor_new(&c->norm, o->device, LT_F64, LT_SHAPE(1)));
    for (size_t i = 0; i < o->count; i++) {
        const lt_tensor *value = o->slot[i].param->value;
        most = lt_tensor_count(value) > most ? lt_tensor_count(value) : most;
        LT_TRY(lt_tensor_new_like(&c->before[i], value, lt_tensor_dtype(value)));
        LT_TRY(measure_radius(o, i));
        LT_TRY(take_decay(o, i));
    }
    const lt_dtype dtype = lt_device_master_dtype(o->device);
    for (int k = 0; k < SCRATCHES; k++)
        LT_TRY(lt_tensor_new(&c->scratch[k], o->device, dtype, LT_SHAPE(most + 1)));
    LT_TRY(lt_tensor_new(&c->one, o->device, dtype, LT_SHAPE(1)));
    LT_TRY(lt_tensor_new(&c->unit, o->device, LT_F64, LT_SHAPE(1)));
    LT_TRY(lt_tensor_fill(c->one, 1));
    return lt_tensor_fill(c->unit, 1);
}

lt_status lt_optim_start_cautious(lt_optim *o, const lt_cautious_config *config)
{
    if (o->cautious || o->attempt || o->shard || o->part_norms)
        return lt_fail(LT_E_ARG,
                       "%s: cautious updates must be enabled once, before the first step and "
                       "before anything is sharded",
                       o->ops->name);
    if (config->hyperball && config->decay)
        return lt_fail(LT_E_ARG,
                       "%s: hyperball replaces weight decay: not with "
                       "cautious_weight_decay",
                       o->ops->name);
    LT_TRY(lt_optim_require_kernel(o, o->device->backend->vec != NULL, "vec"));
    LT_TRY(lt_optim_require_kernel(o, o->device->backend->frobenius != NULL, "frobenius"));
    o->cautious = lt_alloc(1, sizeof *o->cautious);
    if (!o->cautious)
        return LT_E_NOMEM;
    o->cautious->config = *config;
    lt_status st = make_copies(o);
    if (st)
        lt_cautious_free(o);
    return st;
}

void lt_cautious_free(lt_optim *o)
{
    struct lt_cautious *c = o->cautious;
    if (!c)
        return;
    for (size_t i = 0; i < o->count && c->before; i++)
        lt_tensor_free(&c->before[i]);
    for (int k = 0; k < SCRATCHES; k++)
        lt_tensor_free(&c->scratch[k]);
    lt_tensor_free(&c->one);
    lt_tensor_free(&c->unit);
    lt_tensor_free(&c->norm);
    lt_free(c->before);
    lt_free(c->decay);
    lt_free(c->radius);
    lt_free(c);
    o->cautious = NULL;
}

bool lt_optim_slot_decays(const lt_optim *o, const lt_slot *slot)
{
    return slot->weight_decay > 0 || (o->cautious && o->cautious->decay[slot - o->slot] > 0);
}

lt_status lt_cautious_visit(const lt_optim *o, const lt_state_visitor *visitor)
{
    for (size_t i = 0; o->cautious && i < o->count; i++) {
        double *radius = &o->cautious->radius[i];
        if (*radius > 0)
            LT_TRY(lt_optim_visit_double(visitor, "radius_bits", o->slot[i].param->name, radius));
    }
    return LT_OK;
}

/* --- A step --- */

lt_status lt_cautious_begin_update(lt_optim *o)
{
    const struct lt_cautious *c = o->cautious;
    for (size_t i = 0; c && i < o->count; i++)
        if (o->slot[i].param->has_grad)
            LT_TRY(lt_tensor_copy(c->before[i], o->slot[i].param->value));
    return LT_OK;
}

typedef struct update {
    const lt_optim *o;
    lt_view value, before, grad, scratch[SCRATCHES];
    double decay;
    lt_status status;
} update;

/* Runs a job unless an earlier one failed. */
static void run(update *u, lt_vec_job job)
{
    if (!u->status)
        u->status = lt_optim_run_vec_jobs(u->o, &job, 1);
}

static void axpby(update *u, lt_view y, double alpha, lt_view a, double beta)
{
    run(u, (lt_vec_job){.op = LT_VEC_AXPBY, .alpha = alpha, .beta = beta, .a = a, .y = y});
}

/* U = before - value. */
static void compute_difference(update *u)
{
    axpby(u, u->scratch[U], 1, u->before, 0);
    axpby(u, u->scratch[U], -1, u->value, 1);
}

/* MASK = sign(U) * sign(with), then square * MASK^2 + MASK / 2. */
static void compute_mask(update *u, lt_view with, double square)
{
    const lt_view m = u->scratch[MASK], other = u->scratch[OTHER];
    run(u, (lt_vec_job){.op = LT_VEC_SIGN, .alpha = 1, .a = u->scratch[U], .y = m});
    run(u, (lt_vec_job){.op = LT_VEC_SIGN, .alpha = 1, .a = with, .y = other});
    run(u, (lt_vec_job){.op = LT_VEC_MUL, .alpha = 1, .a = m, .b = other, .y = m});
    run(u, (lt_vec_job){.op = LT_VEC_SQUARE, .alpha = square, .beta = 0.5, .a = m, .y = m});
}

static lt_view one_repeated(const struct lt_cautious *c, lt_shape shape)
{
    lt_view v = lt_tensor_view(c->one);
    v.shape = shape;
    for (int d = 0; d < LT_MAX_DIMS; d++)
        v.stride[d] = 0;
    return v;
}

/* Sets c->norm to the root of 1 plus the number of ones in MASK; a 1 follows its n elements. */
static void count_ones(update *u, int64_t n)
{
    const struct lt_cautious *c = u->o->cautious;
    lt_view all = lt_tensor_view(c->scratch[MASK]), last = all;
    const lt_view out = lt_tensor_view(c->norm);
    all.shape.dim[0] = n + 1;
    last.shape.dim[0] = 1;
    last.data = (char *)last.data + (size_t)n * lt_dtype_size(last.dtype);
    axpby(u, last, 1, lt_tensor_view(c->one), 0);
    if (!u->status)
        u->status = u->o->device->backend->frobenius(u->o->device->ctx, &all, 1, &out);
}

/* value = before - U * MASK * n / (1 + ones). */
static void apply_mask(update *u)
{
    const struct lt_cautious *c = u->o->cautious;
    const lt_view x = u->scratch[U];
    const int64_t n = lt_shape_count(u->value.shape);
    lt_vec_job divide = {.op = LT_VEC_AXPBY, .alpha = (double)n, .a = x, .y = x};
    divide.factor.over = lt_tensor_view(c->unit).data;
    divide.factor.under = lt_tensor_view(c->norm).data;
    compute_mask(u, u->grad, 0.5);
    count_ones(u, n);
    run(u, (lt_vec_job){.op = LT_VEC_MUL, .alpha = 1, .a = x, .b = u->scratch[MASK], .y = x});
    run(u, divide); /* by the root, twice */
    divide.alpha = 1;
    run(u, divide);
    axpby(u, u->value, 1, u->before, 0);
    axpby(u, u->value, -1, x, 1);
}

/* value -= lr * decay * before, of elements that U does not move away from zero if the decay is cautious. */
static void apply_decay(update *u)
{
    const struct lt_cautious *c = u->o->cautious;
    const lt_view m = u->scratch[MASK];
    lt_vec_job job = {.op = LT_VEC_AXPBY, .alpha = -u->decay, .beta = 1, .factor.lr = true};
    job.a = u->before;
    job.y = u->value;
    if (c->config.decay) {
        compute_difference(u);
        compute_mask(u, u->before, -0.5);
        axpby(u, m, 1, one_repeated(c, m.shape), 1);
        run(u, (lt_vec_job){.op = LT_VEC_MUL, .alpha = 1, .a = m, .b = u->before, .y = m});
        job.a = m;
    }
    run(u, job);
}

/* y = length N(x) + beta y; lr: the length is multiplied by it. */
static void add_normalized(update *u, lt_view y, double beta, lt_view x, double length, bool lr)
{
    const struct lt_cautious *c = u->o->cautious;
    const lt_view out = lt_tensor_view(c->norm);
    lt_vec_job job = {.op = LT_VEC_AXPBY, .alpha = length, .beta = beta, .a = x, .y = y};
    job.factor.lr = lr;
    job.factor.over = lt_tensor_view(c->unit).data;
    job.factor.under = out.data;
    if (!u->status)
        u->status = u->o->device->backend->frobenius(u->o->device->ctx, &x, 1, &out);
    run(u, job);
}

/* value = R N(before - lr lr_scale R N(U)) */
static void project_to_ball(update *u, double radius, double lr_scale)
{
    compute_difference(u);
    axpby(u, u->value, 1, u->before, 0);
    add_normalized(u, u->value, 1, u->scratch[U], -radius * lr_scale, true);
    add_normalized(u, u->value, 0, u->value, radius, false);
}

static lt_status change_update(const lt_optim *o, size_t i)
{
    const struct lt_cautious *c = o->cautious;
    lt_param *p = o->slot[i].param;
    update u = {.o = o,
                .value = lt_tensor_view(p->value),
                .before = lt_tensor_view(c->before[i]),
                .grad = lt_tensor_view(p->grad),
                .decay = c->decay[i]};
    if (!lt_shape_count(u.value.shape))
        return LT_OK;
    for (int k = 0; k < SCRATCHES; k++) {
        u.scratch[k] = u.value;
        u.scratch[k].data = lt_tensor_view(c->scratch[k]).data;
        u.scratch[k].version = 0;
    }
    if (c->config.mask) {
        compute_difference(&u);
        apply_mask(&u);
    }
    if (c->radius[i] > 0)
        project_to_ball(&u, c->radius[i], o->slot[i].lr_scale);
    else if (u.decay > 0)
        apply_decay(&u);
    lt_tensor_bump_version(p->value);
    return u.status;
}

lt_status lt_cautious_end_update(lt_optim *o)
{
    for (size_t i = 0; o->cautious && !o->skipped && i < o->count; i++)
        if (o->slot[i].param->has_grad)
            LT_TRY(change_update(o, i));
    return LT_OK;
}
