/* Pooling. Formulas: lather/ops/pool.h. */

#include "real.h"
#include "ref.h"

/* The part of a window inside the image: rows r0..r1-1, columns s0..s1-1 of the window. */
typedef struct window {
    int64_t h, w; /* input row and column of the window's first element, possibly negative */
    int64_t r0, r1, s0, s1;
} window;

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Returns the window of row-major index i of y. */
static window output_window(const lt_pool2d_config *c, const lt_shape *x, const lt_shape *y,
                            int64_t i)
{
    int64_t p = i / y->dim[3] % y->dim[2], q = i % y->dim[3];
    window w = {.h = p * c->stride_h - c->pad_h, .w = q * c->stride_w - c->pad_w};
    w.r0 = larger(0, -w.h);
    w.s0 = larger(0, -w.w);
    w.r1 = smaller(c->kernel_h, x->dim[2] - w.h);
    w.s1 = smaller(c->kernel_w, x->dim[3] - w.w);
    return w;
}

/* Returns where the image plane of row-major index i of y begins in x. */
static int64_t plane_offset(const lt_shape *x, const lt_shape *y, int64_t i)
{
    return i / (y->dim[2] * y->dim[3]) * x->dim[2] * x->dim[3];
}

/* Returns true if the candidate replaces the maximum so far. NaN is the largest; of equals the first is kept. */
static bool is_new_max(real candidate, real best)
{
    return candidate > best || (candidate != candidate && best == best);
}

/* Returns the position of the maximum in its window, which is not empty (padding is at most half). */
static int64_t window_argmax(const real *plane, int64_t width, const lt_pool2d_config *c, window w)
{
    int64_t best = w.r0 * c->kernel_w + w.s0;
    real value = plane[(w.h + w.r0) * width + w.w + w.s0];
    for (int64_t r = w.r0; r < w.r1; r++)
        for (int64_t s = w.s0; s < w.s1; s++) {
            real candidate = plane[(w.h + r) * width + w.w + s];
            if (is_new_max(candidate, value)) {
                value = candidate;
                best = r * c->kernel_w + s;
            }
        }
    return best;
}

lt_status ENTRY(maxpool2d)(void *ctx, const lt_pool2d_config *config, const lt_view *x,
                           const lt_view *y, const lt_view *index)
{
    IF_F64(y, maxpool2d, ctx, config, x, y, index);
    lt_ref_call call = {0};
    int64_t count = lt_ref_element_count(y), width = x->shape.dim[3];
    real *u = NAME(gather)(&call, x), *v = lt_ref_array(&call, count, sizeof *v);
    real *indices = lt_ref_array(&call, count, sizeof *indices);
    if (!call.status) {
        for (int64_t i = 0; i < count; i++) {
            const real *plane = u + plane_offset(&x->shape, &y->shape, i);
            window w = output_window(config, &x->shape, &y->shape, i);
            int64_t best = window_argmax(plane, width, config, w);
            indices[i] = (real)best;
            v[i] = plane[(w.h + best / config->kernel_w) * width + w.w + best % config->kernel_w];
        }
        NAME(scatter)(v, y);
        if (lt_ref_has_data(index))
            NAME(scatter)(indices, index);
    }
    return lt_ref_finish(&call);
}

lt_status ENTRY(maxpool2d_grad)(void *ctx, const lt_pool2d_config *config, const lt_view dy[2],
                                const lt_view *index, const lt_view *dx)
{
    IF_F64(dx, maxpool2d_grad, ctx, config, dy, index, dx);
    lt_ref_call call = {0};
    const lt_shape *x = &dx->shape, *y = &dy[0].shape;
    real *g = NAME(gather_pair)(&call, dy), *indices = NAME(gather)(&call, index);
    real *sums = lt_ref_array(&call, lt_ref_element_count(dx), sizeof *sums);
    if (!call.status) {
        for (int64_t i = 0, count = lt_ref_element_count(&dy[0]); i < count; i++) {
            window w = output_window(config, x, y, i);
            int64_t h = w.h + (int64_t)indices[i] / config->kernel_w;
            int64_t column = w.w + (int64_t)indices[i] % config->kernel_w;
            sums[plane_offset(x, y, i) + h * x->dim[3] + column] += g[i];
        }
        NAME(scatter)(sums, dx);
    }
    return lt_ref_finish(&call);
}

lt_status ENTRY(avgpool2d)(void *ctx, const lt_pool2d_config *config, const lt_view *x,
                           const lt_view *y)
{
    IF_F64(y, avgpool2d, ctx, config, x, y);
    lt_ref_call call = {0};
    int64_t count = lt_ref_element_count(y), width = x->shape.dim[3];
    double area = (double)config->kernel_h * config->kernel_w;
    real *u = NAME(gather)(&call, x), *v = lt_ref_array(&call, count, sizeof *v);
    if (!call.status) {
        for (int64_t i = 0; i < count; i++) {
            const real *plane = u + plane_offset(&x->shape, &y->shape, i);
            window w = output_window(config, &x->shape, &y->shape, i);
            double sum = 0;
            for (int64_t r = w.r0; r < w.r1; r++)
                for (int64_t s = w.s0; s < w.s1; s++)
                    sum += (double)plane[(w.h + r) * width + w.w + s];
            v[i] = (real)(sum / area);
        }
        NAME(scatter)(v, y);
    }
    return lt_ref_finish(&call);
}

lt_status ENTRY(avgpool2d_grad)(void *ctx, const lt_pool2d_config *config, const lt_view *dy,
                                const lt_view *dx)
{
    IF_F64(dx, avgpool2d_grad, ctx, config, dy, dx);
    lt_ref_call call = {0};
    const lt_shape *x = &dx->shape, *y = &dy->shape;
    double area = (double)config->kernel_h * config->kernel_w;
    real *g = NAME(gather)(&call, dy),
         *sums = lt_ref_array(&call, lt_ref_element_count(dx), sizeof *sums);
    if (!call.status) {
        for (int64_t i = 0, count = lt_ref_element_count(dy); i < count; i++) {
            window w = output_window(config, x, y, i);
            real *plane = sums + plane_offset(x, y, i);
            for (int64_t r = w.r0; r < w.r1; r++)
                for (int64_t s = w.s0; s < w.s1; s++)
                    plane[(w.h + r) * x->dim[3] + w.w + s] += (real)((double)g[i] / area);
        }
        NAME(scatter)(sums, dx);
    }
    return lt_ref_finish(&call);
}
