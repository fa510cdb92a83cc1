/* Layer and RMS normalisation as layers. Names and defaults are PyTorch's. */

#include "nn/layer.h"

#include "lather/detail/transformer_layers.h"
#include "lather/ext/op.h"

typedef struct layernorm {
    lt_weight_bias base; /* [width] each; with rms no bias */
    lt_layernorm_config config;
    const lt_tensor_parallel *parallel;
    int width; /* features of all ranks */
} layernorm;

static lt_tensor *forward_sharded(layernorm *l, lt_tape *tape, lt_tensor *x)
{
    const lt_tensor_parallel *p = l->parallel;
    const lt_sharded_norm_config config = {.row = p->row,
                                           .column = p->column,
                                           .depth = p->depth,
                                           .features = l->width,
                                           .eps = l->config.eps,
                                           .rms = l->config.rms};
    lt_tensor *gamma = lt_tape_param(tape, &l->base.weight);
    lt_tensor *beta = l->config.rms ? NULL : lt_tape_param(tape, &l->base.bias);
    const int64_t before = lt_tape_op_counter(tape);
    lt_tensor *y = lt_layernorm_sharded(tape, x, gamma, beta, config);
    lt_tape_set_op_counter(tape, before + 1);
    return y;
}

static lt_tensor *forward(lt_module *self, lt_tape *tape, lt_tensor *x)
{
    layernorm *l = (layernorm *)self;
    if (l->parallel && l->parallel->column)
        return forward_sharded(l, tape, x);
    lt_tensor *gamma = lt_parallel_param(tape, &l->base.weight, l->parallel);
    if (l->config.rms)
        return lt_rmsnorm(tape, x, gamma, l->config);
    return lt_layernorm(tape, x, gamma, lt_parallel_param(tape, &l->base.bias, l->parallel),
                        l->config);
}

#define TABLE(kind_)                           \
    static const lt_module_ops kind_##_ops = { \
        .kind = #kind_,                        \
        .bytes = sizeof(layernorm),            \
        .forward = forward,                    \
        .params = lt_weight_bias_params,       \
        .destroy = lt_weight_bias_destroy,     \
    }
TABLE(layernorm);
TABLE(rmsnorm);

static lt_status make_param(lt_param *param, const layernorm *l, lt_device *device,
                            const char *name, const char *leaf, double fill)
{
    const lt_shard_spec spec = lt_parallel_shard_spec_features(l->parallel, LT_SHAPE(l->width), 0);
    return lt_layer_init_sharded(param, device, name, leaf, &spec, fill, LT_PARAM_NORM);
}

lt_status lt_layer_norm_parallel(lt_module **out, lt_device *device, const char *name, int width,
                                 lt_layernorm_config config, const lt_tensor_parallel *parallel)
{
    const lt_module_ops *ops = config.rms ? &rmsnorm_ops : &layernorm_ops;
    if (width < 1 || !(config.eps >= 0))
        return lt_fail(LT_E_ARG, "%s %s: got width %d, eps %g; want >= 1, >= 0", ops->kind, name,
                       width, config.eps);
    lt_module *m = NULL;
    LT_TRY(lt_module_new(&m, ops));

    layernorm *l = (layernorm *)m;
    l->config = config;
    l->parallel = parallel;
    l->width = width;
    lt_status st = make_param(&l->base.weight, l, device, name, "weight", 1);
    if (!st && !config.rms)
        st = make_param(&l->base.bias, l, device, name, "bias", 0);
    return lt_layer_finish_construction(out, m, st);
}

lt_status lt_layer_layernorm(lt_module **out, lt_device *device, const char *name, int width,
                             lt_layernorm_config config)
{
    config.rms = false;
    return lt_layer_norm_parallel(out, device, name, width, config, NULL);
}

lt_status lt_layer_rmsnorm(lt_module **out, lt_device *device, const char *name, int width,
                           lt_layernorm_config config)
{
    config.rms = true;
    return lt_layer_norm_parallel(out, device, name, width, config, NULL);
}
