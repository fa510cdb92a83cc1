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

/* Returns q[n,k] of soft targets. */
LT_HD double lt_target_probability(const lt_targets *t, int64_t n, int64_t k)
{
    const double value = lt_element(t->values, t->dtype, n * t->stride[0] + k * t->stride[1]);
    return (1 - t->smoothing) * value + t->smoothing / (double)t->classes;
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

/* Returns row n's class index; hard labels. */
LT_HD int64_t lt_target_label(const lt_targets *t, int64_t n)
{
    return (int64_t)lt_element(t->values, t->dtype, n * t->stride[0]);
}

/* Returns the loss of a row with a class index: own is its logit, logits the sum of the row's. */
LT_HD double lt_hard_loss(const lt_targets *t, double own, double logits, double lse)
{
    const double kept = t->smoothing == 1 ? 0 : (1 - t->smoothing) * (lse - own);
    const double even = lse - logits / (double)t->classes;
    return t->smoothing == 0 ? kept : kept + t->smoothing * even;
}

#endif
