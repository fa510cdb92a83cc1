/* From the direction to the parameter: decay, momentum, step. Decay is part of the direction that
 * momentum sees; Loshchilov & Hutter, "Decoupled Weight Decay Regularization", ICLR 2019, and
 * Schaipp, "Decay no more", 2023, for the types that depend on the learning rate. */

#include "optim/shampoo/shampoo.h"

static bool decay(const lt_shampoo *s, lt_block *b, lt_vec_job *job)
{
    const lt_shampoo_config *c = &s->config;
    double wd = b->slot->weight_decay;
    if (!(wd > 0))
        return false;
    job->alpha = wd;
    if (c->decay_type == LT_DECAY_CORRECTED) {
        job->alpha = wd / c->peak_lr;
        job->factor.lr = true;
    } else if (c->decay_type == LT_DECAY_INDEPENDENT) {
        if (!(b->slot->lr_scale > 0))
            return false;
        job->alpha = wd / (c->peak_lr * b->slot->lr_scale);
    }
    job->beta = 1;
    job->a = lt_block_of(b, b->slot->param->value);
    job->y = lt_block_view(b, &b->p);
    return true;
}

static bool accumulate(const lt_shampoo *s, lt_block *b, lt_vec_job *job)
{
    job->alpha = 1 - s->config.dampening;
    job->beta = s->config.momentum;
    job->a = b->p;
    job->y = lt_tensor_view(b->momentum);
    return true;
}

static bool look_ahead(const lt_shampoo *s, lt_block *b, lt_vec_job *job)
{
    job->alpha = s->config.momentum;
    job->beta = 1 - s->config.dampening;
    job->a = lt_tensor_view(b->momentum);
    job->y = b->p;
    return true;
}

static lt_status add_momentum(lt_shampoo *s, lt_wave wave)
{
    LT_TRY(lt_shampoo_vec(s, wave, accumulate));
    if (s->config.nesterov)
        return lt_shampoo_vec(s, wave, look_ahead);
    for (size_t i = wave.begin; i < wave.end; i++)
        s->block[i].p = lt_tensor_view(s->block[i].momentum);
    return LT_OK;
}

static bool move(const lt_shampoo *s, lt_block *b, lt_vec_job *job)
{
    (void)s;
    job->alpha = -b->slot->lr_scale;
    job->beta = b->update.data ? 0 : 1;
    job->factor.lr = true;
    job->a = lt_block_view(b, &b->p);
    job->y = b->update.data ? b->update : lt_block_of(b, b->slot->param->value);
    return true;
}

lt_status lt_shampoo_update(lt_shampoo *s, lt_wave wave)
{
    if (s->config.decay_type != LT_DECAY_L2)
        LT_TRY(lt_shampoo_vec(s, wave, decay));
    if (s->config.momentum > 0)
        LT_TRY(add_momentum(s, wave));
    return lt_shampoo_vec(s, wave, move);
}
