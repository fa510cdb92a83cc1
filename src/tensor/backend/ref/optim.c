/* First-order optimizers over lists of parameters, in double. SGD: Sutskever et al., "On the importance of
 * initialization and momentum in deep learning", ICML 2013, in PyTorch's form (lr outside the momentum).
 * AdaGrad: Duchi, Hazan & Singer, JMLR 2011, figure 1 (diagonal). Adam: Kingma & Ba, ICLR 2015, algorithm 1;
 * decoupled decay: Loshchilov & Hutter, ICLR 2019, algorithm 2. Formulas: detail/optim_kernels.h. */

#include "ref.h"

#include "lather/ext/elementary.h"

#include <math.h>

lt_status lt_ref_grad_norm(void *ctx, const lt_optim_item *item, size_t count, lt_scalars *scalars)
{
    (void)ctx;
    double square = 0;
    for (size_t i = 0; i < count; i++) {
        lt_ref_call call = {0};
        double *g = lt_ref_gather_f64(&call, &item[i].grad);
        LT_TRY(call.status);
        for (int64_t j = 0, elements = lt_ref_element_count(&item[i].grad); j < elements; j++)
            square += g[j] * g[j];
        LT_TRY(lt_ref_finish(&call));
    }
    double norm = sqrt(square) / scalars->loss_scale, clip = scalars->clip_norm;
    scalars->finite = isfinite(square);
    scalars->grad_norm = norm;
    scalars->grad_scale = (clip > 0 && norm > clip ? clip / norm : 1) / scalars->loss_scale;
    scalars->applied += scalars->finite;
    return LT_OK;
}

lt_status lt_ref_loss_scale(void *ctx, const lt_loss_scaling *config, lt_scalars *scalars)
{
    (void)ctx;
    double factor = 1;
    scalars->good_steps = scalars->finite ? scalars->good_steps + 1 : 0;
    if (!scalars->finite)
        factor = config->backoff;
    else if (scalars->good_steps == config->interval)
        factor = config->growth;
    if (isfinite((float)(scalars->loss_scale * factor))) /* the loss scale must be finite in f32 */
        scalars->loss_scale *= factor;
    if (scalars->good_steps == config->interval)
        scalars->good_steps = 0;
    return LT_OK;
}

/* An item's tensors in double; NULL if the view is absent, except p. */
typedef struct slot {
    double *p, *g, *state[LT_MAX_ITEM_STATE];
    int64_t count;
    double lr, weight_decay, step; /* step: number of updates, this one included */
    bool first;                    /* first update */
} slot;

/* Gathers an item, with its gradient unscaled and clipped. */
static lt_status gather_item(lt_ref_call *call, slot *s, const lt_optim_item *item,
                             const lt_scalars *scalars)
{
    *s = (slot){
        .p = lt_ref_gather_f64(call, &item->value),
        .g = lt_ref_gather_f64(call, &item->grad),
        .count = lt_ref_element_count(&item->value),
        .lr = scalars->lr * item->lr_scale,
        .weight_decay = item->weight_decay,
    };
    for (int i = 0; i < LT_MAX_ITEM_STATE; i++)
        s->state[i] = lt_ref_gather_f64(call, &item->state[i]);
    for (int64_t j = 0; s->g && j < s->count; j++)
        s->g[j] *= scalars->grad_scale;
    return call->status ? lt_ref_finish(call) : LT_OK;
}

/* Writes value and states back. */
static void scatter_item(const slot *s, const lt_optim_item *item)
{
    lt_ref_scatter_f64(s->p, &item->value);
    for (int i = 0; i < LT_MAX_ITEM_STATE; i++)
        if (s->state[i])
            lt_ref_scatter_f64(s->state[i], &item->state[i]);
}

typedef void update_fn(const void *config, slot *s);

static lt_status update_all(update_fn *update, const void *config, const lt_optim_item *item,
                            const bool *first, size_t count, const lt_scalars *scalars)
{
    for (size_t i = 0; scalars->finite && i < count; i++) {
        slot s;
        lt_ref_call call = {0};
        LT_TRY(gather_item(&call, &s, &item[i], scalars));
        s.first = first && first[i];
        s.step = (double)scalars->applied - (item[i].missed ? *item[i].missed : 0);
        update(config, &s);
        scatter_item(&s, &item[i]);
        LT_TRY(lt_ref_finish(&call));
    }
    return LT_OK;
}

static void sgd_update(const void *config, slot *s)
{
    const lt_sgd_kernel *c = config;
    double *m = s->state[0];
    for (int64_t j = 0; j < s->count; j++) {
        double g = s->g[j] + s->weight_decay * s->p[j], d = g;
        if (m) {
            m[j] = s->first ? g : c->momentum * m[j] + (1 - c->dampening) * g;
            d = c->nesterov ? g + c->momentum * m[j] : m[j];
        }
        s->p[j] -= s->lr * d;
    }
}

lt_status lt_ref_sgd(void *ctx, const lt_sgd_kernel *config, const lt_optim_item *item,
                     const bool *first, size_t count, const lt_scalars *scalars)
{
    (void)ctx;
    return update_all(sgd_update, config, item, first, count, scalars);
}

static void adagrad_update(const void *config, slot *s)
{
    const double eps = *(const double *)config;
    for (int64_t j = 0; j < s->count; j++) {
        double g = s->g[j] + s->weight_decay * s->p[j];
        s->state[0][j] += g * g;
        s->p[j] -= s->lr * g / (sqrt(s->state[0][j]) + eps);
    }
}

lt_status lt_ref_adagrad(void *ctx, double eps, const lt_optim_item *item, size_t count,
                         const lt_scalars *scalars)
{
    (void)ctx;
    return update_all(adagrad_update, &eps, item, NULL, count, scalars);
}

static void adam_update(const void *config, slot *s)
{
    const lt_adam_kernel *c = config;
    double *m = s->state[0], *v = s->state[1];
    double correct1 = 1 - lt_f64_pow(c->beta1, s->step),
           correct2 = 1 - lt_f64_pow(c->beta2, s->step);
    for (int64_t j = 0; j < s->count; j++) {
        double g = s->g[j];
        if (c->decoupled)
            s->p[j] *= 1 - s->lr * s->weight_decay;
        else
            g += s->weight_decay * s->p[j];
        m[j] = c->beta1 * m[j] + (1 - c->beta1) * g;
        v[j] = c->beta2 * v[j] + (1 - c->beta2) * g * g;
        s->p[j] -= s->lr * (m[j] / correct1) / (sqrt(v[j] / correct2) + c->eps);
    }
}

lt_status lt_ref_adam(void *ctx, const lt_adam_kernel *config, const lt_optim_item *item,
                      size_t count, const lt_scalars *scalars)
{
    (void)ctx;
    return update_all(adam_update, config, item, NULL, count, scalars);
}

lt_status lt_ref_lerp(void *ctx, double weight, const lt_optim_item *item, size_t count,
                      const lt_scalars *scalars)
{
    (void)ctx;
    for (size_t i = 0; scalars->finite && i < count; i++) {
        slot s;
        lt_ref_call call = {0};
        LT_TRY(gather_item(&call, &s, &item[i], scalars));
        for (int64_t j = 0; j < s.count; j++)
            s.p[j] += weight * (s.state[0][j] - s.p[j]);
        lt_ref_scatter_f64(s.p, &item[i].value);
        LT_TRY(lt_ref_finish(&call));
    }
    return LT_OK;
}

/* --- Trust ratios: You, Gitman & Ginsburg 2017 (arXiv 1708.03888), equation 6 --- */

static double compute_trust_ratio(const lt_trust_kernel *c, const lt_trust_item *item,
                                  double weight, double update, const lt_scalars *s)
{
    const double u =
        c->of_gradients ? update * s->grad_scale + item->weight_decay * weight : update;
    const double ratio = weight > 0 && update > 0 ? c->coefficient * weight / (u + c->eps) : 1;
    switch (c->limit) {
    case LT_TRUST_LIMIT_ONE:
        return fmin(1, ratio);
    case LT_TRUST_LIMIT_LR:
        return fmin(1, ratio / (s->lr * item->lr_scale));
    case LT_TRUST_NO_LIMIT:
        break;
    }
    return ratio;
}

lt_status lt_ref_trust_ratio(void *ctx, const lt_trust_kernel *config, const lt_trust_item *item,
                             size_t count, const lt_view *table, const lt_scalars *scalars)
{
    double *const weight = table->data;
    const double *update = weight + table->stride[0];
    (void)ctx;
    for (size_t i = 0; scalars->finite && i < count; i++)
        weight[2 * table->stride[0] + (int64_t)i] =
            compute_trust_ratio(config, &item[i], weight[i], update[i], scalars);
    return LT_OK;
}

/* --- Elementwise expressions. Formulas: lt_vec_op --- */

static double evaluate_vec_op(const lt_vec_job *j, double a, double b, double y)
{
    double kept = j->beta == 0 ? 0 : j->beta * y; /* with beta 0 a NaN in y must not survive */
    switch (j->op) {
    case LT_VEC_AXPBY:
        return j->alpha * a + kept;
    case LT_VEC_SQUARE:
        return j->alpha * a * a + kept;
    case LT_VEC_MUL:
        return j->alpha * a * b;
    case LT_VEC_RSQRT:
        return j->alpha * a / (sqrt(j->beta * b) + j->gamma);
    case LT_VEC_POW:
        return j->alpha * a / (lt_f64_pow(j->beta * b, j->delta) + j->gamma);
    case LT_VEC_SIGN:
        return j->alpha * (double)((a > 0) - (a < 0));
    }
    return (double)NAN;
}

static lt_status run_vec_job(const lt_vec_job *job)
{
    lt_ref_call call = {0};
    double *a = lt_ref_gather_f64(&call, &job->a), *y = lt_ref_gather_f64(&call, &job->y);
    double *b = lt_ref_gather_f64(&call, &job->b);
    if (!call.status) {
        for (int64_t i = 0, count = lt_ref_element_count(&job->y); i < count; i++)
            y[i] = evaluate_vec_op(job, a[i], b ? b[i] : 0, y[i]);
        lt_ref_scatter_f64(y, &job->y);
    }
    return lt_ref_finish(&call);
}

lt_status lt_ref_vec(void *ctx, const lt_vec_job *job, size_t count, const lt_scalars *scalars)
{
    (void)ctx;
    for (size_t i = 0; (!scalars || scalars->finite) && i < count; i++) {
        lt_vec_job resolved = job[i];
        resolved.alpha = lt_vec_alpha(&job[i], scalars);
        resolved.beta = lt_vec_beta(&job[i], scalars);
        LT_TRY(run_vec_job(&resolved));
    }
    return LT_OK;
}
