/* Softmax of contiguous rows and its gradient, one job per row. A row is computed in f32 in its thread's workspace;
 * sums are in double, in element order. Other strides and dtypes fall back to the reference backend.
 * Formulas: detail/kernels.h. */

#include "base/parallel.h"
#include "tensor/backend/cpu/internal.h"

#include <string.h>

enum { Y, DY, WORK_ROWS }; /* rows of a thread's workspace */

typedef struct job {
    const lt_cpu_kernels *kernels;
    const lt_view *in[WORK_ROWS], *out; /* in[Y]: y in backward, x in forward */
    float *work;                        /* [threads][WORK_ROWS][K] */
    int64_t count;                      /* K */
} job;

static float *load_row(const job *j, int operand, int64_t n)
{
    float *to = j->work + (lt_parallel_index() * WORK_ROWS + operand) * j->count;
    const void *from = lt_cpu_row(j->in[operand], n);
    if (j->in[operand]->dtype == LT_BF16)
        j->kernels->widen_all(from, to, j->count);
    else
        memcpy(to, from, (size_t)j->count * sizeof *to);
    return to;
}

static void store_row(const job *j, const float *from, int64_t n)
{
    void *to = lt_cpu_row(j->out, n);
    if (j->out->dtype == LT_BF16)
        j->kernels->narrow_all(from, to, j->count);
    else
        memcpy(to, from, (size_t)j->count * sizeof *from);
}

/* Replaces a row by its softmax, shifted by the maximum so that exp() cannot overflow. */
static void softmax_row(const job *j, float *z)
{
    static const lt_pointwise f = {.kind = LT_POINTWISE_EXP};
    const lt_pointwise_row row = {.f = &f, .a = z, .y = z};
    float top = z[0];
    double sum = 0;
    for (int64_t k = 1; k < j->count; k++)
        top = z[k] > top ? z[k] : top;
    for (int64_t k = 0; k < j->count; k++)
        z[k] -= top;
    j->kernels->of[LT_STORE_F32].pointwise(&row, j->count);
    for (int64_t k = 0; k < j->count; k++)
        sum += (double)z[k];
    j->kernels->of[LT_STORE_F32].scale((float)(1 / sum), z, z, j->count);
}

static void softmax_rows(void *context, int64_t begin, int64_t end)
{
    const job *j = context;
    for (int64_t n = begin; n < end; n++) {
        float *z = load_row(j, Y, n);
        softmax_row(j, z);
        store_row(j, z, n);
    }
}

static void gradient_rows(void *context, int64_t begin, int64_t end)
{
    const job *j = context;
    for (int64_t n = begin; n < end; n++) {
        const float *y = load_row(j, Y, n);
        float *d = load_row(j, DY, n);
        double sum = 0;
        for (int64_t k = 0; k < j->count; k++)
            sum += (double)d[k] * (double)y[k];
        for (int64_t k = 0; k < j->count; k++)
            d[k] = y[k] * (d[k] - (float)sum);
        store_row(j, d, n);
    }
}

static lt_status run_rows(lt_cpu *cpu, job *j, lt_range_fn *rows)
{
    j->kernels = cpu->kernels;
    j->count = j->out->shape.dim[1];
    j->work =
        lt_cpu_scratch(cpu, LT_CPU_PARTIAL,
                       (size_t)(lt_parallel_threads() * (j->count * WORK_ROWS)) * sizeof(float));
    if (!j->work)
        return LT_E_NOMEM;
    lt_parallel_range(j->out->shape.dim[0], 1, rows, j);
    return LT_OK;
}

lt_status lt_cpu_softmax(void *ctx, const lt_view *x, const lt_view *y)
{
    if (!lt_cpu_has_contiguous_rows(x) || !lt_cpu_has_contiguous_rows(y) || x->dtype != y->dtype)
        return lt_backend_ref()->softmax(ctx, x, y);
    return run_rows(ctx, &(job){.in = {[Y] = x}, .out = y}, softmax_rows);
}

lt_status lt_cpu_softmax_grad(void *ctx, const lt_view *dy, const lt_view *y, const lt_view *dx)
{
    if (!lt_cpu_has_contiguous_rows(dy) || !lt_cpu_has_contiguous_rows(y)
        || !lt_cpu_has_contiguous_rows(dx) || dy->dtype != dx->dtype || y->dtype != dx->dtype)
        return lt_backend_ref()->softmax_grad(ctx, dy, y, dx);
    return run_rows(ctx, &(job){.in = {[Y] = y, [DY] = dy}, .out = dx}, gradient_rows);
}
