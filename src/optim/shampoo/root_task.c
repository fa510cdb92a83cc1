/* Shampoo's factors as jobs of the solvers. */

#include "base/alloc.h"
#include "optim/shampoo/shampoo.h"

#include "lather/ext/roots.h"

lt_status lt_shampoo_root_jobs(lt_shampoo *s, const lt_root_task *tasks, size_t count,
                               lt_root_job *jobs, lt_tensor **copies)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(&s->base, &ctx);
    const lt_shampoo_config *c = &s->config;
    const bool corrects = c->use_bias_correction && c->beta2 < 1 && !c->drop_weighting;
    int64_t elements = 0;
    for (size_t i = 0; i < count; i++)
        elements += tasks[i].n * tasks[i].n;
    LT_TRY(lt_tensor_new(copies, s->base.device, lt_device_master(s->base.device),
                         LT_SHAPE(elements)));
    char *at = lt_tensor_view(*copies).data;
    for (size_t i = 0; i < count; i++) {
        const lt_root_task *t = &tasks[i];
        const lt_factor *f = &t->block->factor[t->dim];
        lt_view a = lt_tensor_view(f->gram);
        s->vec[i] = (lt_vec_job){.op = LT_VEC_AXPBY, .alpha = 1, .a = a};
        if (corrects)
            s->vec[i].factor = (lt_vec_factor){.bias = 1, .base = c->beta2};
        a.data = at;
        at += (size_t)(t->n * t->n) * lt_dtype_size(a.dtype);
        s->vec[i].y = a;
        jobs[i] = (lt_root_job){.a = a,
                                .exponent = f->exponent,
                                .out = lt_tensor_view(f->root),
                                .param = t->block->slot->param->name,
                                .block = t->block->index,
                                .dim = t->dim};
        if (t->block->rooted)
            jobs[i].old = jobs[i].out;
        if (f->power)
            jobs[i].power = lt_tensor_view(f->power);
    }
    return be->vec(ctx, s->vec, count, s->base.scalars);
}

/* In a skipped step the factors were not updated, and the roots stay too. */
static lt_status is_skipped(const lt_shampoo *s, bool *skipped)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(&s->base, &ctx);
    lt_scalars scalars;
    LT_TRY(be->copy(ctx, &scalars, s->base.scalars, sizeof scalars, LT_COPY_OUT));
    LT_TRY(be->sync(ctx));
    *skipped = !scalars.finite;
    return LT_OK;
}

lt_status lt_shampoo_run_tasks(lt_shampoo *s, lt_root_task *tasks, size_t count)
{
    bool skipped;
    LT_TRY(is_skipped(s, &skipped));
    for (size_t i = 0; i < count; i++)
        tasks[i].status = LT_OK;
    if (skipped)
        return LT_OK;
    lt_tensor *copies = NULL;
    lt_root_job *jobs = lt_alloc(count, sizeof *jobs);
    lt_status st = jobs ? lt_shampoo_root_jobs(s, tasks, count, jobs, &copies) : LT_E_NOMEM;
    const lt_root_context context = {
        .config = &s->config, .device = s->base.device, .step = s->base.attempt};
    if (!st)
        st = lt_root_run(&context, jobs, count);
    for (size_t i = 0; i < count && !st; i++) {
        tasks[i].status = jobs[i].status;
        tasks[i].retried = jobs[i].retried;
    }
    lt_tensor_free(&copies);
    lt_free(jobs);
    return st;
}
