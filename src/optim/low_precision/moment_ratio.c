/* Ratio of the moments of Adam kinds, for --optim-stats: |m| / |sqrt(v)|, Euclidean norms after bias correction. It is 1
 * if each gradient repeats the one before; sqrt((1 - beta1) / (1 + beta1)), 0.23 by default, if gradients are noise
 * only. */

#include "optim/slots.h"
#include "quantized_state.h"
#include "tensor/tensor.h"

#include "lather/ext/elementary.h"
#include "lather/ext/matrix.h"
#include "lather/ext/vec.h"

#include <math.h>

lt_status lt_optim_expand_state(const lt_slot *slot, int index, lt_tensor **temporary,
                                lt_tensor **out)
{
    if (slot->quantized[index] && !slot->state[index])
        LT_TRY(lt_quantized_dequantize(slot->quantized[index], temporary));
    *out = *temporary ? *temporary : slot->state[index];
    return LT_OK;
}

static lt_status read_norm(const lt_tensor *x, double *norm)
{
    lt_tensor *out = NULL;
    lt_status st = lt_tensor_new(&out, lt_tensor_device(x), LT_F64, LT_SHAPE(1));
    if (!st)
        st = lt_matrix_norm(out, x);
    if (!st)
        st = lt_tensor_read(out, norm, sizeof *norm);
    lt_tensor_free(&out);
    return st;
}

/* Computes the norms of m and of sqrt(v). */
static lt_status measure_norms(const lt_tensor *m, const lt_tensor *v, double norm[2])
{
    lt_tensor *root = NULL;
    lt_status st = lt_tensor_new_like(&root, v, lt_tensor_dtype(v));
    if (!st)
        st = lt_vec_rsqrt(root, 1, v, 1, v, 1e-30, NULL); /* v / sqrt(v); 0 of 0 */
    if (!st)
        st = read_norm(m, &norm[0]);
    if (!st)
        st = read_norm(root, &norm[1]);
    lt_tensor_free(&root);
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
        st = measure_norms(moment[0], moment[1], norm);
    lt_tensor_free(&temporary[0]);
    lt_tensor_free(&temporary[1]);
    const double steps = (double)s.applied - missed;
    *ratio = norm[1] > 0 ? norm[0] / (1 - lt_f64_pow(beta1, steps)) / norm[1]
                               * sqrt(1 - lt_f64_pow(beta2, steps))
                         : (double)NAN;
    return st;
}
