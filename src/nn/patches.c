/* Images as rows of patches, and the class token before them. Dosovitskiy et al., "An image is worth 16x16
 * words", ICLR 2021, section 3.1. */

#include "nn/layer.h"

#include "lather/embedding_layers.h"
#include "lather/ops.h"

typedef struct patches {
    lt_weight_bias base;
    int patch;
    const lt_tensor_parallel *parallel;
} patches;

static lt_tensor *forward_patches(lt_module *self, lt_tape *tape, lt_tensor *x)
{
    enum { N, K, P, Q }; /* dimensions of the convolution's output */
    static const int rows_last[] = {N, P, Q, K};
    patches *l = (patches *)self;
    lt_shape s = x ? lt_tensor_shape(x) : LT_SCALAR;
    if (s.ndim == 4 && (s.dim[2] % l->patch || s.dim[3] % l->patch))
        return lt_tape_fail(tape, lt_fail(LT_E_SHAPE,
                                          "patch_embedding %s: images of %lldx%lld pixels, want "
                                          "multiples of the patch, %d",
                                          l->base.weight.name, (long long)s.dim[2],
                                          (long long)s.dim[3], l->patch));
    lt_conv2d_config conv = {.stride_h = l->patch, .stride_w = l->patch};
    lt_tensor *w = lt_parallel_param(tape, &l->base.weight, l->parallel);
    lt_tensor *c = lt_conv2d(tape, x, w, lt_parallel_param(tape, &l->base.bias, l->parallel), conv);
    lt_tensor *r = lt_permute(tape, c, rows_last);
    lt_tape_drop(tape, c);
    s = r ? lt_tensor_shape(r) : LT_SCALAR;
    lt_tensor *y = lt_reshape(tape, r, LT_SHAPE(s.dim[0], -1, s.dim[3]));
    lt_tape_drop(tape, r);
    return y;
}

static const lt_module_ops patches_ops = {
    .kind = "patch_embedding",
    .bytes = sizeof(patches),
    .forward = forward_patches,
    .params = lt_weight_bias_params,
    .destroy = lt_weight_bias_destroy,
};

static lt_status make_patches(patches *l, lt_device *device, const char *name,
                              const lt_patch_embedding_layer *c)
{
    const lt_shard_spec weight = lt_parallel_shard_spec_features(
        c->parallel, LT_SHAPE(c->width, c->channels, c->patch, c->patch), 0);
    const lt_shard_spec bias = lt_parallel_shard_spec_features(c->parallel, LT_SHAPE(c->width), 0);
    l->patch = c->patch;
    l->parallel = c->parallel;
    LT_TRY(
        lt_param_init_filter(&l->base.weight, device, name, "weight", lt_parallel_shape(&weight)));
    if (!lt_shard_spec_is_whole(&weight))
        LT_TRY(lt_param_set_shard_spec(&l->base.weight, &weight));
    return lt_layer_init_sharded(&l->base.bias, device, name, "bias", &bias, 0, LT_PARAM_BIAS);
}

lt_status lt_layer_patch_embedding(lt_module **out, lt_device *device, const char *name,
                                   lt_patch_embedding_layer config)
{
    const int c = config.channels, k = config.width, side = config.patch;
    if (c < 1 || k < 1 || side < 1)
        return lt_fail(LT_E_ARG,
                       "patch_embedding %s: %d channels, width %d, patch %d; all must be >= 1",
                       name, c, k, side);
    lt_module *m = NULL;
    LT_TRY(lt_module_new(&m, &patches_ops));
    lt_status st = make_patches((patches *)m, device, name, &config);
    return lt_layer_finish_construction(out, m, st);
}

typedef struct class_token {
    lt_weight_bias base; /* weight [1,1,width] */
    const lt_tensor_parallel *parallel;
} class_token;

static lt_tensor *forward_token(lt_module *self, lt_tape *tape, lt_tensor *x)
{
    if (!x)
        return NULL;
    const lt_shape s = lt_tensor_shape(x);
    class_token *l = (class_token *)self;
    lt_tensor *token = lt_parallel_param(tape, &l->base.weight, l->parallel);
    if (s.ndim == 3)
        token = lt_expand(tape, token, LT_SHAPE(s.dim[0], 1, lt_tensor_shape(token).dim[2]));
    token = lt_cast(tape, token, lt_tensor_dtype(x));
    lt_tensor *y = lt_concat(tape, (lt_tensor *[]){token, x}, 2, 1);
    lt_tape_drop(tape, token);
    return y;
}

static const lt_module_ops token_ops = {
    .kind = "class_token",
    .bytes = sizeof(class_token),
    .forward = forward_token,
    .params = lt_weight_bias_params,
    .destroy = lt_weight_bias_destroy,
};

lt_status lt_layer_class_token(lt_module **out, lt_device *device, const char *name, int width)
{
    return lt_layer_class_token_parallel(out, device, name, width, NULL);
}

lt_status lt_layer_class_token_parallel(lt_module **out, lt_device *device, const char *name,
                                        int width, const lt_tensor_parallel *parallel)
{
    if (width < 1)
        return lt_fail(LT_E_ARG, "class_token %s: width %d, want >= 1", name, width);
    lt_module *m = NULL;
    LT_TRY(lt_module_new(&m, &token_ops));
    class_token *l = (class_token *)m;
    const lt_shard_spec spec = lt_parallel_shard_spec_features(parallel, LT_SHAPE(1, 1, width), 2);
    l->parallel = parallel;
    lt_status st =
        lt_layer_init_sharded(&l->base.weight, device, "", name, &spec, 0, LT_PARAM_WEIGHT);
    l->base.weight.fan_in = l->base.weight.fan_out = 0; /* a table of one row */
    return lt_layer_finish_construction(out, m, st);
}
