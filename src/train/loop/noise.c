/* Squared gradient norms for the gradient noise scale (lather/detail/noise_scale.h). The parts of a step are its
 * ranks, whose gradients data parallelism measures before averaging them; with one rank, its micro-batches, of
 * which only the first is measured, as its gradient is separate until the second is added; on a reproducible device
 * all ranks' micro-batches, of which that of rank 0 is measured.
 *
 * Parts may have different sample counts b_r, where a deadline leaves out micro-batches. With k parts and B = sum
 * of b_r
 *     E[sum of b_r |g_r|^2] = B |G|^2 + k tr(Sigma),
 * which is what k parts of B/k samples each, with that mean square, would give. */

#include "step_parts.h"

#include "lather/detail/view.h"
#include "lather/ext/fail.h"
#include "lather/ext/optim.h"
#include "lather/stragglers.h"

#include <string.h>

static lt_status check_can_measure_noise(const lt_train_step *step)
{
    const lt_train_step_config *c = &step->config;
    if (c->mesh || c->group)
        return lt_fail(LT_E_ARG, "train: gradient_noise: %s",
                       c->mesh ? "ranks of a mesh have parts of a gradient"
                               : "groups with local steps have other weights");
    if (step->ranks < 2 && c->grad_accum < 2)
        return lt_fail(LT_E_ARG, "train: gradient_noise compares gradients of two batch sizes; one "
                                 "rank with one micro-batch to a step has one: grad_accum 2 with "
                                 "half the batch, or a second rank, gives the other");
    return LT_OK;
}

lt_status lt_step_open_noise(lt_train_step *step)
{
    void *ctx;
    const lt_train_step_config *c = &step->config;
    if (!c->gradient_noise)
        return LT_OK;
    LT_TRY(check_can_measure_noise(step));
    if (step->ranks > 1 && !step->shards) {
        step->norms = lt_data_parallel_norms(c->dp);
        return step->norms ? LT_OK
                           : lt_fail(LT_E_ARG, "train: gradient_noise: dp measures no norms");
    }
    if (!lt_optim_backend(c->optim, &ctx)->frobenius)
        return lt_fail(LT_E_UNSUPPORTED, "train: gradient_noise: %s has no frobenius",
                       lt_device_name(c->device));
    step->owns_norms = true;
    LT_TRY(lt_tensor_new(&step->norms, c->device, LT_F64, LT_SHAPE((int64_t)c->params->count)));
    return lt_tensor_fill(step->norms, 0);
}

void lt_step_close_noise(lt_train_step *step)
{
    if (step->owns_norms)
        lt_tensor_free(&step->norms);
}

lt_status lt_step_read_loss_scale(lt_train_step *step)
{
    const lt_tensor *scale = lt_optim_loss_scale(step->config.optim);
    if (!step->norms || step->loss_scale > 0)
        return LT_OK;
    step->loss_scale = 1;
    return scale ? lt_tensor_read(scale, &step->loss_scale, sizeof step->loss_scale) : LT_OK;
}

/* Measures the norm of one gradient; without a gradient the norm remains 0. */
static lt_status measure_gradient_norm(const lt_train_step *step, size_t index)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(step->config.optim, &ctx);
    const lt_param *param = step->config.params->item[index];
    lt_view out = lt_tensor_view(step->norms);
    out.data = (double *)out.data + index;
    out.shape = LT_SHAPE(1);
    const lt_view grad = lt_tensor_view(param->grad);
    return be->frobenius(ctx, &grad, 1, &out);
}

lt_status lt_step_measure_grad_norms(const lt_train_step *step)
{
    const lt_params *params = step->config.params;
    for (size_t i = 0; i < params->count && step->owns_norms; i++)
        if (lt_param_is_trained(params->item[i]) && params->item[i]->has_grad)
            LT_TRY(measure_gradient_norm(step, i));
    return LT_OK;
}

double lt_step_squared_norm(const lt_train_step *step, const void *norms)
{
    const double planned = step->divisor;
    const double terms =
        step->owns_norms ? 1 : (double)step->computed; /* each divided by planned */
    const size_t bytes = lt_tensor_bytes(step->norms);
    double square = 0, norm;
    for (size_t at = 0; at < bytes; at += sizeof norm) {
        memcpy(&norm, (const char *)norms + at, sizeof norm);
        square += norm * norm;
    }
    return square * (planned / terms) * (planned / terms);
}

/* Returns how many ranks or micro-batches contributed to the update. */
static int64_t count_contributions(const lt_train_step *step)
{
    const bool *set = step->ranks > 1 ? lt_data_parallel_participants(step->config.dp) : NULL;
    int64_t parts = 0;
    if (step->owns_norms)
        return (int64_t)step->divisor;
    for (int r = 0; r < step->ranks; r++)
        parts += !set || set[r];
    return parts;
}

void lt_step_fill_noise_sample(lt_train_step *step, lt_train_result *r)
{
    const int64_t parts = step->norms ? count_contributions(step) : 0;
    const double scale = step->loss_scale, square = r->noise.small_square;
    r->noise = (lt_noise_sample){0};
    if (!step->norms)
        return;
    step->loss_scale = r->optim.loss_scale;
    if (!r->optim.applied || parts < 2)
        return;
    r->noise = (lt_noise_sample){.small_batch = r->sums.samples / (double)parts,
                                 .small_square = square / (scale * scale),
                                 .large_batch = r->sums.samples,
                                 .large_square = r->optim.grad_norm * r->optim.grad_norm};
}
