/* Loads a network from a weights file and folds its batch norms into its convolutions: logits change only by
 * rounding. */

#include "near.h"
#include "resnet.h"
#include "temp.h"

#include "lather/checkpoint.h"
#include "lather/ops.h"

#include <string.h>

enum { IMAGES = 2, SIDE = 40, CLASSES = 7, LOGITS = IMAGES * CLASSES };

typedef struct fold_row {
    const char *name, *device;
    bool f64;
    lt_resnet_config net;
    double
        tolerance; /* relative to the largest logit: rounding of summed terms over all layers, with headroom */
    bool broken; /* a control with a lost bias, which the check must reject */
} fold_row;

/* Fills statistics, weights and biases with trained-like values, none 0 or 1. */
static void fill(const lt_params *list)
{
    float v[4096];
    for (size_t i = 0; i < list->count; i++) {
        const lt_param *p = list->item[i];
        int64_t count = lt_tensor_count(p->value);
        if (p->role != LT_PARAM_NORM && p->role != LT_PARAM_STAT)
            continue;
        assert_true(count <= (int64_t)COUNT_OF(v));
        bool positive = strstr(p->name, "var") || strstr(p->name, "weight");
        for (int64_t k = 0; k < count; k++)
            v[k] = (positive ? 0.5F : -0.5F) + (float)((k * 31 + 7 * (int64_t)i) % 19) / 19;
        assert_ok(lt_tensor_write(p->value, v, (size_t)count * sizeof *v));
    }
}

static void write_weights(const char *path, const lt_resnet_config *net)
{
    lt_device *device = NULL;
    lt_module *model = NULL;
    lt_params list = {0};
    assert_ok(lt_device_open(&device, "ref", NULL));
    assert_ok(lt_resnet_new(&model, device, net));
    assert_ok(lt_module_params(model, &list));
    fill(&list);
    assert_ok(lt_weights_save(path, &list));
    lt_params_clear(&list);
    lt_module_free(&model);
    lt_device_close(&device);
}

static void logits_of(lt_module *model, lt_device *device, int channels, double out[LOGITS])
{
    static uint8_t pixel[IMAGES * 3 * SIDE * SIDE];
    const lt_normalize_config scale = {.mean = {128, 128, 128}, .deviation = {64, 64, 64}};
    lt_tape *tape = NULL;
    lt_tensor *images = NULL;
    for (size_t i = 0; i < sizeof pixel; i++)
        pixel[i] = (uint8_t)((i * 2654435761U) >> 13);
    assert_ok(lt_tape_new(&tape, device));
    assert_ok(lt_tensor_new(&images, device, LT_U8, LT_SHAPE(IMAGES, channels, SIDE, SIDE)));
    assert_ok(lt_tensor_write(images, pixel, lt_tensor_bytes(images)));
    lt_tape_reset(tape, LT_PASS_EVAL);
    lt_tensor *y = lt_module_forward(model, tape, lt_normalize(tape, images, &scale));
    y = lt_cast(tape, y, LT_F64);
    assert_ok(lt_tape_status(tape));
    assert_ok(lt_tensor_read(y, out, LOGITS * sizeof *out));
    lt_tensor_free(&images);
    lt_tape_free(&tape);
}

static double distance(const double *a, const double *b)
{
    double most = 0, largest = 0;
    for (int i = 0; i < LOGITS; i++) {
        most = fmax(most, fabs(a[i] - b[i]));
        largest = fmax(largest, fabs(a[i]));
    }
    return most / largest;
}

static void spoil(lt_module *model)
{
    lt_params list = {0};
    assert_ok(lt_module_params(model, &list));
    lt_param *bias = lt_params_find(&list, "layer1.0.conv1.bias");
    assert_non_null(bias);
    assert_ok(lt_tensor_fill(bias->value, 0.01));
    lt_params_clear(&list);
}

static void check_row(void **state)
{
    const fold_row *row = *state;
    char folder[TEMP_PATH], path[TEMP_PATH];
    double before[LOGITS], after[LOGITS];
    lt_device *device = NULL;
    lt_module *model = NULL;
    lt_params list = {0};
    lt_resnet_config net;
    temp_make(folder);
    temp_path(path, folder, "w.safetensors");
    write_weights(path, &row->net);

    assert_ok(lt_device_open(&device, row->device, &(lt_device_config){.f64 = row->f64}));
    assert_ok(lt_resnet_load(&model, device, path, &net));
    assert_int_equal(net.classes, CLASSES);
    assert_int_equal(net.bottleneck, !strcmp(row->net.arch, "resnet14"));
    assert_int_equal(net.small_stem, row->net.small_stem);
    logits_of(model, device, net.channels, before);
    assert_ok(lt_module_fold(model));
    if (row->broken)
        spoil(model);
    logits_of(model, device, net.channels, after);
    assert_true((distance(before, after) <= row->tolerance) == !row->broken);

    assert_ok(lt_module_params(model, &list)); /* only a weight and a bias per layer */
    for (size_t i = 0; i < list.count; i++)
        assert_true(list.item[i]->role == LT_PARAM_WEIGHT || list.item[i]->role == LT_PARAM_BIAS);
    lt_params_clear(&list);
    lt_module_free(&model);
    lt_device_close(&device);
    temp_remove(folder);
}

static const fold_row rows[] = {
    {"a bottleneck network in f64 on ref",
     "ref",
     true,
     {.arch = "resnet14", .width = 4, .classes = CLASSES},
     1e-12,
     false},
    {"a basic network of one channel with the small stem, in f64 on ref",
     "ref",
     true,
     {.arch = "resnet10", .width = 4, .classes = CLASSES, .channels = 1, .small_stem = true},
     1e-12,
     false},
    {"a bottleneck network in f32 on cpu",
     "cpu",
     false,
     {.arch = "resnet14", .width = 8, .classes = CLASSES},
     1e-5,
     false},
    {"control: a bias is lost",
     "ref",
     true,
     {.arch = "resnet14", .width = 4, .classes = CLASSES},
     1e-5,
     true},
};

int main(void)
{
    struct CMUnitTest tests[COUNT_OF(rows)];
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        tests[i] =
            (struct CMUnitTest){rows[i].name, check_row, NULL, NULL, (void *)(uintptr_t)&rows[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
