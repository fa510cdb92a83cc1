/** A backend's entries for optimizers: their signatures, and what they compute. */
#ifndef LATHER_EXT_OPTIM_KERNELS_H
#define LATHER_EXT_OPTIM_KERNELS_H

#include "lather/ext/entry.h"
#include "lather/ext/scalars.h"

#include <math.h>

/* All views of one item have the same shape and the same dense strides, dtype f32 or f64. Every
 * entry that gets scalars leaves everything untouched if scalars->finite is 0. */

enum { LT_MAX_ITEM_STATE = 3 };

/** One parameter of a list. */
typedef struct lt_optim_item {
    lt_view value, grad;              /**< grad is read times scalars->grad_scale */
    lt_view state[LT_MAX_ITEM_STATE]; /**< what the entry says */
    double lr_scale;                  /**< times scalars->lr */
    double weight_decay;
} lt_optim_item;

/** scalars: grad_norm, finite, grad_scale = min(1, clip_norm / grad_norm) / loss_scale, and
 *  applied + 1 if finite. Squares are summed in double, in a fixed order. Reads grad only; one alone may be f64. */
LT_ENTRY(grad_norm, void *ctx, const lt_optim_item *item, size_t count, lt_scalars *scalars);

/** After grad_norm: loss_scale and good_steps of the next step. */
LT_ENTRY(loss_scale, void *ctx, const lt_loss_scaling *config, lt_scalars *scalars);

typedef struct lt_sgd_kernel {
    double momentum, dampening;
    bool nesterov;
} lt_sgd_kernel;
/** g += weight_decay * p; m = momentum * m + (1 - dampening) * g; p -= lr * (g + momentum * m if
 *  nesterov, else m). state: m (absent without momentum). An item's first update takes m = g:
 *  first[i] says so. */
LT_ENTRY(sgd, void *ctx, const lt_sgd_kernel *config, const lt_optim_item *item, const bool *first,
         size_t count, const lt_scalars *scalars);

/** g += weight_decay * p; s += g*g; p -= lr * g / (sqrt(s) + eps). state: s. */
LT_ENTRY(adagrad, void *ctx, double eps, const lt_optim_item *item, size_t count,
         const lt_scalars *scalars);

typedef struct lt_adam_kernel {
    double beta1, beta2, eps;
    bool decoupled; /**< p *= 1 - lr * weight_decay first, instead of g += weight_decay * p */
} lt_adam_kernel;
/** m, v: EMA of g and g*g; p -= lr * m/(1-beta1^t) / (sqrt(v/(1-beta2^t)) + eps), t = applied.
 *  state: m, v. */
LT_ENTRY(adam, void *ctx, const lt_adam_kernel *config, const lt_optim_item *item, size_t count,
         const lt_scalars *scalars);

/** value += weight * (state[0] - value): the EMA of weights. */
LT_ENTRY(lerp, void *ctx, double weight, const lt_optim_item *item, size_t count,
         const lt_scalars *scalars);

/** What trust ratios are compared with from above. */
typedef enum lt_trust_limit {
    LT_TRUST_NO_LIMIT,
    LT_TRUST_LIMIT_ONE, /**< r = min(1, r) */
    LT_TRUST_LIMIT_LR   /**< r = min(1, r / lr), lr = scalars->lr * lr_scale */
} lt_trust_limit;
typedef struct lt_trust_kernel {
    double coefficient, eps;
    bool of_gradients; /**< norms of updates are gradients': read times scalars->grad_scale */
    lt_trust_limit limit;
} lt_trust_kernel;
typedef struct lt_trust_item {
    double lr_scale, weight_decay;
} lt_trust_item;
/** Columns of an f64 table [3,count] on the device: r[2,i] = coefficient w / (u + eps), with weights' norms
 *  w = r[0,i] and updates' u = r[1,i], of gradients u + weight_decay w in its place; 1 where w or u is 0. */
LT_ENTRY(trust_ratio, void *ctx, const lt_trust_kernel *config, const lt_trust_item *item,
         size_t count, const lt_view *table, const lt_scalars *scalars);

/* Entries that take jobs: the jobs of one call are independent of each other and may run in any
 * order. With beta 0 the output is not read. scalars NULL in vec, gram, mode_product: no skips. */
/** What lt_vec_fn computes. a or b may be y. */
typedef enum lt_vec_op {
    LT_VEC_AXPBY,  /**< y = alpha * a + beta * y */
    LT_VEC_SQUARE, /**< y = alpha * a * a + beta * y */
    LT_VEC_MUL,    /**< y = alpha * a * b */
    LT_VEC_RSQRT,  /**< y = alpha * a / (sqrt(beta * b) + gamma) */
    LT_VEC_POW,    /**< y = alpha * a / (pow(beta * b, delta) + gamma) */
    LT_VEC_SIGN    /**< y = alpha * sign(a), 0 of 0 */
} lt_vec_op;
/** Numbers that change from step to step: the kernel reads them where they lie. */
typedef struct lt_vec_factor {
    bool lr;            /**< alpha *= scalars->lr */
    bool grad_scale;    /**< alpha *= scalars->grad_scale */
    double bias, base;  /**< bias not 0: alpha (in RSQRT and POW: beta) is divided by */
    int lag;            /**< 1 - bias * base^(scalars->applied - lag) */
    const double *over; /**< not NULL: alpha *= *over / (*under + 1e-16), device memory */
    const double *under;
} lt_vec_factor;
/** One elementwise kernel on strided views of one shape (stride 0 repeats); b is absent where
 *  the formula has none. */
typedef struct lt_vec_job {
    lt_vec_op op;
    double alpha, beta, gamma, delta;
    lt_vec_factor factor;
    lt_view a, b, y;
} lt_vec_job;
LT_ENTRY(vec, void *ctx, const lt_vec_job *job, size_t count, const lt_scalars *scalars);
/** job[0] to job[count-1], one after the other on the same elements: all views have one shape. */
typedef struct lt_vec_list {
    const lt_vec_job *job;
    size_t count;
    /** Where equal views lie whose values are not wanted behind the list, so that a backend need not write them; or NULL. */
    const void *scratch;
} lt_vec_list;
LT_ENTRY(vec_lists, void *ctx, const lt_vec_list *list, size_t count, const lt_scalars *scalars);

static inline double lt_vec_bias(const lt_vec_job *job, const lt_scalars *s)
{
    const lt_vec_factor *f = &job->factor;
    return f->bias > 0 ? 1 - f->bias * pow(f->base, (double)(s->applied - f->lag)) : 1;
}
static inline bool lt_vec_corrects_beta(const lt_vec_job *job)
{
    return job->op == LT_VEC_RSQRT || job->op == LT_VEC_POW;
}
/** alpha and beta as a kernel must use them. */
static inline double lt_vec_alpha(const lt_vec_job *job, const lt_scalars *s)
{
    const lt_vec_factor *f = &job->factor;
    double alpha = job->alpha;
    alpha *= f->lr ? s->lr : 1;
    alpha *= f->grad_scale ? s->grad_scale : 1;
    alpha *= f->over ? *f->over / (*f->under + 1e-16) : 1;
    return lt_vec_corrects_beta(job) ? alpha : alpha / lt_vec_bias(job, s);
}
static inline double lt_vec_beta(const lt_vec_job *job, const lt_scalars *s)
{
    return lt_vec_corrects_beta(job) ? job->beta / lt_vec_bias(job, s) : job->beta;
}

/** The entries above: ext/entry.h. */
#define LT_OPTIM_ENTRIES(X)    \
    X(grad_norm, BASIC, OWN)   \
    X(loss_scale, BASIC, REF)  \
    X(sgd, BASIC, OWN)         \
    X(adagrad, BASIC, OWN)     \
    X(adam, BASIC, OWN)        \
    X(lerp, BASIC, OWN)        \
    X(trust_ratio, BASIC, REF) \
    X(vec, BASIC, OWN)         \
    X(vec_lists, FUSED, OWN)

#endif
