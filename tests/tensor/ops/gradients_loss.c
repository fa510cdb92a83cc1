/* Gradients of losses. */

#include "gradients.h"

#define LOSS(name, f, ...)                                  \
    FUNCTION(name##_mean, f(t, __VA_ARGS__, LT_LOSS_MEAN)); \
    FUNCTION(name##_sum, f(t, __VA_ARGS__, LT_LOSS_SUM));   \
    FUNCTION(name##_each, f(t, __VA_ARGS__, LT_LOSS_NONE))
LOSS(l1, lt_l1_loss, in[0], in[1]);
LOSS(huber, lt_huber_loss, in[0], in[1], 0.4);
LOSS(smooth_l1, lt_smooth_l1_loss, in[0], in[1], 0.6);
LOSS(kl, lt_kl_div, in[0], in[1], false);
LOSS(kl_log, lt_kl_div, in[0], in[1], true);
LOSS(focal, lt_sigmoid_focal_loss, in[0], in[1], 0.25, 2);
LOSS(bce, lt_bce_with_logits_weighted, in[0], in[1], in[2], in[3]);
LOSS(triplet, lt_triplet_margin_loss, in, 1, false);
LOSS(triplet_swap, lt_triplet_margin_loss, in, 1, true);

#define OF_LABELS(name, call)                                         \
    static lt_tensor *name(lt_tape *t, lt_tensor *const *in, void *c) \
    {                                                                 \
        lt_tensor *const *labels = c;                                 \
        return call;                                                  \
    }
OF_LABELS(nll, lt_nll_loss(t, in[0], labels[0], NULL, LT_LOSS_MEAN))
OF_LABELS(nll_each, lt_nll_loss(t, in[0], labels[0], labels[1], LT_LOSS_NONE))
OF_LABELS(entropy, lt_cross_entropy(t, in[0], labels[0], labels[1],
                                    (lt_cross_entropy_config){.smoothing = 0.2}))
OF_LABELS(entropy_unweighted,
          lt_cross_entropy(t, in[0], labels[0], NULL, (lt_cross_entropy_config){.smoothing = 0.1}))

#define MATRIX(how)      \
    {                    \
        {2, {3, 4}}, how \
    }
#define PAIR MATRIX(FAR), MATRIX(UNIFORM)
#define KL   MATRIX(UNIFORM), MATRIX(NEAR_ONE)
#define FOUR                                              \
    MATRIX(FAR), MATRIX(UNIFORM), {{2, {3, 1}}, UNIFORM}, \
    {                                                     \
        {1, {4}}, NEAR_ONE                                \
    }
#define POINTS MATRIX(UNIFORM), MATRIX(UNIFORM), MATRIX(UNIFORM)
#define LABELLED \
    .in = {{{3, {2, 4, 3}}, UNIFORM}}, .constant = {{{2, {2, 4}}, LABELS}, {{1, {3}}, NEAR_ONE}}

/* clang-format off */
#define REDUCED(name, count, inputs)                               \
    {#name ", mean", name##_mean, count, 0, .in = {inputs}},       \
    {#name ", sum", name##_sum, count, 0, .in = {inputs}},         \
    {#name " of each", name##_each, count, 0, .in = {inputs}}
static const grad_row rows[] = {
    REDUCED(l1, 2, PAIR), REDUCED(huber, 2, PAIR), REDUCED(smooth_l1, 2, PAIR), REDUCED(kl, 2, KL),
    REDUCED(kl_log, 2, PAIR), REDUCED(focal, 2, PAIR), REDUCED(bce, 4, FOUR), REDUCED(triplet, 3, POINTS),
    REDUCED(triplet_swap, 3, POINTS),
    {"nll_loss", nll, 1, 2, LABELLED},
    {"nll_loss of each, with weights", nll_each, 1, 2, LABELLED},
    {"cross_entropy with weights and smoothing", entropy, 1, 2, LABELLED},
    {"cross_entropy with smoothing", entropy_unweighted, 1, 2, LABELLED},
};
/* clang-format on */

const grad_row *loss_rows(size_t i)
{
    return i < sizeof rows / sizeof *rows ? &rows[i] : NULL;
}
