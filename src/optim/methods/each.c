/* Helpers for optimizers without their own kernels: a step slot by slot, and vector arithmetic by the backend's vec
 * kernel. */

#include "tensor/tensor.h"

#include "lather/ext/optim.h"
#include "lather/ext/vec.h"

/* Sets slot->grad to an unscaled and clipped copy of the gradient. */
static lt_status make_scaled_gradient(lt_optim *o, lt_slot *slot, const lt_scalars *s)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(o, &ctx);
    const lt_tensor *grad = slot->param->grad;
    LT_TRY(lt_optim_require_kernel(o, be->vec != NULL, "vec"));
    LT_TRY(lt_tensor_new_like(&slot->grad, grad, lt_tensor_dtype(grad)));
    const lt_vec_job job = {
        .op = LT_VEC_AXPBY,
        .alpha = 1,
        .factor.grad_scale = true,
        .a = lt_tensor_view(grad),
        .y = lt_tensor_view(slot->grad),
    };
    return be->vec(ctx, &job, 1, s);
}

lt_status lt_optim_for_each_slot(lt_optim *self, lt_slot_fn *fn, const lt_scalars *s)
{
    lt_status st = LT_OK;
    for (size_t i = 0; i < self->count && !st; i++) {
        lt_slot *slot = &self->slot[i];
        if (!lt_slot_is_due(slot))
            continue;
        st = make_scaled_gradient(self, slot, s);
        if (!st)
            st = fn(self, slot, s);
        lt_tensor_free(&slot->grad);
    }
    return st;
}

/* Gives a row-major matrix [rows,rest] the dimensions of a tensor [rows,...] with as many elements. */
static void unflatten(lt_view *matrix, const lt_view *like)
{
    const lt_shape m = matrix->shape, shape = like->shape;
    if (m.ndim != 2 || shape.ndim == 2 || shape.ndim < 1 || m.dim[0] != shape.dim[0]
        || lt_shape_count(m) != lt_shape_count(shape) || !lt_view_is_contiguous(matrix))
        return;
    matrix->shape = shape;
    lt_format_strides(shape, LT_FORMAT_CONTIGUOUS, matrix->stride);
}

static lt_status match_shapes(lt_view *x, lt_view *y)
{
    char of_x[LT_SHAPE_TEXT], of_y[LT_SHAPE_TEXT];
    unflatten(x, y);
    unflatten(y, x);
    return lt_shape_equal(x->shape, y->shape)
               ? LT_OK
               : lt_fail(LT_E_SHAPE, "vec: shapes %s and %s differ", lt_shape_text(x->shape, of_x),
                         lt_shape_text(y->shape, of_y));
}

static lt_view view_of(const lt_tensor *x)
{
    return x ? lt_tensor_view(x) : (lt_view){0};
}

static lt_status run_vec_job(lt_tensor *y, lt_vec_job job, const lt_scalars *s)
{
    if (!y || !job.a.data || (job.op == LT_VEC_RSQRT && !job.b.data))
        return lt_fail(LT_E_ARG,
                       "vec: a tensor is NULL or has no memory, as a state that has_state "
                       "denies, or a parameter of another rank");
    const lt_device *d = y->device;
    job.y = lt_tensor_view(y);
    LT_TRY(match_shapes(&job.a, &job.y));
    if (job.b.data) {
        LT_TRY(match_shapes(&job.b, &job.y));
        LT_TRY(match_shapes(&job.a, &job.y)); /* b may have changed y's dimensions */
    }
    if (!d->backend->vec)
        return lt_fail(LT_E_UNSUPPORTED, "vec: backend %s has no kernel", d->backend->name);
    lt_tensor_bump_version(y);
    return d->backend->vec(d->ctx, &job, 1, s);
}

lt_status lt_vec_axpby(lt_tensor *y, double alpha, const lt_tensor *x, double beta,
                       const lt_scalars *s)
{
    return run_vec_job(y, (lt_vec_job){LT_VEC_AXPBY, alpha, beta, .a = view_of(x)}, s);
}

lt_status lt_vec_lerp(lt_tensor *y, const lt_tensor *x, double weight, const lt_scalars *s)
{
    return run_vec_job(y, (lt_vec_job){LT_VEC_AXPBY, weight, 1 - weight, .a = view_of(x)}, s);
}

lt_status lt_vec_lerp_sq(lt_tensor *y, const lt_tensor *x, double weight, const lt_scalars *s)
{
    return run_vec_job(y, (lt_vec_job){LT_VEC_SQUARE, weight, 1 - weight, .a = view_of(x)}, s);
}

lt_status lt_vec_rsqrt(lt_tensor *y, double alpha, const lt_tensor *a, double beta,
                       const lt_tensor *b, double eps, const lt_scalars *s)
{
    const lt_vec_job job = {LT_VEC_RSQRT, alpha, beta, eps, .a = view_of(a), .b = view_of(b)};
    return run_vec_job(y, job, s);
}

lt_status lt_vec_correct_bias(lt_tensor *y, const lt_tensor *x, double beta, const lt_scalars *s)
{
    const lt_vec_job job = {LT_VEC_AXPBY, 1, .factor = {.bias = 1, .base = beta}, .a = view_of(x)};
    return run_vec_job(y, job, s);
}

lt_status lt_vec_add_lr(lt_tensor *y, double alpha, const lt_tensor *x, const lt_scalars *s)
{
    const lt_vec_job job = {LT_VEC_AXPBY, alpha, 1, .factor.lr = true, .a = view_of(x)};
    return run_vec_job(y, job, s);
}
