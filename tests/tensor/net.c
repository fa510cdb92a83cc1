/* The small network for tests of the tape. */

#include "net.h"

#include "base/alloc.h"
#include "base/rng.h"

#include <string.h>

enum { BATCH = 3, CHANNELS = 4, SIDE = 6, CLASSES = 5, FEATURES = CHANNELS * 3 * 3 };

static lt_status fill_random(lt_tensor *t, const char *name)
{
    size_t count = (size_t)lt_tensor_count(t);
    lt_rng rng = {.key = lt_rng_name_key(9, LT_STREAM_INIT, name)};
    double *wide = lt_alloc(count, sizeof *wide);
    float *narrow = lt_alloc(count, sizeof *narrow);
    lt_status st = LT_E_NOMEM;
    if (wide && narrow) {
        for (size_t i = 0; i < count; i++) {
            narrow[i] = (float)(lt_rng_uniform(&rng) - 0.5);
            wide[i] = (double)narrow[i];
        }
        const void *data = lt_tensor_dtype(t) == LT_F64 ? (const void *)wide : narrow;
        st = lt_tensor_write(t, data, lt_tensor_bytes(t));
    }
    lt_free(wide);
    lt_free(narrow);
    return st;
}

static lt_status add_weight(net *n, lt_param *p, const char *name, lt_shape shape)
{
    LT_TRY(shape.ndim == 4 ? lt_param_init_filter(p, n->device, "net", name, shape)
                           : lt_param_init(p, n->device, "net", name, shape, 0));
    LT_TRY(fill_random(p->value, name));
    return lt_params_add(&n->params, p);
}

static lt_status add_norm(net *n, lt_param *gamma, lt_param *beta, lt_param *mean, lt_param *var)
{
    lt_shape shape = LT_SHAPE(CHANNELS);
    LT_TRY(lt_param_init_kind(gamma, n->device, "net", "gamma", shape, 1, LT_PARAM_NORM));
    LT_TRY(lt_params_add(&n->params, gamma));
    LT_TRY(lt_param_init_kind(beta, n->device, "net", "beta", shape, 0.1, LT_PARAM_NORM));
    LT_TRY(lt_params_add(&n->params, beta));
    LT_TRY(lt_param_init_kind(mean, n->device, "net", "mean", shape, 0, LT_PARAM_STAT));
    return lt_param_init_kind(var, n->device, "net", "var", shape, 1, LT_PARAM_STAT);
}

lt_status net_open(net *n, const char *device, const lt_device_config *config)
{
    static const int32_t labels[BATCH] = {0, 4, 2};
    memset(n, 0, sizeof *n);
    LT_TRY(lt_device_open(&n->device, device, config));
    LT_TRY(lt_tape_new(&n->tape, n->device));
    LT_TRY(add_weight(n, &n->conv1, "conv1", LT_SHAPE(CHANNELS, 3, 3, 3)));
    LT_TRY(add_norm(n, &n->gamma1, &n->beta1, &n->mean1, &n->var1));
    LT_TRY(add_weight(n, &n->conv2, "conv2", LT_SHAPE(CHANNELS, CHANNELS, 3, 3)));
    LT_TRY(add_norm(n, &n->gamma2, &n->beta2, &n->mean2, &n->var2));
    LT_TRY(add_weight(n, &n->fc, "fc", LT_SHAPE(CLASSES, FEATURES)));
    LT_TRY(add_weight(n, &n->bias, "bias", LT_SHAPE(CLASSES)));
    LT_TRY(lt_tensor_new_as(&n->x, n->device, lt_device_master_dtype(n->device),
                            LT_SHAPE(BATCH, 3, SIDE, SIDE), LT_FORMAT_CHANNELS_LAST));
    LT_TRY(fill_random(n->x, "x"));
    LT_TRY(lt_tensor_new(&n->labels, n->device, LT_I32, LT_SHAPE(BATCH)));
    return lt_tensor_write(n->labels, labels, sizeof labels);
}

void net_close(net *n)
{
    lt_param *const all[] = {&n->conv1, &n->gamma1, &n->beta1, &n->conv2, &n->gamma2, &n->beta2,
                             &n->fc,    &n->bias,   &n->mean1, &n->var1,  &n->mean2,  &n->var2};
    lt_tape_free(&n->tape);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        lt_param_clear(all[i]);
    lt_params_clear(&n->params);
    lt_tensor_free(&n->x);
    lt_tensor_free(&n->labels);
    lt_device_close(&n->device);
}

static lt_tensor *normalise(net *n, lt_tensor *x, int layer, lt_tensor *residual)
{
    static const lt_batchnorm2d_config config = {.eps = 1e-5, .momentum = 0.1, .relu = true};
    lt_batchnorm2d_args args = {
        .gamma = lt_tape_param(n->tape, layer == 1 ? &n->gamma1 : &n->gamma2),
        .beta = lt_tape_param(n->tape, layer == 1 ? &n->beta1 : &n->beta2),
        .mean = layer == 1 ? n->mean1.value : n->mean2.value,
        .var = layer == 1 ? n->var1.value : n->var2.value,
        .residual = residual,
    };
    return lt_batchnorm2d(n->tape, x, args, config);
}

void net_forward(net *n, lt_pass pass)
{
    lt_tape *t = n->tape;
    lt_conv2d_config same = {.pad_h = 1, .pad_w = 1};
    lt_tape_reset(t, pass);
    lt_tensor *x = pass.dtype == LT_BF16 ? lt_cast(t, n->x, LT_BF16) : n->x;
    lt_tensor *c1 = lt_conv2d(t, x, lt_tape_param(t, &n->conv1), NULL, same);
    n->hidden = normalise(n, c1, 1, NULL);
    lt_tape_drop(t, c1);
    lt_tensor *pooled =
        lt_maxpool2d(t, n->hidden, (lt_pool2d_config){.kernel_h = 2, .kernel_w = 2});
    lt_conv2d_config halve = {.stride_h = 2, .stride_w = 2, .pad_h = 1, .pad_w = 1};
    lt_tensor *c2 = lt_conv2d(t, n->hidden, lt_tape_param(t, &n->conv2), NULL, halve);
    lt_tensor *y = lt_dropout(t, lt_flatten(t, normalise(n, c2, 2, pooled)), 0.25);
    n->logits = lt_linear(t, y, lt_tape_param(t, &n->fc), lt_tape_param(t, &n->bias));
    if (pass.dtype == LT_BF16)
        n->logits = lt_cast(t, n->logits, LT_F32);
    n->loss = lt_softmax_xent(t, n->logits, n->labels, 0.1);
}

lt_status net_step(net *n, lt_pass pass)
{
    lt_params_zero_grad(&n->params);
    net_forward(n, pass);
    return lt_tape_backward(n->tape, n->loss, 1);
}
