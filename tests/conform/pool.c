/* Rows of pooling. */

#include "conform.h"

#include <math.h>
#include <stdlib.h>

typedef struct pool_row {
    const char *name;
    lt_shape x;
    lt_pool2d_config config;
} pool_row;

#define SQUARE(kernel, stride, pad)              \
    {                                            \
        kernel, kernel, stride, stride, pad, pad \
    }

static const pool_row rows[] = {
    {"3x3 stride 2 pad 1, odd x even", {4, {2, 5, 7, 6}}, SQUARE(3, 2, 1)},
    {"3x3 stride 2 pad 1, 64 channels", {4, {2, 64, 9, 8}}, SQUARE(3, 2, 1)},
    {"2x2 stride 2, odd", {4, {1, 16, 5, 7}}, SQUARE(2, 2, 0)},
    {"3x3 stride 1 pad 1, overlapping", {4, {1, 3, 4, 4}}, SQUARE(3, 1, 1)},
    {"one pixel", {4, {3, 17, 1, 1}}, SQUARE(1, 1, 0)},
    {"global", {4, {2, 33, 7, 7}}, SQUARE(7, 7, 0)},
    {"1x3 stride 1 by 2", {4, {2, 4, 3, 9}}, {1, 3, 1, 2, 0, 1}},
    {"5x5 stride 1 pad 2: a pixel in 25 windows", {4, {1, 19, 6, 7}}, SQUARE(5, 1, 2)},
    {"3x2 stride 2 by 3 pad 1 by 0", {4, {2, 18, 7, 8}}, {3, 2, 2, 3, 1, 0}},
    {"the image's size with padding", {4, {2, 16, 5, 5}}, SQUARE(5, 5, 2)},
    {"a last row that no window reaches", {4, {1, 33, 6, 5}}, SQUARE(3, 2, 0)},
    {"56 pixels of 64 channels", {4, {8, 64, 56, 56}}, SQUARE(3, 2, 1)},
    {"stride larger than the kernel", {4, {2, 3, 8, 8}}, SQUARE(2, 3, 0)},
};

enum { ENTRIES = 8 };

static lt_shape output_shape(const pool_row *r)
{
    const lt_pool2d_config *c = &r->config;
    return LT_SHAPE(r->x.dim[0], r->x.dim[1],
                    (r->x.dim[2] + 2 * c->pad_h - c->kernel_h) / c->stride_h + 1,
                    (r->x.dim[3] + 2 * c->pad_w - c->kernel_w) / c->stride_w + 1);
}

static lt_status call_max(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                          bool absolute)
{
    (void)absolute;
    return be->maxpool2d(ctx, &t->config.pool, &v[0], &v[1], v[2].data ? &v[2] : NULL);
}

/* Few different values, so that there are ties. */
static void make_ties(test *t)
{
    operand *x = &t->operand[0];
    for (int64_t i = 0; i < operand_count(x); i++)
        x->value[i] = floor(3 * x->value[i]);
}

static void put_nan(test *t)
{
    operand *x = &t->operand[0];
    for (int64_t i = 0; i < operand_count(x); i += 13)
        x->value[i] = (double)NAN;
}

static void make_max(const pool_row *r, prepare_fn *prepare, bool index, test *t)
{
    *t = (test){.entry = "maxpool2d", .call = call_max, .operands = 3, .exact = true};
    t->prepare = prepare;
    t->operand[0] = (operand){IN, DATA, r->x, .absolute = PLUS};
    t->operand[1] = (operand){OUT, DATA, output_shape(r), .absolute = PLUS};
    t->operand[2] = (operand){OUT, PIXEL, output_shape(r), .absolute = KEEP};
    if (!index)
        t->operand[2].shape.ndim = -1;
}

/* maxpool2d_norm: x, y, index, coefficients. With these numbers nothing is rounded. */

static lt_status call_max_norm(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                               bool absolute)
{
    const lt_batchnorm2d_config config = {.relu = true};
    const lt_batchnorm_before norm = {.x = &v[0], .coef = &v[3]};
    (void)absolute;
    if (be->maxpool2d_norm)
        return be->maxpool2d_norm(ctx, &t->config.pool, &norm, &v[1], &v[2]);
    lt_view written = v[0]; /* in host memory, which the backends without the kernel have */
    written.data = malloc((size_t)lt_shape_count(written.shape) * sizeof(double));
    if (!written.data)
        return LT_E_NOMEM;
    lt_status st = be->batchnorm_apply(ctx, &config, &v[0], &v[3], NULL, &written, NULL);
    if (!st)
        st = be->maxpool2d(ctx, &t->config.pool, &written, &v[1], &v[2]);
    free(written.data);
    return st;
}

static void make_norm(test *t)
{
    operand *k = &t->operand[3];
    const int64_t count = k->shape.dim[1];
    make_ties(t);
    for (int64_t c = 0; c < count; c++) {
        k->value[2 * count + c] = c % 3 ? 0.5 : -1;
        k->value[3 * count + c] = (double)(c % 4) - 1.5;
    }
}

static void make_max_norm(const pool_row *r, test *t)
{
    make_max(r, make_norm, true, t);
    t->entry = "maxpool2d_norm";
    t->call = call_max_norm;
    t->operands = 4;
    t->operand[3] = (operand){IN, MASTER, LT_SHAPE(4, r->x.dim[1]), .absolute = KEEP};
}

static lt_status call_max_grad(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                               bool absolute)
{
    (void)absolute;
    return be->maxpool2d_grad(ctx, &t->config.pool, v, &v[2], &v[3]);
}

/* Maxima inside the image: the element nearest to the window's centre. */
static void make_winners(test *t)
{
    const lt_pool2d_config *c = &t->config.pool;
    operand *index = &t->operand[2];
    lt_shape x = t->operand[3].shape, y = index->shape;
    for (int64_t i = 0; i < operand_count(index); i++) {
        int64_t p = i / y.dim[3] % y.dim[2], q = i % y.dim[3];
        int64_t top = p * c->stride_h - c->pad_h, left = q * c->stride_w - c->pad_w;
        int64_t r = i % c->kernel_h, s = i / 2 % c->kernel_w;
        r = top + r < 0 || top + r >= x.dim[2] ? c->kernel_h / 2 : r;
        s = left + s < 0 || left + s >= x.dim[3] ? c->kernel_w / 2 : s;
        index->value[i] = (double)(r * c->kernel_w + s);
    }
}

static void make_max_grad(const pool_row *r, bool pair, test *t)
{
    *t = (test){.entry = "maxpool2d_grad", .call = call_max_grad, .operands = 4};
    t->prepare = make_winners;
    t->operand[0] = (operand){IN, DATA, output_shape(r), .absolute = PLUS};
    t->operand[1] = t->operand[0];
    t->operand[2] = (operand){IN, PIXEL, output_shape(r), .absolute = KEEP};
    t->operand[3] = (operand){OUT, DATA, r->x, .absolute = PLUS};
    if (!pair)
        t->operand[1].shape.ndim = -1;
    t->terms = 2.0 * r->config.kernel_h * r->config.kernel_w;
}

/* --- maxpool2d_norm_grad: dy, dy, index, x, coefficients, sums, dx, dbeta, dgamma --- */

enum { INDEX = 2, X, COEFFICIENTS, SUMS, DX, DBETA, DGAMMA };

static lt_status call_norm_grad(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                                bool absolute)
{
    const lt_batchnorm_fused_grad norm = {&v[X], &v[COEFFICIENTS],     &v[SUMS], &v[DX],
                                          17,    {v[DBETA], v[DGAMMA]}};
    if (be->maxpool2d_norm_grad)
        return be->maxpool2d_norm_grad(ctx, &t->config.pool, v, &v[INDEX], &norm);
    lt_batchnorm_grad in = {.dy = {v[X]}, .relu = !absolute};
    in.dy[0].data = malloc((size_t)lt_shape_count(v[X].shape) * sizeof(double));
    if (!in.dy[0].data)
        return LT_E_NOMEM;
    lt_status st = be->maxpool2d_grad(ctx, &t->config.pool, v, &v[INDEX], &in.dy[0]);
    if (!st)
        st = compose_fused_grad(be, ctx, in, &norm, absolute);
    free(in.dy[0].data);
    return st;
}

static void make_norm_winners(test *t)
{
    make_winners(t);
    avoid_kink(t, X, COEFFICIENTS, 0);
}

static void make_max_norm_grad(const pool_row *r, test *t)
{
    const int64_t count = r->x.dim[1], of_channel = lt_shape_count(r->x) / count;
    make_max_grad(r, r->x.dim[0] > 1, t);
    t->entry = "maxpool2d_norm_grad";
    t->call = call_norm_grad;
    t->prepare = make_norm_winners;
    t->operands = 9;
    t->operand[X] = (operand){IN, DATA, r->x, .low = -1, .high = 2};
    t->operand[COEFFICIENTS] =
        (operand){IN, MASTER, LT_SHAPE(4, count), ROWS, COEF, 0.3, 1.5, NULL};
    t->operand[SUMS] = (operand){OUT, MASTER, LT_SHAPE(2, count), .absolute = PLUS};
    t->operand[DX] = (operand){OUT, DATA, r->x, .absolute = PLUS};
    for (int i = DBETA; i <= DGAMMA; i++)
        t->operand[i] = (operand){OUT, MASTER, LT_SHAPE(count), ROWS, .absolute = MINUS};
    t->terms += (double)of_channel + 12;
    t->inner = 1;
}

static lt_status call_avg(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                          bool absolute)
{
    (void)absolute;
    return be->avgpool2d(ctx, &t->config.pool, &v[0], &v[1]);
}

static lt_status call_avg_grad(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                               bool absolute)
{
    (void)absolute;
    return be->avgpool2d_grad(ctx, &t->config.pool, &v[0], &v[1]);
}

static void make_avg(const pool_row *r, bool gradient, test *t)
{
    *t = (test){.entry = gradient ? "avgpool2d_grad" : "avgpool2d", .operands = 2};
    t->call = gradient ? call_avg_grad : call_avg;
    t->operand[0] = (operand){IN, DATA, gradient ? output_shape(r) : r->x, .absolute = PLUS};
    t->operand[1] = (operand){OUT, DATA, gradient ? r->x : output_shape(r), .absolute = PLUS};
    t->terms = (double)r->config.kernel_h * r->config.kernel_w + 2;
}

bool pool_tests(size_t i, test *t)
{
    if (i >= COUNT_OF(rows) * ENTRIES)
        return false;
    const pool_row *r = &rows[i / ENTRIES];
    switch (i % ENTRIES) {
    case 0:
        make_max(r, make_ties, true, t);
        break;
    case 1:
        make_max(r, put_nan, false, t);
        break;
    case 2:
    case 3:
        make_max_grad(r, i % ENTRIES == 3, t);
        break;
    case 6:
        make_max_norm(r, t);
        break;
    case 7:
        make_max_norm_grad(r, t);
        break;
    default:
        make_avg(r, i % ENTRIES == 5, t);
    }
    t->name = r->name;
    t->config.pool = r->config;
    t->large = r->x.dim[2] > 50;
    return true;
}
