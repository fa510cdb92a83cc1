/* Selection by masks and indices, and interpolation, in double. Formulas: detail/select_kernels.h. */

#include "ref.h"
#include "tensor/backend/index_at.h"
#include "tensor/backend/upsample_taps.h"

lt_status lt_ref_where(void *ctx, const lt_view *mask, const lt_view *a, const lt_view *b,
                       const lt_view *y)
{
    (void)ctx;
    lt_ref_call call = {0};
    double *m = lt_ref_gather_f64(&call, mask), *u = lt_ref_gather_f64(&call, a),
           *v = lt_ref_gather_f64(&call, b);
    if (!call.status) {
        for (int64_t i = 0, count = lt_ref_element_count(y); i < count; i++)
            u[i] = m[i] != 0 ? u[i] : v[i];
        lt_ref_scatter_f64(u, y);
    }
    return lt_ref_finish(&call);
}

/* Adds count[0] x count[1] x count[2] elements of `from` to `to`; index selects in the dimension of size n of `to` if
 * to_index, else of `from`. */
static void add_by_index(const lt_index *index, int64_t n, bool to_index, const double *from,
                         double *to)
{
    const lt_shape s = index->index.shape;
    for (int64_t a = 0; a < s.dim[0]; a++)
        for (int64_t i = 0; i < s.dim[1]; i++)
            for (int64_t b = 0; b < s.dim[2]; b++) {
                const int32_t at = lt_index_at(&index->index, a, i, b);
                const int64_t far = (a * n + at) * s.dim[2] + b,
                              near = (a * s.dim[1] + i) * s.dim[2] + b;
                if (at >= 0)
                    to[to_index ? far : near] += from[to_index ? near : far];
            }
}

lt_status lt_ref_gather_by_index(void *ctx, const lt_index *index, const lt_view *x,
                                 const lt_view *y)
{
    (void)ctx;
    lt_ref_call call = {0};
    LT_TRY(lt_index_check(index, x->shape.dim[1]));
    double *u = lt_ref_gather_f64(&call, x),
           *v = lt_ref_array(&call, lt_ref_element_count(y), sizeof *v);
    if (!call.status) {
        add_by_index(index, x->shape.dim[1], false, u, v);
        lt_ref_scatter_f64(v, y);
    }
    return lt_ref_finish(&call);
}

lt_status lt_ref_scatter_add(void *ctx, const lt_index *index, const lt_view *x, const lt_view *y)
{
    (void)ctx;
    lt_ref_call call = {0};
    LT_TRY(lt_index_check(index, y->shape.dim[1]));
    double *u = lt_ref_gather_f64(&call, x), *v = lt_ref_gather_f64(&call, y);
    if (!call.status) {
        add_by_index(index, y->shape.dim[1], true, u, v);
        lt_ref_scatter_f64(v, y);
    }
    return lt_ref_finish(&call);
}

/* Interpolates planes of row-major images, or adds their gradient to `small`. */
static void interpolate(const lt_upsample_config *c, lt_shape in, lt_shape out, double *small,
                        double *large, bool gradient)
{
    const int64_t h = in.dim[2], w = in.dim[3];
    for (int64_t n = 0; n < in.dim[0] * in.dim[1]; n++, small += h * w)
        for (int64_t p = 0; p < out.dim[2]; p++)
            for (int64_t q = 0; q < out.dim[3]; q++, large++) {
                const lt_upsample_pair y = lt_upsample_taps(c, p, h, out.dim[2]),
                                       x = lt_upsample_taps(c, q, w, out.dim[3]);
                for (int i = 0; i < 4; i++) {
                    const double weight =
                        (i / 2 ? y.weight : 1 - y.weight) * (i % 2 ? x.weight : 1 - x.weight);
                    double *pixel =
                        &small[(i / 2 ? y.next : y.first) * w + (i % 2 ? x.next : x.first)];
                    if (weight != 0 && gradient)
                        *pixel += weight * *large;
                    else if (weight != 0)
                        *large += weight * *pixel;
                }
            }
}

static lt_status run_interpolation(const lt_upsample_config *c, const lt_view *from,
                                   const lt_view *to, bool gradient)
{
    lt_ref_call call = {0};
    double *u = lt_ref_gather_f64(&call, from),
           *v = lt_ref_array(&call, lt_ref_element_count(to), sizeof *v);
    if (!call.status) {
        if (gradient)
            interpolate(c, to->shape, from->shape, v, u, true);
        else
            interpolate(c, from->shape, to->shape, u, v, false);
        lt_ref_scatter_f64(v, to);
    }
    return lt_ref_finish(&call);
}

lt_status lt_ref_upsample(void *ctx, const lt_upsample_config *config, const lt_view *x,
                          const lt_view *y)
{
    (void)ctx;
    return run_interpolation(config, x, y, false);
}

lt_status lt_ref_upsample_grad(void *ctx, const lt_upsample_config *config, const lt_view *dy,
                               const lt_view *dx)
{
    (void)ctx;
    return run_interpolation(config, dy, dx, true);
}
