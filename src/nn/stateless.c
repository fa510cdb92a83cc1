/* Layers without parameters: activations, flatten, dropout and stochastic depth (enabled by the pass),
 * pooling. */

#include "lather/detail/transformer_layers.h"
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

LAYER(relu);
LAYER(flatten);
LAYER(sigmoid);
LAYER(tanh);
LAYER(silu);

typedef struct dropout {
    lt_module base;
    double p;
} dropout;

static lt_tensor *forward_dropout(lt_module *self, lt_tape *tape, lt_tensor *x)
{
    return lt_dropout(tape, x, ((dropout *)self)->p);
}

static const lt_module_ops dropout_ops = {
    .kind = "dropout",
    .bytes = sizeof(dropout),
    .forward = forward_dropout,
};

lt_status lt_layer_dropout(lt_module **out, double p)
{
    if (!(p >= 0 && p < 1))
        return lt_fail(LT_E_ARG, "dropout: p is %g, want a number in [0,1)", p);
    LT_TRY(lt_module_new(out, &dropout_ops));
    ((dropout *)*out)->p = p;
    return LT_OK;
}

static lt_tensor *forward_drop_path(lt_module *self, lt_tape *tape, lt_tensor *x)
{
    return lt_drop_path(tape, x, ((dropout *)self)->p);
}

static const lt_module_ops drop_path_ops = {
    .kind = "drop_path",
    .bytes = sizeof(dropout),
    .forward = forward_drop_path,
};

lt_status lt_layer_drop_path(lt_module **out, double p)
{
    if (!(p >= 0 && p < 1))
        return lt_fail(LT_E_ARG, "drop_path: p is %g, want a number in [0,1)", p);
    LT_TRY(lt_module_new(out, &drop_path_ops));
    ((dropout *)*out)->p = p;
    return LT_OK;
}

typedef struct gelu {
    lt_module base;
    lt_gelu_kind kind;
} gelu;

static lt_tensor *forward_gelu(lt_module *self, lt_tape *tape, lt_tensor *x)
{
    return lt_gelu(tape, x, ((gelu *)self)->kind);
}

static const lt_module_ops gelu_ops = {
    .kind = "gelu",
    .bytes = sizeof(gelu),
    .forward = forward_gelu,
};

lt_status lt_layer_gelu(lt_module **out, lt_gelu_kind kind)
{
    if ((unsigned)kind > LT_GELU_TANH)
        return lt_fail(LT_E_ARG, "gelu: kind %d, want %d or %d", (int)kind, (int)LT_GELU_ERF,
                       (int)LT_GELU_TANH);
    LT_TRY(lt_module_new(out, &gelu_ops));
    ((gelu *)*out)->kind = kind;
    return LT_OK;
}

typedef struct pool {
    lt_module base;
    lt_pool2d_config config;
} pool;

static lt_tensor *forward_max(lt_module *self, lt_tape *tape, lt_tensor *x)
{
    return lt_maxpool2d(tape, x, ((pool *)self)->config);
}

static lt_tensor *forward_avg(lt_module *self, lt_tape *tape, lt_tensor *x)
{
    return lt_avgpool2d(tape, x, ((pool *)self)->config);
}

static const lt_module_ops max_ops = {
    .kind = "maxpool2d",
    .bytes = sizeof(pool),
    .forward = forward_max,
};

static const lt_module_ops avg_ops = {
    .kind = "avgpool2d",
    .bytes = sizeof(pool),
    .forward = forward_avg,
};

static lt_status make_pool(lt_module **out, const lt_module_ops *ops, lt_pool2d_config config)
{
    LT_TRY(lt_module_new(out, ops));
    ((pool *)*out)->config = config;
    return LT_OK;
}

lt_status lt_layer_maxpool2d(lt_module **out, lt_pool2d_config config)
{
    return make_pool(out, &max_ops, config);
}

lt_status lt_layer_avgpool2d(lt_module **out, lt_pool2d_config config)
{
    return make_pool(out, &avg_ops, config);
}
