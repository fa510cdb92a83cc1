/* A layer of your own, LayerScale: y = gain * x, one gain per channel.
 * Touvron et al., "Going deeper with Image Transformers", ICCV 2021, section 2.
 *
 *     cc layer_scale.c $(pkg-config --cflags --libs lather) -lm -o layer_scale && ./layer_scale */

#include "lather/ext/module.h"
#include "lather/ops.h"

#include <math.h>
#include <stdio.h>

typedef struct layer_scale {
    lt_module base;
    lt_param gain; /* [C,1,1] */
} layer_scale;

static lt_tensor *forward(lt_module *self, lt_tape *tape, lt_tensor *x)
{
    layer_scale *s = (layer_scale *)self;
    return lt_mul(tape, x, lt_tape_param(tape, &s->gain));
}

static lt_status params(lt_module *self, lt_params *list)
{
    return lt_params_add(list, &((layer_scale *)self)->gain);
}

static void destroy(lt_module *self)
{
    lt_param_clear(&((layer_scale *)self)->gain);
}

static const lt_module_ops ops = {
    .kind = "layer_scale",
    .bytes = sizeof(layer_scale),
    .forward = forward,
    .params = params,
    .destroy = destroy,
};

static lt_status layer_scale_new(lt_module **out, lt_device *device, const char *name, int channels,
                                 double gain)
{
    lt_module *m = NULL;
    LT_TRY(lt_module_new(&m, &ops));

    lt_shape shape = LT_SHAPE(channels, 1, 1);
    lt_status st = lt_param_init(&((layer_scale *)m)->gain, device, name, "gain", shape, gain);
    if (st) {
        lt_module_free(&m);
        return st;
    }
    *out = m;
    return LT_OK;
}

/* The rest shows that it works: the gradient against a central difference. */

enum { CHANNELS = 3, ELEMENTS = 2 * CHANNELS * 4 * 4 };

/* Computes sum of layer(x)^2, and its gradient with respect to the layer's parameters. */
static lt_status compute_loss_and_gradient(lt_module *layer, lt_tape *tape, lt_tensor *x,
                                           double *loss)
{
    lt_tape_reset(tape, LT_PASS_TRAIN);
    lt_tensor *y = lt_module_forward(layer, tape, x);
    lt_tensor *sum = lt_sum(tape, lt_mul(tape, y, y), (lt_reduce_config){0});
    LT_TRY(lt_tape_backward(tape, sum, 1)); /* also reports a failed forward pass */
    return lt_tensor_item(sum, loss);
}

static lt_status numeric_gradient(lt_module *layer, lt_tape *tape, lt_tensor *x, lt_param *gain,
                                  double *numeric)
{
    const double h = 1e-5;
    double value[CHANNELS], above, below;
    LT_TRY(lt_tensor_read(gain->value, value, sizeof value));
    value[1] += h;
    LT_TRY(lt_tensor_write(gain->value, value, sizeof value));
    LT_TRY(compute_loss_and_gradient(layer, tape, x, &above));
    value[1] -= 2 * h;
    LT_TRY(lt_tensor_write(gain->value, value, sizeof value));
    LT_TRY(compute_loss_and_gradient(layer, tape, x, &below));
    *numeric = (above - below) / (2 * h);
    return LT_OK;
}

static lt_status check_gradient(lt_device *device, lt_module *layer, lt_tape *tape, lt_tensor *x)
{
    double pixel[ELEMENTS], loss, gradient[CHANNELS], numeric;
    for (int i = 0; i < ELEMENTS; i++)
        pixel[i] = sin(i + 1.0);
    LT_TRY(lt_tensor_write(x, pixel, sizeof pixel));

    lt_param *gain = &((layer_scale *)layer)->gain;
    LT_TRY(compute_loss_and_gradient(layer, tape, x, &loss));
    LT_TRY(lt_tensor_read(gain->grad, gradient, sizeof gradient));
    LT_TRY(numeric_gradient(layer, tape, x, gain, &numeric));

    printf("%s on %s: loss %.6f, d loss / d gain[1]: %.9f, by differences %.9f\n",
           lt_module_kind(layer), lt_device_name(device), loss, gradient[1], numeric);
    if (!(fabs(gradient[1] - numeric) <= 1e-6 * fabs(numeric)))
        return lt_fail(LT_E_ARG, "layer_scale: the gradient is wrong");
    return LT_OK;
}

int main(void)
{
    lt_device *device = NULL;
    lt_module *layer = NULL;
    lt_tape *tape = NULL;
    lt_tensor *x = NULL;
    const lt_device_config exact = {.f64 = true, .threads = 1};

    lt_status st = lt_device_open(&device, "ref", &exact);
    st = st ? st : layer_scale_new(&layer, device, "scale", CHANNELS, 0.5);
    st = st ? st : lt_tape_new(&tape, device);
    st = st ? st : lt_tensor_new(&x, device, LT_F64, LT_SHAPE(2, CHANNELS, 4, 4));
    st = st ? st : check_gradient(device, layer, tape, x);
    if (st)
        fprintf(stderr, "layer_scale: %s: %s\n", lt_status_name(st), lt_error_message());

    lt_tensor_free(&x);
    lt_tape_free(&tape);
    lt_module_free(&layer);
    lt_device_close(&device);
    return st ? 1 : 0;
}
