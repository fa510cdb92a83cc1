/* Rows of convolutions fused with part of a batch norm. A backend without the kernel, including ref,
 * composes it. A fused kernel may sum the result before or after it is rounded to its dtype: the bounds
 * allow both. */

#include "conform.h"

#include <math.h>
#include <stdio.h>

typedef struct fused_row {
    const char *name;
    int64_t n, c, h, w, k, r;
    int stride, pad;
    bool far; /* means that are large compared to the deviations */
} fused_row;

static const fused_row rows[] = {
    {"1x1", 2, 16, 7, 5, 24, 1, 1, 0, false},
    {"1x1 stride 2, odd", 2, 16, 7, 5, 8, 1, 2, 0, false},
    {"3x3 pad 1", 3, 8, 9, 8, 16, 3, 1, 1, false},
    {"3x3 stride 2 pad 1", 2, 24, 8, 7, 16, 3, 2, 1, false},
    {"odd channels", 2, 5, 9, 8, 7, 3, 1, 1, false},
    {"64 to 72 channels", 2, 64, 9, 8, 72, 1, 1, 0, false},
    {"means far from 0", 3, 16, 9, 8, 16, 1, 1, 0, true},
    {"7x7 stride 2 pad 3, 3 channels", 2, 3, 20, 18, 16, 7, 2, 3, false},
    {"7x7 stride 2 pad 3, 3 channels, odd image", 1, 3, 17, 23, 8, 7, 2, 3, false},
    {"3x3 pad 1 on one pixel: eight taps meet padding", 3, 16, 1, 1, 24, 3, 1, 1, false},
    {"3x3 pad 1, 32 to 64 channels", 3, 32, 9, 11, 64, 3, 1, 1, false},
    {"3x3, 64 to 32 channels, means far from 0", 2, 64, 10, 14, 32, 3, 1, 0, true},
    {"3x3 pad 1, 32 channels, many tiles", 3, 32, 30, 34, 32, 3, 1, 1, false},
    {"3x3 pad 1, 288 to 32 channels", 3, 288, 20, 18, 32, 3, 1, 1, false},
    {"3x3 pad 1, 32 to 288 channels", 3, 32, 20, 18, 288, 3, 1, 1, false},
};

enum { ENTRIES = 5 };

static const double unit = 0x1p-8; /* unit roundoff of the shortest dtype */

static int64_t extent(int64_t size, const fused_row *r)
{
    return (size + 2 * r->pad - r->r) / r->stride + 1;
}

static lt_shape output_shape(const fused_row *r)
{
    return LT_SHAPE(r->n, r->k, extent(r->h, r), extent(r->w, r));
}

static const char *apart(const char *what, int64_t i, double got, double want, double bound)
{
    static char why[160];
    if (fabs(got - want) <= bound)
        return NULL;
    snprintf(why, sizeof why, "%s, element %lld: %.9g, want %.9g, bound %.3g", what, (long long)i,
             got, want, bound);
    return why;
}

/* Bounds the error of the convolution's result: rounding, and a sum of terms <= 1.3, whose factors may be
 * rounded to TF32. */
static double result_error(const test *t, double want)
{
    const double factors = t->tf32 ? 1.3 * t->terms * 0x1p-9 : 0;
    return unit * fabs(want) + t->terms * t->terms * 0x1p-22 + factors;
}

static operand uniform(kind of, lt_shape shape, double low, double high)
{
    return (operand){IN, of, shape, STORAGE, KEEP, low, high, NULL};
}

static operand output(kind of, lt_shape shape)
{
    return (operand){OUT, of, shape, STORAGE, KEEP, 0, 0, NULL};
}

/* conv2d_stats: x, w, y, stats. */

enum { X, W, Y, STATS };

static lt_status call_stats(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                            bool absolute)
{
    (void)absolute;
    if (be->conv2d_stats)
        return be->conv2d_stats(ctx, &t->config.conv, &v[X], &v[W], &v[Y], &v[STATS], NULL);
    LT_TRY(be->conv2d(ctx, &t->config.conv, &v[X], &v[W], NULL, &v[Y]));
    return be->batchnorm_stats(ctx, &v[Y], &v[STATS]);
}

/* Checks y, operand y, and its stats, operand y + 1, with each element of y allowed an additional error
 * `more`. Errors e of the elements change the mean by their mean, and M2 by 2 * |d| * e + e^2 each. */
static const char *check_stats_of(const test *t, int y, double more, double *const *got,
                                  double *const *want)
{
    const lt_shape s = t->operand[y].shape;
    const int64_t channels = s.dim[1], pixels = s.dim[2] * s.dim[3], count = s.dim[0] * pixels;
    const double *stats = got[y + 1], *right = want[y + 1];
    const char *why = NULL;
    for (int64_t c = 0; c < channels && !why; c++) {
        const double mean = right[channels + c];
        double off = 0, spread = 0;
        for (int64_t i = 0; i < count && !why; i++) {
            const int64_t at = (i / pixels * channels + c) * pixels + i % pixels;
            const double e = result_error(t, want[y][at]) + more;
            why = apart("y", at, got[y][at], want[y][at], e);
            off += e;
            spread += 2 * fabs(want[y][at] - mean) * e + e * e;
        }
        if (!why)
            why = apart("count", c, stats[c], (double)count, 0);
        if (!why)
            why = apart("mean", c, stats[channels + c], mean, off / (double)count);
        if (!why)
            why = apart("M2", c, stats[2 * channels + c], right[2 * channels + c],
                        spread + off * off / (double)count);
    }
    return why;
}

static const char *check_stats(const test *t, double *const *got, double *const *want)
{
    return check_stats_of(t, Y, 0, got, want);
}

static void prepare_stats(test *t)
{
    round_weights(&t->operand[W]);
}

static void make_stats(const fused_row *r, test *t)
{
    t->entry = "conv2d_stats";
    t->call = call_stats;
    t->prepare = prepare_stats;
    t->check = check_stats;
    t->operands = 4;
    t->operand[X] =
        uniform(DATA, LT_SHAPE(r->n, r->c, r->h, r->w), r->far ? 0.7 : -1, r->far ? 1.3 : 1);
    t->operand[W] = uniform(WEIGHT, LT_SHAPE(r->k, r->c, r->r, r->r), r->far ? 0.9 : -1, 1);
    t->operand[Y] = output(DATA, output_shape(r));
    t->operand[STATS] = output(MASTER, LT_SHAPE(3, r->k));
    t->terms = (double)(r->c * r->r * r->r);
}

/* conv2d_grad_x_sums: dy, w, batch norm's input and coefficients, dx, sums. */

enum { DY, NORM_X = 2, PARTS, GAMMA, BETA, DX, SUMS };
enum { MEAN, RSTD, SCALE, SHIFT };

static lt_status call_sums(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                           bool absolute)
{
    const lt_batchnorm_before norm = {&v[NORM_X], &v[PARTS], &v[GAMMA], &v[BETA], NULL};
    const lt_batchnorm_grad in = {.dy = {v[DX]}, .x = &v[NORM_X], .coef = &v[PARTS], .relu = true};
    (void)absolute;
    if (be->conv2d_grad_x_sums)
        return be->conv2d_grad_x_sums(ctx, &t->config.conv, &v[DY], &v[W], &norm, &v[DX], &v[SUMS]);
    LT_TRY(be->conv2d_grad_x(ctx, &t->config.conv, &v[DY], &v[W], &v[DX]));
    return be->batchnorm_grad_stats(ctx, &in, NULL, &v[SUMS]);
}

static double norm_of(const test *t, int64_t i, double *xhat)
{
    const operand *x = &t->operand[NORM_X];
    const int64_t channels = x->shape.dim[1],
                  c = i / (x->shape.dim[2] * x->shape.dim[3]) % channels;
    const double *k = t->operand[PARTS].value;
    *xhat = (x->value[i] - k[MEAN * channels + c]) * k[RSTD * channels + c];
    return x->value[i] * k[SCALE * channels + c] + k[SHIFT * channels + c];
}

/* Computes consistent coefficients, and moves x away from relu's kink. */
static void prepare_sums(test *t)
{
    const int64_t channels = t->operand[GAMMA].shape.dim[0];
    double *k = t->operand[PARTS].value, xhat;
    for (int64_t c = 0; c < channels; c++) {
        k[SCALE * channels + c] = t->operand[GAMMA].value[c] * k[RSTD * channels + c];
        k[SHIFT * channels + c] =
            t->operand[BETA].value[c] - k[MEAN * channels + c] * k[SCALE * channels + c];
    }
    for (int64_t i = 0; i < operand_count(&t->operand[NORM_X]); i++)
        if (fabs(norm_of(t, i, &xhat)) < 0.1)
            t->operand[NORM_X].value[i] += 1;
    round_weights(&t->operand[W]);
}

static const char *check_sums(const test *t, double *const *got, double *const *want)
{
    const lt_shape x = t->operand[DX].shape;
    const int64_t channels = x.dim[1], pixels = x.dim[2] * x.dim[3], count = x.dim[0] * pixels;
    const char *why = NULL;
    for (int64_t c = 0; c < channels && !why; c++) {
        double off = 0, off_hat = 0;
        for (int64_t i = 0; i < count && !why; i++) {
            const int64_t at = (i / pixels * channels + c) * pixels + i % pixels;
            const double e = result_error(t, want[DX][at]);
            double xhat;
            const bool passes = norm_of(t, at, &xhat) > 0;
            if (passes || got[DX][at] != 0) /* the masked gradient may be 0 */
                why = apart("dx", at, got[DX][at], want[DX][at], e);
            off += passes ? e : 0;
            off_hat += passes ? e * fabs(xhat) : 0;
        }
        if (!why)
            why = apart("sum of g", c, got[SUMS][c], want[SUMS][c], off);
        if (!why)
            why = apart("sum of g * xhat", c, got[SUMS][channels + c], want[SUMS][channels + c],
                        off_hat);
    }
    return why;
}

/* conv2d_norm_stats: batch norm's input, w, its coefficients, memory for its output if needed, y, stats. A
 * kernel may round scale, shift and that output. */

enum { NORM_W = 1, WRITTEN = 6, NORM_Y, NORM_STATS, NORM_ROUNDED };

static lt_status write_norm(const test *t, const lt_backend *be, void *ctx, const lt_view *v)
{
    const lt_batchnorm2d_config config = {.relu = true};
    (void)t;
    return be->batchnorm_apply(ctx, &config, &v[NORM_X], &v[PARTS], NULL, &v[WRITTEN], NULL);
}

static lt_status call_norm_stats(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                                 bool absolute)
{
    const lt_batchnorm_before norm = {&v[NORM_X], &v[PARTS], &v[GAMMA], &v[BETA], &v[NORM_ROUNDED]};
    lt_norm_conv how = {.moments = true};
    (void)absolute;
    if (be->conv2d_norm_stats)
        LT_TRY(be->conv2d_norm_stats(ctx, &t->config.conv, &norm, &v[NORM_W], &v[NORM_Y],
                                     &v[NORM_STATS], &how));
    if (how.done)
        return LT_OK;
    LT_TRY(write_norm(t, be, ctx, v));
    LT_TRY(be->conv2d(ctx, &t->config.conv, &v[WRITTEN], &v[NORM_W], NULL, &v[NORM_Y]));
    return be->batchnorm_stats(ctx, &v[NORM_Y], &v[NORM_STATS]);
}

/* Returns the largest output of the batch norm. */
static double largest_norm(const test *t)
{
    double top = 0, xhat;
    for (int64_t i = 0; i < operand_count(&t->operand[NORM_X]); i++)
        top = fmax(top, norm_of(t, i, &xhat));
    return top;
}

static const char *check_norm_stats(const test *t, double *const *got, double *const *want)
{
    return check_stats_of(t, NORM_Y, t->terms * largest_norm(t) * unit / 2, got, want);
}

/* conv2d_norm_grad_w: dy in the place of w, dw in that of y. */

static lt_status call_norm_grad_w(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                                  bool absolute)
{
    const lt_batchnorm_before norm = {&v[NORM_X], &v[PARTS], &v[GAMMA], &v[BETA], &v[NORM_ROUNDED]};
    bool done = false;
    (void)absolute;
    if (be->conv2d_norm_grad_w)
        LT_TRY(be->conv2d_norm_grad_w(ctx, &t->config.conv, &v[NORM_W], &norm, &v[NORM_Y], &done));
    if (done)
        return LT_OK;
    LT_TRY(write_norm(t, be, ctx, v));
    return be->conv2d_grad_w(ctx, &t->config.conv, &v[NORM_W], &v[WRITTEN], &v[NORM_Y]);
}

static const char *check_norm_grad_w(const test *t, double *const *got, double *const *want)
{
    const double more = t->terms * largest_norm(t) * unit / 2;
    const char *why = NULL;
    for (int64_t i = 0; i < operand_count(&t->operand[NORM_Y]) && !why; i++)
        why = apart("dw", i, got[NORM_Y][i], want[NORM_Y][i], unit * fabs(want[NORM_Y][i]) + more);
    return why;
}

static void prepare_norm(test *t)
{
    const int64_t channels = t->operand[GAMMA].shape.dim[0];
    prepare_sums(t);
    for (int64_t i = 0; i < 2 * channels; i++)
        t->operand[NORM_ROUNDED].value[i] = t->operand[PARTS].value[SCALE * channels + i];
}

static void make_norm_operands(const fused_row *r, test *t)
{
    const lt_shape x = LT_SHAPE(r->n, r->c, r->h, r->w), vector = LT_SHAPE(r->c);
    t->prepare = prepare_norm;
    t->operands = 10;
    t->operand[NORM_STATS] = uniform(MASTER, vector, -1, 1); /* unused */
    t->operand[NORM_ROUNDED] = uniform(DATA, LT_SHAPE(2, r->c), -1, 1);
    t->operand[0] = uniform(MASTER, vector, -1, 1); /* unused */
    t->operand[NORM_X] = uniform(DATA, x, -1, 1);
    t->operand[PARTS] = uniform(MASTER, LT_SHAPE(4, r->c), 0.5, 1.5);
    t->operand[GAMMA] = uniform(MASTER, vector, 0.5, 1.5);
    t->operand[BETA] = uniform(MASTER, vector, -1, 1);
    t->operand[WRITTEN] = output(DATA, x);
}

static void make_norm_stats(const fused_row *r, test *t)
{
    make_norm_operands(r, t);
    t->entry = "conv2d_norm_stats";
    t->call = call_norm_stats;
    t->check = check_norm_stats;
    t->operand[NORM_W] = uniform(WEIGHT, LT_SHAPE(r->k, r->c, r->r, r->r), -1, 1);
    t->operand[NORM_Y] = output(DATA, output_shape(r));
    t->operand[NORM_STATS] = output(MASTER, LT_SHAPE(3, r->k));
    t->terms = (double)(r->c * r->r * r->r);
}

static void make_norm_grad_w(const fused_row *r, test *t)
{
    make_norm_operands(r, t);
    t->entry = "conv2d_norm_grad_w";
    t->call = call_norm_grad_w;
    t->check = check_norm_grad_w;
    t->operand[NORM_W] = uniform(DATA, output_shape(r), -1, 1);
    t->operand[NORM_Y] = output(MASTER, LT_SHAPE(r->k, r->c, r->r, r->r));
    t->terms = (double)(r->n * extent(r->h, r) * extent(r->w, r));
}

static void make_sums(const fused_row *r, test *t)
{
    const lt_shape x = LT_SHAPE(r->n, r->c, r->h, r->w), vector = LT_SHAPE(r->c);
    t->entry = "conv2d_grad_x_sums";
    t->call = call_sums;
    t->prepare = prepare_sums;
    t->check = check_sums;
    t->operands = 8;
    t->operand[DY] = uniform(DATA, output_shape(r), -1, 1);
    t->operand[W] = uniform(WEIGHT, LT_SHAPE(r->k, r->c, r->r, r->r), -1, 1);
    t->operand[NORM_X] = uniform(DATA, x, -1, 1);
    t->operand[PARTS] = uniform(MASTER, LT_SHAPE(4, r->c), 0.5, 1.5);
    t->operand[GAMMA] = uniform(MASTER, vector, 0.5, 1.5);
    t->operand[BETA] = uniform(MASTER, vector, -1, 1);
    t->operand[DX] = output(DATA, x);
    t->operand[SUMS] = output(MASTER, LT_SHAPE(2, r->c));
    t->terms = (double)(r->k * r->r * r->r);
}

/* conv2d_affine: x, w, coefficients, residual, y, and the convolution's output, which is written separately.
 * Of the 16-bit factors the products of w and scale are rounded, not w. */

enum { AFTER = 2, RESIDUAL, AFFINE_Y, CONVOLVED };

static lt_status call_affine(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                             bool absolute)
{
    const lt_batchnorm2d_config config = {.relu = t->relu};
    const lt_view *residual = v[RESIDUAL].data ? &v[RESIDUAL] : NULL;
    lt_conv_epilogue after = {&v[AFTER], residual, t->relu, false};
    (void)absolute;
    LT_TRY(be->conv2d(ctx, &t->config.conv, &v[X], &v[W], NULL, &v[CONVOLVED]));
    if (be->conv2d_affine)
        LT_TRY(be->conv2d_affine(ctx, &t->config.conv, &v[X], &v[W], &after, &v[AFFINE_Y]));
    if (after.done)
        return LT_OK;
    return be->batchnorm_apply(ctx, &config, &v[CONVOLVED], &v[AFTER], residual, &v[AFFINE_Y],
                               NULL);
}

static void make_affine_form(const fused_row *r, size_t form, test *t)
{
    t->entry = "conv2d_affine";
    t->call = call_affine;
    t->relu = form % 2 == 0;
    t->operands = 6;
    t->operand[X] = (operand){.shape = LT_SHAPE(r->n, r->c, r->h, r->w)};
    t->operand[W] = (operand){.kind = WEIGHT, .shape = LT_SHAPE(r->k, r->c, r->r, r->r)};
    t->operand[AFTER] =
        (operand){.kind = MASTER, .shape = LT_SHAPE(4, r->k), .low = -1.5, .high = 1};
    t->operand[RESIDUAL] = (operand){.shape = output_shape(r)};
    t->operand[AFFINE_Y] = (operand){.use = OUT, .shape = output_shape(r)};
    t->operand[CONVOLVED] = (operand){.use = OUT, .shape = output_shape(r)};
    if (form % 4 < 2)
        t->operand[RESIDUAL].shape.ndim = -1;
    t->terms = (double)(r->c * r->r * r->r) + 4;
    t->inner = 2;
}

static void make_affine(const fused_row *r, test *t)
{
    make_affine_form(r, (size_t)(r - rows), t);
}

/* conv2d_pixels_stats and conv2d_pixels_grad_w: pixels, w, y, stats, the normalised pixels if they must be
 * written, the folded pixels, dy, dw. Normalised they are within -1..1, and rounded to the dtype of the run. */

static const fused_row pixel_rows[] = {
    {"7x7 stride 2 pad 3", 2, 3, 20, 18, 16, 7, 2, 3, false},
    {"7x7 stride 2 pad 3, odd image", 1, 3, 17, 23, 8, 7, 2, 3, false},
    {"3x3, which is not the first convolution", 2, 3, 9, 8, 16, 3, 1, 1, false},
};
enum { PIXEL_ENTRIES = 2, NORMALIZED = 4, FOLDED, PIXEL_DY, PIXEL_DW };

static const lt_normalize_config to_unit = {{120, 135, 110}, {140, 135, 150}};

/* First asks for the shape of the folded pixels, which computes nothing. */
static lt_status run_pixels(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                            lt_view *folded, lt_norm_conv *how)
{
    const lt_conv_pixels pixels = {&v[X], &to_unit, folded};
    const lt_conv2d_config *config = &t->config.conv;
    if (be->conv2d_pixels_stats)
        LT_TRY(be->conv2d_pixels_stats(ctx, config, &pixels, &v[W], &v[Y], &v[STATS], how));
    if (!folded->shape.ndim)
        return LT_OK;
    if (lt_shape_count(folded->shape) > lt_shape_count(v[FOLDED].shape) || how->done)
        return lt_fail(LT_E_SHAPE, "more is kept than there is memory for, or done without");
    folded->dtype = v[FOLDED].dtype;
    folded->data = v[FOLDED].data;
    return be->conv2d_pixels_stats(ctx, config, &pixels, &v[W], &v[Y], &v[STATS], how);
}

static lt_status call_pixels(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                             bool absolute)
{
    const lt_conv2d_config *config = &t->config.conv;
    lt_norm_conv how = {.moments = true};
    lt_view folded = {.data = NULL};
    const lt_conv_pixels pixels = {&v[X], &to_unit, &folded};
    bool done = false;
    (void)absolute;
    LT_TRY(run_pixels(t, be, ctx, v, &folded, &how));
    if (how.done)
        LT_TRY(be->conv2d_pixels_grad_w(ctx, config, &v[PIXEL_DY], &pixels, &v[PIXEL_DW], &done));
    if (how.done && done)
        return LT_OK;
    LT_TRY(be->normalize(ctx, &to_unit, &v[X], &v[NORMALIZED]));
    LT_TRY(be->conv2d_grad_w(ctx, config, &v[PIXEL_DY], &v[NORMALIZED], &v[PIXEL_DW]));
    LT_TRY(be->conv2d(ctx, config, &v[NORMALIZED], &v[W], NULL, &v[Y]));
    return be->batchnorm_stats(ctx, &v[Y], &v[STATS]);
}

static const char *check_pixels_stats(const test *t, double *const *got, double *const *want)
{
    return check_stats_of(t, Y, t->terms * unit / 2, got, want);
}

static const char *check_pixels_grad_w(const test *t, double *const *got, double *const *want)
{
    const double more = t->terms * unit / 2;
    const char *why = NULL;
    for (int64_t i = 0; i < operand_count(&t->operand[PIXEL_DW]) && !why; i++)
        why = apart("dw", i, got[PIXEL_DW][i], want[PIXEL_DW][i],
                    unit * fabs(want[PIXEL_DW][i]) + more);
    return why;
}

static void pixel_test(size_t i, test *t)
{
    const fused_row *r = &pixel_rows[i / PIXEL_ENTRIES];
    const bool grad_w = i % PIXEL_ENTRIES;
    const lt_shape y = output_shape(r), w = LT_SHAPE(r->k, r->c, r->r, r->r);
    *t = (test){.name = r->name,
                .entry = grad_w ? "conv2d_pixels_grad_w" : "conv2d_pixels_stats",
                .call = call_pixels,
                .check = grad_w ? check_pixels_grad_w : check_pixels_stats,
                .operands = 8};
    t->config.conv = (lt_conv2d_config){r->stride, r->stride, r->pad, r->pad, 1, 1, 1};
    t->operand[X] = uniform(PIXEL, LT_SHAPE(r->n, r->c, r->h, r->w), 0, 256);
    t->operand[W] = uniform(WEIGHT, w, -1, 1);
    t->operand[Y] = output(DATA, y);
    t->operand[STATS] = output(MASTER, LT_SHAPE(3, r->k));
    t->operand[NORMALIZED] = output(DATA, t->operand[X].shape);
    t->operand[FOLDED] = output(DATA, LT_SHAPE(r->n, r->h + 6, r->w + 6, 16));
    t->operand[PIXEL_DY] = uniform(DATA, y, -1, 1);
    t->operand[PIXEL_DW] = output(MASTER, w);
    t->terms = (double)(grad_w ? r->n * y.dim[2] * y.dim[3] : r->c * r->r * r->r);
}

static void begin_test(const fused_row *r, test *t)
{
    *t = (test){.name = r->name};
    t->config.conv = (lt_conv2d_config){r->stride, r->stride, r->pad, r->pad, 1, 1, 1};
}

/* Sizes for which the cpu backend uses Winograd's algorithm, in 16 bits too, with weights that are not
 * rounded. */
static const fused_row tiled_rows[] = {
    {"3x3 pad 1 in tiles, relu", 2, 32, 23, 22, 64, 3, 1, 1, false},
    {"3x3 in tiles", 2, 64, 24, 26, 32, 3, 1, 0, false},
    {"3x3 pad 1 in tiles, residual and relu", 2, 32, 21, 24, 96, 3, 1, 1, false},
    {"3x3 pad 2 in tiles, residual", 1, 32, 31, 35, 32, 3, 1, 2, false},
};

static bool tiled_tests(size_t i, test *t)
{
    if (i >= COUNT_OF(tiled_rows))
        return false;
    begin_test(&tiled_rows[i], t);
    make_affine_form(&tiled_rows[i], i, t);
    return true;
}

bool fused_tests(size_t i, test *t)
{
    const size_t pixel_test_count = COUNT_OF(pixel_rows) * PIXEL_ENTRIES;
    if (i >= COUNT_OF(rows) * ENTRIES + pixel_test_count)
        return tiled_tests(i - COUNT_OF(rows) * ENTRIES - pixel_test_count, t);
    if (i >= COUNT_OF(rows) * ENTRIES) {
        pixel_test(i - COUNT_OF(rows) * ENTRIES, t);
        return true;
    }
    const fused_row *r = &rows[i / ENTRIES];
    begin_test(r, t);
    static void (*const make[ENTRIES])(const fused_row *, test *) = {
        make_stats, make_sums, make_norm_stats, make_norm_grad_w, make_affine};
    make[i % ENTRIES](r, t);
    return true;
}
