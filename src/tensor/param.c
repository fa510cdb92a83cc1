/* Parameters and lists of them. */

#include "lather/param.h"

#include "base/alloc.h"
#include "tensor/tensor.h"

#include "lather/detail/state.h"

#include <string.h>

lt_status lt_params_add(lt_params *list, lt_param *param)
{
    if ((list->count & (list->count - 1)) == 0) /* full at every power of two */
        LT_TRY(LT_RESIZE(&list->item, list->count ? 2 * list->count : 1));
    list->item[list->count++] = param;
    return LT_OK;
}

void lt_params_clear(lt_params *list)
{
    lt_free(list->item);
    *list = (lt_params){0};
}

lt_param *lt_params_find(const lt_params *list, const char *name)
{
    for (size_t i = 0; i < list->count; i++)
        if (!strcmp(list->item[i]->name, name))
            return list->item[i];
    return NULL;
}

void lt_params_zero_grad(const lt_params *list)
{
    for (size_t i = 0; i < list->count; i++)
        list->item[i]->has_grad = false;
}

static bool role_has_gradient(lt_param_kind role)
{
    return role != LT_PARAM_STAT && role != LT_PARAM_COUNT;
}

bool lt_param_is_trained(const lt_param *param)
{
    return role_has_gradient(param->role) && !param->frozen;
}

/* Sets fan_in and fan_out of a weight [out,in,...]: in and out times the number of filter taps. */
static void set_fans(lt_param *param, lt_shape shape)
{
    if (shape.ndim < 2)
        return;
    int64_t taps = lt_shape_count(shape) / (shape.dim[0] * shape.dim[1]);
    param->fan_in = (int)(shape.dim[1] * taps);
    param->fan_out = (int)(shape.dim[0] * taps);
}

static lt_status init_param(lt_param *param, lt_device *device, const char *path, const char *leaf,
                            lt_shape shape, lt_memory_format format, lt_param_kind role)
{
    lt_param p = {.role = role};
    lt_dtype dtype = role == LT_PARAM_COUNT ? LT_I64 : lt_device_master_dtype(device);
    p.name = lt_format("%s%s%s", path, *path ? "." : "", leaf);
    set_fans(&p, shape);
    lt_status st = p.name ? lt_tensor_new_as(&p.value, device, dtype, shape, format) : LT_E_NOMEM;
    if (!st && role_has_gradient(role))
        st = lt_tensor_new_like(&p.grad, p.value, dtype);
    if (st) {
        lt_param_clear(&p);
        return st;
    }
    *param = p;
    return LT_OK;
}

lt_status lt_param_init_kind(lt_param *param, lt_device *device, const char *path, const char *leaf,
                             lt_shape shape, double fill, lt_param_kind role)
{
    lt_param p;
    LT_TRY(init_param(&p, device, path, leaf, shape, LT_FORMAT_CONTIGUOUS, role));
    lt_status st = lt_tensor_fill(p.value, fill);
    if (st) {
        lt_param_clear(&p);
        return st;
    }
    *param = p;
    return LT_OK;
}

lt_status lt_param_init_filter(lt_param *param, lt_device *device, const char *path,
                               const char *leaf, lt_shape shape)
{
    return init_param(param, device, path, leaf, shape, LT_FORMAT_CHANNELS_LAST, LT_PARAM_WEIGHT);
}

lt_status lt_param_init(lt_param *param, lt_device *device, const char *path, const char *leaf,
                        lt_shape shape, double fill)
{
    return lt_param_init_kind(param, device, path, leaf, shape, fill, LT_PARAM_WEIGHT);
}

lt_status lt_param_set_shard_spec(lt_param *param, const lt_shard_spec *spec)
{
    LT_TRY(lt_shard_spec_check(spec, param->name, lt_tensor_count(param->value)));
    const bool all = lt_shard_spec_is_whole(spec)
                     && lt_shape_equal(spec->logical, lt_tensor_shape(param->value));
    lt_shard_spec *copy = all ? NULL : lt_alloc(1, sizeof *copy);
    if (!copy && !all)
        return LT_E_NOMEM;
    if (copy)
        *copy = *spec;
    lt_free(param->spec);
    param->spec = copy;
    set_fans(param, spec->logical);
    return LT_OK;
}

lt_state_entry lt_state_of(const lt_param *param, const char *name)
{
    const lt_shape shape = lt_param_shard_spec(param).logical;
    return (lt_state_entry){.param = param->name,
                            .name = name,
                            .block = -1,
                            .offset.ndim = shape.ndim,
                            .shape = shape,
                            .dtype = lt_tensor_dtype(param->value),
                            .extent = lt_tensor_shape(param->value)};
}

lt_shard_spec lt_param_shard_spec(const lt_param *param)
{
    return param->spec ? *param->spec : lt_shard_spec_whole(lt_tensor_shape(param->value));
}

void lt_param_clear(lt_param *param)
{
    lt_free(param->spec);
    lt_tensor_free(&param->value);
    lt_tensor_free(&param->grad);
    union {
        const char *shown;
        char *owned;
    } name = {param->name};
    lt_free(name.owned);
    *param = (lt_param){0};
}
