/* Reductions, running sums and the largest elements, in double. Formulas: detail/select_kernels.h. */

#include "ref.h"
#include "tensor/backend/reduced_rows.h"

#include "lather/ext/elementary.h"

#include <math.h>

static double largest(const double *x, int64_t count)
{
    double top = x[0];
    for (int64_t i = 1; i < count; i++)
        top = x[i] > top || x[i] != x[i] ? x[i] : top;
    return top;
}

static double smallest(const double *x, int64_t count)
{
    double low = x[0];
    for (int64_t i = 1; i < count; i++)
        low = x[i] < low || x[i] != x[i] ? x[i] : low;
    return low;
}

/* Product of all elements but one; -1: of all. */
static double product_without(const double *x, int64_t count, int64_t without)
{
    double product = 1;
    for (int64_t i = 0; i < count; i++)
        product *= i == without ? 1 : x[i];
    return product;
}

static double log_sum_exp(const double *x, int64_t count)
{
    const double top = largest(x, count);
    double sum = 0;
    if (isinf(top))
        return top;
    for (int64_t i = 0; i < count; i++)
        sum += lt_f64_exp(x[i] - top);
    return top + lt_f64_log(sum);
}

static double mean_of(const double *x, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += x[i];
    return sum / (double)count;
}

static double variance(const double *x, int64_t count, double correction)
{
    const double mean = mean_of(x, count);
    double squares = 0;
    for (int64_t i = 0; i < count; i++)
        squares += (x[i] - mean) * (x[i] - mean);
    return squares / fmax((double)count - correction, 0);
}

static double reduce_row(const lt_reduce_how *how, const double *x, int64_t count)
{
    switch (how->kind) {
    case LT_REDUCTION_MAX:
        return largest(x, count);
    case LT_REDUCTION_MIN:
        return smallest(x, count);
    case LT_REDUCTION_PROD:
        return product_without(x, count, -1);
    case LT_REDUCTION_LOGSUMEXP:
        return log_sum_exp(x, count);
    case LT_REDUCTION_VAR:
        return variance(x, count, how->correction);
    case LT_REDUCTION_STD:
        return sqrt(variance(x, count, how->correction));
    }
    return 0;
}

lt_status lt_ref_reduce(void *ctx, const lt_reduce_how *how, const lt_view *x, const lt_view *y)
{
    (void)ctx;
    int64_t count;
    const lt_view rows = lt_reduced_rows(x, y, &count);
    double *row = NULL;
    LT_TRY(LT_ALLOC(&row, count));
    for (int64_t r = 0; r < lt_ref_element_count(y); r++) {
        lt_ref_load_f64(&rows, r * count, count, row);
        const double value = reduce_row(how, row, count);
        lt_ref_store_f64(y, r, 1, &value);
    }
    lt_free(row);
    return LT_OK;
}

static void grad_of_equals(double dy, double y, const double *x, int64_t count, double *dx)
{
    int64_t equal = 0;
    for (int64_t i = 0; i < count; i++)
        equal += x[i] == y;
    for (int64_t i = 0; i < count; i++)
        dx[i] = x[i] == y ? dy / (double)equal : 0;
}

static void grad_of_variance(double factor, const double *x, int64_t count, double *dx)
{
    const double mean = mean_of(x, count);
    for (int64_t i = 0; i < count; i++)
        dx[i] = factor * (x[i] - mean);
}

static void reduce_row_grad(const lt_reduce_how *how, double dy, double y, const double *x,
                            int64_t count, double *dx)
{
    const double divisor = fmax((double)count - how->correction, 0);
    switch (how->kind) {
    case LT_REDUCTION_MAX:
    case LT_REDUCTION_MIN:
        grad_of_equals(dy, y, x, count, dx);
        break;
    case LT_REDUCTION_PROD:
        for (int64_t i = 0; i < count; i++)
            dx[i] = dy * product_without(x, count, i);
        break;
    case LT_REDUCTION_LOGSUMEXP:
        for (int64_t i = 0; i < count; i++)
            dx[i] = dy * lt_f64_exp(x[i] - y);
        break;
    case LT_REDUCTION_VAR:
        grad_of_variance(2 * dy / divisor, x, count, dx);
        break;
    case LT_REDUCTION_STD:
        grad_of_variance(y == 0 ? 0 : dy / (divisor * y), x, count, dx);
        break;
    }
}

lt_status lt_ref_reduce_grad(void *ctx, const lt_reduce_how *how, const lt_view *dy,
                             const lt_view *x, const lt_view *y, const lt_view *dx)
{
    (void)ctx;
    int64_t count;
    const lt_view rows = lt_reduced_rows(x, y, &count), out = lt_reduced_rows(dx, y, &count);
    double *row = lt_alloc((size_t)(2 * count), sizeof *row), value, slope;
    if (!row)
        return LT_E_NOMEM;
    for (int64_t r = 0; r < lt_ref_element_count(y); r++) {
        lt_ref_load_f64(&rows, r * count, count, row);
        lt_ref_load_f64(y, r, 1, &value);
        lt_ref_load_f64(dy, r, 1, &slope);
        reduce_row_grad(how, slope, value, row, count, row + count);
        lt_ref_store_f64(&out, r * count, count, row + count);
    }
    lt_free(row);
    return LT_OK;
}

lt_status lt_ref_cumsum(void *ctx, bool from_end, const lt_view *x, const lt_view *y)
{
    (void)ctx;
    const int64_t outer = x->shape.dim[0], n = x->shape.dim[1], inner = x->shape.dim[2];
    lt_ref_call call = {0};
    double *v = lt_ref_gather_f64(&call, x);
    LT_TRY(call.status);
    for (int64_t a = 0; a < outer; a++)
        for (int64_t i = 1; i < n; i++)
            for (int64_t b = 0; b < inner; b++) {
                const int64_t at = from_end ? n - 1 - i : i, from = from_end ? at + 1 : at - 1;
                v[(a * n + at) * inner + b] += v[(a * n + from) * inner + b];
            }
    lt_ref_scatter_f64(v, y);
    return lt_ref_finish(&call);
}

/* Returns true if element i comes before j. */
static bool ranks_before(const double *x, int64_t i, int64_t j)
{
    const bool i_nan = x[i] != x[i], j_nan = x[j] != x[j];
    if (i_nan || j_nan)
        return i_nan && (!j_nan || i < j);
    return x[i] == x[j] ? i < j : x[i] > x[j];
}

lt_status lt_ref_topk(void *ctx, const lt_view *x, const lt_view *index)
{
    (void)ctx;
    const int64_t rows = x->shape.dim[0], count = x->shape.dim[1], k = index->shape.dim[1];
    lt_ref_call call = {0};
    double *v = lt_ref_gather_f64(&call, x);
    LT_TRY(call.status);
    for (int64_t n = 0; n < rows; n++)
        for (int64_t i = 0; i < count; i++) {
            int64_t rank = 0;
            const double *row = v + n * count, number = (double)i;
            for (int64_t j = 0; j < count; j++)
                rank += j != i && ranks_before(row, j, i);
            if (rank < k)
                lt_ref_store_f64(index, n * k + rank, 1, &number);
        }
    return lt_ref_finish(&call);
}
