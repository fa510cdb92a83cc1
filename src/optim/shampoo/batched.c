/* Batched kernels: one backend call with a job per active block of a batch. */

#include "optim/shampoo/layout.h"
#include "optim/shampoo/phases.h"
#include "optim/slots.h"

lt_status lt_shampoo_run_rule(lt_shampoo *s, lt_block_batch batch, lt_vec_rule *rule)
{
    size_t count = 0;
    for (size_t i = batch.begin; i < batch.end; i++) {
        lt_vec_job job = {.op = LT_VEC_AXPBY, .alpha = 1};
        if (s->block[i].active && rule(s, &s->block[i], &job))
            s->vec[count++] = job;
    }
    return lt_optim_run_vec_jobs(&s->base, s->vec, count);
}

/* The jobs of a block are consecutive in s->vec, which has LT_MAX_DIMS per block. */
lt_status lt_shampoo_run_rules(lt_shampoo *s, lt_block_batch batch, lt_vec_rule *const *rule,
                               size_t count, bool ends)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(&s->base, &ctx);
    size_t jobs = 0, lists = 0;
    LT_ASSERT(count <= LT_MAX_DIMS);
    for (size_t k = 0; k < count && !be->vec_lists; k++)
        if (rule[k])
            LT_TRY(lt_shampoo_run_rule(s, batch, rule[k]));
    for (size_t i = batch.begin; i < batch.end && be->vec_lists; i++) {
        lt_vec_list list = {.job = s->vec + jobs, .scratch = ends ? s->block[i].p.data : NULL};
        for (size_t k = 0; k < count && s->block[i].active; k++) {
            lt_vec_job job = {.op = LT_VEC_AXPBY, .alpha = 1};
            if (!rule[k] || !rule[k](s, &s->block[i], &job))
                continue;
            s->vec[jobs++] = job;
            list.count++;
        }
        if (list.count)
            s->list[lists++] = list;
    }
    return lists ? be->vec_lists(ctx, s->list, lists, s->base.scalars) : LT_OK;
}

lt_status lt_shampoo_measure_norms(lt_shampoo *s, lt_block_batch batch,
                                   bool (*test)(const lt_block *))
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(&s->base, &ctx);
    const size_t count = batch.end - batch.begin;
    lt_view out = lt_tensor_view(s->norms), of_one = out;
    out.stride[0] = of_one.stride[0] = 1;
    for (size_t i = 0; i < count; i++) {
        const lt_block *b = &s->block[batch.begin + i];
        const bool here = b->active && (!test || test(b));
        s->view[i] = here ? *lt_block_output_buffer(b) : lt_tensor_view(s->one);
    }
    out.data = (double *)out.data + batch.begin;
    out.shape = LT_SHAPE((int64_t)count);
    LT_TRY(be->frobenius(ctx, s->view, count, &out));
    s->view[0] = lt_tensor_view(s->one);
    of_one.data = (double *)of_one.data + s->count;
    of_one.shape = LT_SHAPE(1);
    return be->frobenius(ctx, s->view, 1, &of_one);
}

/* Multiplies: p = p times the root or eigenbasis of dimension dim, transposed or not, in blocks that have one. */
static lt_status multiply_by_root(lt_shampoo *s, lt_block_batch batch, int dim, bool transpose)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(&s->base, &ctx);
    size_t count = 0;
    for (size_t i = batch.begin; i < batch.end; i++) {
        lt_block *b = &s->block[i];
        if (!b->active || !b->factor[dim].root)
            continue;
        s->product[count++] = (lt_mode_product_job){
            .g = b->p,
            .y = *lt_block_output_buffer(b),
            .m = lt_tensor_view(b->factor[dim].root),
            .dim = dim,
            .transpose = transpose,
        };
        lt_block_swap_buffers(b);
    }
    /* The output is workspace, so a device may write it in a skipped step too. */
    const lt_scalars *scalars = be->host_memory ? s->base.scalars : NULL;
    return count ? be->mode_product(ctx, s->product, count, scalars) : LT_OK;
}

/* Before the first refresh every eigenbasis is the identity. */
lt_status lt_shampoo_rotate_to_basis(lt_shampoo *s, lt_block_batch batch, bool back)
{
    if (lt_shampoo_is_before_start(s))
        return LT_OK;
    for (int d = 0; d < LT_MAX_DIMS; d++)
        LT_TRY(multiply_by_root(s, batch, d, !back));
    return LT_OK;
}

/* In the eigenbasis of dimension d: p *= eigenvalues^(-e). */
static lt_status scale_by_eigenvalue_powers(lt_shampoo *s, lt_block_batch batch, int d)
{
    size_t count = 0;
    for (size_t i = batch.begin; i < batch.end; i++) {
        const lt_block *b = &s->block[i];
        if (!b->active || !b->factor[d].power)
            continue;
        lt_vec_job *job = &s->vec[count++];
        *job = (lt_vec_job){.op = LT_VEC_MUL, .alpha = 1, .a = b->p, .y = b->p};
        job->b = lt_tensor_view(b->factor[d].power);
        job->b.shape = b->p.shape;
        for (int k = 0; k < LT_MAX_DIMS; k++)
            job->b.stride[k] = k == d;
    }
    return lt_optim_run_vec_jobs(&s->base, s->vec, count);
}

lt_status lt_shampoo_precondition(lt_shampoo *s, lt_block_batch batch, int skip)
{
    bool eigen = lt_shampoo_has_powers(&s->config);
    if (lt_shampoo_is_before_start(s))
        return LT_OK;
    for (int d = 0; d < LT_MAX_DIMS; d++) {
        if (d == skip)
            continue;
        LT_TRY(multiply_by_root(s, batch, d, eigen));
        if (!eigen)
            continue;
        LT_TRY(scale_by_eigenvalue_powers(s, batch, d));
        LT_TRY(multiply_by_root(s, batch, d, false));
    }
    return LT_OK;
}
