/* Gradients of pooling and of the loss. */

#include "gradients.h"

#define POOL(name, op, config)                                        \
    static lt_tensor *name(lt_tape *t, lt_tensor *const *in, void *c) \
    {                                                                 \
        (void)c;                                                      \
        return op(t, in[0], config);                                  \
    }

static const lt_pool2d_config k3_s2_p1 = {3, 3, 2, 2, 1, 1};
static const lt_pool2d_config k2 = {.kernel_h = 2, .kernel_w = 2};
static const lt_pool2d_config k32_s1_p10 = {3, 2, 1, 1, 1, 0};
static const lt_pool2d_config k13_s12_p01 = {1, 3, 1, 2, 0, 1};
static const lt_pool2d_config global = {.kernel_h = 0};

POOL(max_3_2_1, lt_maxpool2d, k3_s2_p1)
POOL(max_2, lt_maxpool2d, k2)
POOL(max_overlap, lt_maxpool2d, k32_s1_p10)
POOL(avg_global, lt_avgpool2d, global)
POOL(avg_3_2_1, lt_avgpool2d, k3_s2_p1)
POOL(avg_uneven, lt_avgpool2d, k13_s12_p01)

static lt_tensor *max_read_twice(lt_tape *t, lt_tensor *const *in, void *c)
{
    lt_tensor *y = max_3_2_1(t, in, c);
    return read_by_two(t, y);
}

FUNCTION(xent, lt_softmax_xent(t, in[0], in[1], 0));
FUNCTION(xent_smooth, lt_softmax_xent(t, in[0], in[1], 0.1));

/* Arbitrary targets, which do not sum to 1. */
static lt_tensor *xent_soft(lt_tape *t, lt_tensor *const *in, void *c)
{
    return lt_softmax_xent(t, in[0], ((lt_tensor **)c)[0], 0);
}

static lt_tensor *xent_soft_smooth(lt_tape *t, lt_tensor *const *in, void *c)
{
    return lt_softmax_xent(t, in[0], ((lt_tensor **)c)[0], 0.2);
}

static lt_tensor *xent_scaled(lt_tape *t, lt_tensor *const *in, void *c)
{
    lt_tensor *loss = xent_smooth(t, in, c);
    return lt_mul(t, lt_scale(t, loss, 5), loss);
}

/* clang-format off */
static const grad_row rows[] = {
    {"maxpool2d 3x3 stride 2 pad 1, odd x even", max_3_2_1, 1, 0, .in = {{{4, {2, 3, 7, 6}}, DISTINCT}}},
    {"maxpool2d 2x2, odd", max_2, 1, 0, .in = {{{4, {2, 2, 5, 7}}, DISTINCT}}},
    {"maxpool2d 3x2 stride 1, overlapping", max_overlap, 1, 0, .in = {{{4, {1, 2, 4, 5}}, DISTINCT}}},
    {"maxpool2d, read twice", max_read_twice, 1, 0, .in = {{{4, {1, 2, 5, 6}}, DISTINCT}}},
    {"avgpool2d, global", avg_global, 1, 0, .in = {{{4, {2, 3, 4, 5}}, UNIFORM}}},
    {"avgpool2d 3x3 stride 2 pad 1", avg_3_2_1, 1, 0, .in = {{{4, {2, 2, 5, 6}}, UNIFORM}}},
    {"avgpool2d 1x3 stride 1 by 2, pad 0 by 1", avg_uneven, 1, 0, .in = {{{4, {1, 2, 3, 7}}, UNIFORM}}},
    {"softmax_xent, class indices", xent, 2, 0, .in = {{{2, {5, 3}}, UNIFORM}, {{1, {5}}, INDICES}}},
    {"softmax_xent, label smoothing", xent_smooth, 2, 0,
     .in = {{{2, {5, 4}}, UNIFORM}, {{1, {5}}, INDICES}}},
    {"softmax_xent, soft targets", xent_soft, 1, 1, .in = {{{2, {3, 4}}, UNIFORM}},
     .constant = {{{2, {3, 4}}, NEAR_ONE}}},
    {"softmax_xent, soft targets with smoothing", xent_soft_smooth, 1, 1,
     .in = {{{2, {3, 4}}, UNIFORM}}, .constant = {{{2, {3, 4}}, NEAR_ONE}}},
    {"softmax_xent under a scale", xent_scaled, 2, 0,
     .in = {{{2, {1, 6}}, UNIFORM}, {{1, {1}}, INDICES}}},
};
/* clang-format on */

const grad_row *pool_rows(size_t i)
{
    return i < sizeof rows / sizeof *rows ? &rows[i] : NULL;
}
