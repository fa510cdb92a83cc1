/* Exponential moving average of weights. Skipped steps leave it unchanged: its kernel reads the optimizer's scalars
 * on the device. */

#include "lather/ema.h"

#include "base/alloc.h"
#include "tensor/tensor.h"

#include "lather/ext/elementary.h"
#include "lather/ext/optim.h"

struct lt_ema {
    lt_device *device;
    double decay;
    lt_param **param;    /* borrowed */
    lt_tensor **average; /* one per parameter */
    lt_optim_item *item;
    size_t count;
    bool swapped;
};

static bool is_averaged(const lt_param *param)
{
    return param->role != LT_PARAM_COUNT;
}

static lt_status add_average(lt_ema *e, lt_param *param)
{
    lt_tensor **average = &e->average[e->count];
    const lt_tensor *value = param->value;
    e->param[e->count++] = param;
    LT_TRY(lt_tensor_new_like(average, value, lt_tensor_dtype(value)));
    return lt_tensor_copy(*average, value);
}

lt_status lt_ema_new(lt_ema **out, const lt_params *params, double decay)
{
    if (!(decay >= 0 && decay < 1))
        return lt_fail(LT_E_ARG, "ema: decay %g is not in [0,1)", decay);
    if (!params->count)
        return lt_fail(LT_E_ARG, "ema: no parameters");
    lt_ema *e = NULL;
    LT_TRY(LT_ALLOC(&e, 1));
    e->device = lt_tensor_device(params->item[0]->value);
    e->decay = decay;
    e->param = lt_alloc(params->count, sizeof(lt_param *));
    e->average = lt_alloc(params->count, sizeof(lt_tensor *));
    e->item = lt_alloc(params->count, sizeof *e->item);
    lt_status st = e->param && e->average && e->item ? LT_OK : LT_E_NOMEM;
    for (size_t i = 0; i < params->count && !st; i++)
        if (is_averaged(params->item[i]))
            st = add_average(e, params->item[i]);
    if (st) {
        lt_ema_free(&e);
        return st;
    }
    *out = e;
    return LT_OK;
}

void lt_ema_free(lt_ema **ema)
{
    lt_ema *e = *ema;
    if (!e)
        return;
    for (size_t i = 0; i < e->count; i++)
        lt_tensor_free(&e->average[i]);
    lt_free(e->item);
    lt_free(e->average);
    lt_free(e->param);
    lt_free(e);
    *ema = NULL;
}

lt_status lt_ema_update(lt_ema *e, const lt_optim *optim)
{
    if (e->swapped)
        return lt_fail(LT_E_ARG, "ema: update while the averages are swapped in: call "
                                 "lt_ema_swap() first");
    size_t count = 0;
    for (size_t i = 0; i < e->count; i++) {
        if (!lt_tensor_has_memory(e->average[i])) /* another rank owns it */
            continue;
        if (!lt_tensor_has_memory(e->param[i]->value))
            return lt_fail(LT_E_ARG,
                           "ema: the value of %s is on another rank: call lt_optim_shard_ema() "
                           "after sharding parameters",
                           e->param[i]->name);
        e->item[count++] = (lt_optim_item){
            .value = lt_tensor_view(e->average[i]),
            .state = {lt_tensor_view(e->param[i]->value)},
        };
    }
    void *ctx;
    const lt_backend *be = lt_optim_backend(optim, &ctx);
    LT_TRY(lt_optim_require_kernel(optim, be->lerp != NULL, "lerp"));
    return be->lerp(ctx, 1 - e->decay, e->item, count, optim->scalars);
}

/* Updates the averages by vec: the kernel lerp does nothing if the optimizer's last step was skipped. */
lt_status lt_ema_update_by_steps(lt_ema *e, int64_t steps)
{
    const lt_backend *be = e->device->backend;
    const double kept = lt_f64_pow(e->decay, (double)steps);
    if (e->swapped)
        return lt_fail(LT_E_ARG, "ema: update while the averages are swapped in: call "
                                 "lt_ema_swap() first");
    if (!be->vec)
        return lt_fail(LT_E_UNSUPPORTED, "ema: backend %s has no kernel for vec", be->name);
    for (size_t i = 0; i < e->count; i++) {
        const lt_vec_job job = {.op = LT_VEC_AXPBY,
                                .alpha = 1 - kept,
                                .beta = kept,
                                .a = lt_tensor_view(e->param[i]->value),
                                .y = lt_tensor_view(e->average[i])};
        LT_TRY(be->vec(e->device->ctx, &job, 1, NULL));
        lt_tensor_bump_version(e->average[i]);
    }
    return LT_OK;
}

static lt_status swap_tensors(lt_tensor *a, lt_tensor *b)
{
    lt_tensor *old = NULL;
    LT_TRY(lt_tensor_new_like(&old, a, lt_tensor_dtype(a)));
    lt_status st = lt_tensor_copy(old, a);
    if (!st)
        st = lt_tensor_copy(a, b); /* raises a's version, so that cached casts are rebuilt */
    if (!st)
        st = lt_tensor_copy(b, old);
    lt_tensor_free(&old);
    return st;
}

lt_status lt_ema_swap(lt_ema *e)
{
    for (size_t i = 0; i < e->count; i++)
        if (lt_tensor_has_memory(e->average[i]))
            LT_TRY(swap_tensors(e->param[i]->value, e->average[i]));
        else /* its owner swaps it */
            lt_tensor_bump_version(e->param[i]->value);
    e->swapped = !e->swapped;
    return LT_OK;
}

bool lt_ema_is_swapped(const lt_ema *e)
{
    return e->swapped;
}

lt_status lt_ema_visit(lt_ema *e, lt_state_visitor *visitor)
{
    if (e->swapped)
        return lt_fail(LT_E_ARG, "ema: visit while the averages are swapped in: call "
                                 "lt_ema_swap() first");
    for (size_t i = 0; i < e->count; i++) {
        lt_state_entry entry = lt_state_of(e->param[i], "ema");
        entry.tensor = e->average[i];
        LT_TRY(visitor->entry(visitor->context, &entry));
    }
    return LT_OK;
}
