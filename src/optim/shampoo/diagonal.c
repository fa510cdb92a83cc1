/* Blocks with a diagonal preconditioner: v has the block's shape,
 *
 *   v = beta2 v + w g^2,  p = u (v / c2 + epsilon)^(-e)
 *
 * With e = 1/2 this is AdaGrad or RMSprop with epsilon inside the root: Duchi, Hazan & Singer,
 * "Adaptive subgradient methods", JMLR 2011, which compares full and diagonal matrices. v needs no
 * decomposition, so it takes effect in every step, whatever precondition_frequency is. With
 * LT_EPSILON_RELATIVE epsilon is multiplied by the norm of v / c2, computed on the device, which is at
 * least its largest element; in blocks of several dimensions by its root mean square, as there the norm
 * may be thousands of times the largest element. With LT_EPSILON_PSEUDO_INVERSE the power of a small v is 0;
 * trace scaling multiplies v / c2 by its sum's power. */

#include "optim/host_values.h"
#include "optim/shampoo/layout.h"
#include "optim/shampoo/phases.h"
#include "optim/shampoo/root/root.h"

#include <float.h>
#include <math.h>

static bool keeps_diagonal(const lt_block *b)
{
    return b->factor[0].diagonal;
}

static bool update_second_moment(const lt_shampoo *s, lt_block *b, lt_vec_job *job)
{
    const lt_shampoo_config *c = &s->config;
    if (!b->factor[0].diagonal)
        return false;
    job->op = LT_VEC_SQUARE;
    job->alpha = lt_shampoo_moment_weight(c);
    job->beta = c->beta2;
    job->a = b->g;
    job->y = lt_tensor_view(b->factor[0].diagonal);
    return true;
}

lt_status lt_shampoo_update_diagonals(lt_shampoo *s, lt_block_batch batch)
{
    return s->has_diagonals ? lt_shampoo_run_rule(s, batch, update_second_moment) : LT_OK;
}

/* output buffer = v / c2 */
static bool correct_bias(const lt_shampoo *s, lt_block *b, lt_vec_job *job)
{
    if (!b->factor[0].diagonal)
        return false;
    job->factor = lt_shampoo_bias_correction(s, b);
    job->a = lt_tensor_view(b->factor[0].diagonal);
    job->y = *lt_block_output_buffer(b);
    return true;
}

static void scale_by_trace(const lt_shampoo_config *c, const lt_view *v, int64_t count)
{
    double trace = 0;
    for (int64_t i = 0; i < count; i++)
        trace += lt_value_at(v, i);
    const double factor = lt_root_trace_scale(c, trace);
    for (int64_t i = 0; i < count; i++)
        lt_set_value_at(v, i, factor * lt_value_at(v, i));
}

/* Replaces values up to the cutoff by infinity, whose inverse power is 0. */
static void cut_small_values(const lt_shampoo_config *c, const lt_view *v, int64_t count)
{
    const double machine_eps = v->dtype == LT_F64 ? DBL_EPSILON : (double)FLT_EPSILON;
    double high = 0;
    for (int64_t i = 0; i < count; i++)
        high = fmax(high, lt_value_at(v, i));
    const double cutoff = lt_root_rank_cutoff(c, high, count, machine_eps);
    for (int64_t i = 0; i < count; i++)
        if (lt_value_at(v, i) <= cutoff)
            lt_set_value_at(v, i, (double)INFINITY);
}

bool lt_shampoo_needs_host_diagonal(const lt_shampoo *s)
{
    const lt_shampoo_config *c = &s->config;
    const bool corrected = lt_shampoo_is_corrected(c);
    return (c->epsilon_rule == LT_EPSILON_PSEUDO_INVERSE && (s->has_diagonals || corrected))
           || (c->trace_scaling > 0 && s->has_diagonals && !corrected);
}

void lt_shampoo_adjust_diagonal(const lt_shampoo *s, const lt_view *v)
{
    const lt_shampoo_config *c = &s->config;
    const int64_t count = lt_shape_count(v->shape);
    if (c->trace_scaling > 0 && !lt_shampoo_is_corrected(c))
        scale_by_trace(c, v, count);
    if (c->epsilon_rule == LT_EPSILON_PSEUDO_INVERSE)
        cut_small_values(c, v, count);
}

static bool add_epsilon(const lt_shampoo *s, lt_block *b, lt_vec_job *job)
{
    if (!b->factor[0].diagonal)
        return false;
    if (s->config.epsilon_rule == LT_EPSILON_RELATIVE) {
        job->factor.over = lt_shampoo_norm_at(s, (size_t)(b - s->block));
        job->factor.under = lt_shampoo_norm_at(s, s->count);
    }
    job->alpha = s->config.epsilon_rule == LT_EPSILON_PSEUDO_INVERSE ? 0 : s->config.epsilon;
    if (s->config.epsilon_rule == LT_EPSILON_RELATIVE && b->region.shape.ndim > 1)
        job->alpha /= sqrt((double)lt_shape_count(b->region.shape));
    job->beta = 1;
    job->y = *lt_block_output_buffer(b);
    job->a = lt_tensor_view(s->one);
    job->a.shape = job->y.shape;
    for (int d = 0; d < LT_MAX_DIMS; d++)
        job->a.stride[d] = 0;
    return true;
}

static bool divide_by_moment_power(const lt_shampoo *s, lt_block *b, lt_vec_job *job)
{
    /* 0 / 0 is 0: where no gradient was ever non-zero, the relative epsilon is 0 */
    const double tiny = 1e-30;
    if (!b->factor[0].diagonal)
        return false;
    job->op = LT_VEC_POW;
    job->beta = 1;
    job->gamma = s->config.epsilon_rule == LT_EPSILON_RELATIVE ? tiny : 0;
    job->delta = b->factor[0].exponent;
    job->a = b->p;
    job->b = job->y = *lt_block_output_buffer(b);
    return true;
}

lt_status lt_shampoo_apply_diagonal(lt_shampoo *s, lt_block_batch batch)
{
    if (!s->has_diagonals || lt_shampoo_is_before_start(s))
        return LT_OK;
    LT_TRY(lt_shampoo_run_rule(s, batch, correct_bias));
    for (size_t i = batch.begin; i < batch.end && lt_shampoo_needs_host_diagonal(s); i++)
        if (s->block[i].active && keeps_diagonal(&s->block[i]))
            lt_shampoo_adjust_diagonal(s, lt_block_output_buffer(&s->block[i]));
    if (s->config.epsilon_rule == LT_EPSILON_RELATIVE)
        LT_TRY(lt_shampoo_measure_norms(s, batch, keeps_diagonal)); /* norms of v / c2 */
    LT_TRY(lt_shampoo_run_rule(s, batch, add_epsilon));
    LT_TRY(lt_shampoo_run_rule(s, batch, divide_by_moment_power));
    for (size_t i = batch.begin; i < batch.end; i++)
        if (s->block[i].active && s->block[i].factor[0].diagonal)
            lt_block_swap_buffers(&s->block[i]);
    return LT_OK;
}
