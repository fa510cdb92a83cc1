/* Lists of elementwise statements in f32, on views of any strides. Formulas: lt_vec_op. */

#include "base/parallel.h"
#include "tensor/backend/cpu/internal.h"

#include <math.h>

/* A row of a statement: elements along one dimension, with the steps between them. */
typedef struct row {
    lt_vec_op op;
    float alpha, beta, gamma, delta;
    const float *a, *b;
    float *y;
    int64_t count, step_a, step_b, step_y;
} row;

/* Kept apart, so that the compiler sees constant steps in the usual case. */
static inline __attribute__((always_inline)) void run_row(const row *r, int64_t sa, int64_t sb,
                                                          int64_t sy)
{
    const float *a = r->a, *b = r->b;
    float *y = r->y;
    const float alpha = r->alpha, beta = r->beta, gamma = r->gamma;
#define EACH(expression)                   \
    for (int64_t i = 0; i < r->count; i++) \
    y[i * sy] = (expression)
    switch (r->op) {
    case LT_VEC_AXPBY:
        if (beta == 0) /* y is not read */
            EACH(alpha * a[i * sa]);
        else
            EACH(alpha * a[i * sa] + beta * y[i * sy]);
        break;
    case LT_VEC_SQUARE:
        if (beta == 0)
            EACH(alpha * a[i * sa] * a[i * sa]);
        else
            EACH(alpha * a[i * sa] * a[i * sa] + beta * y[i * sy]);
        break;
    case LT_VEC_MUL:
        EACH(alpha * a[i * sa] * b[i * sb]);
        break;
    case LT_VEC_RSQRT:
        EACH(alpha * a[i * sa] / (sqrtf(beta * b[i * sb]) + gamma));
        break;
    case LT_VEC_POW:
        EACH(alpha * a[i * sa] / (powf(beta * b[i * sb], r->delta) + gamma));
        break;
    }
#undef EACH
}

static void run_any(const row *r)
{
    if (r->step_a == 1 && r->step_y == 1 && (r->step_b == 1 || !r->b))
        run_row(r, 1, 1, 1);
    else
        run_row(r, r->step_a, r->step_b, r->step_y);
}

/* The dimension for rows: where y is dense, or else the longest. */
static int row_dim(const lt_view *y)
{
    int best = 0;
    for (int d = 1; d < y->shape.ndim; d++)
        if (y->shape.dim[d] > y->shape.dim[best])
            best = d;
    for (int d = 0; d < y->shape.ndim; d++)
        if (y->stride[d] == 1 && y->shape.dim[d] >= 16)
            best = d;
    return best;
}

/* All rows, by counting through the other dimensions. */
static void run_strided(const lt_vec_job *job, row *r)
{
    const lt_shape *shape = &job->y.shape;
    const int dim = row_dim(&job->y);
    const float *a = r->a, *b = r->b;
    float *y = r->y;
    int64_t at[LT_MAX_DIMS] = {0};
    r->count = shape->dim[dim];
    r->step_a = job->a.stride[dim];
    r->step_b = r->b ? job->b.stride[dim] : 0;
    r->step_y = job->y.stride[dim];
    for (int d = 0; d >= 0;) {
        int64_t to_a = 0, to_b = 0, to_y = 0;
        for (int k = 0; k < shape->ndim; k++) {
            to_a += at[k] * job->a.stride[k];
            to_b += b ? at[k] * job->b.stride[k] : 0;
            to_y += at[k] * job->y.stride[k];
        }
        r->a = a + to_a;
        r->b = b ? b + to_b : NULL;
        r->y = y + to_y;
        run_any(r);
        for (d = shape->ndim - 1; d >= 0; d--) {
            if (d != dim && ++at[d] < shape->dim[d])
                break;
            at[d] = 0;
        }
    }
}

static bool is_f32(const lt_view *v)
{
    return !v->data || v->dtype == LT_F32;
}

static lt_status run_job(void *ctx, const lt_vec_job *job, const lt_scalars *s)
{
    if (!is_f32(&job->a) || !is_f32(&job->b) || !is_f32(&job->y))
        return lt_backend_ref()->vec(ctx, job, 1, s);
    row r = {.op = job->op,
             .alpha = (float)lt_vec_alpha(job, s),
             .beta = (float)lt_vec_beta(job, s),
             .gamma = (float)job->gamma,
             .delta = (float)job->delta,
             .a = job->a.data,
             .b = job->b.data,
             .y = job->y.data,
             .count = lt_cpu_count(&job->y),
             .step_a = 1,
             .step_b = 1,
             .step_y = 1};
    const bool dense =
        lt_cpu_same_dense(&job->y, &job->a) && (!r.b || lt_cpu_same_dense(&job->y, &job->b));
    if (dense || job->y.shape.ndim == 0)
        run_any(&r);
    else
        run_strided(job, &r);
    return LT_OK;
}

typedef struct list {
    void *ctx;
    const lt_vec_job *job;
    const lt_scalars *scalars;
    lt_status *status;
} list;

static void run_jobs(void *context, int64_t begin, int64_t end, int64_t chunk)
{
    (void)chunk;
    list *l = context;
    for (int64_t i = begin; i < end; i++)
        l->status[i] = run_job(l->ctx, &l->job[i], l->scalars);
}

static lt_status vec(void *ctx, const lt_vec_job *job, size_t count, const lt_scalars *scalars)
{
    if (scalars && !scalars->finite)
        return LT_OK;
    list l = {ctx, job, scalars,
              lt_cpu_scratch(ctx, LT_CPU_PARTIAL, (count + 1) * sizeof(lt_status))};
    if (!l.status)
        return LT_E_NOMEM;
    lt_parallel((int64_t)count, 1, run_jobs, &l);
    for (size_t i = 0; i < count; i++)
        if (l.status[i])
            return lt_fail(l.status[i], "cpu: vec failed");
    return LT_OK;
}

void lt_cpu_install_vec(lt_backend *be)
{
    be->vec = vec;
}
