/** Optimizer kernels that a backend provides: signatures and formulas. */
#ifndef LATHER_DETAIL_OPTIM_KERNELS_H
#define LATHER_DETAIL_OPTIM_KERNELS_H

/* Not a stable interface: may change in any release. */

#include "lather/detail/entry.h"
#include "lather/detail/scalars.h"

/* All views of one item have the same shape and the same dense strides, dtype f32 or f64. Every kernel that
 * takes scalars leaves everything untouched if scalars->finite is 0. */

enum { LT_MAX_ITEM_STATE = 3 };

/** One parameter of a list. */
typedef struct lt_optim_item {
    lt_view value, grad;              /**< grad is multiplied with scalars->grad_scale */
    lt_view state[LT_MAX_ITEM_STATE]; /**< state tensors in the order that each kernel defines */
    double lr_scale;                  /**< factor of scalars->lr */
    double weight_decay;
    const double *missed; /**< device memory; for adam: t = applied - *missed; NULL: 0 */
} lt_optim_item;

/** Sets scalars' grad_norm, finite, grad_scale = min(1, clip_norm / grad_norm) / loss_scale, and increments
 *  applied if finite. Squares are summed in double in a fixed order. Reads only grad, which here may be f64
 *  among f32 items. */
LT_ENTRY(grad_norm, void *ctx, const lt_optim_item *item, size_t count, lt_scalars *scalars);

/** Runs after grad_norm; sets loss_scale and good_steps for the next step. */
LT_ENTRY(loss_scale, void *ctx, const lt_loss_scaling *config, lt_scalars *scalars);

typedef struct lt_sgd_kernel {
    double momentum, dampening;
    bool nesterov;
} lt_sgd_kernel;
/** SGD: g += weight_decay * p; m = momentum * m + (1 - dampening) * g; p -= lr * (g + momentum * m if nesterov, else
 *  m). state: m (absent without momentum). first[i]: the item's first update, which sets m = g. */
LT_ENTRY(sgd, void *ctx, const lt_sgd_kernel *config, const lt_optim_item *item, const bool *first,
         size_t count, const lt_scalars *scalars);

/** AdaGrad: g += weight_decay * p; s += g*g; p -= lr * g / (sqrt(s) + eps). state: s. */
LT_ENTRY(adagrad, void *ctx, double eps, const lt_optim_item *item, size_t count,
         const lt_scalars *scalars);

typedef struct lt_adam_kernel {
    double beta1, beta2, eps;
    bool decoupled; /**< p *= 1 - lr * weight_decay first, instead of g += weight_decay * p */
} lt_adam_kernel;
/** Adam. m, v: moving averages of g and g*g; p -= lr * m/(1-beta1^t) / (sqrt(v/(1-beta2^t)) + eps), t = applied -
 *  *missed. state: m, v. */
LT_ENTRY(adam, void *ctx, const lt_adam_kernel *config, const lt_optim_item *item, size_t count,
         const lt_scalars *scalars);

/** value += weight * (state[0] - value): exponential moving average of weights. */
LT_ENTRY(lerp, void *ctx, double weight, const lt_optim_item *item, size_t count,
         const lt_scalars *scalars);

/** Upper limit of trust ratios. */
typedef enum lt_trust_limit {
    LT_TRUST_NO_LIMIT,
    LT_TRUST_LIMIT_ONE, /**< trust ratio r = min(1, r) */
    LT_TRUST_LIMIT_LR   /**< trust ratio r = min(1, r / lr), lr = scalars->lr * lr_scale */
} lt_trust_limit;
typedef struct lt_trust_kernel {
    double coefficient, eps;
    /** The norms are those of unscaled gradients: multiplied with scalars->grad_scale. */
    bool of_gradients;
    lt_trust_limit limit;
} lt_trust_kernel;
typedef struct lt_trust_item {
    double lr_scale, weight_decay;
} lt_trust_item;
/** Computes trust ratios in an f64 table [3,count] on the device: r[2,i] = coefficient w / (u + eps), with the
 *  weight norm w = r[0,i] and the update norm u = r[1,i] (u + weight_decay w if of_gradients); 1 where w or u
 *  is 0. */
LT_ENTRY(trust_ratio, void *ctx, const lt_trust_kernel *config, const lt_trust_item *item,
         size_t count, const lt_view *table, const lt_scalars *scalars);

/** List of the kernels above; columns as in detail/entry.h. */
#define LT_OPTIM_ENTRIES(X)   \
    X(grad_norm, BASIC, OWN)  \
    X(loss_scale, BASIC, REF) \
    X(sgd, BASIC, OWN)        \
    X(adagrad, BASIC, OWN)    \
    X(adam, BASIC, OWN)       \
    X(lerp, BASIC, OWN)       \
    X(trust_ratio, BASIC, REF)

#endif
