/* Transposed convolution with a square filter, as a layer around lt_conv_transpose2d(). */

#include "nn/layer.h"

#include "lather/layers.h"

typedef struct conv_transpose2d {
    lt_weight_bias base; /* [in,out/groups,kernel,kernel], [out] */
    lt_conv_transpose2d_config config;
} conv_transpose2d;

static lt_tensor *forward(lt_module *self, lt_tape *tape, lt_tensor *x)
{
    conv_transpose2d *c = (conv_transpose2d *)self;
    lt_tensor *w = lt_tape_param(tape, &c->base.weight);
    lt_tensor *b = c->base.bias.value ? lt_tape_param(tape, &c->base.bias) : NULL;
    return lt_conv_transpose2d(tape, x, w, b, c->config);
}

static const lt_module_ops ops = {
    .kind = "conv_transpose2d",
    .bytes = sizeof(conv_transpose2d),
    .forward = forward,
    .params = lt_weight_bias_params,
    .destroy = lt_weight_bias_destroy,
};

static int or_one(int value)
{
    return value ? value : 1;
}

static lt_status check_config(const char *name, const lt_conv_transpose2d_layer *c)
{
    if (c->in < 1 || c->out < 1 || c->kernel < 1)
        return lt_fail(LT_E_ARG,
                       "conv_transpose2d %s: %d -> %d channels, kernel %d; each must be >= 1", name,
                       c->in, c->out, c->kernel);
    if (c->stride < 0 || c->pad < 0 || c->dilation < 0 || c->groups < 0 || c->output_pad < 0)
        return lt_fail(LT_E_ARG,
                       "conv_transpose2d %s: stride %d, pad %d, dilation %d, groups %d, output_pad "
                       "%d; want >= 0",
                       name, c->stride, c->pad, c->dilation, c->groups, c->output_pad);
    if (c->output_pad >= or_one(c->stride))
        return lt_fail(LT_E_ARG, "conv_transpose2d %s: output_pad %d, want below stride %d", name,
                       c->output_pad, or_one(c->stride));
    if (c->in % or_one(c->groups) || c->out % or_one(c->groups))
        return lt_fail(LT_E_ARG,
                       "conv_transpose2d %s: %d -> %d channels do not divide into %d groups", name,
                       c->in, c->out, c->groups);
    return LT_OK;
}

static lt_status make_params(conv_transpose2d *c, lt_device *device, const char *name,
                             const lt_conv_transpose2d_layer *l)
{
    lt_shape shape = LT_SHAPE(l->in, l->out / or_one(l->groups), l->kernel, l->kernel);
    LT_TRY(lt_param_init_filter(&c->base.weight, device, name, "weight", shape));
    if (!l->bias)
        return LT_OK;
    return lt_param_init_kind(&c->base.bias, device, name, "bias", LT_SHAPE(l->out), 0,
                              LT_PARAM_BIAS);
}

lt_status lt_layer_conv_transpose2d(lt_module **out, lt_device *device, const char *name,
                                    lt_conv_transpose2d_layer config)
{
    LT_TRY(check_config(name, &config));
    lt_module *m = NULL;
    LT_TRY(lt_module_new(&m, &ops));

    conv_transpose2d *c = (conv_transpose2d *)m;
    c->config = (lt_conv_transpose2d_config){
        .conv = {.stride_h = config.stride,
                 .stride_w = config.stride,
                 .pad_h = config.pad,
                 .pad_w = config.pad,
                 .dilation_h = config.dilation,
                 .dilation_w = config.dilation,
                 .groups = config.groups},
        .output_pad_h = config.output_pad,
        .output_pad_w = config.output_pad,
    };
    lt_status st = make_params(c, device, name, &config);
    return lt_layer_finish_construction(out, m, st);
}
