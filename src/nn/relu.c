/* Rectifier as a layer. */

#include "lather/ext/module.h"
#include "lather/layers.h"

static lt_tensor *forward(lt_module *self, lt_tape *tape, lt_tensor *x)
{
    (void)self;
    return lt_relu(tape, x);
}

static const lt_module_ops ops = {
    .kind = "relu",
    .bytes = sizeof(lt_module),
    .forward = forward,
};

lt_status lt_layer_relu(lt_module **out)
{
    return lt_module_new(out, &ops);
}
