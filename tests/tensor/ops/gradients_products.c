/* Gradients of matrix products and convolutions. */

#include "gradients.h"

FUNCTION(matmul, lt_matmul(t, in[0], in[1], (lt_matmul_config){.transpose_a = false}));
FUNCTION(matmul_ta, lt_matmul(t, in[0], in[1], (lt_matmul_config){.transpose_a = true}));
FUNCTION(matmul_tb, lt_matmul(t, in[0], in[1], (lt_matmul_config){.transpose_b = true}));
FUNCTION(matmul_both,
         lt_matmul(t, in[0], in[1], (lt_matmul_config){.transpose_a = true, .transpose_b = true}));
FUNCTION(matmul_square, lt_matmul(t, in[0], in[0], (lt_matmul_config){.transpose_b = true}));
FUNCTION(linear, lt_linear(t, in[0], in[1], in[2]));
FUNCTION(linear_without_bias, lt_linear(t, in[0], in[1], NULL));

#define CONV(name, ...)                                                           \
    static lt_tensor *name(lt_tape *t, lt_tensor *const *in, void *c)             \
    {                                                                             \
        (void)c;                                                                  \
        return lt_conv2d(t, in[0], in[1], NULL, (lt_conv2d_config){__VA_ARGS__}); \
    }
CONV(conv_plain, .stride_h = 1)
CONV(conv_pad, .pad_h = 1, .pad_w = 1)
CONV(conv_s2_p1, .stride_h = 2, .stride_w = 2, .pad_h = 1, .pad_w = 1)
CONV(conv_s2, .stride_h = 2, .stride_w = 2)
CONV(conv_d2, .pad_h = 2, .pad_w = 2, .dilation_h = 2, .dilation_w = 2)
CONV(conv_g2, .pad_h = 1, .pad_w = 1, .groups = 2)
CONV(conv_g6_s2, .stride_h = 2, .stride_w = 2, .pad_h = 1, .pad_w = 1, .groups = 6)
CONV(conv_uneven, .stride_h = 2, .stride_w = 3, .pad_h = 0, .pad_w = 2, .dilation_h = 2)

FUNCTION(conv_bias, lt_conv2d(t, in[0], in[1], in[2], (lt_conv2d_config){.pad_h = 1, .pad_w = 1}));

static lt_tensor *conv_twice(lt_tape *t, lt_tensor *const *in, void *c)
{
    (void)c;
    lt_conv2d_config config = {.pad_h = 1, .pad_w = 1};
    return lt_conv2d(t, lt_conv2d(t, in[0], in[1], in[2], config), in[1], in[2], config);
}

#define TRANSPOSE(name, bias, ...)                                    \
    static lt_tensor *name(lt_tape *t, lt_tensor *const *in, void *c) \
    {                                                                 \
        (void)c;                                                      \
        lt_conv_transpose2d_config config = {__VA_ARGS__};            \
        return lt_conv_transpose2d(t, in[0], in[1], bias, config);    \
    }
TRANSPOSE(transpose_plain, NULL, .conv = {.stride_h = 1})
TRANSPOSE(transpose_s2, in[2], .conv = {.stride_h = 2, .stride_w = 2, .pad_h = 1, .pad_w = 1},
          .output_pad_h = 1, .output_pad_w = 1)
TRANSPOSE(transpose_d2, NULL, .conv = {.pad_h = 2, .pad_w = 2, .dilation_h = 2, .dilation_w = 2})
TRANSPOSE(transpose_g2, in[2], .conv = {.stride_h = 2, .stride_w = 2, .pad_w = 1, .groups = 2})
TRANSPOSE(transpose_uneven, NULL,
          .conv = {.stride_h = 2, .stride_w = 3, .pad_w = 2, .dilation_h = 2}, .output_pad_w = 2)

/* clang-format off */
static const grad_row rows[] = {
    {"matmul", matmul, 2, 0, .in = {{{2, {3, 4}}, UNIFORM}, {{2, {4, 5}}, UNIFORM}}},
    {"matmul, a transposed", matmul_ta, 2, 0, .in = {{{2, {4, 3}}, UNIFORM}, {{2, {4, 5}}, UNIFORM}}},
    {"matmul, b transposed", matmul_tb, 2, 0, .in = {{{2, {3, 4}}, UNIFORM}, {{2, {5, 4}}, UNIFORM}}},
    {"matmul, both transposed", matmul_both, 2, 0,
     .in = {{{2, {4, 3}}, UNIFORM}, {{2, {5, 4}}, UNIFORM}}},
    {"matmul, batches", matmul, 2, 0, .in = {{{3, {2, 3, 4}}, UNIFORM}, {{3, {2, 4, 5}}, UNIFORM}}},
    {"matmul, batches of batches, both transposed", matmul_both, 2, 0,
     .in = {{{4, {2, 3, 2, 3}}, UNIFORM}, {{4, {2, 3, 4, 2}}, UNIFORM}}},
    {"matmul, batches, b shared", matmul, 2, 0,
     .in = {{{3, {2, 3, 4}}, UNIFORM}, {{2, {4, 5}}, UNIFORM}}},
    {"matmul, batches, b shared, both transposed", matmul_both, 2, 0,
     .in = {{{3, {2, 4, 3}}, UNIFORM}, {{2, {5, 4}}, UNIFORM}}},
    {"matmul, batches, b shared, a transposed", matmul_ta, 2, 0, .in = {{{4, {2, 3, 4, 5}}, UNIFORM}, {{2, {4, 3}}, UNIFORM}}},
    {"matmul, a a^T", matmul_square, 1, 0, .in = {{{2, {3, 4}}, UNIFORM}}},
    {"linear", linear, 3, 0,
     .in = {{{2, {3, 4}}, UNIFORM}, {{2, {5, 4}}, UNIFORM}, {{1, {5}}, UNIFORM}}},
    {"linear without bias", linear_without_bias, 2, 0,
     .in = {{{2, {3, 4}}, UNIFORM}, {{2, {5, 4}}, UNIFORM}}},
    {"linear, one row, one output", linear, 3, 0,
     .in = {{{2, {1, 4}}, UNIFORM}, {{2, {1, 4}}, UNIFORM}, {{1, {1}}, UNIFORM}}},
    {"conv2d 1x1", conv_plain, 2, 0, .in = {{{4, {2, 3, 4, 5}}, UNIFORM}, {{4, {4, 3, 1, 1}}, UNIFORM}}},
    {"conv2d 3x3 without pad", conv_plain, 2, 0,
     .in = {{{4, {1, 2, 5, 4}}, UNIFORM}, {{4, {3, 2, 3, 3}}, UNIFORM}}},
    {"conv2d 3x3 pad 1 with bias", conv_bias, 3, 0,
     .in = {{{4, {2, 3, 4, 5}}, UNIFORM}, {{4, {4, 3, 3, 3}}, UNIFORM}, {{1, {4}}, UNIFORM}}},
    {"conv2d 3x3 stride 2 pad 1, odd x even", conv_s2_p1, 2, 0,
     .in = {{{4, {2, 3, 7, 6}}, UNIFORM}, {{4, {4, 3, 3, 3}}, UNIFORM}}},
    {"conv2d 1x1 stride 2", conv_s2, 2, 0,
     .in = {{{4, {2, 3, 5, 6}}, UNIFORM}, {{4, {4, 3, 1, 1}}, UNIFORM}}},
    {"conv2d 3x3 dilation 2 pad 2", conv_d2, 2, 0,
     .in = {{{4, {1, 2, 6, 5}}, UNIFORM}, {{4, {3, 2, 3, 3}}, UNIFORM}}},
    {"conv2d 3x3 groups 2", conv_g2, 2, 0,
     .in = {{{4, {2, 4, 4, 3}}, UNIFORM}, {{4, {6, 2, 3, 3}}, UNIFORM}}},
    {"conv2d 3x3 depthwise stride 2", conv_g6_s2, 2, 0,
     .in = {{{4, {2, 6, 5, 4}}, UNIFORM}, {{4, {6, 1, 3, 3}}, UNIFORM}}},
    {"conv2d 2x3 stride 2 by 3, pad 0 by 2, dilation 2 by 1", conv_uneven, 2, 0,
     .in = {{{4, {1, 3, 6, 7}}, UNIFORM}, {{4, {2, 3, 2, 3}}, UNIFORM}}},
    {"conv2d, a filter used twice", conv_twice, 3, 0,
     .in = {{{4, {1, 3, 4, 3}}, UNIFORM}, {{4, {3, 3, 3, 3}}, UNIFORM}, {{1, {3}}, UNIFORM}}},
    {"conv2d pad 1 on one pixel", conv_pad, 2, 0,
     .in = {{{4, {2, 3, 1, 1}}, UNIFORM}, {{4, {2, 3, 3, 3}}, UNIFORM}}},
    {"conv_transpose2d 2x3", transpose_plain, 2, 0,
     .in = {{{4, {2, 3, 3, 4}}, UNIFORM}, {{4, {3, 4, 2, 3}}, UNIFORM}}},
    {"conv_transpose2d 3x3 stride 2 pad 1, output pad 1, bias", transpose_s2, 3, 0,
     .in = {{{4, {2, 3, 3, 4}}, UNIFORM}, {{4, {3, 4, 3, 3}}, UNIFORM}, {{1, {4}}, UNIFORM}}},
    {"conv_transpose2d 3x3 dilation 2 pad 2", transpose_d2, 2, 0,
     .in = {{{4, {1, 2, 4, 5}}, UNIFORM}, {{4, {2, 3, 3, 3}}, UNIFORM}}},
    {"conv_transpose2d 3x3 stride 2, groups 2, bias", transpose_g2, 3, 0,
     .in = {{{4, {1, 4, 3, 2}}, UNIFORM}, {{4, {4, 3, 3, 3}}, UNIFORM}, {{1, {6}}, UNIFORM}}},
    {"conv_transpose2d 2x3 stride 2 by 3, pad 0 by 2, dilation 2 by 1, output pad 0 by 2", transpose_uneven, 2, 0,
     .in = {{{4, {1, 3, 3, 3}}, UNIFORM}, {{4, {3, 2, 2, 3}}, UNIFORM}}},
    {"conv_transpose2d of output pad alone", transpose_s2, 3, 0, .in = {{{4, {1, 2, 1, 4}}, UNIFORM}, {{4, {2, 2, 2, 1}}, UNIFORM}, {{1, {2}}, UNIFORM}}},
    {"conv_transpose2d of one pixel", transpose_plain, 2, 0, .in = {{{4, {2, 3, 1, 1}}, UNIFORM}, {{4, {3, 2, 3, 3}}, UNIFORM}}},
};
/* clang-format on */

const grad_row *product_rows(size_t i)
{
    return i < sizeof rows / sizeof *rows ? &rows[i] : NULL;
}
