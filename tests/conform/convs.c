/* Rows of convolutions and their gradients. */

#include "conform.h"

#define CONFIG(stride, pad, dilation, groups)                \
    {                                                        \
        stride, stride, pad, pad, dilation, dilation, groups \
    }

/* Different height and width. */
#define EACH(...)   \
    {               \
        __VA_ARGS__ \
    }

static const conv_row convs[] = {
    {"1x1 on one pixel", 1, 1, 1, 1, 1, 1, 1, CONFIG(1, 0, 1, 1), NEITHER},
    {"1x1", 2, 16, 7, 5, 32, 1, 1, CONFIG(1, 0, 1, 1), NEITHER},
    {"1x1 stride 2, odd", 2, 16, 7, 5, 32, 1, 1, CONFIG(2, 0, 1, 1), NEITHER},
    {"3x3 pad 1", 2, 16, 9, 8, 16, 3, 3, CONFIG(1, 1, 1, 1), NEITHER},
    {"3x3 pad 1 with bias, odd channels", 2, 5, 9, 8, 7, 3, 3, CONFIG(1, 1, 1, 1), BIAS},
    {"3x3 stride 2 pad 1, odd x even", 2, 8, 7, 6, 16, 3, 3, CONFIG(2, 1, 1, 1), NEITHER},
    {"3x3 without pad", 1, 3, 5, 7, 4, 3, 3, CONFIG(1, 0, 1, 1), BIAS},
    {"3x3 dilation 2 pad 2", 1, 4, 9, 9, 6, 3, 3, CONFIG(1, 2, 2, 1), NEITHER},
    {"3x3 groups 4", 2, 8, 6, 6, 16, 3, 3, CONFIG(1, 1, 1, 4), BIAS},
    {"3x3 depthwise stride 2", 2, 9, 7, 7, 9, 3, 3, CONFIG(2, 1, 1, 9), NEITHER},
    {"7x7 stride 2 pad 3, 3 channels", 2, 3, 20, 18, 64, 7, 7, CONFIG(2, 3, 1, 1), NEITHER},
    {"1x5 stride 1 by 3", 1, 6, 4, 16, 3, 1, 5, EACH(1, 3, 0, 2, 1, 1, 1), NEITHER},
    {"5x1 pad 2 by 0", 1, 6, 9, 4, 3, 5, 1, EACH(2, 1, 2, 0, 1, 1, 1), NEITHER},
    {"filter as large as the image", 3, 8, 4, 4, 5, 4, 4, CONFIG(1, 0, 1, 1), BIAS},
    {"pad larger than the image", 1, 2, 2, 2, 3, 3, 3, CONFIG(1, 2, 1, 1), NEITHER},
    {"stride larger than the filter", 1, 4, 11, 11, 4, 1, 1, CONFIG(3, 0, 1, 1), NEITHER},
    {"3x3, 32 to 48 channels, 14 x 13", 3, 32, 14, 13, 48, 3, 3, CONFIG(1, 1, 1, 1), NEITHER},
    {"1x1, 64 to 128 channels, 14 x 14", 2, 64, 14, 14, 128, 1, 1, CONFIG(1, 0, 1, 1), NEITHER},
    {"1x1 stride 2, 64 to 96 channels", 2, 64, 14, 13, 96, 1, 1, CONFIG(2, 0, 1, 1), NEITHER},
    {"1x1, 3 to 260 channels, pixels in two ranges", 2, 3, 32, 33, 260, 1, 1, CONFIG(1, 0, 1, 1),
     NEITHER},
    {"1x1, 130 to 70 channels, 9 x 9", 2, 130, 9, 9, 70, 1, 1, CONFIG(1, 0, 1, 1), NEITHER},
    {"3x3 stride 2 pad 1, 128 to 64 channels", 2, 128, 7, 6, 64, 3, 3, CONFIG(2, 1, 1, 1), NEITHER},
    {"3x3 dilation 2, 40 to 37 channels", 1, 40, 9, 8, 37, 3, 3, CONFIG(1, 2, 2, 1), NEITHER},
    {"1x1 stride 2, 160 to 100 channels", 1, 160, 9, 7, 100, 1, 1, CONFIG(2, 0, 1, 1), NEITHER},
    /* Forms for which oneDNN's implementations are wrong: docs/results/onednn-wrong-primitives.md. */
    {"3x3 dilation 4, 53 to 50 channels, 30 x 24", 1, 53, 30, 24, 50, 3, 3,
     EACH(1, 1, 3, 0, 4, 4, 1), NEITHER},
    {"6x4 dilation 4, wide pad", 1, 18, 30, 30, 20, 6, 4, EACH(1, 1, 7, 0, 4, 4, 1), NEITHER},
    {"taps in padding only, one pixel", 2, 52, 1, 1, 16, 3, 3, CONFIG(2, 1, 1, 1), NEITHER},
    {"taps in padding only, one pixel, 4 to 3 channels", 1, 4, 1, 1, 3, 3, 3,
     EACH(2, 2, 1, 2, 1, 1, 1), NEITHER},
    {"taps in padding only, depthwise", 2, 53, 1, 1, 53, 3, 3, CONFIG(2, 1, 1, 53), NEITHER},
    {"taps in padding only, stride 3", 3, 10, 9, 2, 14, 3, 3, EACH(3, 3, 1, 2, 1, 1, 1), NEITHER},
    {"3x3 on one pixel, 128 to 70 channels", 9, 128, 1, 1, 70, 3, 3, CONFIG(1, 1, 1, 1), BIAS},
    {"5x3 on one pixel, 128 to 70 channels", 9, 128, 1, 1, 70, 5, 3, EACH(1, 1, 2, 1, 1, 1, 1),
     BIAS},
    {"5x3 on 2 x 1, 64 to 70 channels", 9, 64, 2, 1, 70, 5, 3, EACH(1, 1, 2, 1, 1, 1, 1), BIAS},
    {"3x5 on 2 x 1, 64 to 70 channels", 9, 64, 2, 1, 70, 3, 5, EACH(1, 1, 1, 2, 1, 1, 1), BIAS},
    {"1x1 on one pixel, 128 to 70 channels", 9, 128, 1, 1, 70, 1, 1, CONFIG(1, 0, 1, 1), BIAS},
    {"3x3 stride 2 on 2 x 2, 130 to 64 channels", 5, 130, 2, 2, 64, 3, 3, CONFIG(2, 1, 1, 1),
     NEITHER},
    {"7x7 stride 2 on 3 x 2, groups of 24", 2, 48, 3, 2, 32, 7, 7, CONFIG(2, 3, 1, 2), NEITHER},
    {"2x2 stride 3, 16 to 64 channels, 25 x 25", 1, 16, 25, 25, 64, 2, 2, CONFIG(3, 0, 1, 1),
     NEITHER},
    {"2x2 stride 3 pad 1, 83 to 57 channels", 1, 83, 28, 14, 57, 2, 2, CONFIG(3, 1, 1, 1), NEITHER},
    {"1x5 stride 2 pad 4, 85 to 5 channels", 3, 85, 28, 12, 5, 1, 5, EACH(2, 2, 0, 4, 1, 1, 1),
     NEITHER},
    {"outputs in padding only, stride 3", 1, 8, 1, 13, 4, 3, 3, EACH(3, 3, 3, 2, 2, 2, 1), BIAS},
    {"outputs in padding only, stride 2", 2, 77, 1, 27, 59, 3, 3, EACH(2, 2, 5, 0, 4, 1, 1), BIAS},
    {"dilation 2, groups of 14, rows of 48", 2, 28, 6, 48, 20, 3, 3, EACH(1, 1, 1, 2, 2, 2, 2),
     NEITHER},
    {"1x1 dilation 2, groups of 1", 2, 7, 30, 30, 7, 1, 1, CONFIG(1, 0, 2, 7), NEITHER},
    {"3x3 dilation 2, 38 to 15 channels, rows of 123", 1, 38, 8, 123, 15, 3, 3, CONFIG(1, 2, 2, 1),
     NEITHER},
    {"1x1, 15 to 7 channels, 30 x 30", 3, 15, 30, 30, 7, 1, 1, CONFIG(1, 0, 1, 1), NEITHER},
    {"7x7 stride 3, 83 to 60 channels: an odd channel tail", 3, 83, 4, 4, 60, 7, 7,
     EACH(3, 3, 6, 3, 1, 1, 1), BIAS},
    {"7x7 dilation 2, rows of 11 padded by 6", 2, 37, 1, 11, 59, 7, 7, EACH(1, 1, 7, 6, 2, 2, 1),
     NEITHER},
    {"1x6 dilation 2, rows of 9 padded by 5", 1, 48, 8, 9, 64, 1, 6, EACH(1, 1, 0, 5, 1, 2, 1),
     NEITHER},
    {"7x7, 128 to 257 channels, one output: an odd channel tail", 1, 128, 7, 7, 257, 7, 7,
     CONFIG(1, 0, 1, 1), NEITHER},
    {"3x3 pad 1, 32 to 64 channels, 20 x 18", 3, 32, 20, 18, 64, 3, 3, CONFIG(1, 1, 1, 1), NEITHER},
    {"64 channels, 3x3, 28 x 28", 4, 64, 28, 28, 64, 3, 3, CONFIG(1, 1, 1, 1), LARGE},
    {"256 to 64 channels, 28 x 28", 4, 256, 28, 28, 64, 1, 1, CONFIG(1, 0, 1, 1), LARGE},
};

static int64_t extent(int64_t size, int64_t taps, int stride, int pad, int dilation)
{
    return (size + 2 * pad - dilation * (taps - 1) - 1) / stride + 1;
}

lt_shape conv_output(const conv_row *r)
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
    t->operand[3] = (operand){OUT, DATA, conv_output(r), .absolute = PLUS};
    if (r->extra != BIAS)
        t->operand[2].shape.ndim = -1;
    const int64_t terms = r->c / r->config.groups * r->r * r->s;
    t->terms = (double)terms + 2;
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
    const int64_t terms = r->k / r->config.groups * r->r * r->s;
    t->terms = (double)terms + 2;
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
    t->terms = (double)(r->n * conv_output(r).dim[2] * conv_output(r).dim[3]) + 2;
}

static void prepare_weights(test *t)
{
    round_weights(&t->operand[1]);
}

/* Forms for which Winograd kernels may run, which read all digits of f32 weights. */
static bool may_read_all_digits(const conv_row *r)
{
    enum { CHANNELS = 32 };
    return r->r == 3 && r->s == 3 && r->c % CHANNELS == 0 && r->k % CHANNELS == 0;
}

void conv_make(const conv_row *r, conv_way way, test *t)
{
    if (way == FORWARD)
        make_conv(r, t);
    else if (way == GRAD_X)
        make_grad_x(r, t);
    else
        make_grad_w(r, way == GRAD_W ? STORAGE : ROWS, t);
    if (way <= GRAD_X && may_read_all_digits(r))
        t->prepare = prepare_weights;
    t->name = r->name;
    t->large = r->extra == LARGE;
    t->config.conv = r->config;
}

bool conv_tests(size_t i, test *t)
{
    if (i >= COUNT_OF(convs) * CONV_WAYS)
        return false;
    conv_make(&convs[i / CONV_WAYS], (conv_way)(i % CONV_WAYS), t);
    return true;
}
