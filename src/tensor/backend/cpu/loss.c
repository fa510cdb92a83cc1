/* Softmax cross-entropy on contiguous rows. Other strides and dtypes fall back to the reference backend.
 * Formulas: lather/ops/loss.h. */

#include "base/parallel.h"
#include "tensor/backend/cpu/internal.h"

#include "lather/ext/fail.h"

#include <string.h>

typedef struct job {
    const lt_cpu_kernels *kernels;
    lt_cpu_store store;
    double smoothing;
    const lt_view *logits, *labels, *lse, *dx;
    double *loss;  /* [rows] */
    double factor; /* gradients: dloss / N */
} job;

static bool is_soft(const lt_view *labels)
{
    return labels->shape.ndim == 2;
}

static bool has_fast_kernel(const lt_view *logits, const lt_view *labels, const lt_view *lse)
{
    const bool fits = is_soft(labels)
                          ? labels->dtype == LT_F32 && lt_cpu_has_contiguous_rows(labels)
                          : labels->dtype == LT_I32;
    return fits && lt_cpu_has_contiguous_rows(logits) && logits->shape.dim[1] > 0
           && lse->dtype == LT_F32;
}

static job make_job(const lt_cpu *cpu, double smoothing, const lt_view *logits,
                    const lt_view *labels, const lt_view *lse)
{
    return (job){.kernels = cpu->kernels,
                 .store = lt_cpu_store_from_dtype(logits->dtype),
                 .smoothing = smoothing,
                 .logits = logits,
                 .labels = labels,
                 .lse = lse};
}

static int32_t get_label(const lt_view *labels, int64_t n)
{
    return *(const int32_t *)lt_cpu_row(labels, n);
}

/* Returns true if the row has neither loss nor gradient. */
static bool is_ignored(const lt_view *labels, int64_t n)
{
    return !is_soft(labels) && get_label(labels, n) == LT_IGNORED_LABEL;
}

static int64_t count_unignored_rows(const lt_view *logits, const lt_view *labels)
{
    int64_t count = 0;
    for (int64_t n = 0; n < logits->shape.dim[0]; n++)
        count += !is_ignored(labels, n);
    return count;
}

static lt_status check_labels(const lt_view *logits, const lt_view *labels)
{
    const int64_t classes = logits->shape.dim[1];
    for (int64_t n = 0; !is_soft(labels) && n < logits->shape.dim[0]; n++) {
        const int32_t label = get_label(labels, n);
        if (label != LT_IGNORED_LABEL && (label < 0 || label >= classes))
            return lt_fail(LT_E_ARG, "softmax_xent: label %d of row %lld, want 0..%lld or %d",
                           label, (long long)n, (long long)classes - 1, LT_IGNORED_LABEL);
    }
    return LT_OK;
}

/* Returns the sum over k of target * (z - lse), without smoothing. */
static double target_log_likelihood(const job *j, int64_t n, double lse)
{
    const void *z = lt_cpu_row(j->logits, n);
    if (is_soft(j->labels))
        return j->kernels->of[j->store].cross(z, lt_cpu_row(j->labels, n), j->logits->shape.dim[1],
                                              lse);
    const int32_t label = get_label(j->labels, n);
    float own = 0;
    if (j->store == LT_STORE_F32)
        own = ((const float *)z)[label];
    else
        j->kernels->widen_all((const uint16_t *)z + label, &own, 1);
    return (double)own - lse;
}

static void loss_rows(void *context, int64_t begin, int64_t end)
{
    const job *j = context;
    const int64_t classes = j->logits->shape.dim[1];
    for (int64_t n = begin; n < end; n++) {
        const void *z = lt_cpu_row(j->logits, n);
        const double lse = j->kernels->of[j->store].log_sum_exp(z, classes);
        const bool counts = !is_ignored(j->labels, n);
        double sum = 0;
        if (j->smoothing < 1 && counts)
            sum += (1 - j->smoothing) * target_log_likelihood(j, n, lse);
        if (j->smoothing > 0 && counts)
            sum += j->smoothing / (double)classes
                   * j->kernels->of[j->store].cross(z, NULL, classes, lse);
        j->loss[n] = sum;
        *(float *)lt_cpu_row(j->lse, n) = (float)lse;
    }
}

lt_status lt_cpu_softmax_xent(void *ctx, double smoothing, const lt_view *logits,
                              const lt_view *labels, const lt_view *lse, const lt_view *loss)
{
    if (!has_fast_kernel(logits, labels, lse) || loss->dtype != LT_F32)
        return lt_backend_ref()->softmax_xent(ctx, smoothing, logits, labels, lse, loss);
    LT_TRY(check_labels(logits, labels));
    const int64_t rows = logits->shape.dim[0];
    job j = make_job(ctx, smoothing, logits, labels, lse);
    j.loss = lt_cpu_scratch(ctx, LT_CPU_PARTIAL, (size_t)(rows + 1) * sizeof *j.loss);
    if (!j.loss)
        return LT_E_NOMEM;
    lt_parallel_range(rows, 1, loss_rows, &j);
    double total = 0;
    for (int64_t n = 0; n < rows; n++)
        total -= j.loss[n];
    const int64_t counted = count_unignored_rows(logits, labels);
    *(float *)loss->data = counted ? (float)(total / (double)counted) : 0;
    return LT_OK;
}

/* Returns the sum of a row's smoothed targets. */
static double target_total(const job *j, const float *target, int64_t classes)
{
    if (!target)
        return 1;
    double sum = 0;
    for (int64_t k = 0; k < classes; k++)
        sum += (double)target[k];
    return (1 - j->smoothing) * sum + j->smoothing;
}

static void grad_rows(void *context, int64_t begin, int64_t end)
{
    const job *j = context;
    const int64_t classes = j->logits->shape.dim[1];
    for (int64_t n = begin; n < end; n++) {
        if (is_ignored(j->labels, n)) {
            memset(lt_cpu_row(j->dx, n), 0, (size_t)classes * lt_dtype_size(j->dx->dtype));
            continue;
        }
        const float *target = is_soft(j->labels) ? lt_cpu_row(j->labels, n) : NULL;
        const lt_xent_grad in = {
            .logits = lt_cpu_row(j->logits, n),
            .target = target,
            .dx = lt_cpu_row(j->dx, n),
            .classes = classes,
            .label = target ? -1 : get_label(j->labels, n),
            .lse = *(const float *)lt_cpu_row(j->lse, n),
            .factor = (float)(j->factor * target_total(j, target, classes)),
            .weight = (float)(j->factor * (1 - j->smoothing)),
            .share = (float)(j->factor * j->smoothing / (double)classes),
        };
        j->kernels->of[j->store].xent_grad(&in);
    }
}

lt_status lt_cpu_softmax_xent_grad(void *ctx, double smoothing, const lt_view *dloss,
                                   const lt_view *logits, const lt_view *labels, const lt_view *lse,
                                   const lt_view *dx)
{
    if (!has_fast_kernel(logits, labels, lse) || dloss->dtype != LT_F32
        || dx->dtype != logits->dtype || !lt_cpu_has_contiguous_rows(dx))
        return lt_backend_ref()->softmax_xent_grad(ctx, smoothing, dloss, logits, labels, lse, dx);
    const int64_t rows = logits->shape.dim[0];
    job j = make_job(ctx, smoothing, logits, labels, lse);
    j.dx = dx;
    j.factor = (double)*(const float *)dloss->data / (double)count_unignored_rows(logits, labels);
    lt_parallel_range(rows, 1, grad_rows, &j);
    return LT_OK;
}
