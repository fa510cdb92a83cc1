/* LATHER_VERIFY: the comparison of a convolution's result with ref's, and where it runs. */

#include "tensor/backend/cpu/onednn/conv_verify.h"

#include "base/alloc.h"
#include "base/rng.h"
#include "near.h"
#include "tensor/backend/cpu/cpu.h"
#include "tensor/backend/cpu/internal.h"
#include "tensor/backend/cpu/onednn/onednn.h"

#include <stdlib.h>
#include <string.h>

enum { LARGEST = 4096 };

static float xs[LARGEST], ws[LARGEST], bs[LARGEST], ys[LARGEST];

typedef struct fixture {
    lt_conv_form form;
    lt_view x, w, b, y;
} fixture;

static void fill(float *to, uint64_t stream)
{
    lt_rng rng = {.key = lt_rng_key(3, LT_STREAM_DATA, stream, 0)};
    for (int i = 0; i < LARGEST; i++)
        to[i] = (float)(2 * lt_rng_uniform(&rng) - 1);
}

/* 8 to 6 channels of 7 x 5 pixels, 3x3 stride 2 pad 1. */
static fixture made(lt_conv_kind kind, int groups)
{
    fixture f = {.form = {.kind = kind, .config = {2, 2, 1, 1, 1, 1, groups}}};
    fill(xs, 0);
    fill(ws, 1);
    fill(bs, 2);
    fill(ys, 3);
    f.form.x = LT_SHAPE(2, 8, 7, 5);
    f.form.w = LT_SHAPE(6, 8 / groups, 3, 3);
    f.form.y = LT_SHAPE(2, 6, 4, 3);
    f.x = lt_cpu_dense_view(xs, LT_F32, f.form.x);
    f.w = lt_cpu_dense_view(ws, LT_F32, f.form.w);
    f.b = lt_cpu_dense_view(bs, LT_F32, LT_SHAPE(6));
    f.y = lt_cpu_dense_view(ys, LT_F32, f.form.y);
    return f;
}

/* Runs the backend's kernel; returns the result. */
static lt_view *run(fixture *f, void *ctx)
{
    const lt_backend *be = lt_backend_cpu();
    const lt_conv2d_config *c = &f->form.config;
    switch (f->form.kind) {
    case LT_CONV:
        assert_ok(be->conv2d(ctx, c, &f->x, &f->w, &f->b, &f->y));
        return &f->y;
    case LT_CONV_GRAD_X:
        assert_ok(be->conv2d_grad_x(ctx, c, &f->y, &f->w, &f->x));
        return &f->x;
    case LT_CONV_GRAD_W:
        assert_ok(be->conv2d_grad_w(ctx, c, &f->y, &f->x, &f->w));
        return &f->w;
    }
    return NULL;
}

static void *open_cpu(void)
{
    const lt_device_config config = {.threads = 1};
    void *ctx = NULL;
    assert_ok(lt_backend_cpu()->open(&ctx, 0, &config));
    return ctx;
}

static void check(lt_conv_kind kind, int groups)
{
    void *ctx = open_cpu();
    fixture f = made(kind, groups);
    lt_view *result = run(&f, ctx);
    const lt_conv_ran ran = {&f.form, "an implementation",           &f.x,
                             &f.w,    kind == LT_CONV ? &f.b : NULL, &f.y};
    assert_ok(lt_conv_verify(&ran));
    /* Every second element, so that the sampled planes contain some. */
    for (int64_t i = 0; i < lt_cpu_element_count(result); i += 2)
        ((float *)result->data)[i] += 5;
    assert_status(lt_conv_verify(&ran), LT_E_DEVICE);
    assert_non_null(strstr(lt_error_message(), "an implementation is wrong: "));
    assert_non_null(strstr(lt_error_message(), "x [2,8,7,5]"));
    assert_non_null(strstr(lt_error_message(), "stride 2,2, pad 1,1, dilation 1,1, groups"));
    lt_backend_cpu()->close(ctx);
}

static void a_wrong_result_is_named(void **state)
{
    (void)state;
    for (int kind = LT_CONV; kind <= LT_CONV_GRAD_W; kind++) {
        check((lt_conv_kind)kind, 1);
        check((lt_conv_kind)kind, 2);
    }
}

static bool is_unverified(const lt_onednn *p)
{
    for (int i = 0; i < LT_PRIMITIVE_BUCKETS; i++)
        if (p->primitive[i] && p->primitive[i]->primitive)
            return p->primitive[i]->unverified;
    fail_msg("no primitive ran");
    return false;
}

/* A primitive begins unverified only if the variable asks for it; verifying ends that. */
static void the_first_use_is_verified_if_wanted(void **state)
{
    (void)state;
    assert_int_equal(setenv("LATHER_VERIFY", "1", 1), 0);
    assert_true(lt_conv_verify_is_enabled());
    void *ctx = open_cpu();
    fixture f = made(LT_CONV, 1);
    run(&f, ctx);
    assert_false(is_unverified(((lt_cpu *)ctx)->onednn));
    lt_backend_cpu()->close(ctx);
    assert_int_equal(setenv("LATHER_VERIFY", "0", 1), 0);
    assert_false(lt_conv_verify_is_enabled());
    assert_int_equal(unsetenv("LATHER_VERIFY"), 0);
    assert_false(lt_conv_verify_is_enabled());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wrong_result_is_named),
        cmocka_unit_test(the_first_use_is_verified_if_wanted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
