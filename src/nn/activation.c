/* Activations as layers: sigmoid, tanh, silu. */

#include "lather/ext/module.h"
#include "lather/layers.h"

#define LAYER(function)                                                                \
    static lt_tensor *forward_##function(lt_module *self, lt_tape *tape, lt_tensor *x) \
    {                                                                                  \
        (void)self;                                                                    \
        return lt_##function(tape, x);                                                 \
    }                                                                                  \
    static const lt_module_ops function##_ops = {                                      \
        .kind = #function, .bytes = sizeof(lt_module), .forward = forward_##function}; \
    lt_status lt_layer_##function(lt_module **out)                                     \
    {                                                                                  \
        return lt_module_new(out, &function##_ops);                                    \
    }                                                                                  \
    _Static_assert(1, "a semicolon follows")

LAYER(sigmoid);
LAYER(tanh);
LAYER(silu);
