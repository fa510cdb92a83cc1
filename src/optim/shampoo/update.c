/* Update of the parameter: grafting norm, decay, momentum and step in one pass over memory. Decay is added before
 * the momentum. Loshchilov & Hutter, "Decoupled Weight Decay Regularization", ICLR 2019; for the types that depend
 * on the learning rate Schaipp, "Decay no more", 2023. */

#include "optim/shampoo/layout.h"
#include "optim/shampoo/phases.h"

static bool add_weight_decay(const lt_shampoo *s, lt_block *b, lt_vec_job *job)
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
    job->a = lt_block_value(b);
    job->y = lt_block_unmerged_view(b, &b->p);
    return true;
}

/* Returns the momentum with the parameter's dimensions, like all views in the same list. */
static lt_view momentum_of(const lt_block *b)
{
    const lt_view v = lt_tensor_view(b->momentum);
    return lt_block_unmerged_view(b, &v);
}

static bool update_momentum(const lt_shampoo *s, lt_block *b, lt_vec_job *job)
{
    job->alpha = 1 - s->config.dampening;
    job->beta = s->config.momentum;
    job->a = lt_block_unmerged_view(b, &b->p);
    job->y = momentum_of(b);
    return true;
}

static bool add_nesterov_momentum(const lt_shampoo *s, lt_block *b, lt_vec_job *job)
{
    job->alpha = s->config.momentum;
    job->beta = 1 - s->config.dampening;
    job->a = momentum_of(b);
    job->y = lt_block_unmerged_view(b, &b->p);
    return true;
}

static bool apply_update(const lt_shampoo *s, lt_block *b, lt_vec_job *job)
{
    const bool heavy = s->config.momentum > 0 && !s->config.nesterov;
    job->alpha = -b->slot->lr_scale;
    job->beta = b->update.data ? 0 : 1;
    job->factor.lr = true;
    job->a = heavy ? momentum_of(b) : lt_block_unmerged_view(b, &b->p);
    job->y = b->update.data ? b->update : lt_block_value(b);
    return true;
}

lt_status lt_shampoo_update_params(lt_shampoo *s, lt_block_batch batch)
{
    const bool heavy = s->config.momentum > 0, nesterov = heavy && s->config.nesterov;
    lt_vec_rule *const rules[] = {lt_shampoo_graft_rescale_rule(s),
                                  s->config.decay_type == LT_DECAY_L2 ? NULL : add_weight_decay,
                                  heavy ? update_momentum : NULL,
                                  nesterov ? add_nesterov_momentum : NULL, apply_update};
    return lt_shampoo_run_rules(s, batch, rules, sizeof rules / sizeof *rules, true);
}
