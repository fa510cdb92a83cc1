/* Embedding: rows of a table, selected by index. x holds ids, i32. */

#include "nn/layer.h"

#include "lather/detail/transformer_layers.h"

static lt_tensor *forward(lt_module *self, lt_tape *tape, lt_tensor *x)
{
    lt_weight_bias *e = (lt_weight_bias *)self; /* weight [count,width] */
    return lt_embedding(tape, x, lt_tape_param(tape, &e->weight));
}

static const lt_module_ops ops = {
    .kind = "embedding",
    .bytes = sizeof(lt_weight_bias),
    .forward = forward,
    .params = lt_weight_bias_params,
    .destroy = lt_weight_bias_destroy,
};

lt_status lt_layer_embedding(lt_module **out, lt_device *device, const char *name, int count,
                             int width)
{
    if (count < 1 || width < 1)
        return lt_fail(LT_E_ARG, "embedding %s: %d rows of %d; both must be >= 1", name, count,
                       width);
    lt_module *m = NULL;
    LT_TRY(lt_module_new(&m, &ops));
    lt_param *weight = &((lt_weight_bias *)m)->weight;
    lt_status st = lt_param_init(weight, device, name, "weight", LT_SHAPE(count, width), 0);
    weight->fan_in = weight->fan_out = 0; /* a table */
    return lt_layer_finish_construction(out, m, st);
}
