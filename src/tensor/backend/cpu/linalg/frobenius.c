/* Frobenius norms, one array per thread. Formulas: detail/matrix_kernels.h. */

#include "tensor/backend/cpu/cpu.h"
#include "tensor/backend/cpu/internal.h"

#include <math.h>

typedef struct list {
    void *ctx;
    const lt_view *x, *out;
} list;

enum { SHORT_RUN = 16 };

/* Sets the dimensions of x that form contiguous runs to size 1, so that x addresses the runs' first elements. Returns
 * the length of a run. */
static int64_t split_off_contiguous_dims(lt_view *x)
{
    int64_t length = 1;
    for (int d = 0; d < x->shape.ndim; d++) {
        if (x->shape.dim[d] == 1 || x->stride[d] != length)
            continue;
        length *= x->shape.dim[d];
        x->shape.dim[d] = 1;
        d = -1; /* an earlier dimension may continue the run */
    }
    return length;
}

/* Returns the sum of squares of f32 runs. */
static double sum_squares_of_runs(const lt_cpu *cpu, const lt_view *begins, int64_t length)
{
    double sum = 0;
    for (int64_t i = 0, runs = lt_cpu_element_count(begins); i < runs; i++) {
        int64_t at = 0, rest = i;
        for (int d = begins->shape.ndim - 1; d >= 0; d--) {
            at += rest % begins->shape.dim[d] * begins->stride[d];
            rest /= begins->shape.dim[d];
        }
        sum += cpu->kernels->square_sum((const float *)begins->data + at, 1, length);
    }
    return sum;
}

static lt_status run_norm(void *context, int64_t i)
{
    const list *l = context;
    const lt_cpu *cpu = l->ctx;
    const lt_view *x = &l->x[i];
    lt_view out = *l->out;
    double *norm = (double *)out.data + i * out.stride[0];
    out.data = norm;
    out.shape.dim[0] = 1;
    lt_view begins = *x;
    const int64_t length = split_off_contiguous_dims(&begins);
    if (x->dtype != LT_F32 || (length < SHORT_RUN && !lt_view_is_dense(x)))
        return lt_backend_ref()->frobenius(l->ctx, x, 1, &out);
    *norm = sqrt(sum_squares_of_runs(cpu, &begins, length));
    return LT_OK;
}

lt_status lt_cpu_frobenius(void *ctx, const lt_view *x, size_t count, const lt_view *out)
{
    list l = {.ctx = ctx, .x = x, .out = out};
    return lt_cpu_run_jobs("frobenius", count, run_norm, &l);
}
