/* Shampoo's contractions in f32: Gram matrices and mode products, as matrix products (product.c). Formulas:
 * detail/matrix_kernels.h. */

#include "product.h"

/* Builds one axis from all dimensions of y except dim, ordered by y's strides, and the axis of the same elements of g.
 * Adjacent dimensions are merged where both strides allow it. */
static void build_other_axes(const lt_view *y, const lt_view *g, int dim, lt_axis *of_y,
                             lt_axis *of_g)
{
    int order[LT_MAX_DIMS];
    const int n = lt_cpu_sort_dims_by_stride(y, dim, order);
    *of_y = *of_g = lt_axis_1d(1, 1);
    for (int i = 0; i < n; i++) {
        const int64_t count = y->shape.dim[order[i]];
        const int64_t in_y = y->stride[order[i]], in_g = g->stride[order[i]];
        int last = of_y->dims - 1;
        const bool joins =
            i == 0 || (of_y->stride[last] == in_y * count && of_g->stride[last] == in_g * count);
        if (!joins)
            last++;
        of_y->dims = of_g->dims = last + 1;
        of_y->count[last] = of_g->count[last] = (joins ? of_y->count[last] : 1) * count;
        of_y->stride[last] = in_y;
        of_g->stride[last] = in_g;
    }
}

static lt_product make_gram_product(const lt_gram_job *job)
{
    const int64_t n = job->g.shape.dim[job->dim];
    lt_axis rest, same;
    build_other_axes(&job->g, &job->g, job->dim, &rest, &same);
    const lt_operand g = {job->g.data, lt_axis_1d(n, job->g.stride[job->dim]), rest};
    return (lt_product){.a = g,
                        .b = g,
                        .y = job->f.data,
                        .row = lt_axis_1d(n, n),
                        .col = lt_axis_1d(n, 1),
                        .rows = n,
                        .cols = n,
                        .depth = lt_cpu_element_count(&job->g) / n,
                        .alpha = (float)job->alpha,
                        .beta = (float)job->beta,
                        .symmetric = true};
}

/* Returns the product whose columns are the contiguous dimension of y. */
static lt_product make_mode_product(const lt_mode_product_job *job)
{
    const int64_t n = job->y.shape.dim[job->dim], rest = lt_cpu_element_count(&job->y) / n;
    lt_axis in_y, in_g;
    build_other_axes(&job->y, &job->g, job->dim, &in_y, &in_g);
    const lt_axis along_y = lt_axis_1d(n, job->y.stride[job->dim]);
    const lt_axis along_g = lt_axis_1d(n, job->g.stride[job->dim]);
    const lt_operand g = {job->g.data, in_g, along_g};
    const lt_operand m = {job->m.data, lt_axis_1d(n, job->transpose ? 1 : n),
                          lt_axis_1d(n, job->transpose ? n : 1)};
    const bool across = rest == 1 || in_y.stride[in_y.dims - 1] != 1;
    return (lt_product){.a = across ? g : m,
                        .b = across ? m : g,
                        .y = job->y.data,
                        .row = across ? in_y : along_y,
                        .col = across ? along_y : in_y,
                        .rows = across ? rest : n,
                        .cols = across ? n : rest,
                        .depth = n,
                        .alpha = 1};
}

static bool all_f32(const lt_view *x, const lt_view *y, const lt_view *z)
{
    return x->dtype == LT_F32 && y->dtype == LT_F32 && z->dtype == LT_F32;
}

/* Appends job i as a product, or runs it on the reference backend if it is not f32. */
typedef lt_status add_fn(void *ctx, const void *jobs, size_t i, lt_product *list, size_t *fast);

static lt_status append_gram(void *ctx, const void *jobs, size_t i, lt_product *list, size_t *fast)
{
    const lt_gram_job *job = (const lt_gram_job *)jobs + i;
    if (!all_f32(&job->g, &job->f, &job->f))
        return lt_backend_ref()->gram(ctx, job, 1, NULL);
    list[(*fast)++] = make_gram_product(job);
    return LT_OK;
}

static lt_status append_mode_product(void *ctx, const void *jobs, size_t i, lt_product *list,
                                     size_t *fast)
{
    const lt_mode_product_job *job = (const lt_mode_product_job *)jobs + i;
    if (!all_f32(&job->g, &job->y, &job->m))
        return lt_backend_ref()->mode_product(ctx, job, 1, NULL);
    list[(*fast)++] = make_mode_product(job);
    return LT_OK;
}

static lt_status run_jobs(void *ctx, const void *jobs, size_t count, add_fn *add)
{
    lt_product *list = lt_alloc(count, sizeof *list);
    lt_status st = list ? LT_OK : LT_E_NOMEM;
    size_t fast = 0;
    for (size_t i = 0; i < count && !st; i++)
        st = add(ctx, jobs, i, list, &fast);
    if (!st)
        st = lt_cpu_multiply_list(ctx, list, fast);
    lt_free(list);
    return st;
}

lt_status lt_cpu_gram(void *ctx, const lt_gram_job *job, size_t count, const lt_scalars *scalars)
{
    return scalars && !scalars->finite ? LT_OK : run_jobs(ctx, job, count, append_gram);
}

lt_status lt_cpu_mode_product(void *ctx, const lt_mode_product_job *job, size_t count,
                              const lt_scalars *scalars)
{
    return scalars && !scalars->finite ? LT_OK : run_jobs(ctx, job, count, append_mode_product);
}
