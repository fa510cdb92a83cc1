/** Vector kernels that a backend provides: elementwise expressions of optimizers. */
#ifndef LATHER_DETAIL_VEC_KERNELS_H
#define LATHER_DETAIL_VEC_KERNELS_H

/* Not a stable interface: may change in any release. */

#include "lather/detail/entry.h"
#include "lather/detail/scalars.h"
#include "lather/ext/elementary.h"

#include <math.h>

/* The jobs of one call are independent and may run in any order. With beta 0 the output is not read. scalars
 * NULL in vec, gram and mode_product: no step is skipped. */
/** Formula of a job of the kernel vec. a or b may be y. */
typedef enum lt_vec_op {
    LT_VEC_AXPBY,  /**< y = alpha * a + beta * y */
    LT_VEC_SQUARE, /**< y = alpha * a * a + beta * y */
    LT_VEC_MUL,    /**< y = alpha * a * b */
    LT_VEC_RSQRT,  /**< y = alpha * a / (sqrt(beta * b) + gamma) */
    LT_VEC_POW,    /**< y = alpha * a / (pow(beta * b, delta) + gamma) */
    LT_VEC_SIGN    /**< y = alpha * sign(a), 0 of 0 */
} lt_vec_op;
/** Numbers that change from step to step, read on the device when the kernel runs. */
typedef struct lt_vec_factor {
    bool lr;              /**< alpha *= scalars->lr */
    bool grad_scale;      /**< alpha *= scalars->grad_scale */
    double bias, base;    /**< if bias is not 0, alpha (RSQRT, POW: beta) is divided by */
    int lag;              /**< 1 - bias * base^(scalars->applied - lag - *missed) */
    const double *missed; /**< address of the missed steps in device memory; NULL: 0 */
    const double *over;   /**< if not NULL: alpha *= *over / (*under + 1e-16), device memory */
    const double *under;
} lt_vec_factor;
/** One elementwise expression on strided views of one shape (stride 0 repeats); b is absent if the formula
 *  lacks it. */
typedef struct lt_vec_job {
    lt_vec_op op;
    double alpha, beta, gamma, delta;
    lt_vec_factor factor;
    lt_view a, b, y;
} lt_vec_job;
LT_ENTRY(vec, void *ctx, const lt_vec_job *job, size_t count, const lt_scalars *scalars);
/** job[0] to job[count-1], applied in order to the same elements: all views have one shape. */
typedef struct lt_vec_list {
    const lt_vec_job *job;
    size_t count;
    /** Data pointer of views that are temporaries of the list, so that a backend need not write them; or NULL. */
    const void *scratch;
} lt_vec_list;
LT_ENTRY(vec_lists, void *ctx, const lt_vec_list *list, size_t count, const lt_scalars *scalars);

static inline double lt_vec_bias(const lt_vec_job *job, const lt_scalars *s)
{
    const lt_vec_factor *f = &job->factor;
    if (!(f->bias > 0))
        return 1;
    const double steps = (double)(s->applied - f->lag) - (f->missed ? *f->missed : 0);
    return 1 - f->bias * lt_f64_pow(f->base, steps);
}
static inline bool lt_vec_corrects_beta(const lt_vec_job *job)
{
    return job->op == LT_VEC_RSQRT || job->op == LT_VEC_POW;
}
/** Returns alpha with its factors applied, as a kernel must use it; lt_vec_beta() likewise. */
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

/** List of the kernels above; columns as in detail/entry.h. */
#define LT_VEC_ENTRIES(X) \
    X(vec, BASIC, OWN)    \
    X(vec_lists, FUSED, OWN)

#endif
