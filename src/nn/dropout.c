/* Dropout as a layer; the pass decides whether it does anything. */

#include "lather/ext/module.h"
#include "lather/layers.h"

typedef struct dropout {
    lt_module base;
    double p;
} dropout;

static lt_tensor *forward(lt_module *self, lt_tape *tape, lt_tensor *x)
{
    return lt_dropout(tape, x, ((dropout *)self)->p);
}

static const lt_module_ops ops = {
    .kind = "dropout",
    .bytes = sizeof(dropout),
    .forward = forward,
};

lt_status lt_layer_dropout(lt_module **out, double p)
{
    if (!(p >= 0 && p < 1))
        return lt_fail(LT_E_ARG, "dropout: p is %g, want a number in [0,1)", p);
    LT_TRY(lt_module_new(out, &ops));
    ((dropout *)*out)->p = p;
    return LT_OK;
}
