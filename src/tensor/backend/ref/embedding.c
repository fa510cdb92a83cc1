/* Embedding and the gradient of its table, in double. Formulas: detail/attention_kernels.h. */

#include "ref.h"

static int64_t id_at(const lt_view *ids, int64_t n)
{
    return ((const int32_t *)ids->data)[n * ids->stride[0]];
}

static lt_status check_ids(const char *what, const lt_view *ids, int64_t rows)
{
    for (int64_t n = 0; n < ids->shape.dim[0]; n++)
        if (id_at(ids, n) < 0 || id_at(ids, n) >= rows)
            return lt_fail(LT_E_ARG, "%s: id %lld at position %lld, want 0..%lld", what,
                           (long long)id_at(ids, n), (long long)n, (long long)rows - 1);
    return LT_OK;
}

lt_status lt_ref_embedding(void *ctx, const lt_view *ids, const lt_view *w, const lt_view *y)
{
    (void)ctx;
    const int64_t columns = y->shape.dim[1];
    LT_TRY(check_ids("embedding", ids, w->shape.dim[0]));
    double *row = NULL;
    LT_TRY(LT_ALLOC(&row, columns));
    for (int64_t n = 0; n < y->shape.dim[0]; n++) {
        lt_ref_load_f64(w, id_at(ids, n) * columns, columns, row);
        lt_ref_store_f64(y, n * columns, columns, row);
    }
    lt_free(row);
    return LT_OK;
}

lt_status lt_ref_embedding_grad(void *ctx, const lt_view *ids, const lt_view *dy, const lt_view *dw)
{
    (void)ctx;
    lt_ref_call call = {0};
    const int64_t columns = dw->shape.dim[1];
    LT_TRY(check_ids("embedding", ids, dw->shape.dim[0]));
    double *sum = lt_ref_array(&call, lt_ref_element_count(dw), sizeof *sum),
           *g = lt_ref_gather_f64(&call, dy);
    if (!call.status) {
        for (int64_t n = 0; n < ids->shape.dim[0]; n++)
            for (int64_t c = 0; c < columns; c++)
                sum[id_at(ids, n) * columns + c] += g[n * columns + c];
        lt_ref_scatter_f64(sum, dw);
    }
    return lt_ref_finish(&call);
}
