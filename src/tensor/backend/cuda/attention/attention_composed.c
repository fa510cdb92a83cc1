/* Attention composed of cuBLAS's products in f32 and kernels of this project, where cuDNN has no kernel: f32, wide or
 * odd heads, versions with errors. Scores are in memory, for as many items and rows at a time as a limit of bytes
 * allows; gradients of k and v are summed over rows in index order. Formulas: detail/attention_kernels.h. */

#include "tensor/backend/cuda/kernels/attention.h"
#include "tensor/backend/cuda/matrix/matrices.h"

#include <cublas_v2.h>

/* A call and its workspace; matrices of items are consecutive. */
typedef struct work {
    lt_cuda *c;
    const lt_attention_composed *composed;
    int64_t batch, heads, kv_heads, groups, queries, keys, d;
    int64_t items, tile; /* processed at once: items, and rows of each */
    float *q, *k, *v, *dy, *y, *dq, *dk, *dv, *scores, *slopes;
} work;

static int64_t rows_per_item(const work *w)
{
    return w->groups * w->queries;
}

static lt_status check_dtypes(const lt_cuda *c, const lt_view *q, const lt_view *lse)
{
    if (q->dtype != LT_F64 && lse->dtype == LT_F32)
        return LT_OK;
    return lt_fail(LT_E_UNSUPPORTED,
                   "cuda:%d: %s of %s with sums in %s; there are f32, f16 and bf16 with f32",
                   c->ordinal, c->operation, lt_dtype_name(q->dtype), lt_dtype_name(lse->dtype));
}

/* Sets the tile: as many batch items as fit the workspace limit or, if not even one fits, part of one's rows. */
static void choose_tile_sizes(work *w, int matrices)
{
    const int64_t most = (int64_t)(w->composed->limit / sizeof(float)) / matrices;
    const int64_t all = w->batch * w->kv_heads;
    w->items = most / (rows_per_item(w) * w->keys);
    w->items = w->items < 1 ? 1 : w->items < all ? w->items : all;
    w->tile = most / (w->items * w->keys);
    w->tile = w->tile < 1 ? 1 : w->tile < rows_per_item(w) ? w->tile : rows_per_item(w);
}

static work get_sizes(lt_cuda *c, const lt_attention_composed *composed, const lt_view *q,
                      const lt_view *k)
{
    work w = {.c = c,
              .composed = composed,
              .batch = q->shape.dim[0],
              .heads = q->shape.dim[2],
              .kv_heads = k->shape.dim[2],
              .queries = q->shape.dim[1],
              .keys = k->shape.dim[1],
              .d = q->shape.dim[3]};
    w.groups = w.heads / w.kv_heads;
    return w;
}

static float *carve_floats(lt_carver *v, int64_t count)
{
    return lt_carve(v, (size_t)count * sizeof(float));
}

static void lay_out_workspace(work *w, lt_carver *v, bool backward)
{
    const int64_t queries = w->items * rows_per_item(w) * w->d, keys = w->items * w->keys * w->d;
    const int64_t scores = w->items * w->tile * w->keys;
    w->q = carve_floats(v, queries);
    w->k = carve_floats(v, keys);
    w->v = carve_floats(v, keys);
    w->y = carve_floats(v, queries); /* or dy */
    w->dy = w->y;
    w->scores = carve_floats(v, scores);
    if (!backward)
        return;
    w->dq = carve_floats(v, queries);
    w->dk = carve_floats(v, keys);
    w->dv = carve_floats(v, keys);
    w->slopes = carve_floats(v, scores);
}

static lt_status open_workspace(work *w, bool backward)
{
    lt_carver count = {0};
    void *memory = NULL;
    choose_tile_sizes(w, backward ? 2 : 1);
    lay_out_workspace(w, &count, backward);
    LT_TRY(lt_cuda_workspace(w->c, LT_CUDA_MAIN, count.used, &memory));
    lt_carver carver = {.begin = memory};
    lay_out_workspace(w, &carver, backward);
    LT_CUBLAS_TRY(w->c, cublasSetPointerMode(w->c->cublas, CUBLAS_POINTER_MODE_HOST));
    /* TF32 kernels read 16 bytes at a time, so rows must be aligned. */
    const bool tf32 = w->c->tf32 && w->d % 4 == 0 && w->keys % 4 == 0;
    LT_CUBLAS_TRY(w->c, cublasSetMathMode(w->c->cublas,
                                          tf32 ? CUBLAS_TF32_TENSOR_OP_MATH : CUBLAS_DEFAULT_MATH));
    return LT_OK;
}

/* A row-major matrix of each item; apart: stride of items in elements. */
typedef struct matrix {
    float *data;
    int64_t rows, columns, apart;
    bool transposed; /* multiply as its transpose */
} matrix;

static matrix transpose(matrix m)
{
    m.transposed = true;
    return m;
}

/* y = a b + beta y, for all items. BLAS is column-major: it computes y' = b' a'. */
static lt_status multiply_batched(const work *w, int64_t items, matrix a, matrix b, float beta,
                                  matrix y)
{
    const float one = 1;
    const int inner = (int)(a.transposed ? a.rows : a.columns);
    LT_CUBLAS_TRY(w->c, cublasSgemmStridedBatched(
                            w->c->cublas, b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
                            a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N, (int)y.columns, (int)y.rows,
                            inner, &one, b.data, (int)b.columns, b.apart, a.data, (int)a.columns,
                            a.apart, &beta, y.data, (int)y.columns, y.apart, (int)items));
    return LT_OK;
}

/* The rows of an item's queries that s has; all of its keys; their scores. */
static matrix queries_matrix(const work *w, float *data, const lt_scores *s)
{
    return (matrix){data + s->first * w->d, s->count, w->d, rows_per_item(w) * w->d, false};
}

static matrix keys_matrix(const work *w, float *data)
{
    return (matrix){data, w->keys, w->d, w->keys * w->d, false};
}

static matrix scores_matrix(const work *w, float *data, const lt_scores *s)
{
    return (matrix){data, s->count, w->keys, s->count * w->keys, false};
}

static lt_heads view_heads(const work *w, const lt_view *view, int64_t first, int64_t items)
{
    return (lt_heads){*view, view->shape.dim[2] / w->kv_heads, first, items};
}

static void gather_items(const work *w, const lt_view *view, int64_t first, int64_t items,
                         float *to)
{
    const lt_heads h = view_heads(w, view, first, items);
    lt_heads_gather(w->c->stream[LT_CUDA_MAIN], &h, to);
}

static void scatter_items(const work *w, const float *from, const lt_view *view, int64_t first,
                          int64_t items)
{
    const lt_heads h = view_heads(w, view, first, items);
    lt_heads_scatter(w->c->stream[LT_CUDA_MAIN], from, &h);
}

/* Returns the scores of the rows from `first`, of `items` items from `item`. */
static lt_scores scores_range(const work *w, int64_t item, int64_t items, int64_t first)
{
    const int64_t left = rows_per_item(w) - first;
    return (lt_scores){.data = w->scores,
                       .items = items,
                       .first_item = item,
                       .first = first,
                       .count = left < w->tile ? left : w->tile,
                       .rows = rows_per_item(w),
                       .queries = w->queries,
                       .keys = w->keys,
                       .causal = w->composed->config->causal,
                       .scale = w->composed->config->scale};
}

/* Returns the number of items to process from that one. */
static int64_t items_in_batch(const work *w, int64_t item)
{
    const int64_t left = w->batch * w->kv_heads - item;
    return left < w->items ? left : w->items;
}

/* scores = q k', unscaled. */
static lt_status compute_scores(const work *w, const lt_scores *s)
{
    return multiply_batched(w, s->items, queries_matrix(w, w->q, s),
                            transpose(keys_matrix(w, w->k)), 0, scores_matrix(w, w->scores, s));
}

lt_status lt_attention_compose(lt_cuda *c, const lt_attention_composed *composed, const lt_view *q,
                               const lt_view *k, const lt_view *v, const lt_view *y,
                               const lt_view *lse)
{
    work w = get_sizes(c, composed, q, k);
    LT_TRY(check_dtypes(c, q, lse));
    LT_TRY(open_workspace(&w, false));
    for (int64_t item = 0; item < w.batch * w.kv_heads; item += w.items) {
        const int64_t items = items_in_batch(&w, item);
        gather_items(&w, v, item, items, w.v);
        gather_items(&w, k, item, items, w.k);
        gather_items(&w, q, item, items, w.q);
        for (int64_t first = 0; first < rows_per_item(&w); first += w.tile) {
            const lt_scores s = scores_range(&w, item, items, first);
            LT_TRY(compute_scores(&w, &s));
            lt_scores_softmax(c->stream[LT_CUDA_MAIN], &s, lse->data);
            LT_TRY(multiply_batched(&w, items, scores_matrix(&w, w.scores, &s),
                                    keys_matrix(&w, w.v), 0, queries_matrix(&w, w.y, &s)));
        }
        scatter_items(&w, w.y, y, item, items);
    }
    return LT_OK;
}

/* Computes the gradients of some rows; those of k and v are added to those of earlier rows. */
static lt_status add_gradients(const work *w, const lt_attention_grad *g, const lt_scores *s)
{
    const lt_heads dy = view_heads(w, g->dy, s->first_item, s->items);
    const lt_heads y = view_heads(w, g->y, s->first_item, s->items);
    const matrix dy_rows = queries_matrix(w, w->dy, s), slopes = scores_matrix(w, w->slopes, s);
    const float kept = s->first > 0 ? 1.0F : 0.0F;
    LT_TRY(compute_scores(w, s));
    LT_TRY(multiply_batched(w, s->items, dy_rows, transpose(keys_matrix(w, w->v)), 0, slopes));
    lt_scores_slope(w->c->stream[LT_CUDA_MAIN], s, g->lse->data, &dy, &y, w->slopes);
    if (g->dv)
        LT_TRY(multiply_batched(w, s->items, transpose(scores_matrix(w, w->scores, s)), dy_rows,
                                kept, keys_matrix(w, w->dv)));
    if (g->dk)
        LT_TRY(multiply_batched(w, s->items, transpose(slopes), queries_matrix(w, w->q, s), kept,
                                keys_matrix(w, w->dk)));
    if (g->dq)
        LT_TRY(multiply_batched(w, s->items, slopes, keys_matrix(w, w->k), 0,
                                queries_matrix(w, w->dq, s)));
    return LT_OK;
}

lt_status lt_attention_compose_grad(lt_cuda *c, const lt_attention_composed *composed,
                                    const lt_attention_grad *g)
{
    work w = get_sizes(c, composed, g->q, g->k);
    LT_TRY(check_dtypes(c, g->q, g->lse));
    LT_TRY(open_workspace(&w, true));
    for (int64_t item = 0; item < w.batch * w.kv_heads; item += w.items) {
        const int64_t items = items_in_batch(&w, item);
        gather_items(&w, g->dy, item, items, w.dy);
        gather_items(&w, g->v, item, items, w.v);
        gather_items(&w, g->k, item, items, w.k);
        gather_items(&w, g->q, item, items, w.q);
        for (int64_t first = 0; first < rows_per_item(&w); first += w.tile) {
            const lt_scores s = scores_range(&w, item, items, first);
            LT_TRY(add_gradients(&w, g, &s));
        }
        if (g->dq)
            scatter_items(&w, w.dq, g->dq, item, items);
        if (g->dk)
            scatter_items(&w, w.dk, g->dk, item, items);
        if (g->dv)
            scatter_items(&w, w.dv, g->dv, item, items);
    }
    return LT_OK;
}
