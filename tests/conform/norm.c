/* Rows of batch normalisation. */

#include "conform.h"

#include <math.h>
#include <stdlib.h>

typedef struct norm_row {
    const char *name;
    lt_shape x;
    bool relu, residual, mask, pair;
} norm_row;

static const norm_row rows[] = {
    {"plain", {4, {3, 5, 4, 7}}, false, false, false, false},
    {"relu", {4, {3, 16, 5, 7}}, true, false, false, false},
    {"relu, two addends", {4, {2, 33, 3, 3}}, true, false, false, true},
    {"relu, residual, mask", {4, {3, 16, 5, 7}}, true, true, true, false},
    {"relu, residual, mask, two addends, odd count", {4, {3, 5, 3, 3}}, true, true, true, true},
    {"residual", {4, {2, 8, 3, 5}}, false, true, false, false},
    {"one channel", {4, {3, 1, 5, 5}}, true, false, false, false},
    {"one pixel", {4, {9, 70, 1, 1}}, true, true, true, false},
    {"two values per channel", {4, {2, 3, 1, 1}}, false, false, false, false},
    {"many values per channel", {4, {4, 3, 40, 41}}, true, false, false, false},
    {"many values, 64 channels", {4, {4, 64, 28, 27}}, true, true, true, true},
    {"more channels than a block of threads has", {4, {2, 264, 5, 4}}, true, true, true, true},
    {"more chunks than threads that merge them", {4, {5, 136, 45, 40}}, true, false, false, false},
    {"many values, 40 channels, relu without residual",
     {4, {3, 40, 19, 28}},
     true,
     false,
     false,
     true},
};

enum { ENTRIES = 7 };

static lt_shape channels(lt_shape x, int64_t count)
{
    return count ? LT_SHAPE(count, x.dim[1]) : LT_SHAPE(x.dim[1]);
}

/* --- stats --- */

static lt_status call_stats(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                            bool absolute)
{
    (void)t;
    (void)absolute;
    return be->batchnorm_stats(ctx, &v[0], &v[1]);
}

/* The mean errs by rounding of the summed values. M2 errs in proportion to itself, and by deviations from a
 * rounded mean: sum of |d| * |mean| * u <= sqrt(n * M2) * |mean| * u. */
static void stats_magnitude(const test *t, double *const *want, double *const *magnitude)
{
    int64_t c_count = t->operand[1].shape.dim[1];
    for (int64_t c = 0; c < c_count; c++) {
        double n = want[1][c], mean = fabs(want[1][c_count + c]), m2 = want[1][2 * c_count + c];
        magnitude[1][c] = 0;
        magnitude[1][c_count + c] = mean + sqrt(m2 / n);
        magnitude[1][2 * c_count + c] = m2 + mean * sqrt(n * m2) + mean * mean;
    }
}

/* Number of elements of x summed per channel. */
static double terms_of_channel(const norm_row *r)
{
    const int64_t terms = lt_shape_count(r->x) / r->x.dim[1];
    return (double)terms;
}

static void make_stats(const norm_row *r, test *t)
{
    t->entry = "batchnorm_stats";
    t->call = call_stats;
    t->magnitude = stats_magnitude;
    t->operands = 2;
    t->operand[0] = (operand){IN, DATA, r->x, .low = -1, .high = 3};
    t->operand[1] = (operand){OUT, MASTER, channels(r->x, 3), .absolute = PLUS};
    t->terms = terms_of_channel(r) + 2;
}

/* --- finish --- */

enum { STATS, GAMMA, BETA, MEAN, VAR, FINISHED, BATCHES, ROUNDED, SUMS_OF };

static lt_status call_finish(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                             bool absolute)
{
    (void)absolute;
    const lt_batchnorm_parts parts = {.stats = &v[STATS],
                                      .sums_of = &v[SUMS_OF],
                                      .gamma = &v[GAMMA],
                                      .beta = &v[BETA],
                                      .mean = &v[MEAN],
                                      .var = &v[VAR],
                                      .batches = &v[BATCHES],
                                      .coef = &v[FINISHED],
                                      .rounded = &v[ROUNDED]};
    return be->batchnorm_finish(ctx, &t->config.norm, &parts);
}

/* x has few bits, so that its sums are exact; every third channel is so far from 0 that the sum of squares,
 * which is given a small error there, has no digits left for the variance. */
static void prepare_sums(test *t)
{
    const operand *x = &t->operand[SUMS_OF];
    const int64_t pixels = x->shape.dim[2] * x->shape.dim[3], count = x->shape.dim[1];
    double *sum = t->operand[STATS].value + count, *squares = sum + count;
    for (int64_t c = 0; c < 2 * count; c++)
        sum[c] = 0;
    for (int64_t i = 0; i < operand_count(x); i++) {
        const int64_t c = i / pixels % count;
        double *v = &x->value[i];
        *v = c % 3 == 1 ? 30 + 0.25 * (*v > 0) : floor(4 * *v) / 4;
        sum[c] += *v;
        squares[c] += *v * *v;
    }
    for (int64_t c = 1; c < count; c += 3)
        squares[c] *= 1 + 0x1p-20;
}

static void prepare_finish(test *t)
{
    operand *stats = &t->operand[STATS];
    for (int64_t c = 0; stats->value && c < stats->shape.dim[1]; c++) {
        stats->value[c] = 17;
        stats->value[2 * stats->shape.dim[1] + c] = fabs(stats->value[2 * stats->shape.dim[1] + c]);
    }
    if (t->operand[SUMS_OF].shape.ndim >= 0)
        prepare_sums(t);
}

static void finish_magnitude(const test *t, double *const *want, double *const *magnitude)
{
    int64_t count = t->operand[FINISHED].shape.dim[1];
    const double *coef = want[FINISHED];
    for (int64_t c = 0; c < count; c++) {
        magnitude[FINISHED][c] = fabs(coef[c]);
        magnitude[FINISHED][count + c] = coef[count + c];
        magnitude[FINISHED][2 * count + c] = fabs(coef[2 * count + c]);
        magnitude[FINISHED][3 * count + c] =
            fabs(t->operand[BETA].value[c]) + fabs(coef[c] * coef[2 * count + c]);
        for (int i = 0; i < 2; i++)
            magnitude[ROUNDED][i * count + c] = magnitude[FINISHED][(2 + i) * count + c];
        for (int i = MEAN; i <= VAR; i++)
            magnitude[i][c] = fabs(t->operand[i].value[c]) + 4; /* more than any new value */
    }
}

static void make_finish(const norm_row *r, test *t)
{
    t->entry = "batchnorm_finish";
    t->call = call_finish;
    t->prepare = prepare_finish;
    t->magnitude = finish_magnitude;
    t->operands = 9;
    t->operand[BATCHES] = (operand){INOUT, COUNT, LT_SHAPE(1), .low = 3, .high = 9};
    t->operand[ROUNDED] = (operand){OUT, DATA, channels(r->x, 2), .absolute = PLUS};
    t->operand[SUMS_OF] = (operand){IN, DATA, r->x, .low = -1, .high = 2};
    t->operand[STATS] = (operand){IN, MASTER, channels(r->x, 3), .absolute = PLUS};
    for (int i = GAMMA; i <= VAR; i++)
        t->operand[i] = (operand){i < MEAN ? IN : INOUT,      MASTER,   channels(r->x, 0), ROWS,
                                  .low = i == VAR ? 0.1 : -1, .high = 2};
    t->operand[FINISHED] = (operand){OUT, MASTER, channels(r->x, 4), .absolute = PLUS};
    if (!r->relu) /* from the running statistics */
        t->operand[STATS].shape.ndim = t->operand[BATCHES].shape.ndim = -1;
    if (!r->relu || !r->mask)
        t->operand[SUMS_OF].shape.ndim = -1;
    t->terms = 8;
}

/* --- apply --- */

static lt_status call_apply(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                            bool absolute)
{
    (void)absolute;
    return be->batchnorm_apply(ctx, &t->config.norm, &v[0], &v[1], v[2].data ? &v[2] : NULL, &v[3],
                               v[4].data ? &v[4] : NULL);
}

void avoid_kink(test *t, int xi, int coef, int residual)
{
    operand *x = &t->operand[xi];
    const double *k = t->operand[coef].value;
    int64_t pixels = x->shape.dim[2] * x->shape.dim[3], count = x->shape.dim[1];
    for (int64_t i = 0; i < operand_count(x); i++) {
        int64_t c = i / pixels % count;
        double r = residual ? t->operand[residual].value[i] : 0;
        double y = x->value[i] * k[2 * count + c] + k[3 * count + c] + r;
        if (fabs(y) < 0.1)
            x->value[i] += 0.3 / k[2 * count + c];
    }
}

static void prepare_apply(test *t)
{
    avoid_kink(t, 0, 1, t->operand[2].shape.ndim < 0 ? 0 : 2);
}

/* Coefficients whose scale is not near 0. */
static operand coefficients(lt_shape x)
{
    return (operand){IN, MASTER, channels(x, 4), ROWS, COEF, 0.3, 1.5, NULL};
}

static operand mask_of(lt_shape x, use how)
{
    return (operand){how, PIXEL, LT_SHAPE((lt_shape_count(x) + 7) / 8), ROWS, KEEP, 0, 256, NULL};
}

static void make_apply(const norm_row *r, test *t)
{
    t->entry = "batchnorm_apply";
    t->call = call_apply;
    t->prepare = prepare_apply;
    t->operands = 5;
    t->operand[0] = (operand){IN, DATA, r->x, .low = -2.5, .high = 1};
    t->operand[1] = coefficients(r->x);
    t->operand[2] = (operand){IN, DATA, r->x, .absolute = PLUS};
    t->operand[3] = (operand){OUT, DATA, r->x, .absolute = PLUS};
    t->operand[4] = mask_of(r->x, OUT);
    if (!r->residual)
        t->operand[2].shape.ndim = -1;
    if (!r->mask)
        t->operand[4].shape.ndim = -1;
    t->terms = 4;
}

/* --- add: two addends, y, mask --- */

/* In host memory, which all backends without the kernel have. */
static lt_status compose_add(const test *t, const lt_backend *be, void *ctx, const lt_view *v)
{
    const lt_batchnorm2d_config plain = {0};
    lt_view other = v[2];
    other.data = malloc((size_t)lt_shape_count(other.shape) * sizeof(double));
    if (!other.data)
        return LT_E_NOMEM;
    lt_status st = be->batchnorm_apply(ctx, &plain, &v[2], &v[5], NULL, &other, NULL);
    if (!st)
        st = be->batchnorm_apply(ctx, &t->config.norm, &v[0], &v[1], &other, &v[3],
                                 v[4].data ? &v[4] : NULL);
    free(other.data);
    return st;
}

static lt_status call_add(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                          bool absolute)
{
    const lt_batchnorm_addend term[] = {{&v[0], &v[1]}, {&v[2], &v[5]}};
    (void)absolute;
    if (!be->batchnorm_add)
        return compose_add(t, be, ctx, v);
    return be->batchnorm_add(ctx, &t->config.norm, term, &v[3], v[4].data ? &v[4] : NULL);
}

static void prepare_add(test *t)
{
    const operand *y = &t->operand[3];
    const int64_t pixels = y->shape.dim[2] * y->shape.dim[3], count = y->shape.dim[1];
    const double *k = t->operand[1].value, *other = t->operand[5].value;
    for (int64_t i = 0; i < operand_count(y); i++) {
        const int64_t c = i / pixels % count;
        double *x = &t->operand[0].value[i];
        const double sum = *x * k[2 * count + c] + k[3 * count + c]
                           + t->operand[2].value[i] * other[2 * count + c] + other[3 * count + c];
        if (fabs(sum) < 0.1)
            *x += 0.3 / k[2 * count + c];
    }
}

static void make_add(const norm_row *r, test *t)
{
    make_apply(r, t);
    t->entry = "batchnorm_add";
    t->call = call_add;
    t->prepare = prepare_add;
    t->operands = 6;
    t->operand[2] = (operand){IN, DATA, r->x, .low = -2.5, .high = 1, .absolute = PLUS};
    t->operand[5] = coefficients(r->x);
    t->terms = 6;
    t->inner = 1;
}

/* --- Backward: x, coef, mask, dy, dy, then the kernel's other operands --- */

enum { X, COEFFICIENTS, BITS, DY, DY2, SUMS, RESULT, DBETA, DGAMMA };

static lt_batchnorm_grad gradient_of(const test *t, const lt_view *v)
{
    return (lt_batchnorm_grad){
        .dy = {v[DY], v[DY2]},
        .x = &v[X],
        .coef = &v[COEFFICIENTS],
        .mask = v[BITS].data ? &v[BITS] : NULL,
        .relu = t->config.norm.relu,
    };
}

static lt_status call_grad_stats(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                                 bool absolute)
{
    lt_batchnorm_grad in = gradient_of(t, v);
    if (absolute)
        in.relu = false;
    return be->batchnorm_grad_stats(ctx, &in, v[RESULT].data ? &v[RESULT] : NULL, &v[SUMS]);
}

static lt_status call_grad_x(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                             bool absolute)
{
    lt_batchnorm_grad in = gradient_of(t, v);
    if (absolute)
        in.relu = false;
    in.affine[0] = v[DBETA];
    in.affine[1] = v[DGAMMA];
    return be->batchnorm_grad_x(ctx, &in, &v[SUMS], t->config.norm.momentum, &v[RESULT]);
}

static void prepare_gradient(test *t)
{
    if (t->operand[BITS].shape.ndim < 0)
        avoid_kink(t, X, COEFFICIENTS, 0);
}

static void make_gradient(const norm_row *r, test *t)
{
    t->prepare = prepare_gradient;
    t->operands = 7;
    t->operand[X] = (operand){IN, DATA, r->x, .low = -2.5, .high = 1};
    t->operand[COEFFICIENTS] = coefficients(r->x);
    t->operand[BITS] = mask_of(r->x, IN);
    t->operand[DY] = (operand){IN, DATA, r->x, .absolute = PLUS};
    t->operand[DY2] = (operand){IN, DATA, r->x, .absolute = PLUS};
    t->operand[SUMS] = (operand){OUT, MASTER, channels(r->x, 2), .absolute = PLUS};
    t->operand[RESULT] = (operand){OUT, DATA, r->x, .absolute = PLUS};
    if (!r->mask)
        t->operand[BITS].shape.ndim = -1;
    if (!r->pair)
        t->operand[DY2].shape.ndim = -1;
    t->terms = terms_of_channel(r) + 4;
}

static void make_grad_stats(const norm_row *r, test *t)
{
    make_gradient(r, t);
    t->entry = "batchnorm_grad_stats";
    t->call = call_grad_stats;
    if (!r->residual)
        t->operand[RESULT].shape.ndim = -1;
}

static void make_grad_x(const norm_row *r, test *t)
{
    make_gradient(r, t);
    t->entry = "batchnorm_grad_x";
    t->call = call_grad_x;
    t->operands = 9;
    t->operand[SUMS].use = IN;
    for (int i = DBETA; i <= DGAMMA; i++)
        t->operand[i] = (operand){OUT, MASTER, channels(r->x, 0), ROWS, .absolute = MINUS};
    if (r->mask) /* for example frozen */
        t->operand[DGAMMA].shape.ndim = -1;
    t->operand[SUMS].absolute = MINUS;
    t->config.norm.momentum = r->relu ? 17 : 0; /* the kernel's count */
    t->terms = 8;
}

/* add_grad: the other norm's x and coefficients, sums, dx, and only dgamma. */

enum { OTHER_X = DGAMMA + 1, OTHER_COEF, OTHER_SUMS, OTHER_DX, OTHER_DGAMMA };

lt_status compose_fused_grad(const lt_backend *be, void *ctx, lt_batchnorm_grad in,
                             const lt_batchnorm_fused_grad *norm, bool absolute)
{
    lt_view used = *norm->sums;
    used.data = malloc((size_t)lt_shape_count(used.shape) * sizeof(double));
    if (!used.data)
        return LT_E_NOMEM;
    in.x = norm->x;
    in.coef = norm->coef;
    in.affine[0] = norm->affine[0];
    in.affine[1] = norm->affine[1];
    lt_status st = be->batchnorm_grad_stats(ctx, &in, NULL, norm->sums);
    if (!st) /* they are subtracted */
        st = be->scale(ctx, absolute ? -1 : 1, norm->sums, &used);
    if (!st)
        st = be->batchnorm_grad_x(ctx, &in, &used, norm->count, norm->dx);
    free(used.data);
    return st;
}

static lt_status call_add_grad(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                               bool absolute)
{
    const lt_batchnorm_fused_grad norm[] = {{&v[X],
                                             &v[COEFFICIENTS],
                                             &v[SUMS],
                                             &v[RESULT],
                                             t->config.norm.momentum,
                                             {v[DBETA], v[DGAMMA]}},
                                            {&v[OTHER_X],
                                             &v[OTHER_COEF],
                                             &v[OTHER_SUMS],
                                             &v[OTHER_DX],
                                             t->config.norm.momentum,
                                             {{0}, v[OTHER_DGAMMA]}}};
    lt_batchnorm_grad in = gradient_of(t, v);
    in.relu = in.mask && !absolute;
    if (be->batchnorm_add_grad)
        return be->batchnorm_add_grad(ctx, &in, norm);
    LT_TRY(compose_fused_grad(be, ctx, in, &norm[0], absolute));
    return compose_fused_grad(be, ctx, in, &norm[1], absolute);
}

static void make_add_grad(const norm_row *r, test *t)
{
    make_grad_x(r, t);
    t->entry = "batchnorm_add_grad";
    t->call = call_add_grad;
    t->operands = 14;
    t->operand[SUMS].use = OUT;
    t->operand[SUMS].absolute = PLUS;
    t->operand[OTHER_X] = (operand){IN, DATA, r->x, .low = -1, .high = 2.5};
    t->operand[OTHER_COEF] = coefficients(r->x);
    t->operand[OTHER_SUMS] = t->operand[SUMS];
    t->operand[OTHER_DX] = t->operand[RESULT];
    t->operand[OTHER_DGAMMA] = (operand){OUT, MASTER, channels(r->x, 0), ROWS, .absolute = MINUS};
    t->terms = terms_of_channel(r) + 12;
}

bool norm_tests(size_t i, test *t)
{
    static void (*const make[ENTRIES])(const norm_row *, test *) = {
        make_stats, make_finish, make_apply, make_add, make_grad_stats, make_grad_x, make_add_grad};
    if (i >= COUNT_OF(rows) * ENTRIES)
        return false;
    const norm_row *r = &rows[i / ENTRIES];
    *t = (test){.name = r->name};
    t->config.norm = (lt_batchnorm2d_config){.eps = 1e-5, .momentum = 0.1, .relu = r->relu};
    make[i % ENTRIES](r, t);
    return true;
}
