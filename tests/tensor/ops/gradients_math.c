/* Gradients of elementwise operations, sums and reshapes; and the controls. */

#include "gradients.h"

#include "lather/ext/op.h"

#include <math.h>

FUNCTION(add, lt_add(t, in[0], in[1]));
FUNCTION(add_itself, lt_add(t, in[0], in[0]));
FUNCTION(mul, lt_mul(t, in[0], in[1]));
FUNCTION(mul_itself, lt_mul(t, in[0], in[0]));

static lt_tensor *four_uses(lt_tape *t, lt_tensor *const *in, void *c)
{
    (void)c;
    lt_tensor *a = lt_mul(t, in[0], in[0]), *b = lt_scale(t, in[0], 3);
    return lt_add(t, lt_mul(t, a, b), lt_add(t, in[0], a));
}

FUNCTION(scale, lt_scale(t, in[0], -0.7));

static lt_tensor *softmax(lt_tape *t, lt_tensor *const *in, void *c)
{
    (void)c;
    lt_tensor *y = lt_softmax(t, in[0]);
    return lt_mul(t, y, y);
}

FUNCTION(relu, lt_relu(t, in[0]));
FUNCTION(relu_of_scaled, lt_mul(t, lt_relu(t, lt_scale(t, in[0], -2)), in[0]));
FUNCTION(dropout, lt_dropout(t, in[0], 0.3));
FUNCTION(drop_path, lt_drop_path(t, in[0], 0.4));

static lt_tensor *to_format_there_and_back(lt_tape *t, lt_tensor *const *in, void *c)
{
    (void)c;
    lt_tensor *last = lt_to_format(t, in[0], LT_FORMAT_CHANNELS_LAST);
    return lt_to_format(t, lt_relu(t, last), LT_FORMAT_CONTIGUOUS);
}

FUNCTION(cast_there_and_back, lt_cast(t, lt_cast(t, in[0], LT_F32), LT_F64));

static lt_tensor *flatten(lt_tape *t, lt_tensor *const *in, void *c)
{
    (void)c;
    lt_tensor *y = lt_flatten(t, in[0]);
    return lt_mul(t, y, y);
}

static lt_tensor *reshape_to_4d(lt_tape *t, lt_tensor *const *in, void *c)
{
    (void)c;
    lt_tensor *y = lt_reshape(t, in[0], LT_SHAPE(2, 3, -1, 2));
    return lt_mul(t, y, y);
}

FUNCTION(reshape_view,
         lt_add(t, lt_reshape(t, in[0], LT_SHAPE(6, 2)), lt_reshape(t, in[1], LT_SHAPE(6, 2))));
FUNCTION(sum_all, lt_sum(t, lt_mul(t, in[0], in[0]), (lt_reduce_config){.dims = 0}));
FUNCTION(sum_directly, lt_sum(t, in[0], (lt_reduce_config){.dims = 0}));
FUNCTION(sum_rows, lt_sum(t, in[0], (lt_reduce_config){.dims = 2}));
FUNCTION(sum_keep,
         lt_mul(t, in[0], lt_sum(t, in[0], (lt_reduce_config){.dims = 4 | 8, .keep = true})));
FUNCTION(mean_all, lt_mean(t, in[0], (lt_reduce_config){.dims = 0}));
FUNCTION(mean_pixels, lt_mean(t, in[0], (lt_reduce_config){.dims = 4 | 8}));

/* Controls: y = x*x, each with a wrong gradient. */

static lt_status square_infer(const lt_node *node, lt_desc *out)
{
    *out = (lt_desc){.dtype = lt_tensor_dtype(node->in[0]), .shape = lt_tensor_shape(node->in[0])};
    return LT_OK;
}

static lt_status square_forward(lt_node *node)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view x, y;
    LT_TRY(lt_node_in(node, 0, &x));
    LT_TRY(lt_node_out(node, &y));
    return be->mul(ctx, &x, &x, &y);
}

/* dx = factor * x * dy; 2 is right. */
static lt_status square_gradient(lt_node *node, double factor, lt_view *dx)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view dy, x;
    LT_TRY(lt_node_grad(node, &dy));
    LT_TRY(lt_node_in(node, 0, &x));
    LT_TRY(lt_node_grad_out(node, 0, dx));
    LT_TRY(be->mul(ctx, &x, &dy, dx));
    return be->scale(ctx, factor, dx, dx);
}

static lt_status exact(lt_node *node)
{
    lt_view dx;
    return square_gradient(node, 2, &dx);
}

static lt_status one_percent_more(lt_node *node)
{
    lt_view dx;
    return square_gradient(node, 2.02, &dx);
}

static lt_status a_millionth_more_at_the_end(lt_node *node)
{
    lt_view dx;
    LT_TRY(square_gradient(node, 2, &dx));
    ((double *)dx.data)[lt_shape_count(dx.shape) - 1] *= 1 + 1e-6;
    return LT_OK;
}

static lt_status not_a_number(lt_node *node)
{
    lt_view dx;
    LT_TRY(square_gradient(node, 2, &dx));
    *(double *)dx.data = (double)NAN;
    return LT_OK;
}

static lt_status omits(lt_node *node)
{
    (void)node;
    return LT_OK;
}

#define SQUARE(rule)                                                                               \
    static lt_tensor *square_##rule(lt_tape *t, lt_tensor *const *in, void *c)                     \
    {                                                                                              \
        static const lt_op op = {                                                                  \
            .name = "square", .infer = square_infer, .forward = square_forward, .backward = rule}; \
        (void)c;                                                                                   \
        return lt_op_run(t, &op, in, 1, NULL);                                                     \
    }
SQUARE(exact)
SQUARE(one_percent_more)
SQUARE(a_millionth_more_at_the_end)
SQUARE(not_a_number)
SQUARE(omits)

/* clang-format off */
static const grad_row rows[] = {
    {"add", add, 2, 0, .in = {{{2, {3, 4}}, UNIFORM}, {{2, {3, 4}}, UNIFORM}}},
    {"add, b broadcast along rows", add, 2, 0, .in = {{{2, {3, 4}}, UNIFORM}, {{1, {4}}, UNIFORM}}},
    {"add, b broadcast over pixels", add, 2, 0,
     .in = {{{4, {2, 3, 4, 5}}, UNIFORM}, {{3, {3, 1, 1}}, UNIFORM}}},
    {"add, b a scalar", add, 2, 0, .in = {{{2, {3, 4}}, UNIFORM}, {{0, {0}}, UNIFORM}}},
    {"add, a broadcast over pixels", add, 2, 0,
     .in = {{{3, {3, 1, 1}}, UNIFORM}, {{4, {2, 3, 4, 5}}, UNIFORM}}},
    {"add, both broadcast", add, 2, 0, .in = {{{2, {3, 1}}, UNIFORM}, {{1, {4}}, UNIFORM}}},
    {"add, a tensor to itself", add_itself, 1, 0, .in = {{{2, {3, 4}}, UNIFORM}}},
    {"mul", mul, 2, 0, .in = {{{2, {3, 4}}, UNIFORM}, {{2, {3, 4}}, UNIFORM}}},
    {"mul, b broadcast over pixels", mul, 2, 0,
     .in = {{{4, {2, 3, 4, 5}}, UNIFORM}, {{4, {1, 3, 1, 1}}, UNIFORM}}},
    {"mul, b broadcast in the middle", mul, 2, 0,
     .in = {{{3, {2, 3, 4}}, UNIFORM}, {{3, {2, 1, 4}}, UNIFORM}}},
    {"mul, b a scalar", mul, 2, 0, .in = {{{3, {2, 3, 4}}, UNIFORM}, {{0, {0}}, UNIFORM}}},
    {"mul, a a scalar", mul, 2, 0, .in = {{{0, {0}}, UNIFORM}, {{3, {2, 3, 4}}, UNIFORM}}},
    {"mul, both broadcast", mul, 2, 0, .in = {{{2, {3, 1}}, UNIFORM}, {{1, {4}}, UNIFORM}}},
    {"mul, two scalars", mul, 2, 0, .in = {{{0, {0}}, UNIFORM}, {{0, {0}}, UNIFORM}}},
    {"mul, a tensor with itself", mul_itself, 1, 0, .in = {{{2, {3, 4}}, UNIFORM}}},
    {"a tensor used four times", four_uses, 1, 0, .in = {{{4, {2, 3, 2, 2}}, UNIFORM}}},
    {"scale", scale, 1, 0, .in = {{{5, {2, 1, 3, 2, 2}}, UNIFORM}}},
    {"softmax", softmax, 1, 0, .in = {{{2, {5, 7}}, UNIFORM}}},
    {"softmax of a vector", softmax, 1, 0, .in = {{{1, {9}}, UNIFORM}}},
    {"softmax over the last of four dimensions", softmax, 1, 0, .in = {{{4, {2, 3, 4, 5}}, UNIFORM}}},
    {"relu", relu, 1, 0, .in = {{{4, {2, 3, 4, 5}}, FAR}}},
    {"relu of an intermediate", relu_of_scaled, 1, 0, .in = {{{2, {5, 7}}, FAR}}},
    {"drop_path", drop_path, 1, 0, .in = {{{3, {8, 3, 2}}, UNIFORM}}},
    {"drop_path, images", drop_path, 1, 0, .in = {{{4, {7, 2, 3, 2}}, UNIFORM}}},
    {"drop_path, [N]", drop_path, 1, 0, .in = {{{1, {20}}, UNIFORM}}},
    {"dropout", dropout, 1, 0, .in = {{{4, {2, 3, 4, 5}}, UNIFORM}}},
    {"to_format channels-last, relu, to_format row-major", to_format_there_and_back, 1, 0,
     .in = {{{4, {2, 3, 2, 4}}, FAR}}},
    {"cast f64 to f32 to f64", cast_there_and_back, 1, 0, .in = {{{2, {3, 5}}, GRID}}, .step = 0x1p-6},
    {"reshape, channels-last to rows", flatten, 1, 0, .in = {{{4, {2, 3, 4, 5}}, UNIFORM}}},
    {"reshape, rows to channels-last", reshape_to_4d, 1, 0, .in = {{{2, {4, 9}}, UNIFORM}}},
    {"reshape, views", reshape_view, 2, 0, .in = {{{2, {3, 4}}, UNIFORM}, {{1, {12}}, UNIFORM}}},
    {"sum of squares", sum_all, 1, 0, .in = {{{4, {2, 3, 4, 5}}, UNIFORM}}},
    {"sum over all", sum_directly, 1, 0, .in = {{{4, {2, 3, 4, 5}}, UNIFORM}}},
    {"sum over the second dimension", sum_rows, 1, 0, .in = {{{3, {2, 3, 4}}, UNIFORM}}},
    {"sum over pixels, kept", sum_keep, 1, 0, .in = {{{4, {2, 3, 2, 3}}, UNIFORM}}},
    {"mean over all", mean_all, 1, 0, .in = {{{2, {3, 5}}, UNIFORM}}},
    {"mean over pixels", mean_pixels, 1, 0, .in = {{{4, {2, 3, 4, 5}}, UNIFORM}}},
    {"an operation of the test's own", square_exact, 1, 0, .in = {{{1, {5}}, UNIFORM}}},
    {"control: a gradient 1 % too large", square_one_percent_more, 1, 0, .in = {{{1, {5}}, UNIFORM}},
     .broken = true},
    {"control: one element wrong by a millionth", square_a_millionth_more_at_the_end, 1, 0,
     .in = {{{1, {1}}, NEAR_ONE}}, .broken = true},
    {"control: not a number", square_not_a_number, 1, 0, .in = {{{1, {5}}, UNIFORM}}, .broken = true},
    {"control: no gradient at all", square_omits, 1, 0, .in = {{{1, {5}}, UNIFORM}}, .broken = true},
    {"control: a relu at its kink", relu, 1, 0, .in = {{{1, {500}}, UNIFORM}}, .step = 0.1,
     .broken = true},
};
/* clang-format on */

const grad_row *math_rows(size_t i)
{
    return i < sizeof rows / sizeof *rows ? &rows[i] : NULL;
}
