/* Preconditioned gradient: filter, precondition, graft. Filter with beta3: a look-ahead as in Dozat, "Incorporating
 * Nesterov momentum into Adam", 2016. Eigenvalue correction: Vyas et al., "SOAP: Improving and Stabilizing Shampoo
 * using Adam", 2024. */

#include "optim/shampoo/layout.h"
#include "optim/shampoo/phases.h"

static bool start_filtered_gradient(const lt_shampoo *s, lt_block *b, lt_vec_job *job)
{
    job->alpha = s->config.beta3;
    job->a = lt_tensor_view(b->m);
    job->y = b->u;
    return true;
}

static bool add_current_gradient(const lt_shampoo *s, lt_block *b, lt_vec_job *job)
{
    job->alpha = 1 - s->config.beta3;
    job->beta = 1;
    job->a = b->g;
    job->y = b->u;
    return true;
}

static bool update_first_moment(const lt_shampoo *s, lt_block *b, lt_vec_job *job)
{
    job->alpha = 1 - s->config.beta1;
    job->beta = s->config.beta1;
    job->a = b->g;
    job->y = lt_tensor_view(b->m);
    return true;
}

/* u / (1 - beta3 * beta1^(t-1)): the weights of all gradients in u then sum to 1. */
static bool correct_bias(const lt_shampoo *s, lt_block *b, lt_vec_job *job)
{
    job->factor.bias = s->config.beta3;
    job->factor.base = s->config.beta1;
    job->factor.lag = 1;
    job->factor.missed = lt_optim_missed_steps(&s->base, b->slot);
    job->a = job->y = b->u;
    return true;
}

/* Computes the filtered gradient u, and the graft's second moment, which reads the same gradient. */
static lt_status compute_filtered_gradient(lt_shampoo *s, lt_block_batch batch)
{
    if (!(s->config.beta1 > 0)) {
        for (size_t i = batch.begin; i < batch.end; i++)
            s->block[i].u = s->block[i].g;
        lt_vec_rule *const rule = lt_shampoo_graft_moment_rule(s);
        return rule ? lt_shampoo_run_rule(s, batch, rule) : LT_OK;
    }
    lt_vec_rule *const rules[] = {lt_shampoo_graft_moment_rule(s), start_filtered_gradient,
                                  add_current_gradient, update_first_moment,
                                  s->config.use_bias_correction ? correct_bias : NULL};
    return lt_shampoo_run_rules(s, batch, rules, sizeof rules / sizeof *rules, false);
}

/* Updates the second moment in the eigenbasis; p is the rotated gradient. */
static bool update_eigenbasis_moment(const lt_shampoo *s, lt_block *b, lt_vec_job *job)
{
    const lt_shampoo_config *c = &s->config;
    job->op = LT_VEC_SQUARE;
    job->alpha = lt_shampoo_moment_weight(c);
    job->beta = c->beta2;
    job->a = b->p;
    job->y = lt_tensor_view(b->corrected);
    return true;
}

/* output buffer = E / c2 */
static bool correct_moment(const lt_shampoo *s, lt_block *b, lt_vec_job *job)
{
    job->factor = lt_shampoo_bias_correction(s, b);
    job->a = lt_tensor_view(b->corrected);
    job->y = *lt_block_output_buffer(b);
    return true;
}

/* p / (E / c2)^power, 0 where the pseudo-inverse is 0; E / c2 is in the output buffer. */
static bool divide_by_adjusted_power(const lt_shampoo *s, lt_block *b, lt_vec_job *job)
{
    (void)s;
    job->op = LT_VEC_POW;
    job->beta = 1;
    job->delta = b->region.shape.ndim ? b->factor[0].exponent : 0.5;
    job->a = b->p;
    job->b = job->y = *lt_block_output_buffer(b);
    return true;
}

static lt_status divide_by_pseudo_power(lt_shampoo *s, lt_block_batch batch)
{
    LT_TRY(lt_shampoo_run_rule(s, batch, correct_moment));
    for (size_t i = batch.begin; i < batch.end; i++)
        if (s->block[i].active)
            lt_shampoo_adjust_diagonal(s, lt_block_output_buffer(&s->block[i]));
    return lt_shampoo_run_rule(s, batch, divide_by_adjusted_power);
}

/* p / ((E / c2)^power + epsilon), out of place: p may be u. */
static bool divide_by_moment_power(const lt_shampoo *s, lt_block *b, lt_vec_job *job)
{
    const lt_shampoo_config *c = &s->config;
    job->op = LT_VEC_POW;
    job->beta = 1;
    job->gamma = c->epsilon;
    job->delta = b->region.shape.ndim ? b->factor[0].exponent : 0.5;
    job->factor = lt_shampoo_bias_correction(s, b);
    job->a = b->p;
    job->b = lt_tensor_view(b->corrected);
    job->y = *lt_block_output_buffer(b);
    return true;
}

static lt_status rotate_and_update_moment(lt_shampoo *s, lt_block_batch batch)
{
    for (size_t i = batch.begin; i < batch.end; i++)
        s->block[i].p = s->block[i].g;
    LT_TRY(lt_shampoo_rotate_to_basis(s, batch, false));
    return lt_shampoo_run_rule(s, batch, update_eigenbasis_moment);
}

static lt_status precondition_in_eigenbasis(lt_shampoo *s, lt_block_batch batch)
{
    LT_TRY(lt_shampoo_rotate_to_basis(s, batch, false));
    LT_TRY(lt_shampoo_needs_host_diagonal(s)
               ? divide_by_pseudo_power(s, batch)
               : lt_shampoo_run_rule(s, batch, divide_by_moment_power));
    for (size_t i = batch.begin; i < batch.end; i++)
        lt_block_swap_buffers(&s->block[i]);
    if (lt_shampoo_orthogonalizes(&s->config))
        LT_TRY(lt_shampoo_orthogonalize(s, batch));
    return lt_shampoo_rotate_to_basis(s, batch, true);
}

static lt_status precondition_by_kind(lt_shampoo *s, lt_block_batch batch)
{
    switch (s->config.preconditioner) {
    case LT_PRECONDITIONER_CORRECTED:
    case LT_PRECONDITIONER_KL_CORRECTED:
        return precondition_in_eigenbasis(s, batch);
    case LT_PRECONDITIONER_SPECTRAL:
        return lt_shampoo_orthogonalize(s, batch);
    case LT_PRECONDITIONER_SIGN:
        return lt_shampoo_replace_by_signs(s, batch);
    case LT_PRECONDITIONER_ROOT:
    case LT_PRECONDITIONER_EIGENDECOMPOSED:
    case LT_PRECONDITIONER_KL:
    case LT_PRECONDITIONER_KL_EIGENDECOMPOSED:
        break;
    }
    LT_TRY(lt_shampoo_precondition(s, batch, -1));
    return lt_shampoo_apply_diagonal(s, batch);
}

lt_status lt_shampoo_precondition_gradient(lt_shampoo *s, lt_block_batch batch)
{
    bool corrected = lt_shampoo_is_corrected(&s->config);
    if (corrected)
        LT_TRY(rotate_and_update_moment(s, batch));
    LT_TRY(compute_filtered_gradient(s, batch));
    if (s->config.grafting != LT_GRAFTING_NONE && lt_shampoo_is_before_start(s))
        return lt_shampoo_use_grafted_update(s, batch);

    for (size_t i = batch.begin; i < batch.end; i++)
        s->block[i].p = s->block[i].u;
    LT_TRY(precondition_by_kind(s, batch));
    return lt_shampoo_measure_graft_norms(s, batch);
}
