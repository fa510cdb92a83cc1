/* A network for small images, after those of public speed records on CIFAR-10: Jordan, "94 % on CIFAR-10 in 3.29
 * seconds on a single GPU", arXiv:2404.00498; before it Page, "How to train your ResNet", 2018.
 *
 *     x = relu([w; -w]),  w = whiten(image)                      convolution of 2x2, not trained
 *     three times: x = norm(pool(conv(x))), x = norm(conv(x))    convolutions of 3x3, largest of 2x2, batch norm with relu
 *     logits = fc(largest value of each channel) / 9
 *
 * There w is computed from the first images. Here it is that of images whose pixels correlate by 0.9 with the next one:
 * eigenvectors are then nearly those of the discrete cosine transform (Ahmed, Natarajan & Rao, "Discrete cosine
 * transform", 1974), and initial values depend on the seed only. There a bias of the first layer is trained, too, for
 * which its output needs a gradient: a sixth of a step in f32. */

#include "speedrun.h"

#include "lather/ext/elementary.h"
#include "lather/ext/module.h"
#include "lather/init.h"
#include "lather/layers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { CONVS = 2, STEM = 2, MAX_CHANNELS = 3, MAX_WIDTH = 4096, NAME_BYTES = 32 };
enum { MAX_WHITENED = MAX_CHANNELS * STEM * STEM };
static const double CORRELATION = 0.9, LEAST_VARIANCE = 0.02, LOGIT_SCALE = 1.0 / 9;

typedef struct speedrun {
    lt_module base;
    lt_module *whiten, *pool, *fc; /* owned, as the others */
    lt_module *conv[SPEEDRUN_STAGES][CONVS], *norm[SPEEDRUN_STAGES][CONVS];
} speedrun;

static lt_tensor *run_and_drop_input(lt_module *module, lt_tape *tape, lt_tensor *x)
{
    lt_tensor *y = lt_module_forward(module, tape, x);
    lt_tape_drop(tape, x);
    return y;
}

static lt_tensor *forward(lt_module *self, lt_tape *tape, lt_tensor *images)
{
    const speedrun *m = (speedrun *)self;
    lt_tensor *w = lt_module_forward(m->whiten, tape, images), *x = lt_relu(tape, w);
    lt_tape_drop(tape, w);
    for (int s = 0; s < SPEEDRUN_STAGES; s++)
        for (int i = 0; i < CONVS; i++) {
            x = run_and_drop_input(m->conv[s][i], tape, x);
            if (i == 0)
                x = run_and_drop_input(m->pool, tape, x);
            x = run_and_drop_input(m->norm[s][i], tape, x);
        }
    if (!x)
        return NULL;
    const lt_shape shape = lt_tensor_shape(x);
    const lt_pool2d_config whole = {.kernel_h = (int)shape.dim[2], .kernel_w = (int)shape.dim[3]};
    lt_tensor *largest = lt_maxpool2d(tape, x, whole);
    lt_tape_drop(tape, x);
    /* Logits in 16 bits would make the loss inaccurate: the last layer reads f32. */
    x = lt_cast(tape, lt_flatten(tape, largest), lt_device_master_dtype(lt_tape_device(tape)));
    return lt_scale(tape, lt_module_forward(m->fc, tape, x), LOGIT_SCALE);
}

static lt_status params(lt_module *self, lt_params *list)
{
    const speedrun *m = (speedrun *)self;
    LT_TRY(lt_module_params(m->whiten, list));
    for (int s = 0; s < SPEEDRUN_STAGES; s++)
        for (int i = 0; i < CONVS; i++) {
            LT_TRY(lt_module_params(m->conv[s][i], list));
            LT_TRY(lt_module_params(m->norm[s][i], list));
        }
    return lt_module_params(m->fc, list);
}

static void destroy(lt_module *self)
{
    speedrun *m = (speedrun *)self;
    lt_module_free(&m->whiten);
    lt_module_free(&m->pool);
    lt_module_free(&m->fc);
    for (int s = 0; s < SPEEDRUN_STAGES; s++)
        for (int i = 0; i < CONVS; i++) {
            lt_module_free(&m->conv[s][i]);
            lt_module_free(&m->norm[s][i]);
        }
}

static const lt_module_ops ops = {
    .kind = "speedrun",
    .bytes = sizeof(speedrun),
    .forward = forward,
    .params = params,
    .destroy = destroy,
};

/* --- Initial values --- */

/* Returns entry i of the n-th vector of the cosine transform of `count` values; its length is 1. */
static double cosine(int count, int n, int i)
{
    const double pi = 3.14159265358979323846;
    return sqrt((n ? 2.0 : 1.0) / count) * lt_f64_cos(pi * n * (2 * i + 1) / (2 * count));
}

/* Returns the variance along the n-th vector of values i, j that correlate by CORRELATION^|i-j|. */
static double variance(int count, int n)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        for (int j = 0; j < count; j++)
            sum += cosine(count, n, i) * cosine(count, n, j) * lt_f64_pow(CORRELATION, abs(i - j));
    return sum;
}

/* Position of a filter's element, or the frequencies of a filter: channel, row, column. */
typedef struct position {
    int c, y, x;
} position;

static position position_of(int i)
{
    return (position){i / (STEM * STEM), i / STEM % STEM, i % STEM};
}

/* Fills filters [2n,C,2,2] with the n vectors, each divided by the root of its variance, and with their negatives. */
static lt_status fill_whitening(lt_param *weight, int channels)
{
    float value[2 * MAX_WHITENED * MAX_WHITENED];
    const int n = channels * STEM * STEM;
    for (int k = 0; k < n; k++) {
        const position f = position_of(k);
        const double var =
            variance(channels, f.c) * variance(STEM, f.y) * variance(STEM, f.x) + LEAST_VARIANCE;
        for (int i = 0; i < n; i++) {
            const position p = position_of(i);
            const double v =
                cosine(channels, f.c, p.c) * cosine(STEM, f.y, p.y) * cosine(STEM, f.x, p.x);
            value[k * n + i] = (float)(v / sqrt(var));
            value[(n + k) * n + i] = -value[k * n + i];
        }
    }
    weight->frozen = true;
    return lt_tensor_write(weight->value, value, 2 * (size_t)n * (size_t)n * sizeof(float));
}

static lt_status initialise(speedrun *m, const speedrun_config *c)
{
    lt_params list = {0};
    LT_TRY(lt_init_module(&m->base, c->seed));
    lt_status st = params(&m->base, &list);
    if (!st)
        st = fill_whitening(list.item[0], c->channels);
    lt_params_clear(&list);
    return st;
}

/* --- Construction --- */

static int whitened_channels(const speedrun_config *c)
{
    return 2 * c->channels * STEM * STEM;
}

static lt_status add_convolution(speedrun *m, lt_device *device, int stage, int i, int in, int out)
{
    char name[NAME_BYTES];
    const lt_conv2d_layer conv = {.in = in, .out = out, .kernel = 3, .pad = 1};
    snprintf(name, sizeof name, "stage%d.conv%d", stage + 1, i + 1);
    LT_TRY(lt_layer_conv2d(&m->conv[stage][i], device, name, conv));
    snprintf(name, sizeof name, "stage%d.norm%d", stage + 1, i + 1);
    return lt_layer_batchnorm2d(&m->norm[stage][i], device, name, out,
                                (lt_batchnorm2d_config){.relu = true});
}

static lt_status make(speedrun *m, lt_device *device, const speedrun_config *c)
{
    int in = whitened_channels(c);
    const lt_conv2d_layer whiten = {.in = c->channels, .out = in, .kernel = STEM};
    LT_TRY(lt_layer_conv2d(&m->whiten, device, "whiten", whiten));
    LT_TRY(lt_layer_maxpool2d(&m->pool, (lt_pool2d_config){.kernel_h = 2, .kernel_w = 2}));
    for (int s = 0; s < SPEEDRUN_STAGES; s++)
        for (int i = 0; i < CONVS; i++, in = c->widths[s])
            LT_TRY(add_convolution(m, device, s, i, in, c->widths[s]));
    LT_TRY(lt_layer_linear(&m->fc, device, "fc", in, c->classes, true));
    return initialise(m, c);
}

static lt_status check(const speedrun_config *c)
{
    for (int s = 0; s < SPEEDRUN_STAGES; s++)
        if (c->widths[s] < 1 || c->widths[s] > MAX_WIDTH)
            return lt_fail(LT_E_ARG, "speedrun: stage %d has %d channels, want 1 to %d", s + 1,
                           c->widths[s], MAX_WIDTH);
    if (c->channels != 1 && c->channels != MAX_CHANNELS)
        return lt_fail(LT_E_ARG, "speedrun: images of %d channels, want 1 or 3", c->channels);
    if (c->size < SPEEDRUN_MIN_SIDE)
        return lt_fail(LT_E_ARG,
                       "speedrun: images of %d pixels, want at least %d: three poolings "
                       "halve them",
                       c->size, SPEEDRUN_MIN_SIDE);
    return LT_OK;
}

lt_status speedrun_new(lt_module **out, lt_device *device, const speedrun_config *config)
{
    LT_TRY(check(config));
    lt_module *m = NULL;
    LT_TRY(lt_module_new(&m, &ops));
    lt_status st = make((speedrun *)m, device, config);
    if (st)
        lt_module_free(&m);
    *out = m;
    return st;
}

void speedrun_count_cost(lt_model_cost *out, const speedrun_config *c)
{
    int64_t side = c->size - STEM + 1, in = whitened_channels(c);
    lt_model_cost cost = {.params = in * in / 2,
                          .multiply_adds = in * (in / 2) * side * side,
                          .kept = in * side * side};
    for (int s = 0; s < SPEEDRUN_STAGES; s++)
        for (int i = 0; i < CONVS; i++, in = c->widths[s]) {
            const int64_t width = c->widths[s], before = width * side * side;
            cost.params += width * (9 * in + 2);
            cost.multiply_adds += 9 * in * before;
            cost.largest = cost.largest > before ? cost.largest : before;
            side = i == 0 ? side / 2 : side;
            cost.kept += (i == 0 ? before : 0) + width * side * side;
            cost.recomputable += width * side * side;
        }
    cost.params += (in + 1) * c->classes;
    cost.multiply_adds += in * c->classes;
    *out = cost;
}
