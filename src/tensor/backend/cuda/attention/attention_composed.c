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

static int64_t rows_of(const work *w)
{
    return w->groups * w->queries;
}

static lt_status want_dtypes(const lt_cuda *c, const lt_view *q, const lt_view *lse)
{
    if (q->dtype != LT_F64 && lse->dtype == LT_F32)
        return LT_OK;
    return lt_fail(LT_E_UNSUPPORTED,
                   "cuda:%d: %s of %s with sums in %s; there are f32, f16 and bf16 with f32",
                   c->ordinal, c->operation, lt_dtype_name(q->dtype), lt_dtype_name(lse->dtype));
}

/* Takes as many items as fit, or, if none fits, some of its rows. */
static void cut(work *w, int matrices)
{
    const int64_t most = (int64_t)(w->composed->limit / sizeof(float)) / matrices;
    const int64_t all = w->batch * w->kv_heads;
    w->items = most / (rows_of(w) * w->keys);
    w->items = w->items < 1 ? 1 : w->items < all ? w->items : all;
    w->tile = most / (w->items * w->keys);
    w->tile = w->tile < 1 ? 1 : w->tile < rows_of(w) ? w->tile : rows_of(w);
}

static work measure(lt_cuda *c, const lt_attention_composed *composed, const lt_view *q,
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

static float *carve(lt_carver *v, int64_t count)
{
    return lt_carve(v, (size_t)count * sizeof(float));
}

static void lay_out(work *w, lt_carver *v, bool backward)
{
    const int64_t queries = w->items * rows_of(w) * w->d, keys = w->items * w->keys * w->d;
    const int64_t scores = w->items * w->tile * w->keys;
    w->q = carve(v, queries);
    w->k = carve(v, keys);
    w->v = carve(v, keys);
    w->y = carve(v, queries); /* or dy */
    w->dy = w->y;
    w->scores = carve(v, scores);
    if (!backward)
        return;
    w->dq = carve(v, queries);
    w->dk = carve(v, keys);
    w->dv = carve(v, keys);
    w->slopes = carve(v, scores);
}

static lt_status open_work(work *w, bool backward)
{
    lt_carver count = {0};
    void *memory = NULL;
    cut(w, backward ? 2 : 1);
    lay_out(w, &count, backward);
    LT_TRY(lt_cuda_workspace(w->c, LT_CUDA_MAIN, count.used, &memory));
    lt_carver carver = {.begin = memory};
    lay_out(w, &carver, backward);
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
static lt_status multiply(const work *w, int64_t items, matrix a, matrix b, float beta, matrix y)
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
static matrix of_queries(const work *w, float *data, const lt_scores *s)
{
    return (matrix){data + s->first * w->d, s->count, w->d, rows_of(w) * w->d, false};
}

static matrix of_keys(const work *w, float *data)
{
    return (matrix){data, w->keys, w->d, w->keys * w->d, false};
}

static matrix of_scores(const work *w, float *data, const lt_scores *s)
{
    return (matrix){data, s->count, w->keys, s->count * w->keys, false};
}

static lt_heads heads_of(const work *w, const lt_view *view, int64_t first, int64_t items)
{
    return (lt_heads){*view, view->shape.dim[2] / w->kv_heads, first, items};
}

static void gather(const work *w, const lt_view *view, int64_t first, int64_t items, float *to)
{
    const lt_heads h = heads_of(w, view, first, items);
    lt_heads_gather(w->c->stream[LT_CUDA_MAIN], &h, to);
}

static void scatter(const work *w, const float *from, const lt_view *view, int64_t first,
                    int64_t items)
{
    const lt_heads h = heads_of(w, view, first, items);
    lt_heads_scatter(w->c->stream[LT_CUDA_MAIN], from, &h);
}

/* Returns the scores of the rows from `first`, of `items` items from `item`. */
static lt_scores scores_at(const work *w, int64_t item, int64_t items, int64_t first)
{
    const int64_t left = rows_of(w) - first;
    return (lt_scores){.data = w->scores,
                       .items = items,
                       .first_item = item,
                       .first = first,
                       .count = left < w->tile ? left : w->tile,
                       .rows = rows_of(w),
                       .queries = w->queries,
                       .keys = w->keys,
                       .causal = w->composed->config->causal,
                       .scale = w->composed->config->scale};
}

/* Returns the number of items to process from that one. */
static int64_t items_at(const work *w, int64_t item)
{
    const int64_t left = w->batch * w->kv_heads - item;
    return left < w->items ? left : w->items;
}

/* scores = q k', unscaled. */
static lt_status find_scores(const work *w, const lt_scores *s)
{
    return multiply(w, s->items, of_queries(w, w->q, s), transpose(of_keys(w, w->k)), 0,
                    of_scores(w, w->scores, s));
}

lt_status lt_attention_compose(lt_cuda *c, const lt_attention_composed *composed, const lt_view *q,
                               const lt_view *k, const lt_view *v, const lt_view *y,
                               const lt_view *lse)
{
    work w = measure(c, composed, q, k);
    LT_TRY(want_dtypes(c, q, lse));
    LT_TRY(open_work(&w, false));
    for (int64_t item = 0; item < w.batch * w.kv_heads; item += w.items) {
        const int64_t items = items_at(&w, item);
        gather(&w, v, item, items, w.v);
        gather(&w, k, item, items, w.k);
        gather(&w, q, item, items, w.q);
        for (int64_t first = 0; first < rows_of(&w); first += w.tile) {
            const lt_scores s = scores_at(&w, item, items, first);
            LT_TRY(find_scores(&w, &s));
            lt_scores_softmax(c->stream[LT_CUDA_MAIN], &s, lse->data);
            LT_TRY(multiply(&w, items, of_scores(&w, w.scores, &s), of_keys(&w, w.v), 0,
                            of_queries(&w, w.y, &s)));
        }
        scatter(&w, w.y, y, item, items);
    }
    return LT_OK;
}

/* Computes the gradients of some rows; those of k and v are added to those of earlier rows. */
static lt_status add_gradients(const work *w, const lt_attention_grad *g, const lt_scores *s)
{
    const lt_heads dy = heads_of(w, g->dy, s->first_item, s->items);
    const lt_heads y = heads_of(w, g->y, s->first_item, s->items);
    const matrix dy_rows = of_queries(w, w->dy, s), slopes = of_scores(w, w->slopes, s);
    const float kept = s->first > 0 ? 1.0F : 0.0F;
    LT_TRY(find_scores(w, s));
    LT_TRY(multiply(w, s->items, dy_rows, transpose(of_keys(w, w->v)), 0, slopes));
    lt_scores_slope(w->c->stream[LT_CUDA_MAIN], s, g->lse->data, &dy, &y, w->slopes);
    if (g->dv)
        LT_TRY(multiply(w, s->items, transpose(of_scores(w, w->scores, s)), dy_rows, kept,
                        of_keys(w, w->dv)));
    if (g->dk)
        LT_TRY(multiply(w, s->items, transpose(slopes), of_queries(w, w->q, s), kept,
                        of_keys(w, w->dk)));
    if (g->dq)
        LT_TRY(multiply(w, s->items, slopes, of_keys(w, w->k), 0, of_queries(w, w->dq, s)));
    return LT_OK;
}

lt_status lt_attention_compose_grad(lt_cuda *c, const lt_attention_composed *composed,
                                    const lt_attention_grad *g)
{
    work w = measure(c, composed, g->q, g->k);
    LT_TRY(want_dtypes(c, g->q, g->lse));
    LT_TRY(open_work(&w, true));
    for (int64_t item = 0; item < w.batch * w.kv_heads; item += w.items) {
        const int64_t items = items_at(&w, item);
        gather(&w, g->dy, item, items, w.dy);
        gather(&w, g->v, item, items, w.v);
        gather(&w, g->k, item, items, w.k);
        gather(&w, g->q, item, items, w.q);
        for (int64_t first = 0; first < rows_of(&w); first += w.tile) {
            const lt_scores s = scores_at(&w, item, items, first);
            LT_TRY(add_gradients(&w, g, &s));
        }
        if (g->dq)
            scatter(&w, w.dq, g->dq, item, items);
        if (g->dk)
            scatter(&w, w.dk, g->dk, item, items);
        if (g->dv)
            scatter(&w, w.dv, g->dv, item, items);
    }
    return LT_OK;
}
