/* Kronecker factors: F_k = beta2 F_k + w G_k G_k^T, G_k the block unfolded along dimension k. Gupta, Koren &
 * Singer, "Shampoo: Preconditioned Stochastic Tensor Optimization", ICML 2018, algorithm 2. The KL variant
 * contracts the gradient that is preconditioned along all other dimensions: Lin et al., "Understanding and
 * improving Shampoo and SOAP via Kullback-Leibler minimization", 2025. With KL-SOAP it is the average
 * over the columns of G_k; of a sum the factors of dimensions of unlike length would grow and shrink for ever. */

#include "optim/shampoo/phases.h"
#include "optim/shampoo/state_store.h"

/* Returns the share of G_k G_k^T that enters a factor, without its weight in the moving average. */
static double share_of_gram(const lt_shampoo_config *c, const lt_block *b, int dim)
{
    const lt_shape *shape = &b->region.shape;
    return c->preconditioner == LT_PRECONDITIONER_KL_CORRECTED
               ? (double)shape->dim[dim] / (double)lt_shape_count(*shape)
               : 1;
}

/* Makes the job that updates a factor; false: none. In a skipped step g is an older gradient, or 0. */
static bool add_gram_job(lt_shampoo *s, const lt_block *b, const lt_view *source, int dim,
                         lt_gram_job *job)
{
    if (!b->active || !b->factor[dim].gram)
        return false;
    *job = (lt_gram_job){
        .g = *source,
        .f = lt_tensor_view(b->factor[dim].gram),
        .dim = dim,
        .alpha = lt_shampoo_factor_weight(&s->config) * share_of_gram(&s->config, b, dim),
        .beta = lt_shampoo_factor_decay(&s->config),
        .finite = source == &b->g,
    };
    return true;
}

static lt_status update_all_factors(lt_shampoo *s, lt_block_batch batch)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(&s->base, &ctx);
    size_t count = 0;
    for (size_t i = batch.begin; i < batch.end; i++)
        for (int d = 0; d < LT_MAX_DIMS; d++)
            count += add_gram_job(s, &s->block[i], &s->block[i].g, d, &s->gram[count]);
    return count ? be->gram(ctx, s->gram, count, s->base.scalars) : LT_OK;
}

static lt_status update_kl_factor(lt_shampoo *s, lt_block_batch batch, int dim)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(&s->base, &ctx);
    size_t count = 0;
    for (size_t i = batch.begin; i < batch.end; i++)
        s->block[i].p = s->block[i].g;
    LT_TRY(lt_shampoo_precondition(s, batch, dim));
    for (size_t i = batch.begin; i < batch.end; i++)
        count += add_gram_job(s, &s->block[i], &s->block[i].p, dim, &s->gram[count]);
    return count ? be->gram(ctx, s->gram, count, s->base.scalars) : LT_OK;
}

lt_status lt_shampoo_update_factors(lt_shampoo *s, lt_block_batch batch)
{
    const bool kl = lt_shampoo_is_kl(&s->config);
    LT_TRY(lt_shampoo_dequantize(s, batch, LT_STORED_DIAGONALS));
    LT_TRY(lt_shampoo_update_diagonals(s, batch));
    lt_shampoo_requantize(s, batch, LT_STORED_DIAGONALS);
    if (s->base.attempt % s->config.factor_frequency)
        return LT_OK;
    LT_TRY(lt_shampoo_dequantize(s, batch, LT_STORED_FACTORS));
    if (kl && !lt_shampoo_is_before_start(s))
        LT_TRY(lt_shampoo_dequantize(s, batch, LT_STORED_ROOTS));
    if (!kl)
        LT_TRY(update_all_factors(s, batch));
    for (int d = 0; d < LT_MAX_DIMS && kl; d++)
        LT_TRY(update_kl_factor(s, batch, d));
    lt_shampoo_discard_dequantized(s, batch, LT_STORED_ROOTS);
    lt_shampoo_requantize(s, batch, LT_STORED_FACTORS);
    return LT_OK;
}
