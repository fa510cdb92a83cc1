/* Lists of elementwise expressions in f32, on views of any strides. Formulas: lt_vec_op. */

#include "base/parallel.h"
#include "tensor/backend/cpu/internal.h"

#include "lather/ext/fail.h"

/* Returns the dimension to iterate along: a contiguous one of y, else the longest. */
static int choose_row_dim(const lt_view *y)
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

/* Runs all rows along one dimension, counting through the others. */
static void run_strided(const lt_cpu_kernels *kernels, const lt_vec_job *job, lt_vec_row *r)
{
    const lt_shape *shape = &job->y.shape;
    const int dim = choose_row_dim(&job->y);
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
        kernels->vec_row(r);
        for (d = shape->ndim - 1; d >= 0; d--) {
            if (d != dim && ++at[d] < shape->dim[d])
                break;
            at[d] = 0;
        }
    }
}

static bool is_absent_or_f32(const lt_view *v)
{
    return !v->data || v->dtype == LT_F32;
}

static lt_status run_job(lt_cpu *cpu, const lt_vec_job *job, const lt_scalars *s)
{
    if (!is_absent_or_f32(&job->a) || !is_absent_or_f32(&job->b) || !is_absent_or_f32(&job->y))
        return lt_backend_ref()->vec(cpu, job, 1, s);
    lt_vec_row r = {.op = job->op,
                    .alpha = (float)lt_vec_alpha(job, s),
                    .beta = (float)lt_vec_beta(job, s),
                    .gamma = (float)job->gamma,
                    .delta = (float)job->delta,
                    .a = job->a.data,
                    .b = job->b.data,
                    .y = job->y.data,
                    .count = lt_cpu_element_count(&job->y),
                    .step_a = 1,
                    .step_b = 1,
                    .step_y = 1};
    const bool dense = lt_cpu_has_same_layout(&job->y, &job->a)
                       && (!r.b || lt_cpu_has_same_layout(&job->y, &job->b));
    if (dense || job->y.shape.ndim == 0)
        cpu->kernels->vec_row(&r);
    else
        run_strided(cpu->kernels, job, &r);
    return LT_OK;
}

/* --- Lists of expressions --- */

/* A slice of a list's elements along dimension dim, small enough for the L2 cache. */
typedef struct piece {
    size_t list;
    int dim; /* -1: all elements */
    int64_t begin, count;
    lt_status status;
} piece;

typedef struct pass {
    lt_cpu *cpu;
    const lt_vec_list *list;
    const lt_scalars *scalars;
    piece *piece;
} pass;

/* Returns the outermost dimension in memory, or -1 for one element. */
static int outer_dim(const lt_view *y)
{
    int best = -1;
    for (int d = 0; d < y->shape.ndim; d++)
        if (y->shape.dim[d] > 1 && (best < 0 || y->stride[d] > y->stride[best]))
            best = d;
    return best;
}

static lt_view slice_piece(const lt_view *v, const piece *p)
{
    lt_view part = *v;
    if (!v->data || p->dim < 0)
        return part;
    part.shape.dim[p->dim] = p->count;
    part.data = (char *)v->data + p->begin * v->stride[p->dim] * (int64_t)lt_dtype_size(v->dtype);
    return part;
}

static void run_pieces(void *context, int64_t begin, int64_t end)
{
    const pass *all = context;
    for (int64_t i = begin; i < end; i++) {
        piece *p = &all->piece[i];
        const lt_vec_list *list = &all->list[p->list];
        for (size_t k = 0; k < list->count && !p->status; k++) {
            lt_vec_job job = list->job[k];
            job.a = slice_piece(&job.a, p);
            job.b = slice_piece(&job.b, p);
            job.y = slice_piece(&job.y, p);
            p->status = run_job(all->cpu, &job, all->scalars);
        }
    }
}

/* Splits lists into pieces; only counts them if out is NULL. */
static int64_t split_lists(const lt_vec_list *list, size_t count, piece *out)
{
    enum { ELEMENTS = 16384 };
    int64_t pieces = 0;
    for (size_t i = 0; i < count; i++) {
        if (!list[i].count)
            continue;
        const lt_view *y = &list[i].job[0].y;
        const int dim = outer_dim(y);
        const int64_t extent = dim < 0 ? 1 : y->shape.dim[dim];
        const int64_t others = dim < 0 ? 1 : lt_cpu_element_count(y) / extent;
        const int64_t step = others >= ELEMENTS ? 1 : ELEMENTS / (others ? others : 1);
        for (int64_t at = 0; at < extent; at += step, pieces++)
            if (out)
                out[pieces] = (piece){i, dim, at, extent - at < step ? extent - at : step, LT_OK};
    }
    return pieces;
}

lt_status lt_cpu_vec_lists(void *ctx, const lt_vec_list *list, size_t count,
                           const lt_scalars *scalars)
{
    if (scalars && !scalars->finite)
        return LT_OK;
    const int64_t pieces = split_lists(list, count, NULL);
    pass all = {ctx, list, scalars,
                lt_cpu_scratch(ctx, LT_CPU_PARTIAL, (size_t)(pieces + 1) * sizeof(piece))};
    if (!all.piece)
        return LT_E_NOMEM;
    split_lists(list, count, all.piece);
    lt_parallel_range(pieces, 1, run_pieces, &all);
    for (int64_t i = 0; i < pieces; i++)
        if (all.piece[i].status)
            return lt_fail(all.piece[i].status, "cpu: vec failed");
    return LT_OK;
}

lt_status lt_cpu_vec(void *ctx, const lt_vec_job *job, size_t count, const lt_scalars *scalars)
{
    lt_vec_list *list = NULL;
    LT_TRY(LT_ALLOC(&list, count + 1));
    for (size_t i = 0; i < count; i++)
        list[i] = (lt_vec_list){.job = &job[i], .count = 1};
    lt_status st = lt_cpu_vec_lists(ctx, list, count, scalars);
    lt_free(list);
    return st;
}
