/* Per-element formulas of softmax cross-entropy. */
#ifndef LT_CUDA_LOSS_H
#define LT_CUDA_LOSS_H

#include "tensor/backend/cuda/element.h"

#include <math.h>

/* Targets of a batch of logits [rows, classes]. */
typedef struct lt_targets {
    const void *values; /* i32 [rows], or floating [rows, classes] */
    lt_dtype dtype;
    int64_t rows, classes, stride[2];
    bool soft;
    double smoothing;
} lt_targets;

/* Returns whether row n has neither loss nor gradient. */
LT_HD bool lt_target_is_ignored(const lt_targets *t, int64_t n)
{
    return !t->soft
           && lt_element(t->values, t->dtype, n * t->stride[0]) == (double)LT_IGNORED_LABEL;
}

/* Returns q[n,k], 0 for an ignored row. */
LT_HD double lt_target_probability(const lt_targets *t, int64_t n, int64_t k)
{
    const double value =
        lt_element(t->values, t->dtype, n * t->stride[0] + (t->soft ? k * t->stride[1] : 0));
    if (lt_target_is_ignored(t, n))
        return 0;
    const double one = t->soft ? value : (double)((int64_t)value == k);
    return (1 - t->smoothing) * one + t->smoothing / (double)t->classes;
}

/* Returns whether row n's label is a class or LT_IGNORED_LABEL. Soft labels are not checked. */
LT_HD bool lt_target_is_class(const lt_targets *t, int64_t n)
{
    const double label = t->soft ? 0 : lt_element(t->values, t->dtype, n * t->stride[0]);
    return (label >= 0 && label < (double)t->classes) || lt_target_is_ignored(t, n);
}

/* Returns a class's contribution to the row's loss, 0 if q is 0: its logit may be -inf. */
LT_HD double lt_loss_term(double q, float z, float lse)
{
    return q == 0 ? 0 : -q * ((double)z - (double)lse);
}

/* Returns whether class k with logit z ranks before the label, whose logit is own. */
LT_HD bool lt_ranks_before_label(float z, int64_t k, float own, int64_t label)
{
    return z > own || (k < label && z == own);
}

#endif
