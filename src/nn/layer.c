/* Helpers for layers. */

#include "nn/layer.h"

#include "lather/tensor_parallel.h"

#include <stdio.h>

lt_status lt_layer_join_path(char path[LT_LAYER_NAME], const char *name, const char *leaf)
{
    int bytes = snprintf(path, LT_LAYER_NAME, "%s%s%s", name, *name ? "." : "", leaf);
    return bytes < LT_LAYER_NAME
               ? LT_OK
               : lt_fail(LT_E_ARG, "layer %s: the name has %d bytes, want at most %d", path, bytes,
                         LT_LAYER_NAME - 1);
}

lt_status lt_layer_finish_construction(lt_module **out, lt_module *module, lt_status st)
{
    if (st)
        lt_module_free(&module);
    else
        *out = module;
    return st;
}

lt_status lt_layer_init_sharded(lt_param *param, lt_device *device, const char *name,
                                const char *leaf, const lt_shard_spec *spec, double fill,
                                lt_param_kind kind)
{
    LT_TRY(lt_param_init_kind(param, device, name, leaf, lt_parallel_shape(spec), fill, kind));
    return lt_shard_spec_is_whole(spec) ? LT_OK : lt_param_set_shard_spec(param, spec);
}

lt_status lt_weight_bias_params(lt_module *self, lt_params *list)
{
    lt_weight_bias *l = (lt_weight_bias *)self;
    LT_TRY(lt_params_add(list, &l->weight));
    return l->bias.value ? lt_params_add(list, &l->bias) : LT_OK;
}

void lt_weight_bias_destroy(lt_module *self)
{
    lt_weight_bias *l = (lt_weight_bias *)self;
    lt_param_clear(&l->weight);
    lt_param_clear(&l->bias);
}
