/* Fully connected layer: y = x w^T + b. The smallest complete layer: start here to write one.
 *
 * It reads x in the dtype of the pass; a classifier's head casts x to f32 first (lt_cast()). */

#include "nn/linear.h"

#include "nn/layer.h"

#include "lather/ext/module.h"
#include "lather/layers.h"

typedef struct linear {
    lt_module base;
    lt_param weight; /* [out,in], or [in,out] */
    lt_param bias;   /* [out]; value is NULL if absent */
    lt_parallel_linear config;
} linear;

lt_tensor *lt_linear_forward_rows(lt_module *self, lt_tape *tape, lt_tensor *x, int64_t rows)
{
    linear *l = (linear *)self;
    lt_tensor *w = lt_tape_param(tape, &l->weight);
    lt_tensor *b = l->bias.value ? lt_tape_param(tape, &l->bias) : NULL;
    lt_parallel_linear config = l->config;
    config.rows = rows;
    return lt_parallel_linear_run(tape, x, w, b, config);
}

lt_tensor *lt_linear_forward_local(lt_module *self, lt_tape *tape, lt_tensor *x)
{
    linear *l = (linear *)self;
    lt_tensor *w = lt_tape_param(tape, &l->weight);
    lt_tensor *b = l->bias.value ? lt_tape_param(tape, &l->bias) : NULL;
    return lt_linear_as(tape, x, w, b, (lt_linear_config){.in_out = l->config.in_out});
}

/* Forward with 0 as the number of all rows: a sharded layer, which gathers rows, needs lt_linear_forward_rows(). */
static lt_tensor *forward(lt_module *self, lt_tape *tape, lt_tensor *x)
{
    return lt_linear_forward_rows(self, tape, x, 0);
}

static lt_status params(lt_module *self, lt_params *list)
{
    linear *l = (linear *)self;
    LT_TRY(lt_params_add(list, &l->weight));
    return l->bias.value ? lt_params_add(list, &l->bias) : LT_OK;
}

static void destroy(lt_module *self)
{
    linear *l = (linear *)self;
    lt_param_clear(&l->weight);
    lt_param_clear(&l->bias);
}

static const lt_module_ops ops = {
    .kind = "linear",
    .bytes = sizeof(linear),
    .forward = forward,
    .params = params,
    .destroy = destroy,
};

static lt_status make_params(linear *l, lt_device *device, const char *name,
                             const lt_linear_layer *c)
{
    const int64_t in = c->in, out = c->features;
    const lt_shape shape = c->in_out ? LT_SHAPE(in, out) : LT_SHAPE(out, in);
    const lt_parallel_dims dims = {.outputs = c->in_out, .inputs = !c->in_out};
    const lt_shard_spec weight =
        lt_parallel_shard_spec(c->parallel, shape, shape, dims, c->division);
    const lt_shard_spec bias = lt_parallel_shard_spec(c->parallel, LT_SHAPE(out), LT_SHAPE(out),
                                                      (lt_parallel_dims){0, -1}, c->division);
    LT_TRY(lt_param_init(&l->weight, device, name, "weight", lt_parallel_shape(&weight), 0));
    if (c->bias)
        LT_TRY(lt_layer_init_sharded(&l->bias, device, name, "bias", &bias, 0, LT_PARAM_BIAS));
    if (c->parallel)
        LT_TRY(lt_param_set_shard_spec(&l->weight, &weight));
    l->weight.fan_in = c->in;
    l->weight.fan_out = c->features;
    return LT_OK;
}

lt_status lt_layer_linear_as(lt_module **out, lt_device *device, const char *name,
                             lt_linear_layer config)
{
    if (config.in < 1 || config.features < 1)
        return lt_fail(LT_E_ARG, "linear %s: %d -> %d features; both must be >= 1", name, config.in,
                       config.features);
    lt_module *m = NULL;
    LT_TRY(lt_module_new(&m, &ops));
    linear *l = (linear *)m;
    l->config = (lt_parallel_linear){.parallel = config.parallel,
                                     .division = config.division,
                                     .in = config.in,
                                     .out = config.features,
                                     .in_out = config.in_out};
    return lt_layer_finish_construction(out, m, make_params(l, device, name, &config));
}

lt_status lt_layer_linear(lt_module **out, lt_device *device, const char *name, int in,
                          int features, bool bias)
{
    const lt_linear_layer config = {.in = in, .features = features, .bias = bias};
    return lt_layer_linear_as(out, device, name, config);
}
