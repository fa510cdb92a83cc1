/* Convolution and transposed convolution with a square filter, as layers around lt_conv2d() and lt_conv_transpose2d(). */

#include "nn/conv2d.h"

#include "nn/layer.h"

#include "lather/layers.h"

typedef struct conv2d {
    lt_weight_bias base; /* [out,in/groups,kernel,kernel], [out] */
    lt_conv2d_config config;
} conv2d;

static lt_tensor *forward(lt_module *self, lt_tape *tape, lt_tensor *x)
{
    conv2d *c = (conv2d *)self;
    lt_tensor *w = lt_tape_param(tape, &c->base.weight);
    lt_tensor *b = c->base.bias.value ? lt_tape_param(tape, &c->base.bias) : NULL;
    return lt_conv2d(tape, x, w, b, c->config);
}

static const lt_module_ops ops = {
    .kind = "conv2d",
    .bytes = sizeof(conv2d),
    .forward = forward,
    .params = lt_weight_bias_params,
    .destroy = lt_weight_bias_destroy,
};

bool lt_is_conv2d(const lt_module *module)
{
    return module->ops == &ops;
}

lt_param *lt_conv2d_weight(lt_module *module)
{
    return &((lt_weight_bias *)module)->weight;
}

lt_param *lt_conv2d_bias(lt_module *module)
{
    return &((lt_weight_bias *)module)->bias;
}

static int or_one(int value)
{
    return value ? value : 1;
}

static lt_status check_config(const char *kind, const char *name, const lt_conv2d_layer *c)
{
    if (c->in < 1 || c->out < 1 || c->kernel < 1)
        return lt_fail(LT_E_ARG, "%s %s: %d -> %d channels, kernel %d; each must be >= 1", kind,
                       name, c->in, c->out, c->kernel);
    if (c->stride < 0 || c->pad < 0 || c->dilation < 0 || c->groups < 0)
        return lt_fail(LT_E_ARG, "%s %s: stride %d, pad %d, dilation %d, groups %d; want >= 0",
                       kind, name, c->stride, c->pad, c->dilation, c->groups);
    if (c->in % or_one(c->groups) || c->out % or_one(c->groups))
        return lt_fail(LT_E_ARG, "%s %s: %d -> %d channels do not divide into %d groups", kind,
                       name, c->in, c->out, c->groups);
    return LT_OK;
}

static lt_conv2d_config make_config(const lt_conv2d_layer *c)
{
    return (lt_conv2d_config){
        .stride_h = c->stride,
        .stride_w = c->stride,
        .pad_h = c->pad,
        .pad_w = c->pad,
        .dilation_h = c->dilation,
        .dilation_w = c->dilation,
        .groups = c->groups,
    };
}

/* Creates a filter [first,second,kernel,kernel] and, if wanted, a bias [out]. */
static lt_status make_params(lt_module *m, lt_device *device, const char *name,
                             const lt_conv2d_layer *c, int first, int second)
{
    lt_weight_bias *l = (lt_weight_bias *)m;
    const lt_shape shape = LT_SHAPE(first, second, c->kernel, c->kernel);
    LT_TRY(lt_param_init_filter(&l->weight, device, name, "weight", shape));
    if (!c->bias)
        return LT_OK;
    return lt_param_init_kind(&l->bias, device, name, "bias", LT_SHAPE(c->out), 0, LT_PARAM_BIAS);
}

lt_status lt_layer_conv2d(lt_module **out, lt_device *device, const char *name,
                          lt_conv2d_layer config)
{
    LT_TRY(check_config(ops.kind, name, &config));
    lt_module *m = NULL;
    LT_TRY(lt_module_new(&m, &ops));
    ((conv2d *)m)->config = make_config(&config);
    lt_status st =
        make_params(m, device, name, &config, config.out, config.in / or_one(config.groups));
    return lt_layer_finish_construction(out, m, st);
}

typedef struct conv_transpose2d {
    lt_weight_bias base; /* [in,out/groups,kernel,kernel], [out] */
    lt_conv_transpose2d_config config;
} conv_transpose2d;

static lt_tensor *forward_transpose(lt_module *self, lt_tape *tape, lt_tensor *x)
{
    conv_transpose2d *c = (conv_transpose2d *)self;
    lt_tensor *w = lt_tape_param(tape, &c->base.weight);
    lt_tensor *b = c->base.bias.value ? lt_tape_param(tape, &c->base.bias) : NULL;
    return lt_conv_transpose2d(tape, x, w, b, c->config);
}

static const lt_module_ops transpose_ops = {
    .kind = "conv_transpose2d",
    .bytes = sizeof(conv_transpose2d),
    .forward = forward_transpose,
    .params = lt_weight_bias_params,
    .destroy = lt_weight_bias_destroy,
};

lt_status lt_layer_conv_transpose2d(lt_module **out, lt_device *device, const char *name,
                                    lt_conv_transpose2d_layer config)
{
    const lt_conv2d_layer c = {config.in,  config.out,      config.kernel, config.stride,
                               config.pad, config.dilation, config.groups, config.bias};
    LT_TRY(check_config(transpose_ops.kind, name, &c));
    if (config.output_pad < 0 || config.output_pad >= or_one(config.stride))
        return lt_fail(LT_E_ARG,
                       "conv_transpose2d %s: output_pad %d, want below stride %d and >= 0", name,
                       config.output_pad, or_one(config.stride));
    lt_module *m = NULL;
    LT_TRY(lt_module_new(&m, &transpose_ops));
    ((conv_transpose2d *)m)->config = (lt_conv_transpose2d_config){
        .conv = make_config(&c),
        .output_pad_h = config.output_pad,
        .output_pad_w = config.output_pad,
    };
    lt_status st = make_params(m, device, name, &c, c.in, c.out / or_one(c.groups));
    return lt_layer_finish_construction(out, m, st);
}
