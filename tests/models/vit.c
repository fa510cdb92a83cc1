/* Vision transformers: names and shapes as in torchvision, its published counts, the head's inputs, and invalid
 * configurations. */

#include "vit.h"

#include "deviation.h"
#include "full.h"
#include "keys.h"
#include "near.h"

#include "lather/ops.h"

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

static int64_t count_trained(const lt_params *p)
{
    int64_t count = 0;
    for (size_t i = 0; i < p->count; i++)
        if (lt_param_is_trained(p->item[i]))
            count += lt_tensor_count(p->item[i]->value);
    return count;
}

static void vit_b_16_has_the_152_tensors_of_torchvision(void **state)
{
    (void)state;
    lt_module *m = NULL;
    lt_params p = {0};
    lt_vit_config c = {.arch = "vit_b_16", .classes = 1000, .size = 224};
    assert_ok(lt_vit_new(&m, device, &c));
    assert_ok(lt_module_params(m, &p));
    assert_int_equal(p.count, 152);
    assert_int_equal(matching_keys("vit_b_16_keys.txt", &p), 152);
    assert_int_equal(count_trained(&p), 86567656);
    p.count--; /* control: one missing */
    assert_int_equal(matching_keys("vit_b_16_keys.txt", &p), -1);
    lt_params_clear(&p);
    lt_module_free(&m);
}

typedef struct draw_row {
    const char *param;
    double deviation, most; /* most: largest value of a uniform distribution; 0: normal */
} draw_row;

/* torchvision's initialization for width 64 and patches of 4, derived from its source. */
static void initial_values_are_distributed_like_torchvisions(void **state)
{
    static const char block[] = "encoder.layers.encoder_layer_1.";
    const draw_row rows[] = {
        {"conv_proj.weight", sqrt(1.0 / 48), 0},
        {"conv_proj.bias", 0, 0},
        {"class_token", 0, 0},
        {"encoder.pos_embedding", 0.02, 0},
        {"self_attention.in_proj_weight", sqrt(2.0 / (4 * 64)), sqrt(6.0 / (4 * 64))},
        {"self_attention.in_proj_bias", 0, 0},
        {"self_attention.out_proj.weight", sqrt(1.0 / (3 * 64)), sqrt(1.0 / 64)},
        {"mlp.0.weight", sqrt(2.0 / (5 * 64)), sqrt(6.0 / (5 * 64))},
        {"mlp.0.bias", 1e-6, 0},
        {"mlp.3.weight", sqrt(2.0 / (5 * 64)), sqrt(6.0 / (5 * 64))},
        {"heads.head.weight", 0, 0},
    };
    (void)state;
    lt_module *m = NULL;
    lt_params p = {0};
    lt_vit_config c = {.patch = 4, .width = 64, .depth = 2, .classes = 10, .size = 32, .seed = 5};
    assert_ok(lt_vit_new(&m, device, &c));
    assert_ok(lt_module_params(m, &p));
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        char name[96] = "";
        double most;
        if (!lt_params_find(&p, rows[i].param))
            strcpy(name, block);
        strcat(name, rows[i].param);
        double got = deviation_of(&p, name, &most);
        assert_near(got, rows[i].deviation, 0.15 * rows[i].deviation);
        if (rows[i].most > 0)
            assert_near(most, rows[i].most, 0.01 * rows[i].most);
    }
    lt_params_clear(&p);
    lt_module_free(&m);
}

typedef struct count_row {
    const char *arch;
    int64_t params;
    double giga_multiply_adds; /* published, to three decimals; 0: not published */
} count_row;

static void check_counts(void **state)
{
    const count_row *row = *state;
    const lt_vit_config c = {.arch = row->arch, .classes = 1000, .size = 224};
    lt_model_cost cost;
    assert_ok(lt_vit_count_cost(&cost, &c));
    assert_int_equal(cost.params, row->params);
    if (row->giga_multiply_adds > 0)
        assert_near((double)cost.multiply_adds * 1e-9, row->giga_multiply_adds, 0.0005001);
}

static void counted_parameters_equal_the_models(void **state)
{
    (void)state;
    for (int mean = 0; mean < 2; mean++) {
        lt_module *m = NULL;
        lt_params p = {0};
        lt_model_cost cost;
        lt_vit_config c = {.patch = 7,
                           .width = 12,
                           .depth = 3,
                           .heads = 4,
                           .hidden = 10,
                           .size = 28,
                           .channels = 1,
                           .classes = 7,
                           .mean_pool = mean};
        assert_ok(lt_vit_new(&m, device, &c));
        assert_ok(lt_module_params(m, &p));
        assert_ok(lt_vit_count_cost(&cost, &c));
        assert_int_equal(count_trained(&p), cost.params);
        assert_int_equal(lt_params_find(&p, "class_token") == NULL, mean);
        lt_params_clear(&p);
        lt_module_free(&m);
    }
}

enum { IMAGES = 3, SIDE = 8, CLASSES = 4 };

/* Computes the logits of images. */
static void logits_of(lt_module *m, lt_tensor *x, float *host)
{
    lt_tape *tape = NULL;
    assert_ok(lt_tape_new(&tape, device));
    lt_tape_reset(tape, LT_PASS_EVAL);
    lt_tensor *y = lt_module_forward(m, tape, x);
    assert_ok(lt_tape_status(tape));
    assert_ok(lt_tensor_read(y, host, IMAGES * CLASSES * sizeof *host));
    lt_tape_free(&tape);
}

static void fill_all(lt_module *m, bool positions)
{
    lt_params p = {0};
    assert_ok(lt_module_params(m, &p));
    for (size_t i = 0; i < p.count; i++) {
        lt_tensor *v = p.item[i]->value;
        const size_t count = (size_t)lt_tensor_count(v);
        float *host = malloc(count * sizeof *host);
        for (size_t k = 0; k < count; k++)
            host[k] = 0.3F * sinf((float)(7 * i + 13 * k + i * k));
        assert_ok(lt_tensor_write(v, host, count * sizeof *host));
        free(host);
        if (!positions && strstr(p.item[i]->name, "pos_embedding"))
            assert_ok(lt_tensor_fill(v, 0));
    }
    lt_params_clear(&p);
}

/* Returns the largest change of a logit when the left and right halves of the images are swapped, which moves
 * whole patches. */
static double change_of_logits(bool mean, bool positions)
{
    lt_module *m = NULL;
    lt_tensor *x = NULL;
    float image[IMAGES * SIDE * SIDE], turned[IMAGES * SIDE * SIDE], a[IMAGES * CLASSES],
        b[IMAGES * CLASSES];
    lt_vit_config c = {.patch = 4,
                       .width = 8,
                       .depth = 2,
                       .heads = 2,
                       .size = SIDE,
                       .channels = 1,
                       .classes = CLASSES,
                       .mean_pool = mean};
    assert_ok(lt_vit_new(&m, device, &c));
    fill_all(m, positions);
    for (int i = 0; i < IMAGES * SIDE * SIDE; i++)
        image[i] = cosf((float)(i * i));
    for (int i = 0; i < IMAGES * SIDE * SIDE; i++)
        turned[i] = image[i / SIDE * SIDE + (i + SIDE / 2) % SIDE];
    assert_ok(lt_tensor_new(&x, device, LT_F32, LT_SHAPE(IMAGES, 1, SIDE, SIDE)));
    assert_ok(lt_tensor_write(x, image, sizeof image));
    logits_of(m, x, a);
    assert_ok(lt_tensor_write(x, turned, sizeof turned));
    logits_of(m, x, b);
    double far = 0;
    for (int i = 0; i < IMAGES * CLASSES; i++)
        far = fmax(far, fabs((double)a[i] - (double)b[i]));
    lt_tensor_free(&x);
    lt_module_free(&m);
    return far;
}

static void without_positions_the_order_of_patches_does_not_matter(void **state)
{
    (void)state;
    for (int mean = 0; mean < 2; mean++) {
        assert_near(change_of_logits(mean, false), 0, 1e-5);
        assert_true(change_of_logits(mean, true) > 1e-3);
    }
}

typedef struct bad_row {
    const char *name;
    lt_vit_config config;
    const char *says;
} bad_row;

static void check_rejected(void **state)
{
    const bad_row *row = *state;
    lt_module *m = NULL;
    assert_fails(lt_vit_new(&m, device, &row->config), LT_E_ARG, row->says);
    assert_null(m);
}

static const count_row counts[] = {
    {"vit_b_16", 86567656, 17.564},   {"vit_b_32", 88224232, 4.409},
    {"vit_l_16", 304326632, 61.555},  {"vit_l_32", 306535400, 15.378},
    {"vit_h_14", 632045800, 167.295}, {"vit_ti_16", 5717416, 0},
    {"vit_s_16", 22050664, 0},
};

static const bad_row invalid[] = {
    {"an unknown architecture is rejected",
     {.arch = "vit_b_17", .classes = 10, .size = 224},
     "no architecture 'vit_b_17'"},
    {"zero classes are rejected", {.arch = "vit_b_16", .size = 224}, "classes is 0"},
    {"an image size that is not a multiple of the patch is rejected",
     {.arch = "vit_b_16", .classes = 2, .size = 230},
     "images of 230x230 pixels; their side must be a multiple of the patch, 16"},
    {"an image size of 0 is rejected", {.arch = "vit_b_16", .classes = 2}, "images of 0x0"},
    {"heads that do not divide the width are rejected",
     {.arch = "vit_b_16", .classes = 2, .size = 224, .heads = 7},
     "7 heads do not divide the width, 768"},
    {"a drop path rate of 1 is rejected",
     {.arch = "vit_b_16", .classes = 2, .size = 224, .drop_path = 1},
     "drop_path 1"},
};

enum { OWN = 3, ROWS = OWN + COUNT_OF(counts) + COUNT_OF(invalid) + 1 };

int main(void)
{
    struct CMUnitTest tests[ROWS] = {
        cmocka_unit_test(initial_values_are_distributed_like_torchvisions),
        cmocka_unit_test(counted_parameters_equal_the_models),
        cmocka_unit_test(without_positions_the_order_of_patches_does_not_matter),
    };
    for (size_t i = 0; i < COUNT_OF(counts); i++)
        tests[OWN + i] = (struct CMUnitTest){counts[i].arch, check_counts, NULL, NULL,
                                             (void *)(uintptr_t)&counts[i]};
    for (size_t i = 0; i < COUNT_OF(invalid); i++)
        tests[OWN + COUNT_OF(counts) + i] = (struct CMUnitTest){
            invalid[i].name, check_rejected, NULL, NULL, (void *)(uintptr_t)&invalid[i]};
    /* Needs half a gigabyte: only in ./check --full. The small models of vit_fixture check torchvision's names,
     * too. */
    tests[ROWS - 1] =
        (struct CMUnitTest)cmocka_unit_test(vit_b_16_has_the_152_tensors_of_torchvision);
    return _cmocka_run_group_tests("vit", tests, ROWS - !test_full(), setup, teardown);
}
