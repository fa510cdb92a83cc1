/* Group normalisation as a layer. Names and defaults are PyTorch's. */

#include "nn/layer.h"

#include "lather/layers.h"

typedef struct group_norm {
    lt_weight_bias base; /* [C] each */
    lt_group_norm_config config;
} group_norm;

static lt_tensor *forward(lt_module *self, lt_tape *tape, lt_tensor *x)
{
    group_norm *g = (group_norm *)self;
    lt_tensor *weight = lt_tape_param(tape, &g->base.weight);
    return lt_group_norm(tape, x, weight, lt_tape_param(tape, &g->base.bias), g->config);
}

static const lt_module_ops ops = {
    .kind = "group_norm",
    .bytes = sizeof(group_norm),
    .forward = forward,
    .params = lt_weight_bias_params,
    .destroy = lt_weight_bias_destroy,
};

lt_status lt_layer_group_norm(lt_module **out, lt_device *device, const char *name, int channels,
                              lt_group_norm_config config)
{
    if (channels < 1 || config.groups < 1 || channels % config.groups)
        return lt_fail(LT_E_ARG, "group_norm %s: %d channels do not divide into %d groups", name,
                       channels, config.groups);
    lt_module *m = NULL;
    LT_TRY(lt_module_new(&m, &ops));

    group_norm *g = (group_norm *)m;
    g->config = config;
    if (config.eps == 0)
        g->config.eps = 1e-5;
    lt_status st = lt_param_init_kind(&g->base.weight, device, name, "weight", LT_SHAPE(channels),
                                      1, LT_PARAM_NORM);
    if (!st)
        st = lt_param_init_kind(&g->base.bias, device, name, "bias", LT_SHAPE(channels), 0,
                                LT_PARAM_NORM);
    return lt_layer_finish_construction(out, m, st);
}
