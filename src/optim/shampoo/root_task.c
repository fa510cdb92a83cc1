/* Turns Shampoo's factors into jobs of the root solvers. */

#include "base/alloc.h"
#include "optim/shampoo/root_refresh.h"
#include "optim/shampoo/state_store.h"
#include "optim/slots.h"
#include "tensor/tensor.h"

/* Most elements of a batch (a single matrix may exceed it): 2^23 on the host; 2^27 on a device with a stream,
 * which holds all of ResNet-50's. There copies and results take 512 MiB each, and a round of launches and
 * read-backs costs the same for any size. */
static const int64_t host_elements = (int64_t)1 << 23, device_elements = (int64_t)1 << 27;
/* Most elements of a batch whose factors and roots must be dequantized for it. */
static const int64_t dequantized_elements = (int64_t)1 << 21;

/* Orders large matrices first, so that a batch holds matrices of similar size. */
static int by_size(const void *x, const void *y)
{
    const lt_root_task *a = x, *b = y;
    if (a->n != b->n)
        return a->n < b->n ? 1 : -1;
    if (a->block != b->block)
        return a->block < b->block ? -1 : 1;
    return a->dim - b->dim;
}

size_t lt_shampoo_list_root_tasks(lt_shampoo *s, lt_block_batch batch, lt_root_task *tasks)
{
    size_t count = 0;
    for (size_t i = batch.begin; i < batch.end; i++) {
        lt_block *b = &s->block[i];
        for (int d = 0; d < LT_MAX_DIMS && b->active && b->due; d++)
            if (b->factor[d].is_matrix)
                tasks[count++] = (lt_root_task){.block = b, .dim = d, .n = b->region.shape.dim[d]};
    }
    qsort(tasks, count, sizeof *tasks, by_size);
    return count;
}

size_t lt_shampoo_end_of_root_batch(const lt_device *device, const lt_root_task *tasks,
                                    size_t begin, size_t count)
{
    const bool is_stored = tasks[begin].block->factor[tasks[begin].dim].gram_store != NULL;
    const int64_t whole = device->backend->host_memory ? host_elements : device_elements;
    const int64_t most = is_stored ? dequantized_elements : whole;
    int64_t elements = 0;
    size_t end = begin;
    for (; end < count; end++) {
        elements += tasks[end].n * tasks[end].n;
        if (elements > most && end > begin)
            break;
    }
    return end;
}

int64_t lt_shampoo_refresh_elements(const lt_device *device)
{
    return device->backend->host_memory ? 0 : device_elements;
}
lt_status lt_shampoo_make_root_jobs(lt_shampoo *s, const lt_root_task *tasks, size_t count,
                                    lt_root_job *jobs, lt_tensor **copies)
{
    int64_t elements = 0;
    for (size_t i = 0; i < count; i++)
        elements += tasks[i].n * tasks[i].n;
    LT_TRY(lt_tensor_new(copies, s->base.device, lt_device_master_dtype(s->base.device),
                         LT_SHAPE(elements)));
    char *at = lt_tensor_view(*copies).data;
    for (size_t i = 0; i < count; i++) {
        const lt_root_task *t = &tasks[i];
        const lt_factor *f = &t->block->factor[t->dim];
        lt_view a = lt_tensor_view(f->gram);
        s->vec[i] = (lt_vec_job){
            .op = LT_VEC_AXPBY, .alpha = 1, .factor = lt_shampoo_factor_bias(s, t->block), .a = a};
        a.data = at;
        at += (size_t)(t->n * t->n) * lt_dtype_size(a.dtype);
        s->vec[i].y = a;
        jobs[i] = (lt_root_job){.a = a,
                                .exponent = lt_shampoo_root_exponent(&s->config, f->exponent),
                                .out = lt_tensor_view(f->root),
                                .param = t->block->slot->param->name,
                                .block = t->block->index,
                                .dim = t->dim};
        if (t->block->root_step)
            jobs[i].old = jobs[i].out;
        if (f->power)
            jobs[i].power = lt_tensor_view(f->power);
    }
    return lt_optim_run_vec_jobs(&s->base, s->vec, count);
}

/* Determines if the step is skipped, so that factors and roots must not change. A device with a stream refreshes
 * only after the host has seen that the step is not skipped: reading it again would wait for the factors. */
static lt_status is_skipped(const lt_shampoo *s, bool *skipped)
{
    void *ctx;
    lt_scalars scalars = {.finite = 1};
    if (lt_optim_backend(&s->base, &ctx)->host_memory)
        LT_TRY(lt_optim_read_scalars(&s->base, &scalars));
    *skipped = !scalars.finite;
    return LT_OK;
}

lt_status lt_shampoo_run_root_tasks(lt_shampoo *s, lt_root_task *tasks, size_t count)
{
    bool skipped;
    LT_TRY(is_skipped(s, &skipped));
    for (size_t i = 0; i < count; i++)
        tasks[i].status = LT_OK;
    if (skipped)
        return LT_OK;
    lt_tensor *copies = NULL;
    lt_root_job *jobs = lt_alloc(count, sizeof *jobs);
    lt_status st = jobs ? lt_shampoo_dequantize_tasks(tasks, count) : LT_E_NOMEM;
    if (!st)
        st = lt_shampoo_make_root_jobs(s, tasks, count, jobs, &copies);
    const lt_root_context context = {
        .config = &s->config, .device = s->base.device, .step = s->base.attempt};
    if (!st)
        st = lt_root_run(&context, jobs, count);
    for (size_t i = 0; i < count && !st; i++) {
        tasks[i].status = jobs[i].status;
        if (!jobs[i].status)
            tasks[i].block->factor[tasks[i].dim].residual = jobs[i].residual;
        tasks[i].retried = jobs[i].retried;
    }
    if (!st)
        lt_shampoo_requantize_tasks(tasks, count);
    lt_tensor_free(&copies);
    lt_free(jobs);
    return st;
}
