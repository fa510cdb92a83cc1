/* Softmax cross-entropy and top-k accuracy, in double. Formulas: lather/ops/loss.h. */

#include "ref.h"

#include "lather/ext/elementary.h"

/* Gathered targets of a batch: probabilities [N,K] if soft, else class indices [N]. */
typedef struct targets {
    double *values;
    int64_t rows, classes;
    bool soft;
    double smoothing;
} targets;

static double target_probability(const targets *t, int64_t n, int64_t k)
{
    double one = t->soft ? t->values[n * t->classes + k] : (double)((int64_t)t->values[n] == k);
    return (1 - t->smoothing) * one + t->smoothing / (double)t->classes;
}

/* Returns true if the row has neither loss nor gradient. */
static bool is_ignored(const targets *t, int64_t n)
{
    return !t->soft && t->values[n] == (double)LT_IGNORED_LABEL;
}

static int64_t count_unignored_rows(const targets *t)
{
    int64_t count = 0;
    for (int64_t n = 0; n < t->rows; n++)
        count += !is_ignored(t, n);
    return count;
}

static lt_status check_labels(const targets *t)
{
    for (int64_t n = 0; !t->soft && n < t->rows; n++)
        if (!is_ignored(t, n) && !(t->values[n] >= 0 && t->values[n] < (double)t->classes))
            return lt_fail(LT_E_ARG, "softmax_xent: label %g of row %lld, want 0..%lld or %d",
                           t->values[n], (long long)n, (long long)t->classes - 1, LT_IGNORED_LABEL);
    return LT_OK;
}

/* log(sum(exp(z))), shifted by the maximum so that exp() cannot overflow. */
static double log_sum_exp(const double *z, int64_t count)
{
    double top = z[0], sum = 0;
    for (int64_t k = 1; k < count; k++)
        if (z[k] > top)
            top = z[k];
    for (int64_t k = 0; k < count; k++)
        sum += lt_f64_exp(z[k] - top);
    /* cppcheck-suppress invalidFunctionArg ; the largest term is 1 */
    return top + lt_f64_log(sum);
}

static double compute_mean_loss(const targets *t, const double *z, double *lse)
{
    double loss = 0;
    for (int64_t n = 0; n < t->rows; n++) {
        const double *row = z + n * t->classes;
        lse[n] = log_sum_exp(row, t->classes);
        for (int64_t k = 0; k < t->classes && !is_ignored(t, n); k++) {
            double q = target_probability(t, n, k);
            if (q != 0) /* a class of probability 0 may have the logit -Inf */
                loss -= q * (row[k] - lse[n]);
        }
    }
    const int64_t rows = count_unignored_rows(t);
    return rows ? loss / (double)rows : 0;
}

static targets gather_targets(lt_ref_call *call, double smoothing, const lt_view *logits,
                              const lt_view *labels)
{
    return (targets){
        .values = lt_ref_gather_f64(call, labels),
        .rows = logits->shape.dim[0],
        .classes = logits->shape.dim[1],
        .soft = labels->shape.ndim == 2,
        .smoothing = smoothing,
    };
}

lt_status lt_ref_softmax_xent(void *ctx, double smoothing, const lt_view *logits,
                              const lt_view *labels, const lt_view *lse, const lt_view *loss)
{
    (void)ctx;
    lt_ref_call call = {0};
    targets t = gather_targets(&call, smoothing, logits, labels);
    double *z = lt_ref_gather_f64(&call, logits), *l = lt_ref_array(&call, t.rows, sizeof *l);
    if (!call.status)
        call.status = check_labels(&t);
    if (!call.status) {
        double mean = compute_mean_loss(&t, z, l);
        lt_ref_scatter_f64(l, lse);
        lt_ref_scatter_f64(&mean, loss);
    }
    return lt_ref_finish(&call);
}

static void gradient_row(const targets *t, int64_t n, double lse, double factor, double *z)
{
    double total = 0;
    for (int64_t k = 0; k < t->classes && is_ignored(t, n); k++)
        z[k] = 0;
    if (is_ignored(t, n))
        return;
    for (int64_t k = 0; k < t->classes; k++)
        total += target_probability(t, n, k);
    for (int64_t k = 0; k < t->classes; k++)
        z[k] = factor * (lt_f64_exp(z[k] - lse) * total - target_probability(t, n, k));
}

lt_status lt_ref_softmax_xent_grad(void *ctx, double smoothing, const lt_view *dloss,
                                   const lt_view *logits, const lt_view *labels, const lt_view *lse,
                                   const lt_view *dx)
{
    (void)ctx;
    lt_ref_call call = {0};
    targets t = gather_targets(&call, smoothing, logits, labels);
    double *z = lt_ref_gather_f64(&call, logits), *l = lt_ref_gather_f64(&call, lse),
           *upstream = lt_ref_gather_f64(&call, dloss);
    if (!call.status) {
        const double rows = (double)count_unignored_rows(&t);
        for (int64_t n = 0; n < t.rows; n++)
            gradient_row(&t, n, l[n], *upstream / rows, z + n * t.classes);
        lt_ref_scatter_f64(z, dx);
    }
    return lt_ref_finish(&call);
}

/* Returns the number of logits that rank before the label's; count if the row has a NaN or the label is not
 * a class. */
static int64_t label_rank(const double *z, int64_t count, double label)
{
    if (!(label >= 0 && label < (double)count))
        return count;
    int64_t rank = 0, own = (int64_t)label;
    for (int64_t k = 0; k < count; k++) {
        if (z[k] != z[k])
            return count;
        rank += z[k] > z[own] || (k < own && z[k] == z[own]);
    }
    return rank;
}

lt_status lt_ref_topk_hits(void *ctx, const lt_view *logits, const lt_view *labels,
                           const lt_view *hits)
{
    enum { TOP = 5 };
    (void)ctx;
    lt_ref_call call = {0};
    int64_t rows = logits->shape.dim[0], classes = logits->shape.dim[1];
    double *z = lt_ref_gather_f64(&call, logits), *label = lt_ref_gather_f64(&call, labels);
    if (!call.status) {
        int64_t *out = hits->data;
        for (int64_t n = 0; n < rows; n++) {
            int64_t rank = label_rank(z + n * classes, classes, label[n]);
            out[0] += rank == 0 && classes > 0;
            out[hits->stride[0]] += rank < TOP && rank < classes;
            if (hits->shape.dim[0] > 2)
                out[2 * hits->stride[0]] += label[n] != (double)LT_IGNORED_LABEL;
        }
    }
    return lt_ref_finish(&call);
}
