/* Counts the fused kernels that a residual network's step calls, as listed in docs/guides/cuda.md. The fused
 * kernels are composed of ref's kernels, so results do not change. */

#include "near.h"
#include "resnet.h"
#include "tensor/tensor.h"

#include "lather/ext/fail.h"
#include "lather/ops.h"

#include <stdlib.h>
#include <string.h>

enum { BATCH = 2, SIDE = 32, WIDTH = 2, CLASSES = 3 };

typedef struct calls {
    int stats, sums, own_stats, own_sums;
    int norm_stats, norm_grad_w, adds, pools;
    int add_grads, pool_grads;
} calls;

static calls seen;

static lt_status conv_then_stats(void *ctx, const lt_conv2d_config *config, const lt_view *x,
                                 const lt_view *w, const lt_view *y, const lt_view *stats,
                                 bool *sums)
{
    *sums = false;
    seen.stats++;
    LT_TRY(lt_backend_ref()->conv2d(ctx, config, x, w, NULL, y));
    return lt_backend_ref()->batchnorm_stats(ctx, y, stats);
}

static lt_status conv_grad_then_sums(void *ctx, const lt_conv2d_config *config, const lt_view *dy,
                                     const lt_view *w, const lt_batchnorm_before *norm,
                                     const lt_view *dx, const lt_view *sums)
{
    const lt_batchnorm_grad in = {.dy = {*dx}, .x = norm->x, .coef = norm->coef, .relu = true};
    seen.sums++;
    LT_TRY(lt_backend_ref()->conv2d_grad_x(ctx, config, dy, w, dx));
    return lt_backend_ref()->batchnorm_grad_stats(ctx, &in, NULL, sums);
}

/* Returns relu(batchnorm(x)) in a new buffer. */
static lt_view written(void *ctx, const lt_batchnorm_before *norm)
{
    const lt_batchnorm2d_config config = {.relu = true};
    lt_view y = *norm->x;
    y.data = malloc((size_t)lt_shape_count(y.shape) * sizeof(float));
    assert_non_null(y.data);
    assert_ok(lt_backend_ref()->batchnorm_apply(ctx, &config, norm->x, norm->coef, NULL, &y, NULL));
    return y;
}

static lt_status norm_before(void *ctx, const lt_conv2d_config *config,
                             const lt_batchnorm_before *norm, const lt_view *w, const lt_view *y,
                             const lt_view *stats, lt_norm_conv *how)
{
    const lt_view x = written(ctx, norm);
    seen.norm_stats++;
    how->done = true;
    lt_status st = lt_backend_ref()->conv2d(ctx, config, &x, w, NULL, y);
    free(x.data);
    return st ? st : lt_backend_ref()->batchnorm_stats(ctx, y, stats);
}

static lt_status norm_before_grad_w(void *ctx, const lt_conv2d_config *config, const lt_view *dy,
                                    const lt_batchnorm_before *norm, const lt_view *dw, bool *done)
{
    const lt_view x = written(ctx, norm);
    seen.norm_grad_w++;
    *done = true;
    lt_status st = lt_backend_ref()->conv2d_grad_w(ctx, config, dy, &x, dw);
    free(x.data);
    return st;
}

/* Writes the second term to a separate buffer first. */
static lt_status add_both(void *ctx, const lt_batchnorm2d_config *config,
                          const lt_batchnorm_addend term[2], const lt_view *y, const lt_view *mask)
{
    const lt_batchnorm2d_config plain = {0};
    const lt_backend *ref = lt_backend_ref();
    lt_view other = *term[1].x;
    other.data = malloc((size_t)lt_shape_count(other.shape) * sizeof(float));
    assert_non_null(other.data);
    seen.adds++;
    lt_status st = ref->batchnorm_apply(ctx, &plain, term[1].x, term[1].coef, NULL, &other, NULL);
    if (!st)
        st = ref->batchnorm_apply(ctx, config, term[0].x, term[0].coef, &other, y, mask);
    free(other.data);
    return st;
}

static lt_status pool_of_norm(void *ctx, const lt_pool2d_config *config,
                              const lt_batchnorm_before *norm, const lt_view *y,
                              const lt_view *index)
{
    const lt_view x = written(ctx, norm);
    seen.pools++;
    lt_status st = lt_backend_ref()->maxpool2d(ctx, config, &x, y, index);
    free(x.data);
    return st;
}

/* Returns a view of the same shape with new memory. */
static lt_view like(const lt_view *x)
{
    lt_view v = *x;
    v.data = malloc((size_t)lt_shape_count(v.shape) * sizeof(float));
    assert_non_null(v.data);
    return v;
}

static lt_status finish_along(void *ctx, lt_batchnorm_grad in, const lt_batchnorm_fused_grad *norm)
{
    in.x = norm->x;
    in.coef = norm->coef;
    memcpy(in.affine, norm->affine, sizeof in.affine);
    return lt_backend_ref()->batchnorm_grad_x(ctx, &in, norm->sums, norm->count, norm->dx);
}

static lt_status grad_of_both(void *ctx, const lt_batchnorm_grad *in,
                              const lt_batchnorm_fused_grad norm[2])
{
    const lt_backend *ref = lt_backend_ref();
    lt_batchnorm_grad masked = {.dy = {like(in->x)}, .x = norm[1].x, .coef = norm[1].coef};
    seen.add_grads++;
    assert_ok(ref->batchnorm_grad_stats(ctx, in, &masked.dy[0], norm[0].sums));
    assert_ok(ref->batchnorm_grad_stats(ctx, &masked, NULL, norm[1].sums));
    for (int i = 0; i < 2; i++)
        assert_ok(finish_along(ctx, masked, &norm[i]));
    free(masked.dy[0].data);
    return LT_OK;
}

static lt_status grad_of_pool(void *ctx, const lt_pool2d_config *config, const lt_view dy[2],
                              const lt_view *index, const lt_batchnorm_fused_grad *norm)
{
    lt_batchnorm_grad in = {.dy = {like(norm->x)}, .x = norm->x, .coef = norm->coef, .relu = true};
    seen.pool_grads++;
    assert_ok(lt_backend_ref()->maxpool2d_grad(ctx, config, dy, index, &in.dy[0]));
    assert_ok(lt_backend_ref()->batchnorm_grad_stats(ctx, &in, NULL, norm->sums));
    assert_ok(finish_along(ctx, in, norm));
    free(in.dy[0].data);
    return LT_OK;
}

static lt_status own_stats(void *ctx, const lt_view *x, const lt_view *stats)
{
    seen.own_stats++;
    return lt_backend_ref()->batchnorm_stats(ctx, x, stats);
}

static lt_status own_sums(void *ctx, const lt_batchnorm_grad *in, const lt_view *g,
                          const lt_view *sums)
{
    seen.own_sums++;
    return lt_backend_ref()->batchnorm_grad_stats(ctx, in, g, sums);
}

typedef struct row {
    const char *name, *arch;
    lt_recompute recompute;
    calls want;
} row;

/* resnet50: 53 convolutions; 16 blocks, whose second and third convolution follow a batch norm with relu; 4 blocks
 * have a batch norm in the shortcut. */
static const row rows[] = {
    {"resnet50", "resnet50", LT_RECOMPUTE_OFF, {21, 32, 0, 12, 32, 32, 4, 1, 4, 1}},
    {"resnet50, outputs recomputed",
     "resnet50",
     LT_RECOMPUTE_CHEAP,
     {21, 32, 0, 12, 32, 32, 4, 1, 4, 1}},
    {"resnet18: one such convolution in each of 8 blocks",
     "resnet18",
     LT_RECOMPUTE_OFF,
     {12, 8, 0, 5, 8, 8, 3, 1, 3, 1}},
};

typedef struct scene {
    lt_backend table;
    lt_device *device;
    lt_module *model;
    lt_tape *tape;
    lt_params params;
    lt_tensor *x, *labels;
} scene;

static void open_scene(scene *s, const row *r, bool fused)
{
    const int32_t labels[BATCH] = {0, 2};
    const lt_resnet_config config = {
        .arch = r->arch, .width = WIDTH, .classes = CLASSES, .seed = 3};
    float pixels[BATCH * 3 * SIDE * SIDE];
    *s = (scene){.table = *lt_backend_ref()};
    s->table.batchnorm_stats = own_stats;
    s->table.batchnorm_grad_stats = own_sums;
    s->table.conv2d_stats = fused ? conv_then_stats : NULL;
    s->table.conv2d_grad_x_sums = fused ? conv_grad_then_sums : NULL;
    s->table.conv2d_norm_stats = fused ? norm_before : NULL;
    s->table.conv2d_norm_grad_w = fused ? norm_before_grad_w : NULL;
    s->table.batchnorm_add = fused ? add_both : NULL;
    s->table.maxpool2d_norm = fused ? pool_of_norm : NULL;
    s->table.batchnorm_add_grad = fused ? grad_of_both : NULL;
    s->table.maxpool2d_norm_grad = fused ? grad_of_pool : NULL;
    assert_ok(lt_device_open(&s->device, "ref", NULL));
    s->device->backend = &s->table;
    assert_ok(lt_resnet_new(&s->model, s->device, &config));
    assert_ok(lt_module_params(s->model, &s->params));
    assert_ok(lt_tape_new(&s->tape, s->device));
    for (size_t i = 0; i < COUNT_OF(pixels); i++)
        pixels[i] = (float)(i * 37 % 101) / 50 - 1;
    assert_ok(lt_tensor_new(&s->x, s->device, LT_F32, LT_SHAPE(BATCH, 3, SIDE, SIDE)));
    assert_ok(lt_tensor_write(s->x, pixels, sizeof pixels));
    assert_ok(lt_tensor_new(&s->labels, s->device, LT_I32, LT_SHAPE(BATCH)));
    assert_ok(lt_tensor_write(s->labels, labels, sizeof labels));
}

static void close_scene(scene *s)
{
    lt_tape_free(&s->tape);
    lt_params_clear(&s->params);
    lt_module_free(&s->model);
    lt_tensor_free(&s->x);
    lt_tensor_free(&s->labels);
    lt_device_close(&s->device);
}

static void run_pass(scene *s, lt_recompute recompute)
{
    lt_pass pass = LT_PASS_TRAIN;
    pass.recompute = recompute;
    lt_tape_reset(s->tape, pass);
    lt_tensor *logits = lt_module_forward(s->model, s->tape, s->x);
    lt_tensor *loss = lt_softmax_xent(s->tape, logits, s->labels, 0.1);
    assert_ok(lt_tape_backward(s->tape, loss, 1));
}

/* Runs a step of micro_batches passes; returns the gradients of all parameters, concatenated, from malloc(). */
static float *run_step(scene *s, lt_recompute recompute, int micro_batches, size_t *count)
{
    float *values = NULL;
    seen = (calls){0};
    lt_params_zero_grad(&s->params);
    for (int i = 0; i < micro_batches; i++)
        run_pass(s, recompute);
    *count = 0;
    for (size_t i = 0; i < s->params.count; i++) {
        const lt_param *p = s->params.item[i];
        if (!p->has_grad)
            continue;
        values = realloc(values, *count * sizeof(float) + lt_tensor_bytes(p->grad));
        assert_non_null(values);
        assert_ok(lt_tensor_read(p->grad, values + *count, lt_tensor_bytes(p->grad)));
        *count += (size_t)lt_tensor_count(p->grad);
    }
    return values;
}

static void check_row(void **state)
{
    const row *r = *state;
    scene s;
    size_t count[2];
    float *gradient[2];
    for (int fused = 0; fused < 2; fused++) {
        open_scene(&s, r, fused);
        gradient[fused] = run_step(&s, r->recompute, 1, &count[fused]);
        close_scene(&s);
        if (!fused)
            assert_int_equal(seen.own_stats, r->want.stats + r->want.norm_stats);
    }
    assert_int_equal(seen.stats, r->want.stats);
    assert_int_equal(seen.sums, r->want.sums);
    assert_int_equal(seen.norm_stats, r->want.norm_stats);
    assert_int_equal(seen.norm_grad_w, r->want.norm_grad_w);
    assert_int_equal(seen.adds, r->want.adds);
    assert_int_equal(seen.pools, r->want.pools);
    assert_int_equal(seen.add_grads, r->want.add_grads);
    assert_int_equal(seen.pool_grads, r->want.pool_grads);
    assert_int_equal(seen.own_stats, r->want.own_stats);
    assert_int_equal(seen.own_sums, r->want.own_sums);
    assert_true(count[0] > 0);
    assert_int_equal(count[0], count[1]);
    assert_memory_equal(gradient[0], gradient[1], count[0] * sizeof(float));
    free(gradient[0]);
    free(gradient[1]);
}

/* A gradient that exists already is accumulated into by separate kernels. */
static void gradients_of_two_micro_batches_add_up(void **state)
{
    scene s;
    size_t count[2];
    float *gradient[2];
    (void)state;
    for (int fused = 0; fused < 2; fused++) {
        open_scene(&s, &rows[2], fused);
        gradient[fused] = run_step(&s, LT_RECOMPUTE_OFF, 2, &count[fused]);
        close_scene(&s);
    }
    assert_int_equal(seen.adds, 2 * rows[2].want.adds);
    assert_int_equal(seen.add_grads, rows[2].want.add_grads);
    assert_int_equal(seen.pool_grads, rows[2].want.pool_grads);
    assert_int_equal(count[0], count[1]);
    assert_memory_equal(gradient[0], gradient[1], count[0] * sizeof(float));
    free(gradient[0]);
    free(gradient[1]);
}

static void evaluation_uses_no_fused_kernel(void **state)
{
    scene s;
    (void)state;
    open_scene(&s, &rows[2], true);
    seen = (calls){0};
    lt_tape_reset(s.tape, LT_PASS_EVAL);
    assert_non_null(lt_module_forward(s.model, s.tape, s.x));
    assert_int_equal(seen.stats + seen.sums + seen.norm_stats + seen.own_stats + seen.own_sums, 0);
    close_scene(&s);
}

int main(void)
{
    enum { OTHERS = 2 };
    struct CMUnitTest tests[COUNT_OF(rows) + OTHERS] = {
        cmocka_unit_test(evaluation_uses_no_fused_kernel),
        cmocka_unit_test(gradients_of_two_micro_batches_add_up)};
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        tests[OTHERS + i] =
            (struct CMUnitTest){rows[i].name, check_row, NULL, NULL, (void *)(uintptr_t)&rows[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
