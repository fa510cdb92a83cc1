/* Ratio of the moments of Adam kinds, for --optim-stats: |m| / |sqrt(v)|, Euclidean norms after bias correction. It is 1
 * if each gradient repeats the one before; sqrt((1 - beta1) / (1 + beta1)), 0.23 by default, if gradients are noise
 * only. */

#include "optim/slots.h"
#include "quantized_state.h"
#include "tensor/tensor.h"

#include <math.h>

lt_status lt_optim_expand_state(const lt_slot *slot, int index, lt_tensor **temporary,
                                lt_tensor **out)
{
    if (slot->quantized[index] && !slot->state[index])
        LT_TRY(lt_quantized_dequantize(slot->quantized[index], temporary));
    *out = *temporary ? *temporary : slot->state[index];
    return LT_OK;
}

/* Computes the norms of m and of sqrt(v). */
static lt_status measure_norms(const lt_optim *o, const lt_tensor *m, const lt_tensor *v,
                               double norm[2])
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(o, &ctx);
    lt_tensor *root = NULL, *norms = NULL;
    lt_status st = lt_tensor_new_like(&root, v, lt_tensor_dtype(v));
    if (!st)
        st = lt_tensor_new(&norms, o->device, LT_F64, LT_SHAPE(2));
    if (!st) {
        const lt_vec_job job = {.op = LT_VEC_RSQRT, /* v / sqrt(v); 0 of 0 */
                                .alpha = 1,
                                .beta = 1,
                                .gamma = 1e-30,
                                .a = lt_tensor_view(v),
                                .b = lt_tensor_view(v),
                                .y = lt_tensor_view(root)};
        st = be->vec(ctx, &job, 1, NULL);
    }
    if (!st) {
        const lt_view view[] = {lt_tensor_view(m), lt_tensor_view(root)};
        const lt_view out = lt_tensor_view(norms);
        st = be->frobenius(ctx, view, 2, &out);
    }
    if (!st)
        st = lt_tensor_read(norms, norm, 2 * sizeof *norm);
    lt_tensor_free(&root);
    lt_tensor_free(&norms);
    return st;
}

lt_status lt_optim_moment_ratio(const lt_optim *o, const lt_slot *slot, double beta1, double beta2,
                                double *ratio)
{
    lt_scalars s;
    lt_tensor *temporary[2] = {NULL, NULL};
    lt_tensor *moment[2] = {NULL, NULL};
    double missed = 0, norm[2] = {0};
    const lt_view at = {.data = (void *)(uintptr_t)lt_optim_missed_steps(o, slot), .dtype = LT_F64};
    LT_TRY(lt_optim_read_scalars(o, &s));
    if (at.data)
        LT_TRY(lt_optim_read_device_scalar(o, &at, &missed));
    lt_status st = lt_optim_expand_state(slot, 0, &temporary[0], &moment[0]);
    if (!st)
        st = lt_optim_expand_state(slot, 1, &temporary[1], &moment[1]);
    if (!st)
        st = measure_norms(o, moment[0], moment[1], norm);
    lt_tensor_free(&temporary[0]);
    lt_tensor_free(&temporary[1]);
    const double steps = (double)s.applied - missed;
    *ratio = norm[1] > 0 ? norm[0] / (1 - pow(beta1, steps)) / norm[1] * sqrt(1 - pow(beta2, steps))
                         : (double)NAN;
    return st;
}
