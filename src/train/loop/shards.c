/* Sums over the shards of a reproducible step: the micro-batches of all ranks, numbered rank by rank. Gradients and
 * running statistics are added in a binary tree over shard numbers, whatever the ranks (docs/adr/0095): the sum of an
 * even number of shards is that of its halves, an odd number is added in order. A rank's micro-batches are a subtree,
 * summed like a binary counter; reductions of a reproducible device add the subtrees (lather/comm.h). */

#include "base/alloc.h"
#include "step_parts.h"
#include "tensor/tensor.h"

#include "lather/detail/backend.h"
#include "lather/detail/view.h"
#include "lather/ext/fail.h"
#include "lather/ext/optim.h"
#include "lather/ext/vec.h"

#include <string.h>

enum { SLOTS = 64 };

struct lt_shards {
    int64_t odd;    /* largest odd divisor of the micro-batches, whose number is added in order */
    bool *has_grad; /* [params] a shard of this rank has a gradient */
    lt_request **summing; /* [params] sums of statistics over ranks */
    /* [params] each: slot 0 is the sum of the first micro-batches of an odd number, slot i that of 2^(i-1) odd
     * numbers; NULL until needed */
    lt_tensor **slot[SLOTS];
};

/* Returns the tensor of a parameter that is summed: a gradient or a running statistic; NULL if neither. */
static lt_tensor *summed_tensor(const lt_param *p)
{
    if (lt_param_is_trained(p))
        return p->grad;
    return p->role == LT_PARAM_STAT && !p->frozen ? p->value : NULL;
}

static lt_status check_shards(const lt_train_step *step)
{
    const lt_train_step_config *c = &step->config;
    const char *other = c->mesh         ? "a mesh"
                        : c->group      ? "local steps"
                        : c->stragglers ? "backup workers or a deadline"
                                        : NULL;
    if (other)
        return lt_fail(
            LT_E_UNSUPPORTED,
            "train: the device is reproducible, but with %s results depend on the number "
            "of ranks",
            other);
    if (c->grad_accum > 1 && (step->ranks & (step->ranks - 1)))
        return lt_fail(LT_E_ARG,
                       "train: %d ranks with %lld micro-batches each: the fixed order of sums of a "
                       "reproducible device needs 1, 2, 4, 8 .. ranks, or one micro-batch",
                       step->ranks, (long long)c->grad_accum);
    return LT_OK;
}

lt_status lt_step_open_shards(lt_train_step *step)
{
    const lt_train_step_config *c = &step->config;
    step->divisor = (double)c->grad_accum;
    if (!lt_device_is_reproducible(c->device))
        return LT_OK;
    LT_TRY(check_shards(step));
    if (c->dp)
        LT_TRY(lt_data_parallel_use_sum(c->dp));
    step->divisor *= step->ranks;
    if (step->divisor < 2)
        return LT_OK;
    lt_shards *s = step->shards = lt_alloc(1, sizeof *s);
    if (!s)
        return LT_E_NOMEM;
    s->odd = c->grad_accum;
    while (s->odd % 2 == 0)
        s->odd /= 2;
    s->has_grad = lt_alloc(c->params->count, sizeof *s->has_grad);
    s->summing = lt_alloc(c->params->count, sizeof(lt_request *));
    return s->has_grad && s->summing ? LT_OK : LT_E_NOMEM;
}

void lt_step_close_shards(lt_train_step *step)
{
    lt_shards *s = step->shards;
    for (int k = 0; s && k < SLOTS; k++) {
        for (size_t i = 0; s->slot[k] && i < step->config.params->count; i++)
            lt_tensor_free(&s->slot[k][i]);
        lt_free(s->slot[k]);
    }
    if (s) {
        lt_free(s->summing);
        lt_free(s->has_grad);
    }
    lt_free(s);
    step->shards = NULL;
}

lt_status lt_step_begin_shard(lt_train_step *step, int64_t micro)
{
    if (step->shards || !micro)
        lt_params_zero_grad(step->config.params);
    return step->shards && micro ? lt_statistics_restore(step->statistics) : LT_OK;
}

/* Fills in zeros for missing gradients, as a reduction over ranks does. */
static lt_status complete_gradients(const lt_train_step *step, int64_t micro)
{
    const lt_params *params = step->config.params;
    bool *has_grad = step->shards->has_grad;
    for (size_t i = 0; i < params->count; i++) {
        lt_param *p = params->item[i];
        if (!lt_param_is_trained(p))
            continue;
        has_grad[i] = (micro && has_grad[i]) || p->has_grad;
        if (!p->has_grad) {
            LT_TRY(lt_tensor_allocate_raw(p->grad));
            LT_TRY(lt_tensor_fill(p->grad, 0));
        }
        p->has_grad = has_grad[i];
    }
    return LT_OK;
}

static lt_status add_slot(const lt_train_step *step, int slot)
{
    const lt_params *params = step->config.params;
    for (size_t i = 0; i < params->count; i++) {
        lt_tensor *sum = summed_tensor(params->item[i]);
        if (sum)
            LT_TRY(lt_vec_axpby(sum, 1, step->shards->slot[slot][i], 1, NULL));
    }
    return LT_OK;
}

static lt_status store_slot(const lt_train_step *step, int slot)
{
    const lt_params *params = step->config.params;
    lt_tensor ***to = &step->shards->slot[slot];
    if (!*to)
        LT_TRY(LT_ALLOC(to, params->count));
    for (size_t i = 0; i < params->count; i++) {
        const lt_tensor *sum = summed_tensor(params->item[i]);
        if (sum && !(*to)[i])
            LT_TRY(lt_tensor_new_like(&(*to)[i], sum, lt_tensor_dtype(sum)));
        if (sum)
            LT_TRY(lt_tensor_copy((*to)[i], sum));
    }
    return LT_OK;
}

lt_status lt_step_add_shard(lt_train_step *step, int64_t micro)
{
    const lt_shards *s = step->shards;
    const int64_t accum = step->config.grad_accum;
    if (!s || accum < 2)
        return LT_OK;
    LT_TRY(complete_gradients(step, micro));
    if (micro % s->odd)
        LT_TRY(add_slot(step, 0));
    if (micro % s->odd < s->odd - 1)
        return store_slot(step, 0);
    int slot = 1;
    for (int64_t sums = micro / s->odd; sums & 1; sums >>= 1)
        LT_TRY(add_slot(step, slot++));
    return micro + 1 < accum ? store_slot(step, slot) : LT_OK;
}

/* Replaces the sums of running statistics, which each shard updated from those before the step, by their means. */
lt_status lt_step_finish_shards(lt_train_step *step)
{
    const lt_train_step_config *c = &step->config;
    lt_status st = LT_OK;
    for (size_t i = 0; step->shards && i < c->params->count && c->comm && !st; i++)
        if (c->params->item[i]->role == LT_PARAM_STAT && !c->params->item[i]->frozen)
            st = lt_comm_allreduce_begin(c->comm, c->params->item[i]->value, LT_REDUCE_SUM,
                                         &step->shards->summing[i]);
    for (size_t i = 0; step->shards && i < c->params->count; i++) {
        const lt_param *p = c->params->item[i];
        void *ctx;
        const lt_status arrived = lt_request_wait(&step->shards->summing[i]);
        st = st ? st : arrived;
        if (st || p->role != LT_PARAM_STAT || p->frozen)
            continue;
        const lt_view mean = lt_tensor_view(p->value);
        st = lt_optim_backend(c->optim, &ctx)->scale(ctx, 1 / step->divisor, &mean, &mean);
        lt_tensor_bump_version(p->value);
    }
    return st;
}

double lt_step_sum_losses(const lt_train_step *step, const char *losses, int64_t count)
{
    const size_t each = lt_tensor_bytes(step->loss);
    const bool wide = lt_tensor_dtype(step->loss) == LT_F64;
    double sum = 0;
    if (count && count % 2 == 0)
        return lt_step_sum_losses(step, losses, count / 2)
               + lt_step_sum_losses(step, losses + (size_t)count / 2 * each, count / 2);
    for (int64_t i = 0; i < count; i++) {
        float narrow = 0;
        double value = 0;
        memcpy(wide ? (void *)&value : (void *)&narrow, losses + (size_t)i * each, each);
        sum += wide ? value : (double)narrow;
    }
    return sum;
}
