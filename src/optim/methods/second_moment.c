/* Division of orthogonal updates by the root of their second moment. Of outputs: Li et al., "NorMuon: Making Muon more
 * efficient and scalable", 2025 (arXiv 2510.05491), algorithm 1. Of elements: Si et al., "AdaMuon: Adaptive Muon
 * optimizer", 2025 (arXiv 2507.11005). */

#include "second_moment.h"

#include "optim/slots.h"
#include "tensor/tensor.h"

enum { BEFORE, AFTER, ONE, NORMS };

lt_status lt_second_moment_open(lt_second_moment *s, lt_device *device, int64_t outputs)
{
    if (!s->mean)
        LT_TRY(lt_tensor_new(&s->mean, device, lt_device_master_dtype(device), LT_SHAPE(outputs)));
    if (!s->norms)
        LT_TRY(lt_tensor_new(&s->norms, device, LT_F64, LT_SHAPE(NORMS)));
    return lt_tensor_fill(s->norms, 1);
}

void lt_second_moment_close(lt_second_moment *s)
{
    lt_tensor_free(&s->mean);
    lt_tensor_free(&s->norms);
}

static double *norm_at(const lt_second_moment *s, int index)
{
    return (double *)lt_tensor_view(s->norms).data + index;
}

static lt_status measure_norm(const lt_second_moment *s, const lt_optim *o, const lt_view *x,
                              int index)
{
    lt_view out = lt_tensor_view(s->norms);
    out.data = norm_at(s, index);
    out.shape = LT_SHAPE(1);
    return o->device->backend->frobenius(o->device->ctx, x, 1, &out);
}

/* Updates v of the elements. */
static lt_status update_elements(const lt_second_moment *s, const lt_optim *o,
                                 const lt_second_moment_job *j)
{
    const lt_vec_job job = {
        .op = LT_VEC_SQUARE, .alpha = 1 - s->beta2, .beta = s->beta2, .a = j->x, .y = j->v};
    return lt_optim_run_vec_jobs(o, &job, 1);
}

/* Updates v of the outputs; *v: v repeated to the shape of x. */
static lt_status update_outputs(const lt_second_moment *s, const lt_optim *o,
                                const lt_second_moment_job *j, lt_view *v)
{
    const int64_t count = j->x.shape.dim[!j->dim];
    const lt_vec_job square = {.op = LT_VEC_SQUARE, .alpha = 1, .a = j->x, .y = j->squares};
    lt_view mean = lt_tensor_view(s->mean);
    v->shape = j->x.shape;
    v->shape.dim[!j->dim] = 1;
    mean.shape = v->shape;
    for (int d = 0; d < 2; d++)
        v->stride[d] = mean.stride[d] = 1;
    const lt_vec_job lerp = {
        .op = LT_VEC_AXPBY, .alpha = 1 - s->beta2, .beta = s->beta2, .a = mean, .y = *v};
    LT_TRY(lt_optim_run_vec_jobs(o, &square, 1));
    LT_TRY(o->device->backend->sum(o->device->ctx, 1.0 / (double)count, &j->squares, &mean));
    LT_TRY(lt_optim_run_vec_jobs(o, &lerp, 1));
    v->shape = j->x.shape;
    v->stride[!j->dim] = 0;
    return LT_OK;
}

lt_status lt_second_moment_divide(const lt_second_moment *s, const lt_optim *o,
                                  const lt_second_moment_job *j)
{
    lt_view v = j->v;
    LT_TRY(measure_norm(s, o, &j->x, BEFORE));
    LT_TRY(j->dim < 0 ? update_elements(s, o, j) : update_outputs(s, o, j, &v));
    const lt_vec_job divide = {
        .op = LT_VEC_RSQRT, .alpha = 1, .beta = 1, .gamma = s->eps, .a = j->x, .b = v, .y = j->x};
    LT_TRY(lt_optim_run_vec_jobs(o, &divide, 1));
    LT_TRY(measure_norm(s, o, &j->x, AFTER));
    lt_vec_job rescale = {.op = LT_VEC_AXPBY, .alpha = j->length, .a = j->x, .y = j->x};
    rescale.factor.over = norm_at(s, j->keeps_norm ? BEFORE : ONE);
    rescale.factor.under = norm_at(s, AFTER);
    return lt_optim_run_vec_jobs(o, &rescale, 1);
}
