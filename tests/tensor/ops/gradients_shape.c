/* Gradients of operations that move elements (permutation, slices, concatenation, repetition, embedding),
 * whose output is squared, so that each element's gradient differs; and of operations that take any leading
 * dimensions. */

#include "gradients.h"

static lt_tensor *square(lt_tape *t, lt_tensor *y)
{
    return lt_mul(t, y, y);
}

#define PERMUTE(name, ...)                                            \
    static lt_tensor *name(lt_tape *t, lt_tensor *const *in, void *c) \
    {                                                                 \
        (void)c;                                                      \
        return square(t, lt_permute(t, in[0], (int[]){__VA_ARGS__})); \
    }
PERMUTE(permute_matrix, 1, 0)
PERMUTE(permute_heads, 0, 2, 1, 3)
PERMUTE(permute_five, 3, 0, 4, 2, 1)
PERMUTE(permute_nothing, 0, 1, 2)

#define SLICE(name, dim, start, count)                                \
    static lt_tensor *name(lt_tape *t, lt_tensor *const *in, void *c) \
    {                                                                 \
        (void)c;                                                      \
        return square(t, lt_slice(t, in[0], dim, start, count));      \
    }
SLICE(slice_first, 0, 0, 1)
SLICE(slice_middle, 1, 1, 2)
SLICE(slice_last, -1, 2, 3)
SLICE(slice_all, 0, 0, 3)

FUNCTION(slices_that_overlap, lt_mul(t, lt_slice(t, in[0], 0, 0, 3), lt_slice(t, in[0], 0, 1, 3)));
FUNCTION(pad_rows, square(t, lt_pad_rows(t, in[0], 2, 7, 0.5)));
FUNCTION(concat_rows, square(t, lt_concat(t, in, 3, 0)));
FUNCTION(concat_last, square(t, lt_concat(t, in, 2, -1)));
FUNCTION(concat_one, square(t, lt_concat(t, in, 1, 0)));

static lt_tensor *concat_six(lt_tape *t, lt_tensor *const *in, void *c)
{
    (void)c;
    lt_tensor *x[] = {in[0], in[1], in[0], in[2], in[3], in[1]};
    return square(t, lt_concat(t, x, 6, 1));
}

static lt_tensor *concat_tail(lt_tape *t, lt_tensor *const *in, void *c)
{
    (void)c;
    lt_tensor *twice = lt_scale(t, in[0], 2);
    lt_tensor *x[] = {twice, twice, twice, twice, in[0], in[1]};
    return square(t, lt_concat(t, x, 6, 0));
}

FUNCTION(expand_to_images, lt_mul(t, lt_expand(t, in[0], LT_SHAPE(2, 3, 4, 5)), in[1]));
FUNCTION(expand_batch, lt_mul(t, lt_expand(t, in[0], LT_SHAPE(3, 2, 4)), in[1]));

static lt_tensor *embedding(lt_tape *t, lt_tensor *const *in, void *c)
{
    lt_tensor *const *constant = c;
    return square(t, lt_embedding(t, constant[0], in[0]));
}

/* An embedding whose table is also the classifier's weight. */
static lt_tensor *tied_embedding(lt_tape *t, lt_tensor *const *in, void *c)
{
    lt_tensor *const *constant = c;
    return lt_softmax_xent(t, lt_linear(t, lt_embedding(t, constant[0], in[0]), in[0], NULL),
                           constant[1], 0);
}

static lt_tensor *xent_of_tokens(lt_tape *t, lt_tensor *const *in, void *c)
{
    lt_tensor *const *constant = c;
    return lt_softmax_xent(t, in[0], constant[0], 0.1);
}

FUNCTION(linear, lt_linear(t, in[0], in[1], in[2]));
FUNCTION(linear_in_out, lt_linear_as(t, in[0], in[1], in[2], (lt_linear_config){.in_out = true}));

/* clang-format off */
static const grad_row rows[] = {
    {"rows that others surround", pad_rows, 1, 0, .in = {{{3, {3, 2, 4}}, UNIFORM}}},
    {"permute of a matrix", permute_matrix, 1, 0, .in = {{{2, {3, 4}}, UNIFORM}}},
    {"permute of heads, stored channels-last", permute_heads, 1, 0, .in = {{{4, {2, 3, 4, 5}}, UNIFORM}}},
    {"permute of five dimensions", permute_five, 1, 0, .in = {{{5, {2, 3, 1, 4, 2}}, UNIFORM}}},
    {"permute that changes nothing", permute_nothing, 1, 0, .in = {{{3, {2, 3, 4}}, UNIFORM}}},
    {"permute of extents of 1", permute_heads, 1, 0, .in = {{{4, {2, 1, 4, 1}}, UNIFORM}}},
    {"slice of one row", slice_first, 1, 0, .in = {{{2, {3, 4}}, UNIFORM}}},
    {"slice in the middle", slice_middle, 1, 0, .in = {{{3, {2, 4, 3}}, UNIFORM}}},
    {"slice of channels of an image", slice_middle, 1, 0, .in = {{{4, {2, 4, 3, 2}}, UNIFORM}}},
    {"slice of the last dimension", slice_last, 1, 0, .in = {{{2, {2, 5}}, UNIFORM}}},
    {"slice of everything", slice_all, 1, 0, .in = {{{1, {3}}, UNIFORM}}},
    {"slices that overlap", slices_that_overlap, 1, 0, .in = {{{2, {4, 3}}, UNIFORM}}},
    {"concat of three", concat_rows, 3, 0,
     .in = {{{2, {2, 3}}, UNIFORM}, {{2, {1, 3}}, UNIFORM}, {{2, {4, 3}}, UNIFORM}}},
    {"concat of images along their rows", concat_last, 2, 0,
     .in = {{{4, {2, 3, 2, 1}}, UNIFORM}, {{4, {2, 3, 2, 4}}, UNIFORM}}},
    {"concat of one", concat_one, 1, 0, .in = {{{1, {5}}, UNIFORM}}},
    {"concat of six, two of them twice", concat_six, 4, 0,
     .in = {{{2, {2, 3}}, UNIFORM}, {{2, {2, 1}}, UNIFORM}, {{2, {2, 2}}, UNIFORM}, {{2, {2, 4}}, UNIFORM}}},
    {"concat, the last two of six", concat_tail, 2, 0, .in = {{{1, {2}}, UNIFORM}, {{1, {3}}, UNIFORM}}},
    {"expand of a vector to images", expand_to_images, 2, 0,
     .in = {{{3, {3, 1, 1}}, UNIFORM}, {{4, {2, 3, 4, 5}}, UNIFORM}}},
    {"expand of a class token", expand_batch, 2, 0,
     .in = {{{3, {1, 2, 4}}, UNIFORM}, {{3, {3, 2, 4}}, UNIFORM}}},
    {"embedding", embedding, 1, 1, .in = {{{2, {3, 5}}, UNIFORM}}, .constant = {{{1, {7}}, INDICES}}},
    {"embedding of a batch", embedding, 1, 1, .in = {{{2, {4, 3}}, UNIFORM}}, .constant = {{{2, {2, 3}}, INDICES}}},
    {"embedding of one id", embedding, 1, 1, .in = {{{2, {3, 5}}, UNIFORM}}, .constant = {{{0, {0}}, INDICES}}},
    {"embedding of ids of four dimensions", embedding, 1, 1, .in = {{{2, {3, 2}}, UNIFORM}},
     .constant = {{{4, {2, 1, 3, 2}}, INDICES}}},
    {"embedding tied to the classifier", tied_embedding, 1, 2, .in = {{{2, {3, 4}}, UNIFORM}},
     .constant = {{{2, {2, 3}}, INDICES}, {{2, {2, 3}}, INDICES}}},
    {"linear of three dimensions", linear, 3, 0,
     .in = {{{3, {2, 3, 4}}, UNIFORM}, {{2, {5, 4}}, UNIFORM}, {{1, {5}}, UNIFORM}}},
    {"linear of channels-last images", linear, 3, 0,
     .in = {{{4, {2, 3, 2, 4}}, UNIFORM}, {{2, {5, 4}}, UNIFORM}, {{1, {5}}, UNIFORM}}},
    {"linear of a vector", linear, 3, 0,
     .in = {{{1, {4}}, UNIFORM}, {{2, {5, 4}}, UNIFORM}, {{1, {5}}, UNIFORM}}},
    {"linear, w as [in,out]", linear_in_out, 3, 0,
     .in = {{{3, {2, 3, 4}}, UNIFORM}, {{2, {4, 5}}, UNIFORM}, {{1, {5}}, UNIFORM}}},
    {"softmax_xent of tokens", xent_of_tokens, 1, 1, .in = {{{3, {2, 3, 5}}, UNIFORM}},
     .constant = {{{2, {2, 3}}, INDICES}}},
    {"softmax_xent with ignored labels", xent_of_tokens, 1, 1, .in = {{{3, {4, 5, 3}}, UNIFORM}},
     .constant = {{{2, {4, 5}}, LABELS}}},
    {"softmax_xent of images of logits", xent_of_tokens, 1, 1, .in = {{{4, {2, 2, 3, 4}}, UNIFORM}},
     .constant = {{{3, {2, 2, 3}}, INDICES}}},
};
/* clang-format on */

const grad_row *shape_rows(size_t i)
{
    return i < sizeof rows / sizeof *rows ? &rows[i] : NULL;
}
