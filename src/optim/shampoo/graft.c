/* Grafting: the direction of Shampoo with the step size of another method, block by block.
 * Agarwal, Anil, Hazan, Koren & Zhang, "Learning Rate Grafting: Transferability of Optimizer
 * Tuning", 2022. The other method has a second moment of its own and reads the filtered gradient
 * u; its eps is added after the square root. */

#include "optim/shampoo/layout.h"
#include "optim/shampoo/phases.h"

static bool moment(const lt_shampoo *s, lt_block *b, lt_vec_job *job)
{
    double beta2 = s->config.grafting_beta2;
    job->op = LT_VEC_SQUARE;
    job->alpha = beta2 >= 1 ? 1 : 1 - beta2;
    job->beta = beta2;
    job->a = b->g;
    job->y = lt_tensor_view(b->graft);
    return true;
}

lt_vec_rule *lt_shampoo_graft_moment(const lt_shampoo *s)
{
    return lt_shampoo_has_graft_moment(&s->config) ? moment : NULL;
}

/* u / (sqrt(V / c) + eps) to the spare buffer. */
static bool normalise(const lt_shampoo *s, lt_block *b, lt_vec_job *job)
{
    const lt_shampoo_config *c = &s->config;
    job->op = LT_VEC_RSQRT;
    job->beta = 1;
    job->gamma = c->grafting_epsilon;
    if (c->grafting == LT_GRAFTING_ADAM && c->grafting_beta2 < 1) {
        job->factor.bias = 1;
        job->factor.base = c->grafting_beta2;
    }
    job->a = b->u;
    job->b = lt_tensor_view(b->graft);
    job->y = *lt_block_spare(b);
    return true;
}

lt_status lt_shampoo_graft_only(lt_shampoo *s, lt_block_batch batch)
{
    for (size_t i = batch.begin; i < batch.end; i++)
        s->block[i].p = s->block[i].u;
    if (!lt_shampoo_has_graft_moment(&s->config))
        return LT_OK;
    LT_TRY(lt_shampoo_vec(s, batch, normalise));
    for (size_t i = batch.begin; i < batch.end; i++)
        lt_block_moved(&s->block[i]);
    return LT_OK;
}

/* norms[0][i] of graft(u), norms[1][i] of p, i the block's number. */
static const double *norm_at(const lt_shampoo *s, const lt_block *b, int which)
{
    const double *norm = lt_tensor_view(s->norms).data;
    return norm + (size_t)which * s->count + (size_t)(b - s->block);
}

static lt_status measure(lt_shampoo *s, lt_block_batch batch, int which)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(&s->base, &ctx);
    size_t count = batch.end - batch.begin;
    bool moved = which == 0 && lt_shampoo_has_graft_moment(&s->config);
    for (size_t i = 0; i < count; i++) {
        const lt_block *b = &s->block[batch.begin + i];
        s->view[i] = which ? b->p : moved ? *lt_block_spare(b) : b->u;
        if (!b->active) /* nothing to measure, but the places of the others stay */
            s->view[i] = lt_tensor_view(s->one);
    }
    lt_view out = lt_tensor_view(s->norms);
    out.data = (double *)out.data + (size_t)which * s->count + batch.begin;
    out.shape = LT_SHAPE((int64_t)count);
    out.stride[0] = 1;
    return be->frobenius(ctx, s->view, count, &out);
}

/* p itself may be u: what reads u is done. */
static bool rescale(const lt_shampoo *s, lt_block *b, lt_vec_job *job)
{
    job->factor.over = norm_at(s, b, 0);
    job->factor.under = norm_at(s, b, 1);
    job->a = job->y = b->p;
    return true;
}

lt_status lt_shampoo_graft_norm(lt_shampoo *s, lt_block_batch batch)
{
    if (s->config.grafting == LT_GRAFTING_NONE)
        return LT_OK;
    if (lt_shampoo_has_graft_moment(&s->config))
        LT_TRY(lt_shampoo_vec(s, batch, normalise));
    LT_TRY(measure(s, batch, 0));
    LT_TRY(measure(s, batch, 1));
    return lt_shampoo_vec(s, batch, rescale);
}
