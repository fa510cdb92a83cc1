/* [N,C,H,W] -> [N,C*H*W] as a layer. */

#include "lather/ext/module.h"
#include "lather/layers.h"

static lt_tensor *forward(lt_module *self, lt_tape *tape, lt_tensor *x)
{
    (void)self;
    return lt_flatten(tape, x);
}

static const lt_module_ops ops = {
    .kind = "flatten",
    .bytes = sizeof(lt_module),
    .forward = forward,
};

lt_status lt_layer_flatten(lt_module **out)
{
    return lt_module_new(out, &ops);
}
