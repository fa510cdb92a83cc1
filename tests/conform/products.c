/* Rows of matrix products and convolutions. */

#include "conform.h"

#include <math.h>

typedef struct matmul_row {
    const char *name;
    int64_t batch, m, n, k;
    layout a, b;
    bool shared; /* one b for the whole batch: a stride of 0 */
} matmul_row;

static const matmul_row matmuls[] = {
    {"1 x 1 x 1", 1, 1, 1, 1, ROWS, ROWS, false},
    {"odd sizes", 1, 17, 13, 29, ROWS, ROWS, false},
    {"a row times a matrix", 1, 1, 37, 70, ROWS, ROWS, false},
    {"a matrix times a column", 1, 37, 1, 70, ROWS, ROWS, false},
    {"one product", 1, 19, 23, 1, ROWS, ROWS, false},
    {"batch of 3", 3, 7, 9, 33, ROWS, ROWS, false},
    {"batch of 3, b shared", 3, 7, 9, 33, ROWS, ROWS, true},
    {"gaps in a", 1, 5, 9, 33, GAPS, ROWS, false},
    {"gaps in b", 2, 5, 9, 33, ROWS, GAPS, false},
    {"a stored backwards", 1, 17, 13, 29, REVERSED, ROWS, false},
    {"b stored backwards", 1, 17, 13, 29, ROWS, REVERSED, false},
    {"both stored backwards, batch of 2", 2, 17, 13, 29, REVERSED, REVERSED, false},
    {"long sums", 1, 3, 4, 2000, ROWS, ROWS, false},
};

static lt_status call_matmul(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                             bool absolute)
{
    (void)absolute;
    lt_view b = v[1];
    if (b.shape.dim[0] != v[2].shape.dim[0]) {
        b.shape.dim[0] = v[2].shape.dim[0];
        b.stride[0] = 0;
    }
    (void)t;
    return be->matmul(ctx, &v[0], &b, &v[2]);
}

static void make_matmul(const matmul_row *r, test *t)
{
    *t = (test){.entry = "matmul", .name = r->name, .call = call_matmul, .operands = 3};
    t->operand[0] = (operand){IN, DATA, LT_SHAPE(r->batch, r->m, r->k), r->a, .absolute = PLUS};
    t->operand[1] =
        (operand){IN, DATA, LT_SHAPE(r->shared ? 1 : r->batch, r->k, r->n), r->b, .absolute = PLUS};
    t->operand[2] = (operand){OUT, DATA, LT_SHAPE(r->batch, r->m, r->n), ROWS, .absolute = PLUS};
    t->terms = (double)r->k + 1;
}

typedef struct linear_row {
    const char *name;
    int64_t n, c, k;
    bool bias;
} linear_row;

static const linear_row linears[] = {
    {"1 x 1", 1, 1, 1, true},
    {"odd sizes with bias", 5, 33, 17, true},
    {"odd sizes without bias", 5, 33, 17, false},
    {"one row", 1, 512, 10, true},
    {"a thousand classes", 4, 64, 1000, true},
};

static lt_status call_linear(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                             bool absolute)
{
    (void)t;
    (void)absolute;
    return be->linear(ctx, &v[0], &v[1], v[2].data ? &v[2] : NULL, &v[3]);
}

static void make_linear(const linear_row *r, test *t)
{
    *t = (test){.entry = "linear", .name = r->name, .call = call_linear, .operands = 4};
    t->operand[0] = (operand){IN, DATA, LT_SHAPE(r->n, r->c), ROWS, .absolute = PLUS};
    t->operand[1] = (operand){IN, WEIGHT, LT_SHAPE(r->k, r->c), ROWS, .absolute = PLUS};
    t->operand[2] = (operand){IN, MASTER, LT_SHAPE(r->k), ROWS, .absolute = PLUS};
    t->operand[3] = (operand){OUT, DATA, LT_SHAPE(r->n, r->k), ROWS, .absolute = PLUS};
    if (!r->bias)
        t->operand[2].shape.ndim = -1;
    t->terms = (double)r->c + 2;
}

typedef struct conv_row {
    const char *name;
    int64_t n, c, h, w, k, r, s;
    lt_conv2d_config config;
    bool bias, large;
} conv_row;

#define CONFIG(stride, pad, dilation, groups)                \
    {                                                        \
        stride, stride, pad, pad, dilation, dilation, groups \
    }

static const conv_row convs[] = {
    {"1x1 on one pixel", 1, 1, 1, 1, 1, 1, 1, CONFIG(1, 0, 1, 1), false, false},
    {"1x1", 2, 16, 7, 5, 32, 1, 1, CONFIG(1, 0, 1, 1), false, false},
    {"1x1 stride 2, odd", 2, 16, 7, 5, 32, 1, 1, CONFIG(2, 0, 1, 1), false, false},
    {"3x3 pad 1", 2, 16, 9, 8, 16, 3, 3, CONFIG(1, 1, 1, 1), false, false},
    {"3x3 pad 1 with bias, odd channels", 2, 5, 9, 8, 7, 3, 3, CONFIG(1, 1, 1, 1), true, false},
    {"3x3 stride 2 pad 1, odd x even", 2, 8, 7, 6, 16, 3, 3, CONFIG(2, 1, 1, 1), false, false},
    {"3x3 without pad", 1, 3, 5, 7, 4, 3, 3, CONFIG(1, 0, 1, 1), true, false},
    {"3x3 dilation 2 pad 2", 1, 4, 9, 9, 6, 3, 3, CONFIG(1, 2, 2, 1), false, false},
    {"3x3 groups 4", 2, 8, 6, 6, 16, 3, 3, CONFIG(1, 1, 1, 4), true, false},
    {"3x3 depthwise stride 2", 2, 9, 7, 7, 9, 3, 3, CONFIG(2, 1, 1, 9), false, false},
    {"7x7 stride 2 pad 3, 3 channels", 2, 3, 20, 18, 64, 7, 7, CONFIG(2, 3, 1, 1), false, false},
    {"1x5 stride 1 by 3", 1, 6, 4, 16, 3, 1, 5, {1, 3, 0, 2, 1, 1, 1}, false, false},
    {"5x1 pad 2 by 0", 1, 6, 9, 4, 3, 5, 1, {2, 1, 2, 0, 1, 1, 1}, false, false},
    {"filter as large as the picture", 3, 8, 4, 4, 5, 4, 4, CONFIG(1, 0, 1, 1), true, false},
    {"pad larger than the picture", 1, 2, 2, 2, 3, 3, 3, CONFIG(1, 2, 1, 1), false, false},
    {"stride larger than the filter", 1, 4, 11, 11, 4, 1, 1, CONFIG(3, 0, 1, 1), false, false},
    {"3x3, 32 to 48 channels, 14 x 13", 3, 32, 14, 13, 48, 3, 3, CONFIG(1, 1, 1, 1), false, false},
    {"1x1, 64 to 128 channels, 14 x 14", 2, 64, 14, 14, 128, 1, 1, CONFIG(1, 0, 1, 1), false,
     false},
    {"1x1 stride 2, 64 to 96 channels", 2, 64, 14, 13, 96, 1, 1, CONFIG(2, 0, 1, 1), false, false},
    {"1x1, 3 to 260 channels, pixels in two ranges", 2, 3, 32, 33, 260, 1, 1, CONFIG(1, 0, 1, 1),
     false, false},
    {"1x1, 130 to 70 channels, 9 x 9", 2, 130, 9, 9, 70, 1, 1, CONFIG(1, 0, 1, 1), false, false},
    {"3x3 stride 2 pad 1, 128 to 64 channels", 2, 128, 7, 6, 64, 3, 3, CONFIG(2, 1, 1, 1), false,
     false},
    {"3x3 dilation 2, 40 to 37 channels", 1, 40, 9, 8, 37, 3, 3, CONFIG(1, 2, 2, 1), false, false},
    {"1x1 stride 2, 160 to 100 channels", 1, 160, 9, 7, 100, 1, 1, CONFIG(2, 0, 1, 1), false,
     false},
    {"64 channels, 3x3, 28 x 28", 4, 64, 28, 28, 64, 3, 3, CONFIG(1, 1, 1, 1), false, true},
    {"256 to 64 channels, 28 x 28", 4, 256, 28, 28, 64, 1, 1, CONFIG(1, 0, 1, 1), false, true},
};

static int64_t extent(int64_t size, int64_t taps, int stride, int pad, int dilation)
{
    return (size + 2 * pad - dilation * (taps - 1) - 1) / stride + 1;
}

static lt_shape output_shape(const conv_row *r)
{
    const lt_conv2d_config *c = &r->config;
    return LT_SHAPE(r->n, r->k, extent(r->h, r->r, c->stride_h, c->pad_h, c->dilation_h),
                    extent(r->w, r->s, c->stride_w, c->pad_w, c->dilation_w));
}

static lt_status call_conv(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                           bool absolute)
{
    (void)absolute;
    return be->conv2d(ctx, &t->config.conv, &v[0], &v[1], v[2].data ? &v[2] : NULL, &v[3]);
}

static lt_status call_grad_x(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                             bool absolute)
{
    (void)absolute;
    return be->conv2d_grad_x(ctx, &t->config.conv, &v[0], &v[1], &v[2]);
}

static lt_status call_grad_w(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                             bool absolute)
{
    (void)absolute;
    return be->conv2d_grad_w(ctx, &t->config.conv, &v[0], &v[1], &v[2]);
}

static void make_conv(const conv_row *r, test *t)
{
    *t = (test){.entry = "conv2d", .call = call_conv, .operands = 4};
    t->operand[0] = (operand){IN, DATA, LT_SHAPE(r->n, r->c, r->h, r->w), .absolute = PLUS};
    t->operand[1] = (operand){IN, WEIGHT, LT_SHAPE(r->k, r->c / r->config.groups, r->r, r->s),
                              .absolute = PLUS};
    t->operand[2] = (operand){IN, MASTER, LT_SHAPE(r->k), .absolute = PLUS};
    t->operand[3] = (operand){OUT, DATA, output_shape(r), .absolute = PLUS};
    if (!r->bias)
        t->operand[2].shape.ndim = -1;
    t->terms = (double)(r->c / r->config.groups * r->r * r->s) + 2;
}

static void make_grad_x(const conv_row *r, test *t)
{
    make_conv(r, t);
    operand x = t->operand[0], y = t->operand[3];
    x.use = OUT;
    y.use = IN;
    t->operand[0] = y;
    t->operand[2] = x;
    t->entry = "conv2d_grad_x";
    t->call = call_grad_x;
    t->operands = 3;
    t->terms = (double)(r->k / r->config.groups * r->r * r->s) + 2;
}

static void make_grad_w(const conv_row *r, layout storage, test *t)
{
    make_conv(r, t);
    operand x = t->operand[0], w = t->operand[1], y = t->operand[3];
    y.use = IN;
    w.use = OUT;
    w.kind = MASTER;
    w.layout = storage;
    t->operand[0] = y;
    t->operand[1] = x;
    t->operand[2] = w;
    t->entry = "conv2d_grad_w";
    t->call = call_grad_w;
    t->operands = 3;
    t->terms = (double)(r->n * output_shape(r).dim[2] * output_shape(r).dim[3]) + 2;
}

static bool conv_test(size_t i, test *t)
{
    enum { WAYS = 4 };
    if (i >= COUNT_OF(convs) * WAYS)
        return false;
    const conv_row *r = &convs[i / WAYS];
    switch (i % WAYS) {
    case 0:
        make_conv(r, t);
        break;
    case 1:
        make_grad_x(r, t);
        break;
    default:
        make_grad_w(r, i % WAYS == 2 ? STORAGE : ROWS, t);
    }
    t->name = r->name;
    t->large = r->large;
    t->config.conv = r->config;
    return true;
}

bool product_tests(size_t i, test *t)
{
    if (i < COUNT_OF(matmuls)) {
        make_matmul(&matmuls[i], t);
        return true;
    }
    i -= COUNT_OF(matmuls);
    if (i < COUNT_OF(linears)) {
        make_linear(&linears[i], t);
        return true;
    }
    return conv_test(i - COUNT_OF(linears), t);
}
