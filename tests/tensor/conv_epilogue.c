/* Inference on the cpu with batch norm as the epilogue of the preceding convolution: when it is computed,
 * from which inputs, and which tensors remain. tests/conform compares the values layer by layer. */

#include "near.h"

#include "lather/detail/view.h"
#include "lather/layers.h"
#include "lather/ops.h"

#include <stdlib.h>
#include <string.h>

enum { BATCH = 2, CHANNELS = 8, OUT = 64, SIZE = 24, PIXELS = BATCH * SIZE * SIZE };
enum { X_COUNT = PIXELS * CHANNELS, Y_COUNT = PIXELS * OUT };

typedef struct scene {
    lt_device *device;
    lt_tape *tape;
    lt_module *conv, *norm;
    lt_params params; /* weight, gamma, beta, mean, var, count */
    lt_tensor *x, *residual;
} scene;

enum { WEIGHT, GAMMA, BETA, MEAN, VAR };

static void fill(lt_tensor *t, float low, int step)
{
    const size_t count = (size_t)lt_tensor_count(t);
    float *v = malloc(count * sizeof *v);
    assert_non_null(v);
    for (size_t i = 0; i < count; i++)
        v[i] = low + (float)(i * (size_t)step % 101) / 100;
    assert_ok(lt_tensor_write(t, v, count * sizeof *v));
    free(v);
}

static void open_scene(scene *s, lt_fused fused, int kernel)
{
    const lt_device_config config = {.threads = 1, .fused = fused};
    const lt_conv2d_layer layer = {.in = CHANNELS, .out = OUT, .kernel = kernel, .pad = kernel / 2};
    *s = (scene){0};
    assert_ok(lt_device_open(&s->device, "cpu", &config));
    assert_ok(lt_tape_new(&s->tape, s->device));
    assert_ok(lt_layer_conv2d(&s->conv, s->device, "conv", layer));
    assert_ok(lt_layer_batchnorm2d(&s->norm, s->device, "bn", OUT,
                                   (lt_batchnorm2d_config){.relu = true}));
    assert_ok(lt_module_params(s->conv, &s->params));
    assert_ok(lt_module_params(s->norm, &s->params));
    assert_ok(lt_tensor_new_as(&s->x, s->device, LT_F32, LT_SHAPE(BATCH, CHANNELS, SIZE, SIZE),
                               LT_FORMAT_CHANNELS_LAST));
    assert_ok(lt_tensor_new(&s->residual, s->device, LT_F32, LT_SHAPE(BATCH, OUT, SIZE, SIZE)));
    fill(s->x, -0.5F, 37);
    fill(s->residual, -0.5F, 53);
    fill(s->params.item[WEIGHT]->value, -0.5F, 29);
    fill(s->params.item[GAMMA]->value, 0.5F, 7);
    fill(s->params.item[BETA]->value, -0.5F, 11);
    fill(s->params.item[MEAN]->value, -0.5F, 13);
    fill(s->params.item[VAR]->value, 0.5F, 17);
}

static void close_scene(scene *s)
{
    lt_params_clear(&s->params);
    lt_tensor_free(&s->x);
    lt_tensor_free(&s->residual);
    lt_module_free(&s->conv);
    lt_module_free(&s->norm);
    lt_tape_free(&s->tape);
    lt_device_close(&s->device);
}

static void evaluate(scene *s, bool with_residual, float *out)
{
    lt_tape_reset(s->tape, LT_PASS_EVAL);
    lt_tensor *r = with_residual ? lt_tape_variable(s->tape, s->residual) : NULL;
    lt_tensor *c = lt_module_forward(s->conv, s->tape, s->x);
    lt_tensor *y = lt_batchnorm2d_forward(s->norm, s->tape, c, r);
    lt_tape_drop(s->tape, c);
    assert_ok(lt_tape_status(s->tape));
    assert_ok(lt_tensor_read(y, out, Y_COUNT * sizeof *out));
}

static float got[Y_COUNT], want[Y_COUNT];

/* Sums of at most 72 products below 1, times a scale below 2.2, plus about six roundings. */
static void assert_all_near(void)
{
    for (int i = 0; i < Y_COUNT; i++)
        assert_true(fabsf(got[i] - want[i]) <= 80 * 72 * 2.2F * 0x1p-24F);
}

typedef struct form {
    const char *name;
    int kernel;
    bool residual;
    int changed; /* index of the parameter changed after the first evaluation */
} form;

static const form forms[] = {
    {"1x1, another weight", 1, false, WEIGHT},
    {"1x1, another gain", 1, false, GAMMA},
    {"1x1, another shift", 1, false, BETA},
    {"3x3, another running mean", 3, false, MEAN},
    {"3x3, another running variance", 3, false, VAR},
    {"3x3 with a residual, another weight", 3, true, WEIGHT},
    {"1x1 with a residual, another gain", 1, true, GAMMA},
};

/* Three evaluations: one computes into scratch memory, one makes a cached copy of the weight, one uses it;
 * then the next version. */
static void follows_its_parameters(void **state)
{
    const form *f = *state;
    scene one, other;
    open_scene(&one, LT_FUSED_AUTO, f->kernel);
    open_scene(&other, LT_FUSED_OFF, f->kernel);
    for (int i = 0; i < 6; i++) {
        if (i == 3) {
            fill(one.params.item[f->changed]->value, 0.25F, 19);
            fill(other.params.item[f->changed]->value, 0.25F, 19);
        }
        evaluate(&one, f->residual, got);
        evaluate(&other, f->residual, want);
        assert_all_near();
    }
    close_scene(&one);
    close_scene(&other);
}

/* The input is dropped before the norm runs, and another operation reads the convolution's output too. */
static void the_output_can_be_read_late(void **state)
{
    scene s;
    float plain[2][Y_COUNT];
    (void)state;
    for (int i = 0; i < 2; i++) {
        open_scene(&s, i ? LT_FUSED_OFF : LT_FUSED_AUTO, 1);
        lt_tape_reset(s.tape, LT_PASS_EVAL);
        lt_tensor *x = lt_relu(s.tape, s.x);
        lt_tensor *c = lt_module_forward(s.conv, s.tape, x);
        lt_tape_drop(s.tape, x);
        lt_tensor *y = lt_module_forward(s.norm, s.tape, c);
        lt_tensor *z = lt_relu(s.tape, c);
        assert_ok(lt_tape_status(s.tape));
        assert_ok(lt_tensor_read(y, i ? want : got, sizeof want));
        assert_ok(lt_tensor_read(z, plain[i], sizeof plain[i]));
        assert_null(lt_tensor_view(x).data); /* kept only for c */
        close_scene(&s);
    }
    assert_all_near();
    assert_memory_equal(plain[0], plain[1], sizeof plain[0]);
}

/* Kept, read by the host, or after a reset: it equals the convolution. */
static void the_host_can_read_the_output(void **state)
{
    scene s;
    (void)state;
    for (int i = 0; i < 2; i++) {
        open_scene(&s, i ? LT_FUSED_OFF : LT_FUSED_AUTO, 3);
        lt_tape_reset(s.tape, LT_PASS_EVAL);
        lt_tensor *x = lt_relu(s.tape, s.x);
        lt_tensor *c = lt_module_forward(s.conv, s.tape, x);
        lt_tape_drop(s.tape, x);
        if (!i)
            lt_tape_keep(s.tape, c);
        assert_ok(lt_tensor_read(c, i ? want : got, sizeof want));
        close_scene(&s);
    }
    assert_memory_equal(got, want, sizeof want);
}

/* The input of a convolution whose output is not read is freed with that output. */
static void the_input_of_a_dropped_output_is_freed(void **state)
{
    scene s;
    (void)state;
    open_scene(&s, LT_FUSED_AUTO, 1);
    lt_tape_reset(s.tape, LT_PASS_EVAL);
    lt_tensor *x = lt_relu(s.tape, s.x);
    lt_tensor *c = lt_module_forward(s.conv, s.tape, x);
    lt_tape_drop(s.tape, x);
    assert_non_null(lt_tensor_view(x).data);
    assert_null(lt_tensor_view(c).data);
    lt_tape_drop(s.tape, c);
    assert_null(lt_tensor_view(x).data);
    close_scene(&s);
}

/* Running statistics and outputs are bitwise the same as without an evaluation in between. */
static void evaluation_does_not_change_training(void **state)
{
    scene s;
    float mean[2][OUT];
    (void)state;
    for (int i = 0; i < 2; i++) {
        float *y = i ? want : got;
        open_scene(&s, LT_FUSED_AUTO, 3);
        for (int step = 0; step < 2; step++) {
            lt_tape_reset(s.tape, LT_PASS_TRAIN);
            lt_tensor *c = lt_module_forward(s.conv, s.tape, s.x);
            lt_tensor *n = lt_module_forward(s.norm, s.tape, c);
            assert_ok(lt_tensor_read(n, y, sizeof want));
            if (!i)
                evaluate(&s, false, (float[Y_COUNT]){0});
        }
        assert_ok(lt_tensor_read(s.params.item[MEAN]->value, mean[i], sizeof mean[i]));
        close_scene(&s);
    }
    assert_memory_equal(got, want, sizeof want);
    assert_memory_equal(mean[0], mean[1], sizeof mean[0]);
}

/* Two norms after convolutions of one form, with relu and without. */
static void relu_is_part_of_the_norm(void **state)
{
    scene s;
    int below[2] = {0};
    (void)state;
    open_scene(&s, LT_FUSED_AUTO, 1);
    for (int i = 0; i < 2; i++) {
        evaluate(&s, false, got);
        for (int k = 0; k < Y_COUNT; k++)
            below[i] += got[k] < -0.01F;
        lt_module_free(&s.norm);
        assert_ok(
            lt_layer_batchnorm2d(&s.norm, s.device, "plain", OUT, (lt_batchnorm2d_config){0}));
    }
    assert_int_equal(below[0], 0);
    assert_true(below[1] > 0);
    close_scene(&s);
}

/* A network that has diverged must not look sound. */
static void nan_propagates(void **state)
{
    scene s;
    (void)state;
    for (int i = 0; i < 2; i++) {
        int count = 0;
        open_scene(&s, LT_FUSED_AUTO, 1);
        fill(s.params.item[i ? BETA : WEIGHT]->value, NAN, 1);
        evaluate(&s, false, got);
        for (int k = 0; k < Y_COUNT; k++)
            count += isnan(got[k]);
        assert_int_equal(count, Y_COUNT);
        close_scene(&s);
    }
}

int main(void)
{
    const struct CMUnitTest fixed[] = {
        cmocka_unit_test(the_output_can_be_read_late),
        cmocka_unit_test(the_host_can_read_the_output),
        cmocka_unit_test(the_input_of_a_dropped_output_is_freed),
        cmocka_unit_test(evaluation_does_not_change_training),
        cmocka_unit_test(relu_is_part_of_the_norm),
        cmocka_unit_test(nan_propagates),
    };
    struct CMUnitTest tests[COUNT_OF(fixed) + COUNT_OF(forms)];
    union {
        const void *row;
        void *state;
    } u;
    memcpy(tests, fixed, sizeof fixed);
    for (size_t i = 0; i < COUNT_OF(forms); i++) {
        u.row = &forms[i];
        tests[COUNT_OF(fixed) + i] =
            (struct CMUnitTest){forms[i].name, follows_its_parameters, NULL, NULL, u.state};
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
