/* Weights of micro-batches whose losses are means over different numbers of terms (lt_task_ops.terms), as with
 * padded texts. Of M micro-batches on each of R ranks, micro-batch i counts n_i of its N labels:
 *     sum of n_i g_i / sum of n_i = 1/R sum over ranks of 1/M sum over micro-batches of (n_i/N) g_i / m,
 *     m = mean over ranks of sum n_i / (M N).
 * Backward scales by n_i/N. m is known after the last forward pass: the optimizer divides by it as by the loss
 * scale. All scalars are on the device, so that a graph may hold the work. If every label counts, all factors are
 * exactly 1. */

#include "step_parts.h"
#include "stragglers.h"

#include "lather/detail/view.h"
#include "lather/ext/fail.h"
#include "lather/ext/optim.h"
#include "lather/ext/vec.h"

/* Added to m, so that gradients of no term are not divided by 0; exactly 1 remains 1. */
static const double LEAST = 1e-30;

static bool has_micro_batch_weights(const lt_train_step *step)
{
    const lt_train_step_config *c = &step->config;
    const bool is_alone = step->ranks < 2 && lt_device_is_reproducible(c->device);
    const bool is_one_mean = (!c->dp || is_alone) && c->grad_accum < 2;
    return c->task.ops->terms && !is_one_mean
           && !(c->stragglers && lt_stragglers_drops_ranks(c->stragglers));
}

lt_status lt_step_open_loss_weights(lt_train_step *step)
{
    const lt_train_step_config *c = &step->config;
    for (int i = 0; i < TERMS && has_micro_batch_weights(step); i++) {
        const lt_dtype dtype = i == TERMS_WEIGHT ? lt_device_master_dtype(c->device) : LT_F64;
        LT_TRY(lt_tensor_new(&step->number[i], c->device, dtype, LT_SCALAR));
        LT_TRY(lt_tensor_fill(step->number[i], i == TERMS_ONE));
    }
    return LT_OK;
}

void lt_step_close_loss_weights(lt_train_step *step)
{
    if (step->averaging)
        (void)!lt_request_wait(&step->averaging);
    lt_optim_scale_gradients(step->config.optim, NULL, NULL);
    for (int i = 0; i < TERMS; i++)
        lt_tensor_free(&step->number[i]);
}

/* y = a b */
static lt_status multiply(const lt_train_step *step, const lt_tensor *a, const lt_tensor *b,
                          const lt_tensor *y)
{
    void *ctx;
    const lt_backend *be = lt_optim_backend(step->config.optim, &ctx);
    const lt_view x[] = {lt_tensor_view(a), lt_tensor_view(b), lt_tensor_view(y)};
    return be->mul(ctx, &x[0], &x[1], &x[2]);
}

/* y = a / divisor. Exactly 1 if they are equal, which a product with 1 / divisor is not. */
static lt_status divide(const lt_tensor *a, double divisor, lt_tensor *y)
{
    return lt_vec_rsqrt(y, 1, a, 0, a, divisor, NULL);
}

static const lt_tensor *loss_scale(const lt_train_step *step)
{
    const lt_tensor *scale = lt_optim_loss_scale(step->config.optim);
    return scale ? scale : step->number[TERMS_ONE];
}

static lt_status begin_mean(lt_train_step *step)
{
    const lt_train_step_config *c = &step->config;
    lt_comm *comm = c->mesh ? lt_mesh_comm(c->mesh, LT_MESH_DATA) : c->comm;
    if (step->averaging) /* left over by a failed capture */
        (void)!lt_request_wait(&step->averaging);
    if (step->shards) /* exact sums of integers; divided at the end */
        LT_TRY(lt_tensor_copy(step->number[TERMS_MEAN], step->number[TERMS_COUNTED]));
    else
        LT_TRY(divide(step->number[TERMS_COUNTED], step->labels * (double)c->grad_accum,
                      step->number[TERMS_MEAN]));
    return c->dp ? lt_comm_allreduce_begin(c->group ? c->group : comm, step->number[TERMS_MEAN],
                                           step->shards ? LT_REDUCE_SUM : LT_REDUCE_MEAN,
                                           &step->averaging)
                 : LT_OK;
}

/* Ends the mean over ranks and sets TERMS_SCALE, the gradients' divisor: mean times factor times loss scale. */
static lt_status end_mean_and_set_divisor(lt_train_step *step, double factor)
{
    lt_tensor *const *n = step->number;
    LT_TRY(lt_request_wait(&step->averaging));
    if (step->shards)
        LT_TRY(divide(n[TERMS_MEAN], step->labels * step->divisor, n[TERMS_MEAN]));
    LT_TRY(lt_tensor_fill(n[TERMS_SPARE], LEAST));
    LT_TRY(lt_vec_axpby(n[TERMS_SPARE], factor, n[TERMS_MEAN], 1, NULL));
    return multiply(step, n[TERMS_SPARE], loss_scale(step), n[TERMS_SCALE]);
}

lt_status lt_step_weigh_loss(lt_train_step *step, const lt_tensor *loss, bool is_first,
                             bool is_last)
{
    void *ctx;
    const lt_train_step_config *c = &step->config;
    lt_tensor *const *n = step->number;
    if (!n[0])
        return lt_tensor_copy(step->loss, loss);
    lt_view given = lt_tensor_view(step->counts), counted = lt_tensor_view(n[TERMS_COUNTED]);
    given.data = (int64_t *)given.data + c->task.ops->terms - 1;
    given.shape = counted.shape;
    if (is_first)
        LT_TRY(lt_tensor_fill(n[TERMS_COUNTED], 0));
    LT_TRY(lt_vec_axpby(n[TERMS_SPARE], -1, n[TERMS_COUNTED], 0, NULL));
    LT_TRY(lt_optim_backend(c->optim, &ctx)->cast(ctx, &given, &counted));
    LT_TRY(lt_vec_axpby(n[TERMS_SPARE], 1, n[TERMS_COUNTED], 1, NULL));
    LT_TRY(divide(n[TERMS_SPARE], step->labels, n[TERMS_SPARE]));
    LT_TRY(multiply(step, n[TERMS_SPARE], loss_scale(step), n[TERMS_SEED]));
    LT_TRY(lt_tensor_copy(n[TERMS_WEIGHT], n[TERMS_SPARE]));
    LT_TRY(multiply(step, loss, n[TERMS_WEIGHT], step->loss));
    if (!is_last || c->stragglers)
        return LT_OK;
    LT_TRY(begin_mean(step));
    /* A reducer with error feedback divides its residuals by the scale during backward. */
    return c->dp && !lt_data_parallel_is_capturable(c->dp) ? end_mean_and_set_divisor(step, 1)
                                                           : LT_OK;
}

lt_status lt_step_finish_loss_weights(lt_train_step *step)
{
    const lt_train_step_config *c = &step->config;
    double factor = 1;
    if (!step->number[0])
        return LT_OK;
    if (c->stragglers) { /* gradients are divided by the number of computed micro-batches */
        LT_TRY(begin_mean(step));
        factor =
            (double)c->grad_accum * step->ranks / (double)lt_data_parallel_total_computed(c->dp);
    }
    return end_mean_and_set_divisor(step, factor);
}

double lt_step_mean_weight(const lt_train_step *step, const lt_task_sums *sums)
{
    const int terms = step->config.task.ops->terms;
    const double labels = sums->samples * step->row_labels;
    return terms && labels > 0 ? sums->count[terms - 1] / labels : 1;
}
