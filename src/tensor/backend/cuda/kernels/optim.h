/* Per-element formulas of first-order optimizers, and lists of tensors as the parameter of one launch. Sources:
 * src/tensor/backend/ref/optim.c. */
#ifndef LT_CUDA_OPTIM_H
#define LT_CUDA_OPTIM_H

#include "tensor/backend/cuda/host_device.h"

#include "lather/detail/optim_kernels.h"

#include <math.h>

enum {
    LT_LIST_ITEMS = 256,  /* items per launch: the size of the kernel's parameter */
    LT_LIST_BLOCK = 8192, /* elements of a block */
    LT_LIST_STATES = 2
};

/* A tensor of a list: its views have equal dense strides, so elements are addressed by offset. */
typedef struct lt_list_item {
    float *value;
    const void *grad; /* grad_dtype: f32 or 16 bits */
    float *state[LT_LIST_STATES];
    int64_t count;
    float lr_scale, weight_decay;
    const double *missed; /* Adam: lt_optim_item.missed */
    void *cast;           /* cached cast of value, updated too; or NULL */
    lt_dtype cast_dtype;
    lt_dtype grad_dtype;
    int64_t first_block;
    bool first; /* SGD's first step: the momentum is the gradient */
} lt_list_item;

typedef struct lt_list {
    int count, blocks;
    lt_list_item item[LT_LIST_ITEMS];
} lt_list;

/* Inputs and outputs of a rule; the gradient is unscaled and clipped. */
typedef struct lt_list_element {
    float p, g, state[LT_LIST_STATES];
} lt_list_element;

/* Hyperparameters of a step, the same for all elements of an item. */
typedef struct lt_list_step {
    float lr, weight_decay;
    float a, rest_a;      /* Adam: beta1, 1 - beta1; SGD: momentum, 1 - dampening; lerp: weight */
    float b, rest_b, eps; /* Adam: beta2, 1 - beta2 */
    float correct1, correct2; /* Adam: 1 / (1 - beta^t) */
    bool first, nesterov, decoupled, momentum;
} lt_list_step;

LT_HD void lt_sgd_element(lt_list_element *e, const lt_list_step *s)
{
    const float g = e->g + s->weight_decay * e->p;
    float d = g;
    if (s->momentum) {
        const float m = s->first ? g : s->a * e->state[0] + s->rest_a * g;
        e->state[0] = m;
        d = s->nesterov ? g + s->a * m : m;
    }
    e->p -= s->lr * d;
}

LT_HD void lt_adagrad_element(lt_list_element *e, const lt_list_step *s)
{
    const float g = e->g + s->weight_decay * e->p;
    e->state[0] += g * g;
    e->p -= s->lr * g / (sqrtf(e->state[0]) + s->eps);
}

LT_HD void lt_adam_element(lt_list_element *e, const lt_list_step *s)
{
    float g = e->g;
    if (s->decoupled)
        e->p *= 1 - s->lr * s->weight_decay;
    else
        g += s->weight_decay * e->p;
    e->state[0] = s->a * e->state[0] + s->rest_a * g;
    e->state[1] = s->b * e->state[1] + s->rest_b * g * g;
    e->p -= s->lr * (e->state[0] * s->correct1) / (sqrtf(e->state[1] * s->correct2) + s->eps);
}

LT_HD void lt_lerp_element(lt_list_element *e, const lt_list_step *s)
{
    e->p += s->a * (e->state[0] - e->p);
}

/* Updates the scalars from the gradients' sum of squares. */
LT_HD void lt_update_norm_scalars(lt_scalars *s, double square)
{
    const double norm = sqrt(square) / s->loss_scale, clip = s->clip_norm;
    s->finite = square - square == 0;
    s->grad_norm = norm;
    s->grad_scale = (clip > 0 && norm > clip ? clip / norm : 1) / s->loss_scale;
    s->applied += s->finite;
}

enum { LT_TRUST_ITEMS = 256 }; /* items per launch: the kernel's parameter, 4 KiB */

typedef struct lt_trust_list {
    lt_trust_kernel config;
    int count;
    lt_trust_item item[LT_TRUST_ITEMS];
} lt_trust_list;

/* Trust ratio, as in the reference backend. */
LT_HD double lt_compute_trust_ratio(const lt_trust_kernel *c, const lt_trust_item *item,
                                    double weight, double update, const lt_scalars *s)
{
    const double u =
        c->of_gradients ? update * s->grad_scale + item->weight_decay * weight : update;
    const double ratio = weight > 0 && update > 0 ? c->coefficient * weight / (u + c->eps) : 1;
    switch (c->limit) {
    case LT_TRUST_LIMIT_ONE:
        return fmin(1.0, ratio);
    case LT_TRUST_LIMIT_LR:
        return fmin(1.0, ratio / (s->lr * item->lr_scale));
    case LT_TRUST_NO_LIMIT:
        break;
    }
    return ratio;
}

#ifdef __cplusplus
extern "C" {
#endif

/* Moves items into the list until it is full and returns their number in *taken. first may be NULL. Errors:
 * LT_E_UNSUPPORTED for dtypes other than f32, with *taken 0. */
lt_status lt_list_fill(lt_list *list, const lt_optim_item *item, const bool *first, size_t count,
                       size_t *taken);

#ifdef __cplusplus
}
#endif

#endif
