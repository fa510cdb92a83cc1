/* Residual networks: construction, forward pass, initial values.
 * He et al., "Deep Residual Learning for Image Recognition", CVPR 2016.
 *
 *     y = relu(x' + F(x))    F: convolutions with batch norm, x' = x or its projection
 *
 * Each relu, and the sum at the end of a block, are part of the batch norm before them. */

#include "resnet.h"

#include "arch.h"

#include "lather/ext/module.h"
#include "lather/init.h"
#include "lather/layers.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PATH_BYTES = 32, NAME_BYTES = 64 };

typedef struct block {
    lt_module base;
    lt_module *conv[PLAN_MAX_CONVS], *bn[PLAN_MAX_CONVS]; /* owned; the shortcut comes last */
    int count;                                            /* convolutions of the main path */
    bool shortcut, pooled;
} block;

/* Returns means of 2x2 pixels; those at the edge of an odd side count the pixels that are there, as torch's ceil_mode
 * without count_include_pad: repeating the edge gives the same means. */
static lt_tensor *average_pairs(lt_tape *tape, lt_tensor *x)
{
    const lt_pool2d_config pairs = {.kernel_h = 2, .kernel_w = 2, .stride_h = 2, .stride_w = 2};
    const lt_shape shape = lt_tensor_shape(x);
    const int bottom = (int)(shape.dim[2] % 2), right = (int)(shape.dim[3] % 2);
    if (!bottom && !right)
        return lt_avgpool2d(tape, x, pairs);
    lt_tensor *even = lt_pad(
        tape, x, (lt_pad_config){.bottom = bottom, .right = right, .mode = LT_PAD_REPLICATE});
    lt_tensor *y = lt_avgpool2d(tape, even, pairs);
    lt_tape_drop(tape, even);
    return y;
}

static lt_tensor *project_shortcut(block *b, lt_tape *tape, lt_tensor *x)
{
    lt_tensor *in = b->pooled ? average_pairs(tape, x) : x;
    lt_tensor *c = lt_module_forward(b->conv[b->count], tape, in);
    if (in != x)
        lt_tape_drop(tape, in);
    lt_tensor *y = lt_module_forward(b->bn[b->count], tape, c);
    if (y != c) /* a folded norm is the identity */
        lt_tape_drop(tape, c);
    return y;
}

static lt_tensor *block_forward(lt_module *self, lt_tape *tape, lt_tensor *x)
{
    block *b = (block *)self;
    lt_tensor *y = x;
    for (int i = 0; i < b->count - 1; i++) {
        lt_tensor *c = lt_module_forward(b->conv[i], tape, y);
        if (y != x)
            lt_tape_drop(tape, y);
        y = lt_module_forward(b->bn[i], tape, c);
        lt_tape_drop(tape, c);
    }
    int last = b->count - 1;
    lt_tensor *c = lt_module_forward(b->conv[last], tape, y);
    lt_tape_drop(tape, y);
    lt_tensor *residual = b->shortcut ? project_shortcut(b, tape, x) : x;
    y = lt_batchnorm2d_forward(b->bn[last], tape, c, residual);
    lt_tape_drop(tape, c);
    if (residual != x)
        lt_tape_drop(tape, residual);
    return y;
}

static lt_status block_params(lt_module *self, lt_params *list)
{
    block *b = (block *)self;
    for (int i = 0; i < b->count + b->shortcut; i++) {
        LT_TRY(lt_module_params(b->conv[i], list));
        LT_TRY(lt_module_params(b->bn[i], list));
    }
    return LT_OK;
}

static lt_status block_fold(lt_module *self)
{
    block *b = (block *)self;
    for (int i = 0; i < b->count + b->shortcut; i++)
        LT_TRY(lt_batchnorm2d_fold(b->bn[i], b->conv[i]));
    return LT_OK;
}

static void block_destroy(lt_module *self)
{
    block *b = (block *)self;
    for (int i = 0; i < PLAN_MAX_CONVS; i++) {
        lt_module_free(&b->conv[i]);
        lt_module_free(&b->bn[i]);
    }
}

static const lt_module_ops block_ops = {
    .kind = "residual",
    .bytes = sizeof(block),
    .forward = block_forward,
    .params = block_params,
    .fold = block_fold,
    .destroy = block_destroy,
};

/* Makes a convolution without bias and its batch norm, under path. */
static lt_status make_conv_and_norm(lt_module **conv, lt_module **bn, lt_device *device,
                                    const char *path, const plan_conv *p, bool relu)
{
    char name[NAME_BYTES];
    lt_conv2d_layer layer = {.in = p->in,
                             .out = p->out,
                             .kernel = p->kernel,
                             .stride = p->stride,
                             .pad = p->pad,
                             .groups = p->groups};
    snprintf(name, sizeof name, "%.31s%s%s", path, *path ? "." : "", p->conv);
    LT_TRY(lt_layer_conv2d(conv, device, name, layer));
    snprintf(name, sizeof name, "%.31s%s%s", path, *path ? "." : "", p->bn);
    return lt_layer_batchnorm2d(bn, device, name, p->out, (lt_batchnorm2d_config){.relu = relu});
}

/* Makes the plan's convolutions and their batch norms, under path. */
static lt_status make_convs_and_norms(lt_module **conv, lt_module **bn, lt_device *device,
                                      const char *path, const plan_block *plan)
{
    for (int i = 0; i < plan->count + plan->shortcut; i++)
        LT_TRY(make_conv_and_norm(&conv[i], &bn[i], device, path, &plan->conv[i], i < plan->count));
    return LT_OK;
}

static lt_status make_block(lt_module **out, lt_device *device, const char *path,
                            const plan_block *plan)
{
    lt_module *m = NULL;
    LT_TRY(lt_module_new(&m, &block_ops));
    block *b = (block *)m;
    b->count = plan->count;
    b->shortcut = plan->shortcut;
    b->pooled = plan->pooled;
    lt_status st = make_convs_and_norms(b->conv, b->bn, device, path, plan);
    if (st) {
        lt_module_free(&m);
        return st;
    }
    *out = m;
    return LT_OK;
}

typedef struct resnet {
    lt_module base;
    lt_module *conv1[PLAN_MAX_CONVS], *bn1[PLAN_MAX_CONVS]; /* owned, as the others; the stem */
    int stem;                                               /* convolutions of the stem */
    lt_module *maxpool, *layers, *avgpool, *fc;             /* maxpool may be NULL */
} resnet;

/* Runs one layer and drops its input. */
static lt_tensor *run_and_drop_input(lt_module *module, lt_tape *tape, lt_tensor *x)
{
    lt_tensor *y = lt_module_forward(module, tape, x);
    lt_tape_drop(tape, x);
    return y;
}

static lt_tensor *forward(lt_module *self, lt_tape *tape, lt_tensor *x)
{
    resnet *r = (resnet *)self;
    for (int i = 0; i < r->stem; i++) {
        x = i ? run_and_drop_input(r->conv1[i], tape, x) : lt_module_forward(r->conv1[i], tape, x);
        x = run_and_drop_input(r->bn1[i], tape, x);
    }
    if (r->maxpool)
        x = run_and_drop_input(r->maxpool, tape, x);
    x = run_and_drop_input(r->layers, tape, x);
    x = run_and_drop_input(r->avgpool, tape, x);
    x = lt_flatten(tape, x);
    /* Logits in 16 bits would make the loss inaccurate: the last layer reads f32. */
    x = lt_cast(tape, x, lt_device_master_dtype(lt_tape_device(tape)));
    return lt_module_forward(r->fc, tape, x);
}

static lt_status params(lt_module *self, lt_params *list)
{
    resnet *r = (resnet *)self;
    for (int i = 0; i < r->stem; i++) {
        LT_TRY(lt_module_params(r->conv1[i], list));
        LT_TRY(lt_module_params(r->bn1[i], list));
    }
    LT_TRY(lt_module_params(r->layers, list));
    return lt_module_params(r->fc, list);
}

static lt_status fold(lt_module *self)
{
    resnet *r = (resnet *)self;
    for (int i = 0; i < r->stem; i++)
        LT_TRY(lt_batchnorm2d_fold(r->bn1[i], r->conv1[i]));
    return lt_module_fold(r->layers);
}

static void destroy(lt_module *self)
{
    resnet *r = (resnet *)self;
    for (int i = 0; i < PLAN_MAX_CONVS; i++) {
        lt_module_free(&r->conv1[i]);
        lt_module_free(&r->bn1[i]);
    }
    lt_module_free(&r->maxpool);
    lt_module_free(&r->layers);
    lt_module_free(&r->avgpool);
    lt_module_free(&r->fc);
}

static const lt_module_ops ops = {
    .kind = "resnet",
    .bytes = sizeof(resnet),
    .forward = forward,
    .params = params,
    .fold = fold,
    .destroy = destroy,
};

static lt_status add_block(resnet *r, lt_device *device, const lt_resnet_config *c, int stage,
                           int index)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "layer%d.%d", stage + 1, index);
    plan_block plan = plan_residual(c, stage, index);
    lt_module *b = NULL;
    LT_TRY(make_block(&b, device, path, &plan));
    lt_status st = lt_sequential_add(r->layers, &b);
    lt_module_free(&b);
    return st;
}

static lt_status make_layers(resnet *r, lt_device *device, const lt_resnet_config *c)
{
    const plan_block stem = plan_stem(c);
    lt_pool2d_config pool = {
        .kernel_h = 3, .kernel_w = 3, .stride_h = 2, .stride_w = 2, .pad_h = 1, .pad_w = 1};
    r->stem = stem.count;
    LT_TRY(make_convs_and_norms(r->conv1, r->bn1, device, "", &stem));
    if (!c->small_stem)
        LT_TRY(lt_layer_maxpool2d(&r->maxpool, pool));
    LT_TRY(lt_layer_sequential(&r->layers));
    for (int stage = 0; stage < LT_RESNET_STAGES; stage++)
        for (int i = 0; i < c->depths[stage]; i++)
            LT_TRY(add_block(r, device, c, stage, i));
    LT_TRY(lt_layer_avgpool2d(&r->avgpool, (lt_pool2d_config){0}));
    return lt_layer_linear(&r->fc, device, "fc", plan_out_channels(c), c->classes, true);
}

/* Initializes as torchvision: convolutions by He et al. 2015 over fan_out, the last layer uniformly within
 * 1/sqrt(fan_in); batch norm's weights 1 and biases 0 are set by its layer. */
static lt_status initialise_param(lt_param *p, const lt_resnet_config *c)
{
    const char *last_gain = c->bottleneck ? ".bn3.weight" : ".bn2.weight";
    if (p->role == LT_PARAM_WEIGHT && lt_tensor_shape(p->value).ndim == 4)
        return lt_init_kaiming_fan_out(p, c->seed);
    if (p->role == LT_PARAM_WEIGHT || p->role == LT_PARAM_BIAS)
        return lt_init_uniform(p, 1 / sqrt(plan_out_channels(c)), c->seed);
    if (c->zero_init_last && strstr(p->name, last_gain))
        return lt_tensor_fill(p->value, 0);
    return LT_OK;
}

static lt_status initialise_all(lt_module *model, const lt_resnet_config *c)
{
    lt_params list = {0};
    lt_status st = lt_module_params(model, &list);
    for (size_t i = 0; i < list.count && !st; i++)
        st = initialise_param(list.item[i], c);
    lt_params_clear(&list);
    return st;
}

lt_status lt_resnet_new(lt_module **out, lt_device *device, const lt_resnet_config *config)
{
    lt_resnet_config c = *config;
    LT_TRY(lt_resnet_resolve(&c));
    lt_module *m = NULL;
    LT_TRY(lt_module_new(&m, &ops));
    lt_status st = make_layers((resnet *)m, device, &c);
    if (!st)
        st = initialise_all(m, &c);
    if (st) {
        lt_module_free(&m);
        return st;
    }
    *out = m;
    return LT_OK;
}
