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

/* --- For muP: the size of updates --- */

static const lt_block *first_block_of(const lt_shampoo *s, const lt_slot *slot)
{
    for (size_t i = 0; i < s->total; i++)
        if (s->block[i].slot == slot && !s->block[i].index)
            return &s->block[i];
    return NULL;
}

/* Returns the power by which a block's norm is divided: the sum of its factors' exponents. The factors of KL-Shampoo
 * are normalized by each other, so that their product is a second moment, not a power of it. */
static double sum_exponents(const lt_shampoo_config *c, const lt_block *b)
{
    const bool kl = lt_shampoo_is_kl(c);
    double sum = 0;
    int factors = 0;
    for (int d = 0; d < b->region.shape.ndim; d++)
        if (b->factor[d].is_matrix) {
            sum += b->factor[d].exponent;
            factors++;
        }
    return kl && factors ? sum / factors : sum;
}

static lt_update_size size_without_grafting(const lt_shampoo *s, const lt_block *b)
{
    const lt_shampoo_config *c = &s->config;
    const double elements = (double)lt_shape_count(b->region.shape);
    if (c->preconditioner == LT_PRECONDITIONER_SIGN)
        return c->sign_scale == LT_SIGN_L1 ? (lt_update_size){.scale = elements, .block = 1}
                                           : (lt_update_size){0.5, 1, .block = 1};
    if (lt_shampoo_is_orthogonalized(&s->config, b))
        return (lt_update_size){0.5, lt_shampoo_spectral_scale(s, b), .block = elements};
    /* With an eigenvalue correction all elements have the size of Adam's, in the basis and, where bases are some steps
     * old or gradients not of low rank, outside it. */
    if (b->partition->diagonal || lt_shampoo_is_corrected(c))
        return (lt_update_size){b->factor[0].exponent, 1, .block = 1};
    return (lt_update_size){sum_exponents(c, b), 1, .block = elements};
}

lt_update_size lt_shampoo_update_size(const lt_optim *self, const lt_slot *slot)
{
    const lt_shampoo *s = (const lt_shampoo *)self;
    const lt_grafting graft = s->config.grafting;
    const lt_block *b = first_block_of(s, slot);
    lt_update_size size = {.power = graft == LT_GRAFTING_SGD ? 0 : 0.5, .scale = 1, .block = 1};
    if (graft == LT_GRAFTING_NONE && b)
        size = size_without_grafting(s, b);
    size.decay = s->config.decay_type;
    return size;
}
