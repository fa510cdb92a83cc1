/* Normalises u8 pixels by each channel's mean and deviation; the following convolution may do it instead. */

#include "tensor/ops/fuse.h"
#include "tensor/ops/ops.h"
#include "tensor/tape.h"

#include "lather/ops/norm.h"

static lt_status infer_shape(const lt_node *node, lt_desc *out)
{
    const lt_normalize_config *c = node->config;
    char text[LT_SHAPE_TEXT];
    const lt_tensor *x = node->in[0];
    if (x->shape.ndim != 4 || x->shape.dim[1] > LT_MAX_PIXEL_CHANNELS || x->dtype != LT_U8)
        return lt_fail(LT_E_SHAPE, "normalize: x is %s %s, want u8 [N,C,H,W] with C <= %d",
                       lt_dtype_name(x->dtype), lt_shape_text(x->shape, text),
                       LT_MAX_PIXEL_CHANNELS);
    for (int i = 0; i < x->shape.dim[1]; i++)
        if (!(c->deviation[i] > 0))
            return lt_fail(LT_E_ARG, "normalize: deviation %g of channel %d, want > 0",
                           (double)c->deviation[i], i);
    *out = (lt_desc){
        .dtype = lt_tape_dtype(node->tape), .shape = x->shape, .format = LT_FORMAT_CHANNELS_LAST};
    return LT_OK;
}

static lt_status forward(lt_node *node)
{
    lt_op_views v;
    if (!lt_node_is_replay(node) && lt_fuse_can_produce(node, LT_FUSE_PIXELS)) {
        lt_node_defer_output(node);
        return LT_OK;
    }
    LT_TRY(lt_op_forward_views(node, &v));
    return v.be->normalize(v.ctx, node->config, &v.in, &v.out);
}

const lt_op lt_op_normalize = {
    .name = lt_name_normalize,
    .config_bytes = sizeof(lt_normalize_config),
    .infer = infer_shape,
    .forward = forward,
};

lt_tensor *lt_normalize(lt_tape *tape, lt_tensor *x, const lt_normalize_config *config)
{
    x = lt_op_to_channels_last(tape, x);
    return lt_op_run(tape, &lt_op_normalize, &x, 1, config);
}
