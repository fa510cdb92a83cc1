/* Winograd convolutions of the cpu backend fused with parts of batch norm: equal to the separate kernels,
 * and bitwise identical for any number of threads. */

#include "conv_data.h"
#include "tensor/backend/cpu/conv/winograd.h"

#include <math.h>
#include <stdio.h>

enum { TAPS = 3, COEF_ROWS = 4, STATS_ROWS = 3, MEAN = 0, INV, SCALE, SHIFT };

typedef struct row {
    const char *name;
    int64_t batch, in, out, h, w;
    int pad;
    bool far; /* means of the result are large compared to its deviations */
    bool bf16;
} row;

static const row rows[] = {
    {"one tile", 1, 32, 32, 4, 4, 1, false, false},
    {"tiles that reach over both edges", 2, 32, 64, 7, 9, 1, false, false},
    {"several chunks", 7, 32, 32, 40, 40, 1, false, false},
    {"means far from 0", 3, 64, 32, 30, 34, 0, true, false},
    {"chunks of fewer tiles", 2, 160, 160, 24, 24, 1, false, false},
    {"more channels read than the second cache takes", 1, 288, 32, 48, 45, 1, false, false},
    {"more channels written", 1, 32, 288, 48, 45, 1, false, false},
    {"bf16", 3, 64, 64, 23, 9, 1, false, true},
};

typedef struct data {
    lt_conv2d_config config;
    lt_view x, z, w, y, dw, coef, vector, stats, sums;
    lt_batchnorm_before norm;
    const lt_backend *be;
    void *ctx;
} data;

static lt_view new_rows(int64_t count, int64_t channels)
{
    float *memory = calloc((size_t)(count * channels), sizeof *memory);
    assert_non_null(memory);
    return (lt_view){memory, LT_F32, LT_SHAPE(count, channels), .stride = {channels, 1}};
}

static void make(const row *r, data *d)
{
    const lt_dtype dtype = r->bf16 ? LT_BF16 : LT_F32;
    *d = (data){
        .config = {1, 1, r->pad, r->pad, 1, 1, 1},
        .x = new_image(dtype, r->batch, r->in, r->h, r->w),
        .z = new_image(dtype, r->batch, r->in, r->h, r->w),
        .w = new_image(LT_F32, r->out, r->in, TAPS, TAPS),
        .dw = new_image(LT_F32, r->out, r->in, TAPS, TAPS),
        .y = new_image(dtype, r->batch, r->out, r->h + 2 * r->pad - 2, r->w + 2 * r->pad - 2),
        .coef = new_rows(COEF_ROWS, r->in),
        .vector = new_rows(1, r->in),
        .stats = new_rows(STATS_ROWS, r->out),
        .sums = new_rows(2, r->in)};
    fill(&d->x, r->far ? 0.9 : -1, 1, 7919);
    fill(&d->w, r->far ? 0.9 : -1, 1, 1299709);
    fill(&d->coef, 0.5, 1.5, 104729);
    for (int64_t c = 0; c < r->in; c++) /* relu masks about half */
        ((float *)d->coef.data)[SHIFT * r->in + c] = r->far ? 1 : (float)(c % 7) / 8 - 0.25F;
    d->norm = (lt_batchnorm_before){&d->x, &d->coef, &d->vector, &d->vector, NULL};
}

static void clear(data *d)
{
    const lt_view all[] = {d->x, d->z, d->w, d->dw, d->y, d->coef, d->vector, d->stats, d->sums};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        free(all[i].data);
}

static void close_data(data *d)
{
    d->be->close(d->ctx);
    clear(d);
}

/* Skips the test if this processor has no such kernels. */
static void open_data(const row *r, int threads, data *d)
{
    make(r, d);
    d->ctx = open_own(&d->be, threads);
    const lt_direct_conv c = {.config = &d->config, .from = &d->x, .w = &d->w, .to = &d->y};
    if (((lt_cpu *)d->ctx)->onednn && lt_winograd_is_chosen(d->ctx, &c))
        return;
    close_data(d);
    skip();
}

/* Checks count, mean and M2 of the written result. Means are rounded, which affects M2 in proportion to
 * them; sums of squares would be affected in proportion to their squares. In bf16 the sums are of the
 * unrounded result, which differs by up to 2^-8. */
static void assert_moments(const data *d, bool bf16)
{
    const int64_t channels = d->y.shape.dim[1], pixels = lt_shape_count(d->y.shape) / channels;
    const double share = bf16 ? 0x1p-8 : 0x1p-20;
    for (int64_t c = 0; c < channels; c++) {
        double mean = 0, m2 = 0;
        for (int64_t i = 0; i < pixels; i++)
            mean += get(&d->y, i * channels + c) / (double)pixels;
        for (int64_t i = 0; i < pixels; i++)
            m2 += pow(get(&d->y, i * channels + c) - mean, 2);
        const double deviation = sqrt(m2 / (double)pixels), ratio = fabs(mean) / deviation;
        assert_true(get(&d->stats, c) == (double)pixels);
        assert_near(get(&d->stats, channels + c), mean,
                    share * deviation + (bf16 ? share : 0x1p-21) * fabs(mean));
        assert_near(get(&d->stats, 2 * channels + c), m2,
                    m2 * (2 * share + (bf16 ? share : 0x1p-23) * ratio));
    }
}

static void moments_are_those_of_the_output(void **state)
{
    const row *r = *state;
    data d;
    open_data(r, 1, &d);
    assert_ok(d.be->conv2d(d.ctx, &d.config, &d.x, &d.w, NULL, &d.y));
    lt_view alone = copy_of(&d.y);
    assert_ok(d.be->conv2d_stats(d.ctx, &d.config, &d.x, &d.w, &d.y, &d.stats, NULL));
    assert_memory_equal(alone.data, d.y.data, bytes_of(&d.y));
    assert_moments(&d, r->bf16);
    free(alone.data);
    close_data(&d);
}

/* Bounds for sums of N products of numbers below `most`, as in winograd.c. In bf16 a written intermediate is
 * rounded, by up to 2^-8 and independently per element: 10 deviations of that. */
static void assert_alike(const lt_view *got, const lt_view *want, double most, int64_t products,
                         bool bf16)
{
    const double off = (bf16 ? 10 * 0x1p-9 : 100 * 0x1p-24) * most * sqrt((double)products);
    for (int64_t i = 0; i < lt_shape_count(got->shape); i++)
        assert_near(get(got, i), get(want, i), off + (bf16 ? 0x1p-8 * fabs(get(want, i)) : 0));
}

static void a_fused_norm_equals_a_separate_one(void **state)
{
    const row *r = *state;
    data d;
    lt_norm_conv how = {.moments = true};
    bool done = false;
    open_data(r, 1, &d);
    const lt_batchnorm2d_config config = {.relu = true};
    assert_ok(d.be->batchnorm_apply(d.ctx, &config, &d.x, &d.coef, NULL, &d.z, NULL));
    assert_ok(d.be->conv2d(d.ctx, &d.config, &d.z, &d.w, NULL, &d.y));
    lt_view y = copy_of(&d.y);
    assert_ok(d.be->conv2d_norm_stats(d.ctx, &d.config, &d.norm, &d.w, &d.y, &d.stats, &how));
    assert_true(how.done);
    assert_alike(&d.y, &y, 3, r->in * TAPS * TAPS, r->bf16);
    assert_moments(&d, r->bf16);
    fill(&y, -1, 1, 31337);
    assert_ok(d.be->conv2d_grad_w(d.ctx, &d.config, &y, &d.z, &d.dw));
    lt_view dw = copy_of(&d.dw);
    assert_ok(d.be->conv2d_norm_grad_w(d.ctx, &d.config, &y, &d.norm, &d.dw, &done));
    assert_true(done);
    assert_alike(&d.dw, &dw, 3, lt_shape_count(y.shape) / r->out, r->bf16);
    free(y.data);
    free(dw.data);
    close_data(&d);
}

/* relu's gate for element i of x. */
static bool passes(const data *d, int64_t i)
{
    const int64_t channels = d->x.shape.dim[1], c = i % channels;
    const float *k = d->coef.data;
    return fmaf((float)get(&d->x, i), k[SCALE * channels + c], k[SHIFT * channels + c]) > 0;
}

/* Checks the sums of the gradient that was written, which is masked. */
static void assert_sums(const data *d, const lt_view *dx, bool bf16)
{
    const int64_t channels = dx->shape.dim[1], pixels = lt_shape_count(dx->shape) / channels;
    const float *k = d->coef.data;
    for (int64_t c = 0; c < channels; c++) {
        double sum = 0, product = 0, sizes = 0;
        for (int64_t i = c; i < pixels * channels; i += channels) {
            const double g = get(dx, i), inv = (double)k[INV * channels + c];
            sum += g;
            product += g * (get(&d->x, i) - (double)k[MEAN * channels + c]) * inv;
            sizes += fabs(g);
        }
        const double off = sizes * (bf16 ? 0x1p-9 : 0x1p-20);
        assert_near(get(&d->sums, c), sum, off);
        assert_near(get(&d->sums, channels + c), product, 4 * off);
    }
}

static void sums_are_of_the_gradient(void **state)
{
    const row *r = *state;
    data d;
    open_data(r, 1, &d);
    fill(&d.y, -1, 1, 31337);
    assert_ok(d.be->conv2d_grad_x(d.ctx, &d.config, &d.y, &d.w, &d.z));
    lt_view dx = copy_of(&d.z);
    assert_ok(d.be->conv2d_grad_x_sums(d.ctx, &d.config, &d.y, &d.w, &d.norm, &d.z, &d.sums));
    for (int64_t i = 0; i < lt_shape_count(dx.shape); i++)
        assert_true(get(&d.z, i) == (passes(&d, i) ? get(&dx, i) : 0));
    assert_sums(&d, &d.z, r->bf16);
    free(dx.data);
    close_data(&d);
}

static void run_all(const row *r, int threads, data *d)
{
    lt_norm_conv how = {.moments = true};
    open_data(r, threads, d);
    assert_ok(
        d->be->conv2d_norm_stats(d->ctx, &d->config, &d->norm, &d->w, &d->y, &d->stats, &how));
    assert_ok(
        d->be->conv2d_grad_x_sums(d->ctx, &d->config, &d->y, &d->w, &d->norm, &d->z, &d->sums));
}

static void bits_do_not_depend_on_threads(void **state)
{
    (void)state;
    for (size_t i = 2; i < COUNT_OF(rows); i++) {
        data want, got;
        run_all(&rows[i], 1, &want);
        for (int threads = 2; threads <= 3; threads++) {
            run_all(&rows[i], threads, &got);
            assert_memory_equal(got.stats.data, want.stats.data, bytes_of(&got.stats));
            assert_memory_equal(got.sums.data, want.sums.data, bytes_of(&got.sums));
            assert_memory_equal(got.z.data, want.z.data, bytes_of(&got.z));
            close_data(&got);
        }
        close_data(&want);
    }
}

int main(void)
{
    static const struct {
        const char *name;
        CMUnitTestFunction test;
    } kinds[] = {{"moments", moments_are_those_of_the_output},
                 {"norm before", a_fused_norm_equals_a_separate_one},
                 {"sums of the gradient", sums_are_of_the_gradient}};
    static char names[COUNT_OF(kinds) * COUNT_OF(rows)][96];
    struct CMUnitTest tests[1 + COUNT_OF(names)] = {
        cmocka_unit_test(bits_do_not_depend_on_threads),
    };
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        const row *r = &rows[i / COUNT_OF(kinds)];
        snprintf(names[i], sizeof names[i], "%s: %s", r->name, kinds[i % COUNT_OF(kinds)].name);
        tests[1 + i] = (struct CMUnitTest){names[i], kinds[i % COUNT_OF(kinds)].test, NULL, NULL,
                                           (void *)(uintptr_t)r};
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
