/* Batch normalisation as a layer, for images (2d) and for vectors and sequences (1d). Names and defaults are
 * PyTorch's, because weights are exchanged. */

#include "nn/conv2d.h"
#include "nn/fold.h"
#include "nn/layer.h"

#include "lather/layers.h"

enum { GAMMA, BETA, MEAN, VAR, TRACKED, PARAMS };

typedef struct batchnorm2d {
    lt_module base;
    lt_param param[PARAMS]; /* [C] each; TRACKED is a scalar */
    lt_batchnorm2d_config config;
    bool flat;   /* x is [N,C] or [N,C,L] */
    bool folded; /* folded into the preceding convolution: x is normalised already */
} batchnorm2d;

typedef struct param_row {
    const char *leaf;
    lt_param_kind role;
    double fill;
} param_row;

static const param_row rows[PARAMS] = {
    [GAMMA] = {"weight", LT_PARAM_NORM, 1},
    [BETA] = {"bias", LT_PARAM_NORM, 0},
    [MEAN] = {"running_mean", LT_PARAM_STAT, 0},
    [VAR] = {"running_var", LT_PARAM_STAT, 1},
    [TRACKED] = {"num_batches_tracked", LT_PARAM_COUNT, 0},
};

/* Runs the rest of a layer that is folded into its convolution: residual and relu. */
static lt_tensor *apply_residual_and_relu(const batchnorm2d *b, lt_tape *tape, lt_tensor *x,
                                          lt_tensor *residual)
{
    if (lt_tape_pass(tape).batch_stats)
        return lt_tape_fail(tape, lt_fail(LT_E_UNSUPPORTED,
                                          "batchnorm2d: folded into a convolution, cannot be "
                                          "trained"));
    lt_tensor *y = residual ? lt_add(tape, x, residual) : x;
    return b->config.relu ? lt_relu(tape, y) : y;
}

lt_tensor *lt_batchnorm2d_forward(lt_module *module, lt_tape *tape, lt_tensor *x,
                                  lt_tensor *residual)
{
    batchnorm2d *b = (batchnorm2d *)module;
    if (b->folded)
        return apply_residual_and_relu(b, tape, x, residual);
    lt_batchnorm2d_args args = {
        .gamma = lt_tape_param(tape, &b->param[GAMMA]),
        .beta = lt_tape_param(tape, &b->param[BETA]),
        .mean = b->param[MEAN].value,
        .var = b->param[VAR].value,
        .residual = residual,
        .batches = b->param[TRACKED].value, /* saved to files only: momentum is constant */
    };
    lt_batchnorm2d_config config = b->config;
    config.frozen = config.frozen || b->param[MEAN].frozen;
    const double only = lt_tape_pass(tape).stat_momentum;
    if (only > 0) { /* the pass only computes statistics: no step is counted */
        config.momentum = only;
        args.batches = NULL;
    }
    return (b->flat ? lt_batchnorm1d : lt_batchnorm2d)(tape, x, args, config);
}

static lt_tensor *forward(lt_module *self, lt_tape *tape, lt_tensor *x)
{
    return lt_batchnorm2d_forward(self, tape, x, NULL);
}

static lt_status params(lt_module *self, lt_params *list)
{
    batchnorm2d *b = (batchnorm2d *)self;
    for (int i = 0; i < PARAMS && !b->folded; i++)
        LT_TRY(lt_params_add(list, &b->param[i]));
    return LT_OK;
}

static void destroy(lt_module *self)
{
    for (int i = 0; i < PARAMS; i++)
        lt_param_clear(&((batchnorm2d *)self)->param[i]);
}

static const lt_module_ops ops = {
    .kind = "batchnorm2d",
    .bytes = sizeof(batchnorm2d),
    .forward = forward,
    .params = params,
    .destroy = destroy,
};

static const lt_module_ops flat_ops = {
    .kind = "batchnorm1d",
    .bytes = sizeof(batchnorm2d),
    .forward = forward,
    .params = params,
    .destroy = destroy,
};

bool lt_is_batchnorm2d(const lt_module *module)
{
    return module->ops == &ops;
}

lt_status lt_batchnorm2d_fold(lt_module *norm, lt_module *conv)
{
    if (!lt_is_batchnorm2d(norm) || !lt_is_conv2d(conv))
        return lt_fail(LT_E_ARG, "fold: got a %s into a %s, want a batchnorm2d into a conv2d",
                       lt_module_kind(norm), lt_module_kind(conv));
    batchnorm2d *b = (batchnorm2d *)norm;
    if (b->folded)
        return LT_OK;
    LT_TRY(lt_fold_norm_into_conv(conv,
                                  &(lt_fold_norm){&b->param[GAMMA], &b->param[BETA],
                                                  &b->param[MEAN], &b->param[VAR], b->config.eps}));
    b->folded = true;
    return LT_OK;
}

static lt_status make_layer(lt_module **out, const lt_module_ops *kind, lt_device *device,
                            const char *name, int channels, lt_batchnorm2d_config config)
{
    if (channels < 1)
        return lt_fail(LT_E_ARG, "%s %s: %d channels, want >= 1", kind->kind, name, channels);
    lt_module *m = NULL;
    LT_TRY(lt_module_new(&m, kind));

    batchnorm2d *b = (batchnorm2d *)m;
    b->flat = kind == &flat_ops;
    b->config = config;
    if (config.eps == 0)
        b->config.eps = 1e-5;
    if (config.momentum == 0)
        b->config.momentum = 0.1;
    lt_status st = LT_OK;
    for (int i = 0; i < PARAMS && !st; i++)
        st = lt_param_init_kind(&b->param[i], device, name, rows[i].leaf,
                                i == TRACKED ? LT_SCALAR : LT_SHAPE(channels), rows[i].fill,
                                rows[i].role);
    return lt_layer_finish_construction(out, m, st);
}

lt_status lt_layer_batchnorm2d(lt_module **out, lt_device *device, const char *name, int channels,
                               lt_batchnorm2d_config config)
{
    return make_layer(out, &ops, device, name, channels, config);
}

lt_status lt_layer_batchnorm1d(lt_module **out, lt_device *device, const char *name, int channels,
                               lt_batchnorm2d_config config)
{
    return make_layer(out, &flat_ops, device, name, channels, config);
}
