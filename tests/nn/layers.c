/* Layers against the operations they run: parameters, names, roles, results. */

#include "lather/layers.h"

#include "base/alloc.h"
#include "near.h"

#include "lather/detail/transformer_layers.h"
#include "lather/embedding_layers.h"

#include <string.h>

enum { N = 2, C = 4, SIDE = 5, PIXELS = N * C * SIDE * SIDE };

typedef struct fixture {
    lt_device *device;
    lt_tape *tape;
    lt_tensor *x; /* [N,C,SIDE,SIDE] */
    double host[PIXELS];
} fixture;

static int setup(void **state)
{
    static fixture f;
    assert_ok(lt_device_open(&f.device, "ref", &(lt_device_config){.f64 = true}));
    assert_ok(lt_tape_new(&f.tape, f.device));
    assert_ok(lt_tensor_new(&f.x, f.device, LT_F64, LT_SHAPE(N, C, SIDE, SIDE)));
    for (int i = 0; i < PIXELS; i++)
        f.host[i] = (i * 37 % 101 - 50) / 25.0;
    assert_ok(lt_tensor_write(f.x, f.host, sizeof f.host));
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    lt_tensor_free(&f->x);
    lt_tape_free(&f->tape);
    lt_device_close(&f->device);
    return 0;
}

static lt_tensor *run(fixture *f, lt_module *m, lt_pass pass)
{
    lt_tape_reset(f->tape, pass);
    lt_tensor *y = lt_module_forward(m, f->tape, lt_tape_variable(f->tape, f->x));
    assert_ok(lt_tape_status(f->tape));
    return y;
}

static void conv_without_bias_has_one_parameter(void **state)
{
    fixture *f = *state;
    lt_module *m = NULL;
    lt_params p = {0};
    char text[LT_SHAPE_TEXT];
    lt_conv2d_layer c = {.in = C, .out = 6, .kernel = 3, .stride = 2, .pad = 1, .groups = 2};
    assert_ok(lt_layer_conv2d(&m, f->device, "layer1.0.conv2", c));
    assert_ok(lt_module_params(m, &p));
    assert_int_equal(p.count, 1);
    assert_string_equal(p.item[0]->name, "layer1.0.conv2.weight");
    assert_string_equal(lt_shape_text(lt_tensor_shape(p.item[0]->value), text), "[6,2,3,3]");
    assert_int_equal(p.item[0]->fan_in, 18);
    assert_string_equal(lt_shape_text(lt_tensor_shape(run(f, m, LT_PASS_EVAL)), text), "[2,6,3,3]");
    lt_params_clear(&p);
    lt_module_free(&m);
    assert_null(m);
}

static void conv_with_a_delta_filter_and_bias_shifts_values(void **state)
{
    fixture *f = *state;
    lt_module *m = NULL;
    lt_params p = {0};
    double w[C * C] = {0}, y[PIXELS];
    for (int c = 0; c < C; c++)
        w[c * C + c] = 1;
    lt_conv2d_layer config = {.in = C, .out = C, .kernel = 1, .bias = true};
    assert_ok(lt_layer_conv2d(&m, f->device, "c", config));
    assert_ok(lt_module_params(m, &p));
    assert_int_equal(p.count, 2);
    assert_int_equal(p.item[1]->role, LT_PARAM_BIAS);
    assert_ok(lt_tensor_write(p.item[0]->value, w, sizeof w));
    assert_ok(lt_tensor_fill(p.item[1]->value, 0.5));
    assert_ok(lt_tensor_read(run(f, m, LT_PASS_EVAL), y, sizeof y));
    for (int i = 0; i < PIXELS; i++)
        assert_near(y[i], f->host[i] + 0.5, 0);
    lt_params_clear(&p);
    lt_module_free(&m);
}

static void batch_norm_has_five_parameters_and_counts_batches(void **state)
{
    static const char *const names[] = {"b.weight", "b.bias", "b.running_mean", "b.running_var",
                                        "b.num_batches_tracked"};
    static const lt_param_kind roles[] = {LT_PARAM_NORM, LT_PARAM_NORM, LT_PARAM_STAT,
                                          LT_PARAM_STAT, LT_PARAM_COUNT};
    fixture *f = *state;
    lt_module *m = NULL;
    lt_params p = {0};
    double tracked;
    assert_ok(lt_layer_batchnorm2d(&m, f->device, "b", C, (lt_batchnorm2d_config){0}));
    assert_ok(lt_module_params(m, &p));
    assert_int_equal(p.count, COUNT_OF(names));
    for (size_t i = 0; i < p.count; i++) {
        assert_string_equal(p.item[i]->name, names[i]);
        assert_int_equal(p.item[i]->role, roles[i]);
    }
    for (int i = 0; i < 3; i++)
        run(f, m, LT_PASS_TRAIN);
    run(f, m, LT_PASS_EVAL); /* leaves statistics and count unchanged */
    assert_ok(lt_tensor_item(p.item[4]->value, &tracked));
    assert_near(tracked, 3, 0);
    assert_int_equal(lt_tensor_dtype(p.item[4]->value), LT_I64);
    lt_params_clear(&p);
    lt_module_free(&m);
}

/* In training each channel of the output has mean beta = 0 and, before eps, variance gamma^2 = 1. */
static void batch_norm_trains_with_statistics_of_the_batch(void **state)
{
    fixture *f = *state;
    lt_module *m = NULL;
    double y[PIXELS];
    assert_ok(lt_layer_batchnorm2d(&m, f->device, "b", C, (lt_batchnorm2d_config){0}));
    assert_ok(lt_tensor_read(run(f, m, LT_PASS_TRAIN), y, sizeof y));
    double sum = 0, square = 0;
    for (int n = 0; n < N; n++)
        for (int i = 0; i < SIDE * SIDE; i++) {
            double v = y[(n * C + 1) * SIDE * SIDE + i];
            sum += v;
            square += v * v;
        }
    assert_near(sum, 0, 1e-12);
    assert_near(square / (N * SIDE * SIDE), 1, 1e-4);
    lt_module_free(&m);
}

/* The result of torch.optim.swa_utils.update_bn(): each of three batches weighs a third, unlike in training. */
static void a_pass_for_statistics_averages_batches_equally(void **state)
{
    fixture *f = *state;
    lt_module *m = NULL;
    lt_params p = {0};
    double mean[C], var[C], tracked, x[PIXELS], sum = 0, square = 0;
    const int count = N * SIDE * SIDE;
    for (int i = 0; i < PIXELS; i++)
        if (i / (SIDE * SIDE) % C == 1) {
            sum += f->host[i] / count;
            square += f->host[i] * f->host[i] / count;
        }
    assert_ok(lt_layer_batchnorm2d(&m, f->device, "b", C, (lt_batchnorm2d_config){0}));
    assert_ok(lt_module_params(m, &p));
    assert_ok(lt_tensor_fill(p.item[2]->value, 7)); /* overwritten completely */
    for (int k = 0; k < 3; k++) {
        for (int i = 0; i < PIXELS; i++)
            x[i] = (k + 1) * f->host[i];
        assert_ok(lt_tensor_write(f->x, x, sizeof x));
        run(f, m, (lt_pass){.batch_stats = true, .stat_momentum = 1 / (k + 1.0)});
    }
    assert_ok(lt_tensor_write(f->x, f->host, sizeof f->host));
    assert_ok(lt_tensor_read(p.item[2]->value, mean, sizeof mean));
    assert_ok(lt_tensor_read(p.item[3]->value, var, sizeof var));
    assert_ok(lt_tensor_item(p.item[4]->value, &tracked));
    assert_near(mean[1], 2 * sum, 1e-12);
    assert_near(var[1], (1 + 4 + 9) / 3.0 * (square - sum * sum) * count / (count - 1), 1e-12);
    assert_near(tracked, 0, 0);
    lt_params_clear(&p);
    lt_module_free(&m);
}

static void a_frozen_batch_norm_keeps_its_statistics(void **state)
{
    fixture *f = *state;
    lt_module *m = NULL;
    lt_params p = {0};
    double eval[PIXELS], train[PIXELS], mean[C], tracked;
    assert_ok(lt_layer_batchnorm2d(&m, f->device, "b", C, (lt_batchnorm2d_config){0}));
    assert_ok(lt_module_params(m, &p));
    assert_ok(lt_tensor_fill(p.item[2]->value, 0.25));
    assert_ok(lt_tensor_read(run(f, m, LT_PASS_EVAL), eval, sizeof eval));
    for (int i = 0; i < 2; i++) {
        p.item[2]->frozen = i == 0; /* unfrozen, it works as before */
        assert_ok(lt_tensor_read(run(f, m, LT_PASS_TRAIN), train, sizeof train));
        assert_ok(lt_tensor_read(p.item[2]->value, mean, sizeof mean));
        assert_ok(lt_tensor_item(p.item[4]->value, &tracked));
        assert_near(tracked, i, 0);
        assert_int_equal(!memcmp(eval, train, sizeof eval), i == 0);
        assert_int_equal(mean[0] <= 0.25 && mean[0] >= 0.25, i == 0);
    }
    lt_params_clear(&p);
    lt_module_free(&m);
}

static void batch_norm_adds_the_residual_before_the_relu(void **state)
{
    fixture *f = *state;
    lt_module *m = NULL;
    double y[PIXELS];
    lt_batchnorm2d_config config = {.relu = true, .eps = 1e-12};
    assert_ok(lt_layer_batchnorm2d(&m, f->device, "b", C, config));
    lt_tape_reset(f->tape, LT_PASS_EVAL); /* running statistics 0 and 1: x itself */
    lt_tensor *x = lt_tape_variable(f->tape, f->x);
    lt_tensor *half = lt_scale(f->tape, x, -0.5);
    lt_tensor *out = lt_batchnorm2d_forward(m, f->tape, x, half);
    assert_ok(lt_tape_status(f->tape));
    assert_ok(lt_tensor_read(out, y, sizeof y));
    for (int i = 0; i < PIXELS; i++)
        assert_near(y[i], fmax(0.5 * f->host[i], 0), 1e-9);
    lt_module_free(&m);
}

static void add_layer(lt_module *chain, lt_module **layer)
{
    assert_ok(lt_sequential_add(chain, layer));
    assert_null(*layer);
}

static void a_chain_runs_in_order_and_owns_its_layers(void **state)
{
    fixture *f = *state;
    lt_module *chain = NULL, *layer = NULL;
    lt_params p = {0};
    char text[LT_SHAPE_TEXT];
    assert_ok(lt_layer_sequential(&chain));
    assert_ok(lt_layer_maxpool2d(&layer, (lt_pool2d_config){.kernel_h = 2, .kernel_w = 2}));
    add_layer(chain, &layer);
    assert_ok(lt_layer_relu(&layer));
    add_layer(chain, &layer);
    assert_ok(lt_layer_dropout(&layer, 0.5));
    add_layer(chain, &layer);
    assert_ok(lt_layer_flatten(&layer));
    add_layer(chain, &layer);
    assert_ok(lt_layer_linear(&layer, f->device, "fc", C * 4, 3, true));
    add_layer(chain, &layer);
    assert_ok(lt_module_params(chain, &p));
    assert_int_equal(p.count, 2);
    assert_string_equal(p.item[1]->name, "fc.bias");
    assert_string_equal(lt_shape_text(lt_tensor_shape(run(f, chain, LT_PASS_EVAL)), text), "[2,3]");
    assert_string_equal(lt_module_kind(chain), "sequential");
    lt_params_clear(&p);
    lt_module_free(&chain);
}

static void a_chain_frees_intermediate_memory_in_evaluation(void **state)
{
    fixture *f = *state;
    lt_module *chain = NULL;
    assert_ok(lt_layer_sequential(&chain));
    for (int i = 0; i < 6; i++) {
        lt_module *layer = NULL;
        assert_ok(lt_layer_relu(&layer));
        add_layer(chain, &layer);
    }
    lt_tape_reset(f->tape, LT_PASS_EVAL);
    lt_device_reset_peak(f->device);
    size_t before = lt_device_memory(f->device).used;
    run(f, chain, LT_PASS_EVAL);
    size_t peak = lt_device_memory(f->device).peak - before;
    assert_true(peak <= 3 * PIXELS * sizeof(double)); /* two layers, and rounding */
    lt_module_free(&chain);
}

static void a_chain_without_layers_returns_its_input(void **state)
{
    fixture *f = *state;
    lt_module *chain = NULL;
    double y[PIXELS];
    assert_ok(lt_layer_sequential(&chain));
    assert_ok(lt_tensor_read(run(f, chain, LT_PASS_EVAL), y, sizeof y));
    assert_memory_equal(y, f->host, sizeof y);
    lt_module_free(&chain);
}

/* A convolution, with or without a bias, and a batch norm whose numbers all differ. */
static lt_module *normed_conv(fixture *f, bool bias)
{
    lt_module *chain = NULL, *layer = NULL;
    lt_params p = {0};
    assert_ok(lt_layer_sequential(&chain));
    lt_conv2d_layer c = {.in = C, .out = 6, .kernel = 3, .pad = 1, .groups = 2, .bias = bias};
    assert_ok(lt_layer_conv2d(&layer, f->device, "c", c));
    add_layer(chain, &layer);
    lt_batchnorm2d_config norm = {.relu = true, .eps = 0.1};
    assert_ok(lt_layer_batchnorm2d(&layer, f->device, "b", 6, norm));
    add_layer(chain, &layer);
    assert_ok(lt_module_params(chain, &p));
    for (size_t i = 0; i < p.count; i++) {
        double v[6 * 2 * 9];
        int64_t count = lt_tensor_count(p.item[i]->value);
        for (int64_t k = 0; k < count; k++)
            v[k] = 0.3 + (double)((k * 29 + 17 * (int64_t)i) % 23) / 23;
        if (p.item[i]->role != LT_PARAM_COUNT)
            assert_ok(lt_tensor_write(p.item[i]->value, v, (size_t)count * sizeof *v));
    }
    lt_params_clear(&p);
    return chain;
}

enum { FOLDED = N * 6 * SIDE * SIDE };

static double largest_difference(const double *a, const double *b, size_t count)
{
    double largest = 0;
    for (size_t i = 0; i < count; i++)
        largest = fmax(largest, fabs(a[i] - b[i]));
    return largest;
}

static void check_folding(fixture *f, bool bias)
{
    lt_module *chain = normed_conv(f, bias);
    lt_params p = {0};
    double before[FOLDED], after[FOLDED];
    assert_ok(lt_tensor_read(run(f, chain, LT_PASS_EVAL), before, sizeof before));
    assert_ok(lt_module_fold(chain));
    assert_ok(lt_tensor_read(run(f, chain, LT_PASS_EVAL), after, sizeof after));
    assert_near(largest_difference(before, after, FOLDED), 0, 1e-12);
    assert_ok(lt_module_params(chain, &p));
    assert_int_equal(p.count, 2);
    assert_string_equal(p.item[1]->name, "c.bias");

    assert_ok(lt_module_fold(chain)); /* a second time: nothing to do */
    assert_ok(lt_tensor_read(run(f, chain, LT_PASS_EVAL), before, sizeof before));
    assert_memory_equal(before, after, sizeof after);
    assert_ok(lt_tensor_fill(p.item[1]->value, 0)); /* control: the bias has an effect */
    assert_ok(lt_tensor_read(run(f, chain, LT_PASS_EVAL), before, sizeof before));
    assert_true(largest_difference(before, after, FOLDED) > 0.01);
    lt_params_clear(&p);
    lt_module_free(&chain);
}

static void a_folded_batch_norm_computes_the_same(void **state)
{
    check_folding(*state, false);
    check_folding(*state, true);
}

static void a_folded_batch_norm_does_not_train(void **state)
{
    fixture *f = *state;
    lt_module *chain = normed_conv(f, false);
    assert_ok(lt_module_fold(chain));
    lt_tape_reset(f->tape, LT_PASS_TRAIN);
    assert_null(lt_module_forward(chain, f->tape, lt_tape_variable(f->tape, f->x)));
    assert_status(lt_tape_status(f->tape), LT_E_UNSUPPORTED);
    lt_module_free(&chain);
}

static void only_a_batch_norm_folds_into_only_a_convolution(void **state)
{
    fixture *f = *state;
    lt_module *conv = NULL, *norm = NULL;
    lt_conv2d_layer c = {.in = C, .out = 6, .kernel = 1};
    assert_ok(lt_layer_conv2d(&conv, f->device, "c", c));
    assert_ok(lt_layer_batchnorm2d(&norm, f->device, "b", C, (lt_batchnorm2d_config){0}));
    assert_status(lt_batchnorm2d_fold(conv, norm), LT_E_ARG);
    assert_status(lt_batchnorm2d_fold(norm, conv), LT_E_SHAPE);
    assert_non_null(strstr(lt_error_message(), "6 channels"));
    lt_module_free(&conv);
    lt_module_free(&norm);
}

static void folding_without_memory_changes_nothing(void **state)
{
    fixture *f = *state;
    lt_module *chain = normed_conv(f, false);
    double before[FOLDED], after[FOLDED];
    assert_ok(lt_tensor_read(run(f, chain, LT_PASS_EVAL), before, sizeof before));
    int failures = 0;
    for (lt_status st = LT_E_NOMEM; st; failures += st != LT_OK) {
        lt_alloc_fail_at(failures + 1);
        st = lt_module_fold(chain);
        lt_alloc_fail_at(0);
        assert_true(!st || st == LT_E_NOMEM);
        assert_ok(lt_tensor_read(run(f, chain, LT_PASS_EVAL), after, sizeof after));
        assert_near(largest_difference(before, after, FOLDED), 0, st ? 0 : 1e-12);
    }
    assert_true(failures >= 6); /* at least the six arrays of numbers */
    lt_module_free(&chain);
}

static lt_status make_layer(int which, lt_module **out, lt_device *device)
{
    switch (which) {
    case 0:
        return lt_layer_conv2d(out, device, "l", (lt_conv2d_layer){.in = C, .out = C, .kernel = 3});
    case 1:
        return lt_layer_conv_transpose2d(
            out, device, "l", (lt_conv_transpose2d_layer){.in = C, .out = C, .kernel = 2});
    case 2:
        return lt_layer_linear(out, device, "l", C, C, true);
    case 3:
        return lt_layer_batchnorm2d(out, device, "l", C, (lt_batchnorm2d_config){0});
    case 4:
        return lt_layer_group_norm(out, device, "l", C, (lt_group_norm_config){.groups = 2});
    case 5:
        return lt_layer_layernorm(out, device, "l", C, (lt_layernorm_config){0});
    case 6:
        return lt_layer_patch_embedding(
            out, device, "l", (lt_patch_embedding_layer){.channels = C, .width = C, .patch = 2});
    case 7:
        return lt_layer_class_token(out, device, "l", C);
    case 8:
        return lt_layer_positions(out, device, "l", (lt_positions_layer){.rows = C, .width = C});
    default:
        return lt_layer_dropout(out, 0.5);
    }
}

static void failed_allocations_make_no_layer(void **state)
{
    const fixture *f = *state;
    for (int which = 0; which < 10; which++) {
        lt_module *m = NULL;
        lt_status st = LT_E_NOMEM;
        for (int n = 1; st; n++) {
            lt_alloc_fail_at(n);
            st = make_layer(which, &m, f->device);
            lt_alloc_fail_at(0);
            assert_true(st ? st == LT_E_NOMEM && !m : n > 1);
        }
        lt_params whole = {0}, list = {0};
        assert_ok(lt_module_params(m, &whole));
        lt_alloc_fail_at(1);
        st = lt_module_params(m, &list);
        lt_alloc_fail_at(0);
        assert_int_equal(st, whole.count ? LT_E_NOMEM : LT_OK);
        lt_params_clear(&list);
        lt_params_clear(&whole);
        lt_module_free(&m);
    }
}

static void global_pooling_is_the_mean(void **state)
{
    fixture *f = *state;
    lt_module *m = NULL;
    double y[N * C], want = 0;
    assert_ok(lt_layer_avgpool2d(&m, (lt_pool2d_config){0}));
    assert_ok(lt_tensor_read(run(f, m, LT_PASS_EVAL), y, sizeof y));
    for (int i = 0; i < SIDE * SIDE; i++)
        want += f->host[i] / (SIDE * SIDE);
    assert_near(y[0], want, 1e-14);
    lt_module_free(&m);
}

static void bad_arguments_are_errors(void **state)
{
    fixture *f = *state;
    lt_module *m = NULL;
    lt_device *d = f->device;
    assert_status(lt_layer_conv2d(&m, d, "c", (lt_conv2d_layer){.in = 0, .out = 1, .kernel = 1}),
                  LT_E_ARG);
    assert_status(
        lt_layer_conv2d(&m, d, "c", (lt_conv2d_layer){.in = 3, .out = 4, .kernel = 1, .groups = 2}),
        LT_E_ARG);
    assert_non_null(strstr(lt_error_message(), "groups"));
    assert_fails(
        lt_layer_conv2d(&m, d, "c", (lt_conv2d_layer){.in = 1, .out = 1, .kernel = 1, .pad = -2}),
        LT_E_ARG, "conv2d c: stride 0, pad -2, dilation 0, groups 0; want >= 0");
    assert_fails(lt_layer_patch_embedding(&m, d, "p", (lt_patch_embedding_layer){3, 8, 0, NULL}),
                 LT_E_ARG, "patch_embedding p: 3 channels, width 8, patch 0; all must be >= 1");
    assert_fails(lt_layer_class_token(&m, d, "t", 0), LT_E_ARG,
                 "class_token t: width 0, want >= 1");
    assert_fails(lt_layer_positions(&m, d, "q", (lt_positions_layer){.rows = 0, .width = 8}),
                 LT_E_ARG, "positions q: 0 rows, width 8; both must be >= 1");
    assert_status(lt_layer_linear(&m, d, "fc", 4, 0, true), LT_E_ARG);
    assert_status(lt_layer_batchnorm2d(&m, d, "b", 0, (lt_batchnorm2d_config){0}), LT_E_ARG);
    assert_status(lt_layer_dropout(&m, 1), LT_E_ARG);
    assert_status(lt_layer_dropout(&m, -1e-9), LT_E_ARG);
    assert_status(lt_layer_dropout(&m, (double)NAN), LT_E_ARG);
    for (int i = 0; i < 2; i++) {
        assert_ok(lt_layer_dropout(&m, i * (1 - 1e-9)));
        lt_module_free(&m);
    }
    assert_null(m);
}

/* The table's rows are 0, 1, 2, ...: an id's row equals the id. */
static void an_embedding_is_one_parameter_and_reads_ids(void **state)
{
    fixture *f = *state;
    lt_module *m = NULL;
    lt_params p = {0};
    lt_tensor *ids = NULL;
    const int32_t id[4] = {2, 0, 2, 1};
    double w[6] = {0, 0, 1, 1, 2, 2}, y[8];
    char text[LT_SHAPE_TEXT];
    assert_ok(lt_layer_embedding(&m, f->device, "wte", 3, 2));
    assert_ok(lt_module_params(m, &p));
    assert_int_equal(p.count, 1);
    assert_string_equal(p.item[0]->name, "wte.weight");
    assert_string_equal(lt_shape_text(lt_tensor_shape(p.item[0]->value), text), "[3,2]");
    assert_ok(lt_tensor_write(p.item[0]->value, w, sizeof w));
    assert_ok(lt_tensor_new(&ids, f->device, LT_I32, LT_SHAPE(2, 2)));
    assert_ok(lt_tensor_write(ids, id, sizeof id));
    lt_tape_reset(f->tape, LT_PASS_EVAL);
    lt_tensor *out = lt_module_forward(m, f->tape, ids);
    assert_string_equal(lt_shape_text(lt_tensor_shape(out), text), "[2,2,2]");
    assert_ok(lt_tensor_read(out, y, sizeof y));
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 2; k++)
            assert_near(y[2 * i + k], id[i], 0);
    lt_tensor_free(&ids);
    lt_params_clear(&p);
    lt_module_free(&m);
    assert_status(lt_layer_embedding(&m, f->device, "wte", 0, 2), LT_E_ARG);
}

/* The same map as [out,in] and as [in,out], with equal fans for initialisation. */
static void linear_layers_store_their_weight_both_ways(void **state)
{
    fixture *f = *state;
    enum { OUT = 3 };
    double w[2][OUT * SIDE], y[2][PIXELS / SIDE * OUT];
    for (int k = 0; k < OUT; k++)
        for (int c = 0; c < SIDE; c++)
            w[0][k * SIDE + c] = w[1][c * OUT + k] = k + 0.25 * c - 1;
    for (int i = 0; i < 2; i++) {
        lt_module *m = NULL;
        lt_params p = {0};
        lt_linear_layer config = {.in = SIDE, .features = OUT, .bias = true, .in_out = i};
        assert_ok(lt_layer_linear_as(&m, f->device, "fc", config));
        assert_ok(lt_module_params(m, &p));
        assert_int_equal(p.count, 2);
        assert_int_equal(p.item[0]->fan_in, SIDE);
        assert_int_equal(p.item[0]->fan_out, OUT);
        assert_ok(lt_tensor_write(p.item[0]->value, w[i], sizeof w[i]));
        assert_ok(lt_tensor_fill(p.item[1]->value, 0.5));
        assert_ok(lt_tensor_read(run(f, m, LT_PASS_EVAL), y[i], sizeof y[i]));
        lt_params_clear(&p);
        lt_module_free(&m);
    }
    for (int i = 0; i < PIXELS / SIDE * OUT; i++)
        assert_near(y[0][i], y[1][i], 1e-14);
    assert_true(fabs(y[0][0]) > 0.1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conv_without_bias_has_one_parameter),
        cmocka_unit_test(conv_with_a_delta_filter_and_bias_shifts_values),
        cmocka_unit_test(batch_norm_has_five_parameters_and_counts_batches),
        cmocka_unit_test(batch_norm_trains_with_statistics_of_the_batch),
        cmocka_unit_test(a_pass_for_statistics_averages_batches_equally),
        cmocka_unit_test(a_frozen_batch_norm_keeps_its_statistics),
        cmocka_unit_test(batch_norm_adds_the_residual_before_the_relu),
        cmocka_unit_test(a_chain_runs_in_order_and_owns_its_layers),
        cmocka_unit_test(a_chain_frees_intermediate_memory_in_evaluation),
        cmocka_unit_test(a_chain_without_layers_returns_its_input),
        cmocka_unit_test(a_folded_batch_norm_computes_the_same),
        cmocka_unit_test(a_folded_batch_norm_does_not_train),
        cmocka_unit_test(an_embedding_is_one_parameter_and_reads_ids),
        cmocka_unit_test(linear_layers_store_their_weight_both_ways),
        cmocka_unit_test(only_a_batch_norm_folds_into_only_a_convolution),
        cmocka_unit_test(folding_without_memory_changes_nothing),
        cmocka_unit_test(failed_allocations_make_no_layer),
        cmocka_unit_test(global_pooling_is_the_mean),
        cmocka_unit_test(bad_arguments_are_errors),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
