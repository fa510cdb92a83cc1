/* Embedding lookup and its gradient, for contiguous rows in f32 and bf16. Other strides and dtypes fall back to the
 * reference backend. Formulas: detail/attention_kernels.h.
 *
 * The gradient sorts positions by id (a stable counting sort) and distributes rows of the table over threads: a row's
 * sum runs over its positions in ascending order on any thread. */

#include "base/parallel.h"
#include "tensor/backend/cpu/internal.h"

#include "lather/ext/fail.h"

#include <string.h>

enum { ROWS = 16, TABLE_ROWS = 64 }; /* rows of a chunk */

typedef struct job {
    const lt_cpu_kernels *kernels;
    const lt_view *ids, *in, *out;
    const int32_t *first,
        *order; /* positions of id v: order[first[v]] .. order[first[v + 1] - 1] */
} job;

static int32_t id_at(const lt_view *ids, int64_t n)
{
    return ((const int32_t *)ids->data)[n * ids->stride[0]];
}

static lt_status check_ids(const lt_view *ids, int64_t rows)
{
    for (int64_t n = 0; n < ids->shape.dim[0]; n++)
        if (id_at(ids, n) < 0 || id_at(ids, n) >= rows)
            return lt_fail(LT_E_ARG, "embedding: id %d at position %lld, want 0..%lld",
                           id_at(ids, n), (long long)n, (long long)rows - 1);
    return LT_OK;
}

static void lookup_rows(void *context, int64_t begin, int64_t end)
{
    const job *j = context;
    const int64_t columns = j->out->shape.dim[1];
    for (int64_t n = begin; n < end; n++) {
        const void *from = lt_cpu_row(j->in, id_at(j->ids, n));
        void *to = lt_cpu_row(j->out, n);
        if (j->in->dtype == j->out->dtype)
            memcpy(to, from, (size_t)columns * lt_dtype_size(j->out->dtype));
        else if (j->in->dtype == LT_F32)
            j->kernels->narrow_all(from, to, columns);
        else
            j->kernels->widen_all(from, to, columns);
    }
}

lt_status lt_cpu_embedding(void *ctx, const lt_view *ids, const lt_view *w, const lt_view *y)
{
    const lt_cpu *cpu = ctx;
    if (!lt_cpu_has_contiguous_rows(w) || !lt_cpu_has_contiguous_rows(y))
        return lt_backend_ref()->embedding(ctx, ids, w, y);
    LT_TRY(check_ids(ids, w->shape.dim[0]));
    job j = {.kernels = cpu->kernels, .ids = ids, .in = w, .out = y};
    lt_parallel_range(y->shape.dim[0], ROWS, lookup_rows, &j);
    return LT_OK;
}

static void sum_row_grads(void *context, int64_t begin, int64_t end)
{
    const job *j = context;
    const int64_t columns = j->out->shape.dim[1];
    const lt_cpu_store store = lt_cpu_store_from_dtype(j->in->dtype);
    for (int64_t v = begin; v < end; v++) {
        float *to = lt_cpu_row(j->out, v);
        memset(to, 0, (size_t)columns * sizeof *to);
        for (int32_t i = j->first[v]; i < j->first[v + 1]; i++)
            j->kernels->of[store].add_rows(lt_cpu_row(j->in, j->order[i]), 1, columns, to);
    }
}

/* Fills first [table + 2] and order. Counts are stored two rows late, so that the last pass leaves first[v] in
 * place. */
static void sort_positions_by_id(const lt_view *ids, int64_t table, int32_t *first, int32_t *order)
{
    memset(first, 0, (size_t)(table + 2) * sizeof *first);
    for (int64_t n = 0; n < ids->shape.dim[0]; n++)
        first[id_at(ids, n) + 2]++;
    for (int64_t v = 2; v < table + 2; v++)
        first[v] += first[v - 1];
    for (int64_t n = 0; n < ids->shape.dim[0]; n++)
        order[first[id_at(ids, n) + 1]++] = (int32_t)n;
}

lt_status lt_cpu_embedding_grad(void *ctx, const lt_view *ids, const lt_view *dy, const lt_view *dw)
{
    lt_cpu *cpu = ctx;
    const int64_t table = dw->shape.dim[0], count = ids->shape.dim[0];
    if (!lt_cpu_has_contiguous_rows(dy) || !lt_cpu_has_contiguous_rows(dw) || dw->dtype != LT_F32
        || count > INT32_MAX)
        return lt_backend_ref()->embedding_grad(ctx, ids, dy, dw);
    LT_TRY(check_ids(ids, table));
    int32_t *first =
        lt_cpu_scratch(cpu, LT_CPU_PARTIAL, (size_t)(table + 2 + count) * sizeof *first);
    if (!first)
        return LT_E_NOMEM;
    sort_positions_by_id(ids, table, first, first + table + 2);
    job j = {.kernels = cpu->kernels,
             .ids = ids,
             .in = dy,
             .out = dw,
             .first = first,
             .order = first + table + 2};
    lt_parallel_range(table, TABLE_ROWS, sum_row_grads, &j);
    return LT_OK;
}
