/* Residual networks: names and shapes as in torchvision, its published counts, and a tiny network that overfits
 * eight images. */

#include "resnet.h"

#include "keys.h"
#include "near.h"

#include "lather/ops.h"
#include "lather/optim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static lt_device *device; /* shared by all rows */

static int setup(void **state)
{
    (void)state;
    assert_ok(lt_device_open(&device, "cpu", NULL));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    lt_device_close(&device);
    return 0;
}

static void resnet50_has_the_320_tensors_of_torchvision(void **state)
{
    (void)state;
    lt_module *m = NULL;
    lt_params p = {0};
    lt_resnet_config c = {.arch = "resnet50", .classes = 1000, .zero_init_last = true};
    assert_ok(lt_resnet_new(&m, device, &c));
    assert_ok(lt_module_params(m, &p));
    assert_int_equal(p.count, 320);
    assert_int_equal(matching_keys("resnet50_keys.txt", &p), 320);
    p.count--; /* control: one missing */
    assert_int_equal(matching_keys("resnet50_keys.txt", &p), -1);
    lt_param *gain = lt_params_find(&p, "layer3.5.bn3.weight");
    float host[1024];
    assert_ok(lt_tensor_read(gain->value, host, sizeof host));
    assert_near(host[17], 0, 0);
    lt_params_clear(&p);
    lt_module_free(&m);
}

typedef struct count_row {
    const char *arch;
    int64_t params;
    double giga_multiply_adds; /* published, three digits after the point */
} count_row;

static void check_counts(void **state)
{
    const count_row *row = *state;
    lt_resnet_config c = {.arch = row->arch, .classes = 1000};
    lt_model_cost cost;
    assert_ok(lt_resnet_count_cost(&cost, &c, 224));
    assert_int_equal(cost.params, row->params);
    assert_near((double)cost.multiply_adds * 1e-9, row->giga_multiply_adds, 0.0005001);
}

static void counted_parameters_equal_the_models(void **state)
{
    (void)state;
    lt_module *m = NULL;
    lt_params p = {0};
    lt_resnet_config c = {
        .arch = "resnet14", .classes = 7, .width = 5, .channels = 1, .small_stem = true};
    lt_model_cost cost;
    assert_ok(lt_resnet_new(&m, device, &c));
    assert_ok(lt_module_params(m, &p));
    assert_ok(lt_resnet_count_cost(&cost, &c, 28));
    int64_t count = 0;
    for (size_t i = 0; i < p.count; i++)
        if (lt_param_is_trained(p.item[i]))
            count += lt_tensor_count(p.item[i]->value);
    assert_int_equal(count, cost.params);
    lt_params_clear(&p);
    lt_module_free(&m);
}

typedef struct bad_row {
    const char *name;
    lt_resnet_config config;
    const char *says;
} bad_row;

static void check_rejected(void **state)
{
    const bad_row *row = *state;
    lt_module *m = NULL;
    assert_status(lt_resnet_new(&m, device, &row->config), LT_E_ARG);
    assert_null(m);
    assert_non_null(strstr(lt_error_message(), row->says));
}

enum { IMAGES = 8, SIDE = 16, CLASSES = 4, STEPS = 60 };

typedef struct trainee {
    lt_module *model;
    lt_params params;
    lt_optim *optim;
    lt_tape *tape;
    lt_tensor *images, *labels, *hits;
} trainee;

static void fill_inputs(trainee *t)
{
    uint8_t pixels[IMAGES * 3 * SIDE * SIDE];
    int32_t label[IMAGES];
    for (size_t i = 0; i < sizeof pixels; i++)
        pixels[i] = (uint8_t)((i * 2654435761U) >> 13);
    for (int i = 0; i < IMAGES; i++)
        label[i] = i % CLASSES;
    assert_ok(lt_tensor_write(t->images, pixels, sizeof pixels));
    assert_ok(lt_tensor_write(t->labels, label, sizeof label));
}

static void open_trainee(trainee *t)
{
    lt_resnet_config c = {.arch = "resnet10", .width = 8, .classes = CLASSES, .small_stem = true};
    assert_ok(lt_resnet_new(&t->model, device, &c));
    assert_ok(lt_module_params(t->model, &t->params));
    assert_ok(lt_tape_new(&t->tape, device));
    assert_ok(lt_tensor_new(&t->images, device, LT_U8, LT_SHAPE(IMAGES, 3, SIDE, SIDE)));
    assert_ok(lt_tensor_new(&t->labels, device, LT_I32, LT_SHAPE(IMAGES)));
    assert_ok(lt_tensor_new(&t->hits, device, LT_I64, LT_SHAPE(2)));
    fill_inputs(t);
    lt_sgd_config sgd = {.momentum = 0.9, .nesterov = true};
    assert_ok(lt_optim_sgd(&t->optim, &t->params, &sgd));
}

static void close_trainee(trainee *t)
{
    lt_optim_free(&t->optim);
    lt_tensor_free(&t->images);
    lt_tensor_free(&t->labels);
    lt_tensor_free(&t->hits);
    lt_tape_free(&t->tape);
    lt_params_clear(&t->params);
    lt_module_free(&t->model);
}

/* Runs one step; returns the loss, and counts rows with a correct top-1. */
static double train_step(trainee *t, int64_t attempt)
{
    const lt_normalize_config pixels = {.mean = {128, 128, 128}, .deviation = {64, 64, 64}};
    double loss;
    lt_params_zero_grad(&t->params);
    lt_tape_reset(t->tape, LT_PASS_TRAIN);
    lt_tensor *x = lt_normalize(t->tape, t->images, &pixels);
    lt_tensor *logits = lt_module_forward(t->model, t->tape, x);
    lt_tensor *l = lt_softmax_xent(t->tape, logits, t->labels, 0);
    lt_tape_keep(t->tape, logits);
    assert_ok(lt_tape_backward(t->tape, l, 1));
    assert_ok(lt_optim_step(t->optim, &(lt_step){.lr = 0.05, .attempt = attempt}));
    assert_ok(lt_tensor_item(l, &loss));
    assert_ok(lt_tensor_fill(t->hits, 0));
    assert_ok(lt_topk_hits(logits, t->labels, t->hits));
    return loss;
}

static void eight_images_are_overfit(void **state)
{
    (void)state;
    trainee t = {0};
    int64_t hit[2];
    open_trainee(&t);
    double first = train_step(&t, 1), loss = first;
    for (int64_t step = 2; step <= STEPS; step++)
        loss = train_step(&t, step);
    assert_ok(lt_tensor_read(t.hits, hit, sizeof hit));
    assert_true(first > 1); /* about log(CLASSES): not overfit yet */
    assert_int_equal(hit[0], IMAGES);
    assert_near(loss, 0, 0.02);
    close_trainee(&t);
}

static const count_row counts[] = {
    {"resnet18", 11689512, 1.814},          {"resnet34", 21797672, 3.664},
    {"resnet50", 25557032, 4.089},          {"resnet101", 44549160, 7.801},
    {"resnet152", 60192808, 11.514},        {"resnext50_32x4d", 25028904, 4.230},
    {"resnext101_32x8d", 88791336, 16.414}, {"resnext101_64x4d", 83455272, 15.460},
    {"wide_resnet50_2", 68883240, 11.398},  {"wide_resnet101_2", 126886696, 22.753},
    {"resnet18d", 11708744, 2.054},         {"resnet26d", 16014408, 2.582},
    {"resnet34d", 21816904, 3.903},         {"resnet50d", 25576264, 4.329},
    {"resnet101d", 44568392, 8.041},        {"resnet152d", 60212040, 11.753},
    {"resnext50d_32x4d", 25048136, 4.470},
};

static const bad_row invalid[] = {
    {"an unknown architecture is rejected", {.arch = "resnet51", .classes = 10}, "resnet51"},
    {"zero classes are rejected", {.arch = "resnet50"}, "classes"},
    {"an empty stage is rejected", {.depths = {1, 1, 0, 1}, .classes = 2}, "stage 3"},
    {"two channels are rejected", {.arch = "resnet18", .classes = 2, .channels = 2}, "channels"},
};

int main(void)
{
    static struct CMUnitTest tests[3 + COUNT_OF(counts) + COUNT_OF(invalid)] = {
        cmocka_unit_test(resnet50_has_the_320_tensors_of_torchvision),
        cmocka_unit_test(counted_parameters_equal_the_models),
        cmocka_unit_test(eight_images_are_overfit),
    };
    for (size_t i = 0; i < COUNT_OF(counts); i++)
        tests[3 + i] = (struct CMUnitTest){counts[i].arch, check_counts, NULL, NULL,
                                           (void *)(uintptr_t)&counts[i]};
    for (size_t i = 0; i < COUNT_OF(invalid); i++)
        tests[3 + COUNT_OF(counts) + i] = (struct CMUnitTest){invalid[i].name, check_rejected, NULL,
                                                              NULL, (void *)(uintptr_t)&invalid[i]};
    return cmocka_run_group_tests(tests, setup, teardown);
}
