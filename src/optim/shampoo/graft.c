/* Grafting: Shampoo's direction with the step size of another method, per block. Agarwal, Anil, Hazan, Koren &
 * Zhang, "Learning Rate Grafting: Transferability of Optimizer Tuning", 2022. The other method has its own second
 * moment and reads the filtered gradient u; its epsilon is added after the square root. */

#include "optim/shampoo/layout.h"
#include "optim/shampoo/phases.h"

#include <math.h>

static bool update_graft_moment(const lt_shampoo *s, lt_block *b, lt_vec_job *job)
{
    double beta2 = s->config.grafting_beta2;
    job->op = LT_VEC_SQUARE;
    job->alpha = beta2 >= 1 || s->config.grafting_drop_weighting ? 1 : 1 - beta2;
    job->beta = beta2;
    job->a = b->g;
    job->y = lt_tensor_view(b->graft);
    return true;
}

lt_vec_rule *lt_shampoo_graft_moment_rule(const lt_shampoo *s)
{
    return lt_shampoo_has_graft_moment(&s->config) ? update_graft_moment : NULL;
}

/* output buffer = graft(u) = u / (sqrt(V / c) + eps) */
static bool compute_grafted_update(const lt_shampoo *s, lt_block *b, lt_vec_job *job)
{
    const lt_shampoo_config *c = &s->config;
    job->op = LT_VEC_RSQRT;
    job->beta = 1;
    job->gamma = c->grafting_epsilon;
    if (lt_shampoo_corrects_graft(c)) {
        job->factor.bias = 1;
        job->factor.base = c->grafting_beta2;
        job->factor.missed = lt_optim_missed_steps(&s->base, b->slot);
    }
    job->a = b->u;
    job->b = lt_tensor_view(b->graft);
    job->y = *lt_block_output_buffer(b);
    return true;
}

lt_status lt_shampoo_use_grafted_update(lt_shampoo *s, lt_block_batch batch)
{
    for (size_t i = batch.begin; i < batch.end; i++)
        s->block[i].p = s->block[i].u;
    if (!lt_shampoo_has_graft_moment(&s->config))
        return LT_OK;
    LT_TRY(lt_shampoo_run_rule(s, batch, compute_grafted_update));
    for (size_t i = batch.begin; i < batch.end; i++)
        lt_block_swap_buffers(&s->block[i]);
    return LT_OK;
}

/* Each block has two norms: of graft(u) and of p. They follow those of lt_shampoo_norm_at(), so that they are kept to
 * the end of the step. */
enum { OF_GRAFT, OF_P, NORMS };

static double *norms_at(const lt_shampoo *s, size_t block)
{
    return (double *)lt_tensor_view(s->norms).data + s->total + 1 + NORMS * block;
}

static lt_view norms_of(const lt_shampoo *s, lt_block_batch batch)
{
    lt_view out = lt_tensor_view(s->norms);
    out.data = norms_at(s, batch.begin);
    out.shape = LT_SHAPE((int64_t)(NORMS * (batch.end - batch.begin)));
    out.stride[0] = 1;
    return out;
}

/* Returns the view to measure: the number 1 for an inactive block, so that norms keep their positions. */
static lt_vec_job choose_measured_view(const lt_shampoo *s, lt_block *b, size_t which)
{
    const lt_view one = lt_tensor_view(s->one);
    lt_vec_job job = {.op = LT_VEC_AXPBY, .alpha = 1, .a = one, .y = one};
    if (b->active && which == OF_GRAFT && lt_shampoo_has_graft_moment(&s->config))
        compute_grafted_update(s, b, &job);
    else if (b->active)
        job.a = job.y = which == OF_P ? b->p : b->u;
    return job;
}

/* Measures all norms of a batch in one call. A device computes graft(u) within the norm kernel; other backends
 * write it, in batches that fit the caches. */
static lt_status measure_norms(lt_shampoo *s, lt_block_batch batch)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(&s->base, &ctx);
    const size_t count = NORMS * (batch.end - batch.begin);
    const bool moves = lt_shampoo_has_graft_moment(&s->config);
    const lt_view out = norms_of(s, batch);
    if (moves && !be->vec_norms)
        LT_TRY(lt_shampoo_run_rule(s, batch, compute_grafted_update));
    for (size_t i = 0; i < count; i++) {
        s->vec[i] = choose_measured_view(s, &s->block[batch.begin + i / NORMS], i % NORMS);
        s->view[i] = s->vec[i].y;
    }
    return moves && be->vec_norms ? be->vec_norms(ctx, s->vec, count, &out, s->base.scalars)
                                  : be->frobenius(ctx, s->view, count, &out);
}

/* Rescales p in place: p may be u itself, which is not read afterwards. */
static bool rescale_to_graft_norm(const lt_shampoo *s, lt_block *b, lt_vec_job *job)
{
    const double *norm = norms_at(s, (size_t)(b - s->block));
    job->factor.over = norm + OF_GRAFT;
    job->factor.under = norm + OF_P;
    job->a = job->y = lt_block_unmerged_view(b, &b->p);
    return true;
}

lt_vec_rule *lt_shampoo_graft_rescale_rule(const lt_shampoo *s)
{
    const bool grafts = s->config.grafting != LT_GRAFTING_NONE;
    return grafts && !lt_shampoo_is_before_start(s) ? rescale_to_graft_norm : NULL;
}

double lt_shampoo_graft_ratio(const lt_shampoo *s, const lt_block *b)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(&s->base, &ctx);
    double norm[NORMS];
    if (s->config.grafting == LT_GRAFTING_NONE || lt_shampoo_is_before_start(s)
        || be->copy(ctx, norm, norms_at(s, (size_t)(b - s->block)), sizeof norm, LT_COPY_OUT)
        || be->sync(ctx))
        return (double)NAN;
    return norm[OF_GRAFT] / norm[OF_P];
}

lt_status lt_shampoo_measure_graft_norms(lt_shampoo *s, lt_block_batch batch)
{
    return s->config.grafting == LT_GRAFTING_NONE ? LT_OK : measure_norms(s, batch);
}
