/* 2-D cross-correlation and its two gradients, by their definitions. Formula and source: lt_conv2d() in
 * lather/ops/conv.h. */

#include "real.h"
#include "ref.h"

/* Sizes of a convolution; c counts the channels of one group. */
typedef struct geometry {
    const lt_conv2d_config *config;
    int64_t n, c, h, w;
    int64_t k, r, s;
    int64_t p, q;
} geometry;

static geometry measure(const lt_conv2d_config *config, const lt_view *x, const lt_view *w,
                        const lt_view *y)
{
    return (geometry){
        .config = config,
        .n = x->shape.dim[0],
        .c = w->shape.dim[1],
        .h = x->shape.dim[2],
        .w = x->shape.dim[3],
        .k = w->shape.dim[0],
        .r = w->shape.dim[2],
        .s = w->shape.dim[3],
        .p = y->shape.dim[2],
        .q = y->shape.dim[3],
    };
}

/* A segment of output row p that a filter tap connects to a segment of an input row. */
typedef struct tap {
    int64_t x, w, y; /* indices of the first element in the arrays */
    int64_t count;   /* output columns; 0: the tap is in the padding */
} tap;

/* Called for each tap of image n and filter k, in the order c, r, s, p. */
typedef void tap_fn(const tap *t, int64_t step, const real *in, const real *by, real *out);

static tap connect(const geometry *g, int64_t r, int64_t s, int64_t p)
{
    const lt_conv2d_config *c = g->config;
    int64_t row = p * c->stride_h - c->pad_h + r * c->dilation_h;
    int64_t left = s * c->dilation_w - c->pad_w; /* input column of output column 0 */
    int64_t first = left < 0 ? (-left + c->stride_w - 1) / c->stride_w : 0;
    int64_t end = left < g->w ? (g->w - left + c->stride_w - 1) / c->stride_w : 0;
    if (end > g->q)
        end = g->q;
    if (row < 0 || row >= g->h || end <= first)
        return (tap){0};
    return (tap){
        .x = row * g->w + left + first * c->stride_w,
        .y = p * g->q + first,
        .count = end - first,
    };
}

/* Calls fn for all taps of all images and filters, with a, b and out. */
static void each_tap(const geometry *g, tap_fn *fn, const real *a, const real *b, real *out)
{
    int64_t groups = g->config->groups, per_group = g->k / groups;
    for (int64_t nk = 0; nk < g->n * g->k; nk++) {
        int64_t n = nk / g->k, k = nk % g->k;
        for (int64_t crs = 0; crs < g->c * g->r * g->s; crs++) {
            int64_t c = crs / (g->r * g->s), r = crs / g->s % g->r, s = crs % g->s;
            int64_t plane = (n * groups + k / per_group) * g->c + c;
            for (int64_t p = 0; p < g->p; p++) {
                tap t = connect(g, r, s, p);
                t.x += plane * g->h * g->w;
                t.w = k * g->c * g->r * g->s + crs;
                t.y += nk * g->p * g->q;
                if (t.count)
                    fn(&t, g->config->stride_w, a, b, out);
            }
        }
    }
}

static void forward(const tap *t, int64_t step, const real *x, const real *w, real *y)
{
    for (int64_t i = 0; i < t->count; i++)
        y[t->y + i] += x[t->x + i * step] * w[t->w];
}

static void backward_x(const tap *t, int64_t step, const real *dy, const real *w, real *dx)
{
    for (int64_t i = 0; i < t->count; i++)
        dx[t->x + i * step] += dy[t->y + i] * w[t->w];
}

static void backward_w(const tap *t, int64_t step, const real *dy, const real *x, real *dw)
{
    real sum = 0;
    for (int64_t i = 0; i < t->count; i++)
        sum += dy[t->y + i] * x[t->x + i * step];
    dw[t->w] += sum;
}

lt_status ENTRY(conv2d)(void *ctx, const lt_conv2d_config *config, const lt_view *x,
                        const lt_view *w, const lt_view *b, const lt_view *y)
{
    IF_F64(y, conv2d, ctx, config, x, w, b, y);
    (void)ctx;
    lt_status st = LT_E_NOMEM;
    geometry g = measure(config, x, w, y);
    real *xs = NAME(gather)(x), *ws = NAME(gather_rounded)(w, x->dtype);
    real *bias = lt_ref_has(b) ? NAME(gather)(b) : lt_alloc((size_t)g.k, sizeof *bias);
    real *ys = lt_alloc((size_t)lt_ref_count(y), sizeof *ys);
    if (xs && ws && bias && ys) {
        for (int64_t i = 0, count = lt_ref_count(y); i < count; i++)
            ys[i] = bias[i / (g.p * g.q) % g.k];
        each_tap(&g, forward, xs, ws, ys);
        NAME(scatter)(ys, y);
        st = LT_OK;
    }
    lt_free(xs);
    lt_free(ws);
    lt_free(bias);
    lt_free(ys);
    return st;
}

/* Computes a gradient of out's shape by fn, from dy and the other operand, which it frees. */
static lt_status gradient(const geometry *g, tap_fn *fn, real *dy, real *in, const lt_view *out)
{
    lt_status st = LT_E_NOMEM;
    real *sums = lt_alloc((size_t)lt_ref_count(out), sizeof *sums);
    if (dy && in && sums) {
        each_tap(g, fn, dy, in, sums);
        NAME(scatter)(sums, out);
        st = LT_OK;
    }
    lt_free(dy);
    lt_free(in);
    lt_free(sums);
    return st;
}

lt_status ENTRY(conv2d_grad_x)(void *ctx, const lt_conv2d_config *config, const lt_view *dy,
                               const lt_view *w, const lt_view *dx)
{
    IF_F64(dx, conv2d_grad_x, ctx, config, dy, w, dx);
    (void)ctx;
    geometry g = measure(config, dx, w, dy);
    return gradient(&g, backward_x, NAME(gather)(dy), NAME(gather_rounded)(w, dy->dtype), dx);
}

lt_status ENTRY(conv2d_grad_w)(void *ctx, const lt_conv2d_config *config, const lt_view *dy,
                               const lt_view *x, const lt_view *dw)
{
    IF_F64(dw, conv2d_grad_w, ctx, config, dy, x, dw);
    (void)ctx;
    geometry g = measure(config, x, dw, dy);
    return gradient(&g, backward_w, NAME(gather)(dy), NAME(gather)(x), dw);
}
