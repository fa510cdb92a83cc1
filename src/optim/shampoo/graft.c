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

/* Of each block two norms, of graft(u) and of p. */
enum { OF_GRAFT, OF_P, NORMS };

static double *norms_at(const lt_shampoo *s, size_t block)
{
    return (double *)lt_tensor_view(s->norms).data + NORMS * block;
}

/* All norms of a batch together: on a device that is one kernel. */
static lt_status measure(lt_shampoo *s, lt_block_batch batch)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(&s->base, &ctx);
    const size_t count = NORMS * (batch.end - batch.begin);
    const bool moved = lt_shampoo_has_graft_moment(&s->config);
    for (size_t i = 0; i < count; i++) {
        const lt_block *b = &s->block[batch.begin + i / NORMS];
        s->view[i] = i % NORMS == OF_P ? b->p : moved ? *lt_block_spare(b) : b->u;
        if (!b->active) /* nothing to measure, but the places of the others stay */
            s->view[i] = lt_tensor_view(s->one);
    }
    lt_view out = lt_tensor_view(s->norms);
    out.data = norms_at(s, batch.begin);
    out.shape = LT_SHAPE((int64_t)count);
    out.stride[0] = 1;
    return be->frobenius(ctx, s->view, count, &out);
}

/* p itself may be u: what reads u is done. */
static bool rescale(const lt_shampoo *s, lt_block *b, lt_vec_job *job)
{
    const double *norm = norms_at(s, (size_t)(b - s->block));
    job->factor.over = norm + OF_GRAFT;
    job->factor.under = norm + OF_P;
    job->a = job->y = lt_block_view(b, &b->p);
    return true;
}

lt_vec_rule *lt_shampoo_graft_rescale(const lt_shampoo *s)
{
    const bool grafts = s->config.grafting != LT_GRAFTING_NONE;
    return grafts && !lt_shampoo_is_early(s) ? rescale : NULL;
}

lt_status lt_shampoo_graft_norm(lt_shampoo *s, lt_block_batch batch)
{
    if (s->config.grafting == LT_GRAFTING_NONE)
        return LT_OK;
    if (lt_shampoo_has_graft_moment(&s->config))
        LT_TRY(lt_shampoo_vec(s, batch, normalise));
    return measure(s, batch);
}
