/* A step of any optimizer: sends the scalars, unscales and checks the gradients, updates, counts. */

#include "cautious.h"
#include "optim/averaging/averaging.h"
#include "optim/sharding/part_norms.h"
#include "optim/sharding/shard.h"
#include "optim/slots.h"
#include "tensor/tensor.h"

#include <math.h>

static lt_status check_step(const lt_optim *o, const lt_step *step)
{
    if (!(step->lr >= 0 && isfinite(step->lr)))
        return lt_fail(LT_E_ARG, "%s: lr %g is not a number >= 0", o->ops->name, step->lr);
    if (!(step->clip_norm >= 0))
        return lt_fail(LT_E_ARG, "%s: clip_norm %g is not >= 0", o->ops->name, step->clip_norm);
    if (step->attempt < 1)
        return lt_fail(LT_E_ARG, "%s: attempt is below 1", o->ops->name);
    return LT_OK;
}

lt_status lt_optim_prepare(lt_optim *o, const lt_step *step)
{
    LT_TRY(check_step(o, step));
    LT_TRY(lt_averaging_compute_weight(o, step));
    LT_TRY(lt_optim_refresh_casts(o));
    o->attempt = step->attempt;
    return lt_optim_send_scalars(o, step);
}

/* Updates the parameters, with sharded state those that this rank owns. */
static lt_status change_parameters(lt_optim *o)
{
    LT_TRY(lt_optim_make_state(o));
    if (o->shard)
        LT_TRY(o->shard->ops->begin(o));
    return lt_optim_step_slots(o);
}

/* Computes the loss scale of the next step; grad_scale already contains that of this one. */
static lt_status update_loss_scale(lt_optim *o)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(o, &ctx);
    if (!o->loss_scale)
        return LT_OK;
    LT_TRY(be->loss_scale(ctx, &o->scaling, o->scalars));
    return be->copy(ctx, lt_tensor_view(o->loss_scale).data, &o->scalars->loss_scale,
                    sizeof(double), LT_COPY_WITHIN);
}

void lt_optim_scale_gradients(lt_optim *o, const lt_tensor *scale, const lt_tensor *one)
{
    o->gradient_scale = scale;
    o->one = one;
}

/* Replaces the loss scale, by which grad_norm divides, if gradients have their own scale. */
static lt_status write_loss_scale(const lt_optim *o, const lt_tensor *scale)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(o, &ctx);
    return o->gradient_scale ? be->copy(ctx, &o->scalars->loss_scale, lt_tensor_view(scale).data,
                                        sizeof(double), LT_COPY_WITHIN)
                             : LT_OK;
}

/* Computes the gradient norm and scale, and sets o->skipped. */
static lt_status begin_update(lt_optim *o)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(o, &ctx);
    LT_TRY(lt_optim_require_kernel(o, be->grad_norm != NULL, "grad_norm"));
    LT_TRY(lt_averaging_begin_update(o)); /* first, as values may be pulled */
    lt_optim_fuse_cast_updates(o, true);
    if (o->shard && o->shard->ops->pull)
        LT_TRY(o->shard->ops->pull(o));
    LT_TRY(lt_cautious_begin_update(o));
    LT_TRY(write_loss_scale(o, o->gradient_scale));
    LT_TRY(o->part_norms ? lt_optim_grad_norm_by_parts(o)
                         : be->grad_norm(ctx, o->item, lt_optim_fill_items(o, true), o->scalars));
    LT_TRY(write_loss_scale(o, o->loss_scale ? o->loss_scale : o->one));
    LT_TRY(update_loss_scale(o));
    LT_TRY(lt_optim_count_missed(o));
    /* On other devices kernels read `finite`; reading it here would synchronize. */
    o->skipped = be->host_memory && !o->scalars->finite;
    return LT_OK;
}

/* Changes the update of the parameters, then switches them from z to y. */
static lt_status end_update(lt_optim *o)
{
    LT_TRY(lt_cautious_end_update(o));
    return lt_averaging_end_update(o);
}

lt_status lt_optim_update(lt_optim *o)
{
    LT_TRY(lt_optim_begin_owned_update(o));
    LT_TRY(begin_update(o));
    lt_status st = o->skipped ? LT_OK : change_parameters(o);
    if (!o->shard)
        return st ? st : end_update(o);
    st = lt_shard_finish_step(o, st, o->skipped);
    lt_optim_end_owned_update(o);
    return st ? st : end_update(o);
}

bool lt_optim_has_host_phase(const lt_optim *o)
{
    const lt_host_phase_ops *ops = o->ops->host_phase;
    return ops && !o->shard && o->device->backend->graphs && lt_averaging_has_fixed_weight(o)
           && ops->has_host_phase(o);
}

lt_status lt_optim_update_first(lt_optim *o)
{
    LT_TRY(begin_update(o));
    LT_TRY(lt_optim_make_state(o));
    return o->skipped ? LT_OK : o->ops->host_phase->first(o);
}

lt_status lt_optim_update_host(lt_optim *o)
{
    lt_scalars s;
    LT_TRY(lt_optim_read_scalars(o, &s));
    return s.finite ? o->ops->host_phase->host(o) : LT_OK;
}

lt_status lt_optim_update_second(lt_optim *o)
{
    LT_TRY(o->skipped ? LT_OK : o->ops->host_phase->second(o));
    return end_update(o);
}

void lt_optim_advance(lt_optim *o)
{
    o->advanced = !o->skipped;
    if (o->skipped) {
        lt_averaging_undo_weight(o);
        return;
    }
    lt_optim_add_to_update_counts(o, 1);
    for (size_t i = 0; i < o->count; i++)
        if (o->slot[i].param->has_grad) {
            lt_tensor_bump_version(o->slot[i].param->value);
            o->slot[i].version = o->slot[i].param->value->version;
            if (o->averaging || o->cautious) /* the kernels' casts are of earlier values */
                lt_tensor_bump_version(o->slot[i].param->value);
        }
}

lt_status lt_optim_step(lt_optim *o, const lt_step *step)
{
    LT_TRY(lt_optim_prepare(o, step));
    LT_TRY(lt_optim_update(o));
    lt_optim_advance(o);
    return LT_OK;
}

bool lt_optim_is_capturable(const lt_optim *o)
{
    if (o->shard && (!o->shard->ops->is_capturable || !o->device->backend->graphs))
        return false;
    if (lt_optim_updates_shards(o))
        return false;
    return lt_averaging_has_fixed_weight(o) && o->ops->is_capturable && o->ops->is_capturable(o);
}

bool lt_optim_always_capturable(const lt_optim *self)
{
    (void)self;
    return true;
}

static lt_status check_scaling(const lt_optim *o, const lt_loss_scaling *c)
{
    if (!(c->start > 0 && isfinite((float)c->start)) || !(c->growth >= 1 && isfinite(c->growth))
        || !(c->backoff > 0 && c->backoff <= 1) || c->interval < 0)
        return lt_fail(LT_E_ARG,
                       "%s: invalid loss scaling: start %g, growth %g after %d steps, backoff %g",
                       o->ops->name, c->start, c->growth, c->interval, c->backoff);
    return LT_OK;
}

static lt_status set_loss_scale(lt_optim *o, double scale, int32_t good_steps)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(o, &ctx);
    lt_scalars s;
    LT_TRY(lt_optim_read_scalars(o, &s));
    s.loss_scale = scale;
    s.good_steps = good_steps;
    LT_TRY(be->copy(ctx, o->scalars, &s, sizeof s, LT_COPY_IN));
    return be->sync(ctx);
}

lt_status lt_optim_scale_loss(lt_optim *o, const lt_loss_scaling *config)
{
    lt_loss_scaling c = config ? *config : LT_LOSS_SCALING_DEFAULTS;
    LT_TRY(check_scaling(o, &c));
    lt_tensor_free(&o->loss_scale);
    o->scaling = c;
    if (!c.interval)
        return set_loss_scale(o, 1, 0);
    LT_TRY(lt_optim_require_kernel(o, o->device->backend->loss_scale != NULL, "loss_scale"));
    LT_TRY(set_loss_scale(o, c.start, c.good_steps));
    LT_TRY(lt_tensor_new(&o->loss_scale, o->device, LT_F64, LT_SCALAR));
    return lt_tensor_fill(o->loss_scale, c.start);
}

const lt_tensor *lt_optim_loss_scale(const lt_optim *o)
{
    return o->loss_scale;
}
