/* Counts labels among the largest logits of contiguous rows. Other strides and dtypes fall back to the reference
 * backend. */

#include "base/parallel.h"
#include "tensor/backend/cpu/internal.h"

typedef struct job {
    const lt_cpu_kernels *kernels;
    lt_cpu_store store;
    const lt_view *logits, *labels;
    int64_t *
        rank; /* rank of each row's label, 0: largest; `classes` if the label is invalid or a logit NaN */
} job;

static int32_t get_label(const lt_view *labels, int64_t n)
{
    return *(const int32_t *)lt_cpu_row(labels, n);
}

static void compute_label_ranks(void *context, int64_t begin, int64_t end)
{
    const job *j = context;
    const int64_t classes = j->logits->shape.dim[1];
    for (int64_t n = begin; n < end; n++) {
        const int32_t label = get_label(j->labels, n);
        j->rank[n] = label >= 0 && label < classes
                         ? j->kernels->of[j->store].rank(lt_cpu_row(j->logits, n), classes, label)
                         : classes;
    }
}

lt_status lt_cpu_topk_hits(void *ctx, const lt_view *logits, const lt_view *labels,
                           const lt_view *hits)
{
    enum { TOP = 5 };
    const lt_cpu *cpu = ctx;
    const int64_t rows = logits->shape.dim[0], classes = logits->shape.dim[1];
    int64_t *out = hits->data;
    const int64_t step = hits->stride[0];
    job j = {.kernels = cpu->kernels,
             .store = lt_cpu_store_from_dtype(logits->dtype),
             .logits = logits,
             .labels = labels};
    if (!lt_cpu_has_contiguous_rows(logits))
        return lt_backend_ref()->topk_hits(ctx, logits, labels, hits);
    j.rank = lt_cpu_scratch(ctx, LT_CPU_PARTIAL, (size_t)(rows + 1) * sizeof *j.rank);
    if (!j.rank)
        return LT_E_NOMEM;
    lt_parallel_range(rows, 1, compute_label_ranks, &j);
    for (int64_t n = 0; n < rows; n++) {
        out[0] += j.rank[n] == 0 && classes > 0;
        out[step] += j.rank[n] < TOP && j.rank[n] < classes;
        if (hits->shape.dim[0] > 2)
            out[2 * step] += get_label(labels, n) != LT_IGNORED_LABEL;
    }
    return LT_OK;
}
