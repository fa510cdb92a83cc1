/* Gradients of reductions, of selection by masks and indices, and of changes of image size. Outputs are squared, so that
 * each element's gradient differs. */

#include "gradients.h"

static lt_tensor *square(lt_tape *t, lt_tensor *y)
{
    return lt_mul(t, y, y);
}

static lt_tensor *variance(lt_tape *t, lt_tensor *x, lt_reduce_config c)
{
    return lt_var(t, x, c, 1);
}

static lt_tensor *deviation(lt_tape *t, lt_tensor *x, lt_reduce_config c)
{
    return lt_std(t, x, c, 0);
}

#define REDUCE(name, call)                                                                       \
    FUNCTION(name##_all, square(t, call(t, in[0], (lt_reduce_config){.dims = 0})));              \
    FUNCTION(name##_keep,                                                                        \
             lt_mul(t, in[0], call(t, in[0], (lt_reduce_config){.dims = 4 | 8, .keep = true}))); \
    FUNCTION(name##_first, square(t, call(t, in[0], (lt_reduce_config){.dims = 1})))
REDUCE(amax, lt_amax);
REDUCE(amin, lt_amin);
REDUCE(prod, lt_prod);
REDUCE(logsumexp, lt_logsumexp);
REDUCE(var, variance);
REDUCE(std, deviation);
FUNCTION(cumsum_first, square(t, lt_cumsum(t, in[0], 0)));
FUNCTION(cumsum_middle, square(t, lt_cumsum(t, in[0], 1)));
FUNCTION(cumsum_last, square(t, lt_cumsum(t, in[0], -1)));
FUNCTION(log_softmax, square(t, lt_log_softmax(t, in[0], 1)));
FUNCTION(topk, square(t, lt_topk(t, in[0], 3, NULL)));
FUNCTION(detached_factor, lt_mul(t, in[0], lt_detach(t, in[0])));

/* A mask of the sign: 1 above 0. */
static lt_tensor *mask_of(lt_tape *t, lt_tensor *x)
{
    return lt_cast(t, lt_relu(t, lt_sign(t, lt_detach(t, x))), LT_U8);
}

FUNCTION(where, square(t, lt_where(t, mask_of(t, in[2]), in[0], in[1])));
FUNCTION(masked_fill, square(t, lt_masked_fill(t, in[0], mask_of(t, in[1]), 0.25)));

#define WITH_INDEX(name, call)                                        \
    static lt_tensor *name(lt_tape *t, lt_tensor *const *in, void *c) \
    {                                                                 \
        lt_tensor *const *index = c;                                  \
        return square(t, call);                                       \
    }
WITH_INDEX(gather_first, lt_gather(t, in[0], 0, index[0]))
WITH_INDEX(gather_last, lt_gather(t, in[0], -1, index[0]))
WITH_INDEX(scatter_add, lt_scatter_add(t, in[0], 1, index[0], in[1]))
WITH_INDEX(index_select_first, lt_index_select(t, in[0], 0, index[0]))
WITH_INDEX(index_select_middle, lt_index_select(t, in[0], 1, index[0]))

#define UPSAMPLE(name, ...) \
    FUNCTION(name, square(t, lt_upsample(t, in[0], (lt_upsample_config){__VA_ARGS__})))
UPSAMPLE(nearest, LT_UPSAMPLE_NEAREST, 7, 5, false);
UPSAMPLE(nearest_smaller, LT_UPSAMPLE_NEAREST, 2, 3, false);
UPSAMPLE(bilinear, LT_UPSAMPLE_BILINEAR, 7, 5, false);
UPSAMPLE(bilinear_corners, LT_UPSAMPLE_BILINEAR, 7, 5, true);
UPSAMPLE(bilinear_smaller, LT_UPSAMPLE_BILINEAR, 2, 1, true);
#define PAD(name, m)                           \
    FUNCTION(name,                             \
             square(t, lt_pad(t, in[0],        \
                              (lt_pad_config){ \
                                  .left = 2, .right = 1, .top = 1, .bottom = 3, .mode = (m)})))
PAD(pad_constant, LT_PAD_CONSTANT);
PAD(pad_reflect, LT_PAD_REFLECT);
PAD(pad_replicate, LT_PAD_REPLICATE);
FUNCTION(pad_vector,
         square(t,
                lt_pad(t, in[0], (lt_pad_config){.left = 1, .right = 2, .mode = LT_PAD_REFLECT})));
FUNCTION(pixel_shuffle, lt_mul(t, lt_pixel_shuffle(t, in[0], 2), in[1]));
FUNCTION(conv1d, lt_conv1d(t, in[0], in[1], in[2], (lt_conv1d_config){.stride = 2, .pad = 1}));

#define IMAGE(how)             \
    {                          \
        {4, {2, 3, 4, 5}}, how \
    }
#define CUBE(how)           \
    {                       \
        {3, {2, 4, 3}}, how \
    }

/* clang-format off */
#define REDUCTIONS(name, how)                                                       \
    {#name ", everything", name##_all, 1, 0, .in = {CUBE(how)}},                    \
    {#name " of pixels, kept", name##_keep, 1, 0, .in = {IMAGE(how)}},              \
    {#name " of rows", name##_first, 1, 0, .in = {{{2, {5, 3}}, how}}}
static const grad_row rows[] = {
    REDUCTIONS(amax, DISTINCT), REDUCTIONS(amin, DISTINCT), REDUCTIONS(prod, FAR), REDUCTIONS(logsumexp, UNIFORM),
    REDUCTIONS(var, UNIFORM), REDUCTIONS(std, UNIFORM),
    {"cumsum of rows", cumsum_first, 1, 0, .in = {CUBE(UNIFORM)}},
    {"cumsum in the middle", cumsum_middle, 1, 0, .in = {IMAGE(UNIFORM)}},
    {"cumsum of a vector", cumsum_last, 1, 0, .in = {{{1, {7}}, UNIFORM}}},
    {"log_softmax over channels", log_softmax, 1, 0, .in = {IMAGE(UNIFORM)}},
    {"topk", topk, 1, 0, .in = {{{3, {2, 3, 7}}, DISTINCT}}},
    {"control: a factor without its gradient", detached_factor, 1, 0, .in = {{{1, {3}}, FAR}}, .broken = true},
    {"where", where, 3, 0, .in = {CUBE(UNIFORM), CUBE(UNIFORM), CUBE(FAR)}},
    {"where, all broadcast", where, 3, 0, .in = {{{2, {4, 1}}, UNIFORM}, {{0, {0}}, UNIFORM}, {{3, {2, 1, 3}}, FAR}}},
    {"masked_fill", masked_fill, 2, 0, .in = {IMAGE(UNIFORM), {{2, {4, 1}}, FAR}}},
    {"gather of rows", gather_first, 1, 1, .in = {{{3, {3, 4, 3}}, UNIFORM}}, .constant = {{{3, {2, 3, 3}}, INDICES}}},
    {"gather, fewer columns than x", gather_last, 1, 1, .in = {CUBE(UNIFORM)}, .constant = {{{3, {2, 2, 5}}, INDICES}}},
    {"gather of images", gather_last, 1, 1, .in = {IMAGE(UNIFORM)}, .constant = {{{4, {2, 3, 4, 6}}, INDICES}}},
    {"scatter_add", scatter_add, 2, 1, .in = {CUBE(UNIFORM), {{3, {2, 6, 2}}, UNIFORM}},
     .constant = {{{3, {2, 6, 2}}, INDICES}}},
    {"index_select of rows", index_select_first, 1, 1, .in = {{{3, {3, 2, 4}}, UNIFORM}}, .constant = {{{1, {5}}, INDICES}}},
    {"index_select of channels", index_select_middle, 1, 1, .in = {IMAGE(UNIFORM)}, .constant = {{{1, {4}}, INDICES}}},
    {"upsample, nearest", nearest, 1, 0, .in = {IMAGE(UNIFORM)}},
    {"upsample to fewer pixels, nearest", nearest_smaller, 1, 0, .in = {IMAGE(UNIFORM)}},
    {"upsample, bilinear", bilinear, 1, 0, .in = {IMAGE(UNIFORM)}},
    {"upsample, bilinear with corners", bilinear_corners, 1, 0, .in = {IMAGE(UNIFORM)}},
    {"upsample to fewer pixels, bilinear", bilinear_smaller, 1, 0, .in = {IMAGE(UNIFORM)}},
    {"pad by a constant", pad_constant, 1, 0, .in = {IMAGE(UNIFORM)}},
    {"pad by reflection", pad_reflect, 1, 0, .in = {IMAGE(UNIFORM)}},
    {"pad by the edge", pad_replicate, 1, 0, .in = {CUBE(UNIFORM)}},
    {"pad of a vector", pad_vector, 1, 0, .in = {{{1, {4}}, UNIFORM}}},
    {"pixel_shuffle", pixel_shuffle, 2, 0, .in = {{{4, {2, 8, 2, 3}}, UNIFORM}, {{4, {2, 2, 4, 6}}, UNIFORM}}},
    {"conv1d", conv1d, 3, 0, .in = {{{3, {2, 3, 9}}, UNIFORM}, {{3, {4, 3, 3}}, UNIFORM}, {{1, {4}}, UNIFORM}}},
};
/* clang-format on */

const grad_row *select_rows(size_t i)
{
    return i < sizeof rows / sizeof *rows ? &rows[i] : NULL;
}
