/* Attention and its gradient in double, one query at a time. Formulas: detail/attention_kernels.h. Scores
 * are rounded like lse, so that both passes compute a weight from the same difference, however large the
 * scores. */

#include "ref.h"

#include "lather/ext/elementary.h"

#include <math.h>

/* Gathered operands, row-major, and the sums of the gradient. */
typedef struct parts {
    int64_t batch, queries, keys, heads, kv_heads, d;
    bool causal, narrow; /* narrow: lse is f32 */
    double scale;
    double *q, *k, *v, *y, *lse, *dy;
    double *dq, *dk, *dv;
    double *score; /* scores of one query: [keys] */
} parts;

static parts get_sizes(const lt_attention_config *c, const lt_view *q, const lt_view *k,
                       const lt_view *lse)
{
    return (parts){.batch = q->shape.dim[0],
                   .queries = q->shape.dim[1],
                   .keys = k->shape.dim[1],
                   .heads = c->heads,
                   .kv_heads = c->kv_heads,
                   .d = q->shape.dim[3],
                   .causal = c->causal,
                   .narrow = lse->dtype == LT_F32,
                   .scale = c->scale};
}

/* A query: indices of its row in q, of its key 0 in k, and of its lse. */
typedef struct query {
    int64_t q, k, lse, keys; /* keys: number of keys that it attends to */
} query;

static query locate_query(const parts *p, int64_t b, int64_t h, int64_t i)
{
    const int64_t g = h / (p->heads / p->kv_heads);
    return (query){.q = ((b * p->queries + i) * p->heads + h) * p->d,
                   .k = (b * p->keys * p->kv_heads + g) * p->d,
                   .lse = (b * p->heads + h) * p->queries + i,
                   .keys = p->causal ? i + 1 + p->keys - p->queries : p->keys};
}

static double dot(const double *a, const double *b, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

static void add_scaled(double factor, const double *x, int64_t count, double *y)
{
    for (int64_t i = 0; i < count; i++)
        y[i] += factor * x[i];
}

static void compute_scores(const parts *p, query at)
{
    for (int64_t j = 0; j < at.keys; j++) {
        const double score =
            p->scale * dot(p->q + at.q, p->k + at.k + j * p->kv_heads * p->d, p->d);
        p->score[j] = p->narrow ? (double)(float)score : score;
    }
}

static void attend_query(const parts *p, query at)
{
    double top = -(double)INFINITY, sum = 0;
    compute_scores(p, at);
    for (int64_t j = 0; j < at.keys; j++)
        top = p->score[j] > top ? p->score[j] : top;
    for (int64_t j = 0; j < at.keys; j++)
        sum += lt_f64_exp(p->score[j] - top);
    p->lse[at.lse] = top + lt_f64_log(sum);
    for (int64_t c = 0; c < p->d; c++)
        p->y[at.q + c] = 0;
    for (int64_t j = 0; j < at.keys; j++)
        add_scaled(lt_f64_exp(p->score[j] - top) / sum, p->v + at.k + j * p->kv_heads * p->d, p->d,
                   p->y + at.q);
}

/* Adds one query's contributions to the gradients. */
static void attend_query_grad(const parts *p, query at)
{
    const double *dy = p->dy + at.q, mean = dot(dy, p->y + at.q, p->d);
    compute_scores(p, at);
    for (int64_t j = 0; j < at.keys; j++) {
        const int64_t k = at.k + j * p->kv_heads * p->d;
        const double weight = lt_f64_exp(p->score[j] - p->lse[at.lse]);
        const double slope = p->scale * weight * (dot(dy, p->v + k, p->d) - mean);
        add_scaled(weight, dy, p->d, p->dv + k);
        add_scaled(slope, p->k + k, p->d, p->dq + at.q);
        add_scaled(slope, p->q + at.q, p->d, p->dk + k);
    }
}

static void for_each_query(const parts *p, void (*visit)(const parts *p, query at))
{
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->heads; h++)
            for (int64_t i = 0; i < p->queries; i++)
                visit(p, locate_query(p, b, h, i));
}

static double *alloc_zeros(lt_ref_call *call, int64_t count)
{
    return lt_ref_array(call, count, sizeof(double));
}

lt_status lt_ref_attention(void *ctx, const lt_attention_config *config, const lt_view *q,
                           const lt_view *k, const lt_view *v, const lt_view *y, const lt_view *lse)
{
    (void)ctx;
    lt_ref_call call = {0};
    parts p = get_sizes(config, q, k, lse);
    p.q = lt_ref_gather_f64(&call, q);
    p.k = lt_ref_gather_f64(&call, k);
    p.v = lt_ref_gather_f64(&call, v);
    p.y = alloc_zeros(&call, lt_ref_element_count(y));
    p.lse = alloc_zeros(&call, lt_ref_element_count(lse));
    p.score = alloc_zeros(&call, p.keys);
    if (!call.status) {
        for_each_query(&p, attend_query);
        lt_ref_scatter_f64(p.y, y);
        lt_ref_scatter_f64(p.lse, lse);
    }
    return lt_ref_finish(&call);
}

lt_status lt_ref_attention_grad(void *ctx, const lt_attention_config *config,
                                const lt_attention_grad *g)
{
    (void)ctx;
    lt_ref_call call = {0};
    parts p = get_sizes(config, g->q, g->k, g->lse);
    p.q = lt_ref_gather_f64(&call, g->q);
    p.k = lt_ref_gather_f64(&call, g->k);
    p.v = lt_ref_gather_f64(&call, g->v);
    p.y = lt_ref_gather_f64(&call, g->y);
    p.lse = lt_ref_gather_f64(&call, g->lse);
    p.dy = lt_ref_gather_f64(&call, g->dy);
    p.dq = alloc_zeros(&call, lt_ref_element_count(g->q));
    p.dk = alloc_zeros(&call, lt_ref_element_count(g->k));
    p.dv = alloc_zeros(&call, lt_ref_element_count(g->k));
    p.score = alloc_zeros(&call, p.keys);
    if (!call.status) {
        for_each_query(&p, attend_query_grad);
        if (g->dq)
            lt_ref_scatter_f64(p.dq, g->dq);
        if (g->dk)
            lt_ref_scatter_f64(p.dk, g->dk);
        if (g->dv)
            lt_ref_scatter_f64(p.dv, g->dv);
    }
    return lt_ref_finish(&call);
}
