/* The part of a filter that is left after cropping taps that meet only padding: tap by tap against a list of
 * those that meet a pixel, and equal outputs of ref. */

#include "tensor/backend/cpu/onednn/conv_crop.h"

#include "near.h"
#include "tensor/backend/cpu/internal.h"
#include "tensor/shape.h"

enum { C = 2, K = 3, MOST = 512 };

typedef struct crop_row {
    const char *name;
    int64_t h, w, r, s;
    lt_conv2d_config config;
    int64_t first_h, left_h, first_w, left_w; /* left_h 0: nothing is cropped */
} crop_row;

static const crop_row rows[] = {
    {"3x3 pad 1 on one pixel", 1, 1, 3, 3, {1, 1, 1, 1, 1, 1, 1}, 1, 1, 1, 1},
    {"3x3 pad 1 stride 2 on 2 x 2", 2, 2, 3, 3, {2, 2, 1, 1, 1, 1, 1}, 1, 2, 1, 2},
    {"3x3 pad 1 on 1 x 5", 1, 5, 3, 3, {1, 1, 1, 1, 1, 1, 1}, 1, 1, 0, 3},
    {"7x7 pad 3 stride 2 on 3 x 2", 3, 2, 7, 7, {2, 2, 3, 3, 1, 1, 1}, 1, 5, 3, 2},
    {"padding would be negative", 3, 3, 3, 3, {1, 1, 1, 1, 2, 2, 1}, 0, 2, 0, 2},
    {"dilation 2 pad 2 on 1 x 2", 1, 2, 3, 3, {1, 1, 2, 2, 2, 2, 1}, 1, 1, 1, 1},
    {"2x1 pad 1 by 0, both used", 2, 4, 2, 1, {2, 1, 1, 0, 1, 1, 1}, 0, 0, 0, 0},
    {"3x3 pad 1 on 2 x 2", 2, 2, 3, 3, {1, 1, 1, 1, 1, 1, 1}, 0, 0, 0, 0},
    {"1x1", 4, 4, 1, 1, {1, 1, 0, 0, 1, 1, 1}, 0, 0, 0, 0},
    {"all taps in padding", 1, 1, 1, 1, {4, 4, 1, 1, 1, 1, 1}, 0, 0, 0, 0},
};

static int64_t outputs(int64_t size, int64_t taps, int stride, int pad, int dilation)
{
    return (size + 2 * pad - (taps - 1) * dilation - 1) / stride + 1;
}

static lt_conv_form form_of(const crop_row *r)
{
    const lt_conv2d_config *c = &r->config;
    return (lt_conv_form){LT_CONV, *c, LT_SHAPE(1, C, r->h, r->w), LT_SHAPE(K, C, r->r, r->s),
                          LT_SHAPE(1, K, outputs(r->h, r->r, c->stride_h, c->pad_h, c->dilation_h),
                                   outputs(r->w, r->s, c->stride_w, c->pad_w, c->dilation_w))};
}

static void fill(float *data)
{
    for (int i = 0; i < MOST; i++)
        data[i] = (float)(i % 13 - 6);
}

static void same_outputs(const lt_conv_form *f, const lt_view *w, const lt_conv_cropped *part)
{
    static float x[MOST], want[MOST], got[MOST];
    fill(x);
    const lt_view xv = lt_cpu_dense_view(x, LT_F32, f->x),
                  wv = lt_cpu_dense_view(want, LT_F32, f->y),
                  gv = lt_cpu_dense_view(got, LT_F32, f->y);
    assert_ok(lt_backend_ref()->conv2d(NULL, &f->config, &xv, w, NULL, &wv));
    assert_ok(lt_backend_ref()->conv2d(NULL, &part->config, &xv, &part->w, NULL, &gv));
    for (int64_t i = 0; i < lt_shape_count(f->y); i++)
        if (want[i] != got[i])
            fail_msg("output %lld is %g, want %g", (long long)i, (double)got[i], (double)want[i]);
}

static void what_is_left_makes_the_same(void **state)
{
    const crop_row *r = *state;
    static float data[MOST];
    fill(data);
    const lt_conv_form f = form_of(r);
    const lt_view w = lt_cpu_dense_view(data, LT_F32, f.w);
    lt_conv_cropped part;
    assert_int_equal(lt_conv_crop(&f, &w, &part), r->left_h > 0);
    if (!r->left_h)
        return;
    assert_int_equal(part.w.shape.dim[2], r->left_h);
    assert_int_equal(part.w.shape.dim[3], r->left_w);
    assert_int_equal((float *)part.w.data - data, (r->first_h * r->s + r->first_w) * C);
    assert_int_equal(part.config.pad_h, r->config.pad_h - r->first_h * r->config.dilation_h);
    assert_int_equal(part.config.pad_w, r->config.pad_w - r->first_w * r->config.dilation_w);
    same_outputs(&f, &w, &part);
}

static void filters_of_other_formats_are_not_cropped(void **state)
{
    (void)state;
    static float data[MOST];
    const lt_conv_form f = form_of(&rows[0]);
    lt_view w = lt_cpu_dense_view(data, LT_F32, f.w);
    lt_format_strides(f.w, LT_FORMAT_CONTIGUOUS, w.stride);
    lt_conv_cropped part;
    assert_false(lt_conv_crop(&f, &w, &part));
}

int main(void)
{
    enum { ROWS = COUNT_OF(rows) };
    struct CMUnitTest tests[ROWS + 1] = {
        cmocka_unit_test(filters_of_other_formats_are_not_cropped)};
    for (size_t i = 0; i < ROWS; i++)
        tests[i + 1] = (struct CMUnitTest){.name = rows[i].name,
                                           .test_func = what_is_left_makes_the_same,
                                           .initial_state = (void *)(uintptr_t)&rows[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
