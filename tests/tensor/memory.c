/* Tensor memory over a step: recomputed outputs of residual blocks, gradients in reused memory, and the
 * owners of the peak. */

#include "base/alloc.h"
#include "base/rng.h"
#include "near.h"
#include "tensor/memory_use.h"
#include "tensor/tensor.h"

#include "lather/detail/memory_use.h"
#include "lather/ops.h"
#include "lather/param.h"

#include <string.h>
#include <sys/resource.h>

enum { N = 2, C = 8, SIDE = 6, COUNT = N * C * SIDE * SIDE, BLOCKS = 7, CONVS = BLOCKS + 2 };
/* IMAGE_BYTES: f32; MASK_BYTES: COUNT bits in chunks of 64 bytes. */
enum { IMAGE_BYTES = COUNT * 4, MASK_BYTES = 128 };

/* conv, batch norm + relu; then blocks: conv, batch norm with residual + relu. The residual of the first
 * block is the batch norm of a separate conv. */
typedef struct tower {
    lt_device *device;
    lt_tape *tape;
    lt_param w[CONVS];
    lt_tensor *x, *ones, *zeros;
    size_t used[CONVS]; /* when that weight's gradient was final */
} tower;

static void fill_random(lt_tensor *t, uint64_t seed)
{
    lt_rng rng = {.key = seed};
    float values[COUNT];
    const size_t count = (size_t)lt_tensor_count(t);
    for (size_t i = 0; i < count; i++)
        values[i] = (float)(lt_rng_uniform(&rng) - 0.5);
    assert_ok(lt_tensor_write(t, values, count * sizeof *values));
}

static void note_final(void *context, lt_param *param)
{
    tower *t = context;
    t->used[param - t->w] = lt_device_memory(t->device).used;
}

static void open_tower(tower *t, const char *device)
{
    memset(t, 0, sizeof *t);
    /* a convolution that normalises its input itself leaves no output of the norm */
    const lt_device_config apart = {.fused = LT_FUSED_OFF};
    assert_ok(lt_device_open(&t->device, device, &apart));
    assert_ok(lt_tape_new(&t->tape, t->device));
    for (int i = 0; i < CONVS; i++) {
        assert_ok(lt_param_init_filter(&t->w[i], t->device, "t", "w", LT_SHAPE(C, C, 1, 1)));
        fill_random(t->w[i].value, 10 + (uint64_t)i);
    }
    assert_ok(lt_tensor_new_as(&t->x, t->device, LT_F32, LT_SHAPE(N, C, SIDE, SIDE),
                               LT_FORMAT_CHANNELS_LAST));
    fill_random(t->x, 1);
    assert_ok(lt_tensor_new(&t->ones, t->device, LT_F32, LT_SHAPE(C)));
    assert_ok(lt_tensor_fill(t->ones, 1));
    assert_ok(lt_tensor_new(&t->zeros, t->device, LT_F32, LT_SHAPE(C)));
    lt_tape_on_grad_ready(t->tape, note_final, t);
}

static void close_tower(tower *t)
{
    lt_tape_free(&t->tape);
    for (int i = 0; i < CONVS; i++)
        lt_param_clear(&t->w[i]);
    lt_tensor_free(&t->x);
    lt_tensor_free(&t->ones);
    lt_tensor_free(&t->zeros);
    lt_device_close(&t->device);
}

static lt_tensor *convolve(tower *t, lt_tensor *x, int index)
{
    return lt_conv2d(t->tape, x, lt_tape_param(t->tape, &t->w[index]), NULL, (lt_conv2d_config){0});
}

static lt_tensor *normalize(tower *t, lt_tensor *x, lt_tensor *residual, bool relu)
{
    lt_tensor *mean = lt_tape_variable(t->tape, t->zeros),
              *var = lt_tape_variable(t->tape, t->ones);
    return lt_batchnorm2d(t->tape, x, (lt_batchnorm2d_args){var, mean, mean, var, residual, NULL},
                          (lt_batchnorm2d_config){.eps = 1e-5, .relu = relu});
}

static lt_tensor *block(tower *t, lt_tensor *x, int index)
{
    lt_tensor *c = convolve(t, x, index + 2), *residual = x;
    if (!index) {
        lt_tensor *own = convolve(t, x, 1);
        residual = normalize(t, own, NULL, false);
        lt_tape_drop(t->tape, own);
    }
    lt_tensor *y = normalize(t, c, residual, true);
    lt_tape_drop(t->tape, c);
    if (residual != x)
        lt_tape_drop(t->tape, residual);
    lt_tape_drop(t->tape, x);
    return y;
}

/* Forward and backward; returns the bytes held between them, and the gradients of all weights. */
static size_t run(tower *t, lt_recompute recompute, float (*gradient)[C * C])
{
    lt_pass pass = LT_PASS_TRAIN;
    pass.recompute = recompute;
    lt_tape_reset(t->tape, pass);
    const size_t before = lt_device_memory(t->device).used;
    lt_tensor *c = convolve(t, lt_tape_variable(t->tape, t->x), 0),
              *y = normalize(t, c, NULL, true);
    lt_tape_drop(t->tape, c);
    for (int i = 0; i < BLOCKS; i++)
        y = block(t, y, i);
    lt_tensor *loss = lt_sum(t->tape, y, (lt_reduce_config){.dims = 0});
    lt_tape_drop(t->tape, y);
    assert_ok(lt_tape_status(t->tape));
    const size_t held = lt_device_memory(t->device).used - before;
    assert_ok(lt_tape_backward(t->tape, loss, 1));
    for (int i = 0; i < CONVS; i++)
        assert_ok(lt_tensor_read(t->w[i].grad, gradient[i], sizeof gradient[i]));
    return held;
}

static void compare_recompute(const char *device)
{
    tower t[2];
    float gradient[2][CONVS][C * C];
    size_t held[2];
    for (int i = 0; i < 2; i++) {
        open_tower(&t[i], device);
        held[i] = run(&t[i], i ? LT_RECOMPUTE_CHEAP : LT_RECOMPUTE_OFF, gradient[i]);
    }
    assert_memory_equal(gradient[0], gradient[1], sizeof gradient[0]);
    /* Off: the first norm, and all blocks except the last, whose output backward does not read; all masks.
     * Cheap: output and mask of the fifth block. */
    assert_int_equal(held[0] - held[1], (BLOCKS - 1) * IMAGE_BYTES + (BLOCKS - 1) * MASK_BYTES);
    /* At the second block's convolution the first block's output is recomputed, but not its residual. */
    assert_int_equal(t[0].used[3] - t[1].used[3], IMAGE_BYTES);
    for (int i = 0; i < 2; i++)
        close_tower(&t[i]);
}

static void recomputed_outputs_of_blocks_are_bitwise_equal(void **state)
{
    (void)state;
    compare_recompute("ref");
    lt_device *device = NULL;
    if (lt_device_open(&device, "cpu", NULL)) /* a build without it */
        return;
    lt_device_close(&device);
    compare_recompute("cpu");
}

static void the_gradient_of_a_norm_needs_no_more_memory(void **state)
{
    (void)state;
    tower t;
    open_tower(&t, "ref");
    lt_tape_reset(t.tape, LT_PASS_TRAIN);
    lt_tensor *y = normalize(&t, lt_tape_variable(t.tape, t.x), NULL, true);
    lt_tensor *loss = lt_sum(t.tape, y, (lt_reduce_config){.dims = 0});
    lt_tape_drop(t.tape, y);
    const size_t before = lt_device_memory(t.device).used;
    lt_device_reset_peak(t.device);
    assert_ok(lt_tape_backward(t.tape, loss, 1));
    assert_true(lt_device_memory(t.device).peak - before < 2 * IMAGE_BYTES);
    close_tower(&t);
}

/* dy is the gradient of both outputs, at one address: neither norm may overwrite it. */
static void a_shared_gradient_is_not_overwritten(void **state)
{
    (void)state;
    float together[COUNT], apart[COUNT], weight[COUNT];
    for (int i = 0; i < 2; i++) {
        tower t;
        open_tower(&t, "ref");
        lt_tensor *k = NULL;
        assert_ok(lt_tensor_new_like(&k, t.x, LT_F32));
        fill_random(k, 3);
        assert_ok(lt_tensor_read(k, weight, sizeof weight));
        lt_tape_reset(t.tape, LT_PASS_TRAIN);
        lt_tensor *x = lt_tape_variable(t.tape, t.x), *factor = lt_tape_variable(t.tape, k);
        lt_tensor *a = normalize(&t, x, NULL, true), *b = normalize(&t, x, NULL, false);
        const lt_reduce_config all = {.dims = 0};
        lt_tensor *loss = i ? lt_add(t.tape, lt_sum(t.tape, lt_mul(t.tape, a, factor), all),
                                     lt_sum(t.tape, lt_mul(t.tape, b, factor), all))
                            : lt_sum(t.tape, lt_mul(t.tape, lt_add(t.tape, a, b), factor), all);
        assert_ok(lt_tape_backward(t.tape, loss, 1));
        assert_ok(lt_tensor_read(lt_tape_gradient(t.tape, x), i ? apart : together, sizeof apart));
        lt_tensor_free(&k);
        close_tower(&t);
    }
    for (int i = 0; i < COUNT; i++)
        assert_near(together[i], apart[i], 1e-5);
}

/* Without oneDNN convolutions are ref's, which counts nothing. */
static bool counts_convolutions(void)
{
    const char *line;
    for (int i = 0; (line = lt_build_info(i)); i++)
        if (strstr(line, "oneDNN: not in this build"))
            return false;
    return true;
}

/* A convolution and a batch norm, forward and backward: each operand counts once per pass. Fused forms are
 * off. */
static void bytes_that_kernels_move_are_counted(void **state)
{
    (void)state;
    enum { WEIGHT_BYTES = C * C * 4, PASSES_F = 2 + 1 + 2, PASSES_B = 2 + 3 + 2 + 2 };
    tower t;
    lt_device *device = NULL;
    if (!counts_convolutions() || lt_device_open(&device, "cpu", NULL)) /* a build without it */
        skip();
    lt_device_close(&device);
    open_tower(&t, "cpu");
    lt_tape_reset(t.tape, LT_PASS_TRAIN);
    int64_t before = lt_memory_traffic();
    lt_tensor *x = lt_tape_variable(t.tape, t.x);
    lt_tensor *y = normalize(&t, convolve(&t, x, 0), NULL, true);
    lt_tensor *loss = lt_sum(t.tape, y, (lt_reduce_config){.dims = 0});
    /* conv: x, w, y; moments: x; applied, when the sum reads it: x, y */
    assert_int_equal(lt_memory_traffic() - before, PASSES_F * IMAGE_BYTES + WEIGHT_BYTES);
    before = lt_memory_traffic();
    assert_ok(lt_tape_backward(t.tape, loss, 1));
    /* sums: dy, x; dx: dy, x, dx; gradients of conv: dy, x, dw; dy, w, dx */
    assert_int_equal(lt_memory_traffic() - before, PASSES_B * IMAGE_BYTES + 2 * WEIGHT_BYTES);
    close_tower(&t);
}

static const lt_memory_use *find_use(const lt_memory_use *use, int count, const char *name,
                                     const char *when)
{
    for (int i = 0; i < count; i++)
        if (use[i].name && !strcmp(use[i].name, name) && !strcmp(use[i].when, when))
            return &use[i];
    return NULL;
}

static void the_peak_is_divided_by_operation(void **state)
{
    (void)state;
    tower t;
    lt_memory_use use[LT_MEMORY_OWNERS];
    float gradient[CONVS][C * C];
    open_tower(&t, "ref");
    (void)run(&t, LT_RECOMPUTE_OFF, gradient);
    const int count = lt_device_memory_by_op(t.device, use, LT_MEMORY_OWNERS);
    size_t sum = 0;
    for (int i = 0; i < count; i++) {
        sum += use[i].bytes;
        assert_true(!i || use[i].bytes <= use[i - 1].bytes);
    }
    assert_int_equal(sum, lt_device_memory(t.device).peak);
    assert_non_null(find_use(use, count, "batchnorm2d", "forward"));
    const lt_memory_use *conv = find_use(use, count, "conv2d", "forward");
    assert_true(conv && conv->bytes == CONVS * IMAGE_BYTES);
    assert_int_equal(lt_device_memory_by_op(t.device, use, 1), count);
    close_tower(&t);
}

static void owners_beyond_the_table_share_one_row(void **state)
{
    (void)state;
    static const char names[2 * LT_MEMORY_OWNERS] = "x";
    enum { CHUNK = 64 };
    lt_device *device = NULL;
    lt_tensor *t[2 * LT_MEMORY_OWNERS] = {NULL};
    lt_memory_use use[LT_MEMORY_OWNERS];
    assert_ok(lt_device_open(&device, "ref", NULL));
    for (int i = 0; i < 2 * LT_MEMORY_OWNERS; i++) {
        const lt_memory_owner before = lt_memory_set_owner((lt_memory_owner){&names[i], "forward"});
        assert_ok(lt_tensor_new(&t[i], device, LT_F32, LT_SHAPE(1)));
        (void)lt_memory_set_owner(before);
    }
    assert_int_equal(lt_device_memory_by_op(device, use, LT_MEMORY_OWNERS), LT_MEMORY_OWNERS);
    assert_null(use[0].name);
    assert_int_equal(use[0].bytes, (LT_MEMORY_OWNERS + 1) * CHUNK);
    for (int i = 0; i < 2 * LT_MEMORY_OWNERS; i++)
        lt_tensor_free(&t[i]);
    lt_device_close(&device);
}

/* Peak of the process, in bytes. */
static int64_t peak_bytes(void)
{
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    return 1024 * (int64_t)usage.ru_maxrss;
}

/* Convolutions of a build without oneDNN: their copies are of one image, not of the batch. */
static void a_convolution_by_definition_copies_one_image(void **state)
{
    (void)state;
    enum { IMAGES = 64, CHANNELS = 16, LENGTH = 32, BATCH = IMAGES * CHANNELS * LENGTH * LENGTH };
    const lt_shape batch = LT_SHAPE(IMAGES, CHANNELS, LENGTH, LENGTH);
    const lt_conv2d_config config = {1, 1, 0, 0, 1, 1, 1};
    lt_device *d = NULL;
    lt_tensor *x = NULL, *y = NULL, *w = NULL;
    assert_ok(lt_device_open(&d, "ref", NULL));
    assert_ok(lt_tensor_new(&x, d, LT_F32, batch));
    assert_ok(lt_tensor_new(&y, d, LT_F32, batch));
    assert_ok(lt_tensor_new(&w, d, LT_F32, LT_SHAPE(CHANNELS, CHANNELS, 1, 1)));
    const lt_view vx = lt_tensor_view(x), vy = lt_tensor_view(y), vw = lt_tensor_view(w);
    memset(vx.data, 0, lt_tensor_bytes(x));
    memset(vy.data, 0, lt_tensor_bytes(y));
    memset(vw.data, 0, lt_tensor_bytes(w));
    const int64_t before = peak_bytes();
    assert_ok(d->backend->conv2d(d->ctx, &config, &vx, &vw, &(lt_view){0}, &vy));
    assert_ok(d->backend->conv2d_grad_x(d->ctx, &config, &vy, &vw, &vx));
    assert_ok(d->backend->conv2d_grad_w(d->ctx, &config, &vy, &vx, &vw));
    assert_true(peak_bytes() - before < BATCH * (int64_t)sizeof(float) / 4);
    lt_tensor_free(&x);
    lt_tensor_free(&y);
    lt_tensor_free(&w);
    lt_device_close(&d);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_convolution_by_definition_copies_one_image),
        cmocka_unit_test(recomputed_outputs_of_blocks_are_bitwise_equal),
        cmocka_unit_test(the_gradient_of_a_norm_needs_no_more_memory),
        cmocka_unit_test(a_shared_gradient_is_not_overwritten),
        cmocka_unit_test(the_peak_is_divided_by_operation),
        cmocka_unit_test(bytes_that_kernels_move_are_counted),
        cmocka_unit_test(owners_beyond_the_table_share_one_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
