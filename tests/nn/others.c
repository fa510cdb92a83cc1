/* Layers that ResNets do not use: their parameters, and training of small nets: an autoencoder of group
 * norm, silu and transposed convolution with squared error, a classifier of batchnorm1d, tanh and binary
 * cross-entropy. */

#include "base/alloc.h"
#include "near.h"

#include "lather/detail/transformer_layers.h"
#include "lather/init.h"
#include "lather/layers.h"
#include "lather/optim.h"

#include <stdio.h>
#include <string.h>

enum { IMAGES = 12, SIDE = 8, PIXELS = SIDE * SIDE, POINTS = 64, MOST_LAYERS = 8 };

typedef struct scene {
    lt_device *device;
    lt_tape *tape;
    lt_module *net;
    lt_params params;
    lt_optim *optim;
    lt_tensor *x, *target;
} scene;

typedef lt_tensor *loss_fn(lt_tape *tape, lt_tensor *y, lt_tensor *target, lt_loss_reduction how);

/* Chains the layers and initialises them. */
static void scene_open(scene *s, lt_module **layer, int layers)
{
    assert_ok(lt_layer_sequential(&s->net));
    for (int i = 0; i < layers; i++)
        assert_ok(lt_sequential_add(s->net, &layer[i]));
    assert_ok(lt_module_params(s->net, &s->params));
    for (size_t i = 0; i < s->params.count; i++)
        if (s->params.item[i]->role == LT_PARAM_WEIGHT)
            assert_ok(lt_init_kaiming_fan_out(s->params.item[i], 1));
    assert_ok(lt_optim_adam(&s->optim, &s->params, &LT_ADAM_DEFAULTS));
    assert_ok(lt_tape_new(&s->tape, s->device));
}

static void scene_close(scene *s)
{
    lt_optim_free(&s->optim);
    lt_params_clear(&s->params);
    lt_module_free(&s->net);
    lt_tape_free(&s->tape);
    lt_tensor_free(&s->x);
    lt_tensor_free(&s->target);
    lt_device_close(&s->device);
}

/* Runs steps of Adam; returns the last loss, and the first one in *first. */
static double train(scene *s, loss_fn *loss, int steps, double lr, double *first)
{
    double value = 0;
    for (int i = 1; i <= steps; i++) {
        lt_params_zero_grad(&s->params);
        lt_tape_reset(s->tape, LT_PASS_TRAIN);
        lt_tensor *y = lt_module_forward(s->net, s->tape, s->x);
        lt_tensor *l = loss(s->tape, y, s->target, LT_LOSS_MEAN);
        assert_ok(lt_tape_backward(s->tape, l, 1));
        assert_ok(lt_optim_step(s->optim, &(lt_step){.lr = lr, .attempt = i}));
        assert_ok(lt_tensor_item(l, &value));
        *first = i == 1 ? value : *first;
    }
    return value;
}

static lt_tensor *tensor(lt_device *device, lt_shape shape, const float *values)
{
    lt_tensor *t = NULL;
    assert_ok(lt_tensor_new(&t, device, LT_F32, shape));
    assert_ok(lt_tensor_write(t, values, lt_tensor_bytes(t)));
    return t;
}

/* Sinusoids of several directions and phases, whose mean square is 1/2. */
static void an_autoencoder_learns_sinusoids(void **state)
{
    (void)state;
    scene s = {.device = NULL};
    float pixel[IMAGES * PIXELS];
    for (int i = 0; i < IMAGES * PIXELS; i++) {
        const int n = i / PIXELS, h = i % PIXELS / SIDE, w = i % SIDE;
        pixel[i] =
            sinf((float)(n % 3) * 0.5F * (float)h + (float)(n / 3) * 0.4F * (float)w + (float)n);
    }
    assert_ok(lt_device_open(&s.device, "cpu", &(lt_device_config){.threads = 1}));
    s.x = tensor(s.device, LT_SHAPE(IMAGES, 1, SIDE, SIDE), pixel);
    s.target = tensor(s.device, LT_SHAPE(IMAGES, 1, SIDE, SIDE), pixel);
    lt_module *layer[MOST_LAYERS] = {NULL};
    const lt_conv2d_layer down = {.in = 1, .out = 8, .kernel = 3, .stride = 2, .pad = 1};
    const lt_conv2d_layer code = {.in = 8, .out = 4, .kernel = 1};
    const lt_conv_transpose2d_layer up = {
        .in = 4, .out = 1, .kernel = 3, .stride = 2, .pad = 1, .output_pad = 1, .bias = true};
    assert_ok(lt_layer_conv2d(&layer[0], s.device, "down", down));
    assert_ok(lt_layer_group_norm(&layer[1], s.device, "norm", 8, (lt_group_norm_config){4, 0}));
    assert_ok(lt_layer_silu(&layer[2]));
    assert_ok(lt_layer_conv2d(&layer[3], s.device, "code", code));
    assert_ok(lt_layer_conv_transpose2d(&layer[4], s.device, "up", up));
    scene_open(&s, layer, 5);
    double first = 0;
    const double last = train(&s, lt_mse_loss, 400, 0.02, &first);
    if (!(first > 0.2 && last < 0.03))
        fail_msg("squared error %g at first, %g at last; want above 0.2 and below 0.03", first,
                 last);
    scene_close(&s);
}

/* The label is 1 if exactly one coordinate is positive, which no linear model can learn. */
static void a_classifier_learns_exclusive_or(void **state)
{
    (void)state;
    scene s = {.device = NULL};
    float point[2 * POINTS], target[POINTS];
    for (int i = 0; i < POINTS; i++) {
        point[2 * i] = (float)(i * 37 % POINTS) / 32 - 0.984375F;
        point[2 * i + 1] = (float)(i * 23 % POINTS) / 32 - 0.984375F;
        target[i] = (point[2 * i] > 0) != (point[2 * i + 1] > 0) ? 1 : 0;
    }
    assert_ok(lt_device_open(&s.device, "cpu", &(lt_device_config){.threads = 1}));
    s.x = tensor(s.device, LT_SHAPE(POINTS, 2), point);
    s.target = tensor(s.device, LT_SHAPE(POINTS, 1), target);
    lt_module *layer[MOST_LAYERS] = {NULL};
    assert_ok(lt_layer_linear(&layer[0], s.device, "hidden", 2, 16, true));
    assert_ok(lt_layer_batchnorm1d(&layer[1], s.device, "norm", 16, (lt_batchnorm2d_config){0}));
    assert_ok(lt_layer_tanh(&layer[2]));
    assert_ok(lt_layer_linear(&layer[3], s.device, "out", 16, 1, true));
    scene_open(&s, layer, 4);
    double first = 0;
    const double last = train(&s, lt_bce_with_logits, 200, 0.05, &first);
    if (!(first > 0.5 && last < 0.1))
        fail_msg("cross-entropy %g at first, %g at last; want above 0.5 and below 0.1", first,
                 last);
    scene_close(&s);
}

/* Checks names and shapes of a module's parameters; frees it. */
static void assert_params(lt_module **m, const char *want)
{
    lt_params p = {0};
    char text[LT_SHAPE_TEXT], all[512] = "";
    assert_ok(lt_module_params(*m, &p));
    for (size_t i = 0; i < p.count; i++) {
        const size_t at = strlen(all);
        snprintf(all + at, sizeof all - at, "%s%s %s", i ? ", " : "", p.item[i]->name,
                 lt_shape_text(lt_tensor_shape(p.item[i]->value), text));
    }
    assert_string_equal(all, want);
    lt_params_clear(&p);
    lt_module_free(m);
}

static void parameters_are_pytorchs(void **state)
{
    (void)state;
    lt_device *d = NULL;
    lt_module *m = NULL;
    const lt_conv_transpose2d_layer up = {
        .in = 4, .out = 6, .kernel = 3, .groups = 2, .bias = true};
    assert_ok(lt_device_open(&d, "ref", NULL));
    assert_ok(lt_layer_conv_transpose2d(&m, d, "up", up));
    assert_params(&m, "up.weight [4,3,3,3], up.bias [6]");
    assert_ok(lt_layer_group_norm(&m, d, "g", 4, (lt_group_norm_config){2, 0}));
    assert_params(&m, "g.weight [4], g.bias [4]");
    assert_ok(lt_layer_batchnorm1d(&m, d, "b", 4, (lt_batchnorm2d_config){0}));
    assert_params(&m, "b.weight [4], b.bias [4], b.running_mean [4], b.running_var [4], "
                      "b.num_batches_tracked []");
    assert_ok(lt_layer_layernorm(&m, d, "l", 5, (lt_layernorm_config){0}));
    assert_params(&m, "l.weight [5], l.bias [5]");
    assert_ok(lt_layer_rmsnorm(&m, d, "r", 5, (lt_layernorm_config){0}));
    assert_params(&m, "r.weight [5]");
    lt_device_close(&d);
}

static void bad_arguments_are_errors(void **state)
{
    (void)state;
    lt_device *d = NULL;
    lt_module *m = NULL;
    assert_ok(lt_device_open(&d, "ref", NULL));
    assert_status(lt_layer_group_norm(&m, d, "g", 6, (lt_group_norm_config){4, 0}), LT_E_ARG);
    assert_non_null(strstr(lt_error_message(), "6 channels do not divide into 4 groups"));
    assert_status(lt_layer_batchnorm1d(&m, d, "b", 0, (lt_batchnorm2d_config){0}), LT_E_ARG);
    const lt_conv_transpose2d_layer wide = {.in = 1, .out = 1, .kernel = 2, .output_pad = 1};
    assert_status(lt_layer_conv_transpose2d(&m, d, "up", wide), LT_E_ARG);
    assert_non_null(strstr(lt_error_message(), "output_pad 1, want below stride 1"));
    assert_status(lt_layer_layernorm(&m, d, "l", 0, (lt_layernorm_config){0}), LT_E_ARG);
    assert_non_null(strstr(lt_error_message(), "layernorm l: got width 0"));
    assert_status(lt_layer_rmsnorm(&m, d, "l", 3, (lt_layernorm_config){.eps = -1}), LT_E_ARG);
    assert_status(lt_layer_gelu(&m, (lt_gelu_kind)2), LT_E_ARG);
    assert_status(lt_layer_drop_path(&m, 1), LT_E_ARG);
    assert_null(m);
    lt_device_close(&d);
}

/* With weight 1 and bias 0, the mean of each group of each image is 0, its mean square 1. */
static void group_norm_centres_each_group(void **state)
{
    enum { N = 2, C = 6, GROUPS = 3, SIZE = C / GROUPS * PIXELS };
    (void)state;
    lt_device *d = NULL;
    lt_tape *tape = NULL;
    lt_module *m = NULL;
    float x[N * C * PIXELS], y[N * C * PIXELS];
    for (int i = 0; i < N * C * PIXELS; i++)
        x[i] = (float)(i * 37 % 101) / 25 + (float)(i / PIXELS);
    assert_ok(lt_device_open(&d, "cpu", NULL));
    assert_ok(lt_tape_new(&tape, d));
    lt_tensor *in = tensor(d, LT_SHAPE(N, C, SIDE, SIDE), x);
    assert_ok(lt_layer_group_norm(&m, d, "g", C, (lt_group_norm_config){GROUPS, 1e-12}));
    lt_tape_reset(tape, LT_PASS_EVAL);
    assert_ok(lt_tensor_read(lt_module_forward(m, tape, in), y, sizeof y));
    for (int g = 0; g < N * GROUPS; g++) {
        double sum = 0, square = 0;
        for (int i = g * SIZE; i < (g + 1) * SIZE; i++) {
            sum += (double)y[i];
            square += (double)y[i] * (double)y[i];
        }
        assert_near(sum / SIZE, 0, 1e-6);
        assert_near(square / SIZE, 1, 1e-6);
    }
    lt_module_free(&m);
    lt_tape_free(&tape);
    lt_tensor_free(&in);
    lt_device_close(&d);
}

/* A residual branch of a transformer: layernorm, gelu and stochastic depth, then rmsnorm. */
static void norms_and_gelu_learn_exclusive_or(void **state)
{
    (void)state;
    scene s = {.device = NULL};
    float point[2 * POINTS], target[POINTS];
    for (int i = 0; i < POINTS; i++) {
        point[2 * i] = (float)(i * 37 % POINTS) / 32 - 0.984375F;
        point[2 * i + 1] = (float)(i * 23 % POINTS) / 32 - 0.984375F;
        target[i] = (point[2 * i] > 0) != (point[2 * i + 1] > 0) ? 1 : 0;
    }
    assert_ok(lt_device_open(&s.device, "cpu", &(lt_device_config){.threads = 1}));
    s.x = tensor(s.device, LT_SHAPE(POINTS, 2), point);
    s.target = tensor(s.device, LT_SHAPE(POINTS, 1), target);
    lt_module *layer[MOST_LAYERS] = {NULL};
    assert_ok(lt_layer_linear(&layer[0], s.device, "hidden", 2, 16, true));
    assert_ok(lt_layer_layernorm(&layer[1], s.device, "ln", 16, (lt_layernorm_config){0}));
    assert_ok(lt_layer_gelu(&layer[2], LT_GELU_ERF));
    assert_ok(lt_layer_drop_path(&layer[3], 0.01));
    assert_ok(lt_layer_linear(&layer[4], s.device, "more", 16, 16, true));
    assert_ok(lt_layer_gelu(&layer[5], LT_GELU_TANH));
    assert_ok(lt_layer_rmsnorm(&layer[6], s.device, "rms", 16, (lt_layernorm_config){0}));
    assert_ok(lt_layer_linear(&layer[7], s.device, "out", 16, 1, true));
    scene_open(&s, layer, 8);
    double first = 0;
    const double last = train(&s, lt_bce_with_logits, 200, 0.02, &first);
    if (!(first > 0.5 && last < 0.2))
        fail_msg("cross-entropy %g at first, %g at last; want above 0.5 and below 0.2", first,
                 last);
    scene_close(&s);
}

/* The branch of a residual block: everything that may fail for lack of memory. */
static lt_status make_branch(lt_device *d, lt_module **net)
{
    enum { LAYERS = 5 };
    lt_module *layer[LAYERS] = {NULL};
    lt_status st = lt_layer_sequential(net);
    st = st ? st : lt_layer_layernorm(&layer[0], d, "l", 4, (lt_layernorm_config){0});
    st = st ? st : lt_layer_linear(&layer[1], d, "f", 4, 4, true);
    st = st ? st : lt_layer_gelu(&layer[2], LT_GELU_ERF);
    st = st ? st : lt_layer_rmsnorm(&layer[3], d, "r", 4, (lt_layernorm_config){0});
    st = st ? st : lt_layer_drop_path(&layer[4], 0.5);
    for (int i = 0; i < LAYERS; i++) {
        st = st ? st : lt_sequential_add(*net, &layer[i]);
        lt_module_free(&layer[i]);
    }
    return st;
}

static lt_status whole_life(const char *device)
{
    lt_device *d = NULL;
    lt_tape *tape = NULL;
    lt_module *net = NULL;
    lt_tensor *x = NULL;
    lt_pass pass = LT_PASS_TRAIN;
    pass.recompute = LT_RECOMPUTE_CHEAP;
    lt_status st = lt_device_open(&d, device, &(lt_device_config){.threads = 1});
    st = st ? st : lt_tape_new(&tape, d);
    st = st ? st : lt_tensor_new(&x, d, LT_F32, LT_SHAPE(3, 2, 4));
    st = st ? st : lt_tensor_fill(x, 0.5);
    st = st ? st : make_branch(d, &net);
    if (!st) {
        lt_tape_reset(tape, pass);
        lt_tensor *in = lt_tape_variable(tape, x);
        lt_tensor *y = lt_add(tape, in, lt_module_forward(net, tape, in));
        lt_tensor *loss = lt_sum(tape, lt_mul(tape, y, y), (lt_reduce_config){0});
        st = lt_tape_status(tape);
        st = st ? st : lt_tape_backward(tape, loss, 1);
    }
    lt_module_free(&net);
    lt_tape_free(&tape);
    lt_tensor_free(&x);
    lt_device_close(&d);
    return st;
}

/* An optional allocation may fail without an error, so the loop does not end at the first success. */
static void any_allocation_may_fail_without_leak(void **state)
{
    enum { MOST = 300 };
    static const char *const device[] = {"ref", "cpu"};
    (void)state;
    for (size_t k = 0; k < COUNT_OF(device); k++) {
        int failures = 0;
        lt_status last = LT_E_NOMEM;
        for (int i = 1; i <= MOST; i++) {
            lt_alloc_fail_at(i);
            last = whole_life(device[k]);
            assert_true(!last || last == LT_E_NOMEM);
            failures += last != LT_OK;
        }
        lt_alloc_fail_at(0);
        assert_ok(last); /* fewer than MOST allocations exist */
        assert_true(failures > 30);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_are_pytorchs),
        cmocka_unit_test(bad_arguments_are_errors),
        cmocka_unit_test(group_norm_centres_each_group),
        cmocka_unit_test(an_autoencoder_learns_sinusoids),
        cmocka_unit_test(a_classifier_learns_exclusive_or),
        cmocka_unit_test(norms_and_gelu_learn_exclusive_or),
        cmocka_unit_test(any_allocation_may_fail_without_leak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
