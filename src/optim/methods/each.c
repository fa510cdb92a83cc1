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

static lt_status run_vec_job(lt_tensor *y, lt_vec_job job, const lt_scalars *s)
{
    const lt_device *d = y->device;
    job.y = lt_tensor_view(y);
    if (!lt_shape_equal(job.a.shape, job.y.shape)
        || (job.b.data && !lt_shape_equal(job.b.shape, job.y.shape)))
        return lt_fail(LT_E_SHAPE, "vec: the tensors have different shapes");
    if (!d->backend->vec)
        return lt_fail(LT_E_UNSUPPORTED, "vec: backend %s has no kernel", d->backend->name);
    lt_tensor_bump_version(y);
    return d->backend->vec(d->ctx, &job, 1, s);
}

lt_status lt_vec_axpby(lt_tensor *y, double alpha, const lt_tensor *x, double beta,
                       const lt_scalars *s)
{
    return run_vec_job(y, (lt_vec_job){LT_VEC_AXPBY, alpha, beta, .a = lt_tensor_view(x)}, s);
}

lt_status lt_vec_lerp(lt_tensor *y, const lt_tensor *x, double weight, const lt_scalars *s)
{
    return run_vec_job(y, (lt_vec_job){LT_VEC_AXPBY, weight, 1 - weight, .a = lt_tensor_view(x)},
                       s);
}

lt_status lt_vec_lerp_sq(lt_tensor *y, const lt_tensor *x, double weight, const lt_scalars *s)
{
    return run_vec_job(y, (lt_vec_job){LT_VEC_SQUARE, weight, 1 - weight, .a = lt_tensor_view(x)},
                       s);
}

lt_status lt_vec_rsqrt(lt_tensor *y, double alpha, const lt_tensor *a, double beta,
                       const lt_tensor *b, double eps, const lt_scalars *s)
{
    const lt_vec_job job = {LT_VEC_RSQRT,          alpha, beta, eps, .a = lt_tensor_view(a),
                            .b = lt_tensor_view(b)};
    return run_vec_job(y, job, s);
}

lt_status lt_vec_add_lr(lt_tensor *y, double alpha, const lt_tensor *x, const lt_scalars *s)
{
    const lt_vec_job job = {LT_VEC_AXPBY, alpha, 1, .factor.lr = true, .a = lt_tensor_view(x)};
    return run_vec_job(y, job, s);
}
