/* 2-D cross-correlation and its two gradients, by their definitions. Formula and source: lt_conv2d() in
 * lather/ops/conv.h. Works on a copy of one image at a time. */

#include "real.h"
#include "ref.h"

#include <string.h>

/* Sizes of a convolution; c counts the channels of one group. */
typedef struct geometry {
    const lt_conv2d_config *config;
    int64_t n, c, h, w;
    int64_t k, r, s;
    int64_t p, q;
    int64_t x_image, y_image; /* elements of an image of the input and of the output */
} geometry;

static geometry get_sizes(const lt_conv2d_config *config, const lt_view *x, const lt_view *w,
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
        .x_image = x->shape.dim[1] * x->shape.dim[2] * x->shape.dim[3],
        .y_image = y->shape.dim[1] * y->shape.dim[2] * y->shape.dim[3],
    };
}

/* A segment of output row p that a filter tap connects to a segment of an input row. */
typedef struct tap {
    int64_t x, w, y; /* indices of the first element in the arrays */
    int64_t count;   /* output columns; 0: the tap is in the padding */
} tap;

/* Called for each tap of a filter, in the order c, r, s, p. */
typedef void tap_fn(const tap *t, int64_t step, const real *in, const real *by, real *out);

static tap find_tap(const geometry *g, int64_t r, int64_t s, int64_t p)
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

/* Calls fn for all taps of an image and all filters, with a, b and out. */
static void for_each_tap(const geometry *g, tap_fn *fn, const real *a, const real *b, real *out)
{
    int64_t per_group = g->k / g->config->groups;
    for (int64_t k = 0; k < g->k; k++)
        for (int64_t crs = 0; crs < g->c * g->r * g->s; crs++) {
            int64_t c = crs / (g->r * g->s), r = crs / g->s % g->r, s = crs % g->s;
            int64_t plane = k / per_group * g->c + c;
            for (int64_t p = 0; p < g->p; p++) {
                tap t = find_tap(g, r, s, p);
                t.x += plane * g->h * g->w;
                t.w = k * g->c * g->r * g->s + crs;
                t.y += k * g->p * g->q;
                if (t.count)
                    fn(&t, g->config->stride_w, a, b, out);
            }
        }
}

static void forward_tap(const tap *t, int64_t step, const real *x, const real *w, real *y)
{
    for (int64_t i = 0; i < t->count; i++)
        y[t->y + i] += x[t->x + i * step] * w[t->w];
}

static void backward_x_tap(const tap *t, int64_t step, const real *dy, const real *w, real *dx)
{
    for (int64_t i = 0; i < t->count; i++)
        dx[t->x + i * step] += dy[t->y + i] * w[t->w];
}

static void backward_w_tap(const tap *t, int64_t step, const real *dy, const real *x, real *dw)
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
    lt_ref_call call = {0};
    geometry g = get_sizes(config, x, w, y);
    real *ws = NAME(gather_rounded)(&call, w, x->dtype);
    real *bias =
        lt_ref_has_data(b) ? NAME(gather)(&call, b) : lt_ref_array(&call, g.k, sizeof *bias);
    real *xs = lt_ref_array(&call, g.x_image, sizeof *xs);
    real *ys = lt_ref_array(&call, g.y_image, sizeof *ys);
    if (!call.status) {
        for (int64_t n = 0; n < g.n; n++) {
            NAME(load)(x, n * g.x_image, g.x_image, xs);
            for (int64_t i = 0; i < g.y_image; i++)
                ys[i] = bias[i / (g.p * g.q)];
            for_each_tap(&g, forward_tap, xs, ws, ys);
            NAME(store)(y, n * g.y_image, g.y_image, ys);
        }
    }
    return lt_ref_finish(&call);
}

lt_status ENTRY(conv2d_grad_x)(void *ctx, const lt_conv2d_config *config, const lt_view *dy,
                               const lt_view *w, const lt_view *dx)
{
    IF_F64(dx, conv2d_grad_x, ctx, config, dy, w, dx);
    lt_ref_call call = {0};
    geometry g = get_sizes(config, dx, w, dy);
    real *ws = NAME(gather_rounded)(&call, w, dy->dtype);
    real *dys = lt_ref_array(&call, g.y_image, sizeof *dys);
    real *dxs = lt_ref_array(&call, g.x_image, sizeof *dxs);
    if (!call.status) {
        for (int64_t n = 0; n < g.n; n++) {
            NAME(load)(dy, n * g.y_image, g.y_image, dys);
            memset(dxs, 0, (size_t)g.x_image * sizeof *dxs);
            for_each_tap(&g, backward_x_tap, dys, ws, dxs);
            NAME(store)(dx, n * g.x_image, g.x_image, dxs);
        }
    }
    return lt_ref_finish(&call);
}

lt_status ENTRY(conv2d_grad_w)(void *ctx, const lt_conv2d_config *config, const lt_view *dy,
                               const lt_view *x, const lt_view *dw)
{
    IF_F64(dw, conv2d_grad_w, ctx, config, dy, x, dw);
    lt_ref_call call = {0};
    geometry g = get_sizes(config, x, dw, dy);
    real *dys = lt_ref_array(&call, g.y_image, sizeof *dys);
    real *xs = lt_ref_array(&call, g.x_image, sizeof *xs);
    real *dws = lt_ref_array(&call, lt_ref_element_count(dw), sizeof *dws);
    if (!call.status) {
        for (int64_t n = 0; n < g.n; n++) {
            NAME(load)(dy, n * g.y_image, g.y_image, dys);
            NAME(load)(x, n * g.x_image, g.x_image, xs);
            for_each_tap(&g, backward_w_tap, dys, xs, dws);
        }
        NAME(scatter)(dws, dw);
    }
    return lt_ref_finish(&call);
}
