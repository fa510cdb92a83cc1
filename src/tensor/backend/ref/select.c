/* Top-k by magnitude, by sorting everything. Definition: detail/kernels.h. */

#include "ref.h"

#include <math.h>
#include <stdlib.h>

typedef struct entry {
    double magnitude; /* -1 for NaN */
    int64_t index;
} entry;

/* Sorts NaN first, then by descending magnitude, then by ascending index. */
static int compare_magnitudes(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    const bool x_nan = x->magnitude < 0, y_nan = y->magnitude < 0;
    if (x_nan != y_nan)
        return x_nan ? -1 : 1;
    if (x->magnitude > y->magnitude || x->magnitude < y->magnitude)
        return x->magnitude > y->magnitude ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static int compare_indices(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    return x->index < y->index ? -1 : x->index > y->index;
}

lt_status lt_ref_topk_select(void *ctx, const lt_view *x, const lt_view *index)
{
    (void)ctx;
    const int64_t n = lt_ref_count(x), count = lt_ref_count(index);
    int32_t *out = index->data;
    if (count < 1 || count > n || n > INT32_MAX)
        return lt_fail(LT_E_ARG, "topk_select: cannot select the %lld largest of %lld elements",
                       (long long)count, (long long)n);
    double *values = lt_ref_gather_f64(x);
    entry *p = lt_alloc((size_t)n, sizeof *p);
    if (values && p) {
        for (int64_t i = 0; i < n; i++)
            p[i] = (entry){isnan(values[i]) ? -1 : fabs(values[i]), i};
        qsort(p, (size_t)n, sizeof *p, compare_magnitudes);
        qsort(p, (size_t)count, sizeof *p, compare_indices);
        for (int64_t i = 0; i < count; i++)
            out[i * index->stride[0]] = (int32_t)p[i].index;
    }
    const lt_status st = values && p ? LT_OK : LT_E_NOMEM;
    lt_free(values);
    lt_free(p);
    return st;
}
