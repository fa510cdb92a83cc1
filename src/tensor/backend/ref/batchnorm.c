/* Batch normalisation: moments in two passes, sums in double. Ioffe & Szegedy, "Batch Normalization", ICML
 * 2015, algorithms 1 and 2, and the chain rule of their section 3. Formulas: detail/norm_kernels.h. */

#include "real.h"
#include "ref.h"

typedef struct sizes {
    int64_t n, c, pixels; /* pixels: H*W */
} sizes;

static sizes get_sizes(const lt_view *x)
{
    return (sizes){x->shape.dim[0], x->shape.dim[1], x->shape.dim[2] * x->shape.dim[3]};
}

/* Returns the row-major index of value i = 0 .. n*pixels-1 of channel c. */
static int64_t channel_value_index(sizes e, int64_t c, int64_t i)
{
    return (i / e.pixels * e.c + c) * e.pixels + i % e.pixels;
}

/* Returns the mask bit of row-major index i: its channels-last index. */
static int64_t mask_bit_index(sizes e, int64_t i)
{
    int64_t n = i / (e.c * e.pixels), c = i / e.pixels % e.c, pixel = i % e.pixels;
    return (n * e.pixels + pixel) * e.c + c;
}

/* Mean and M2 in two passes: the one-pass sum(x*x)/n - mean*mean suffers from cancellation (Chan, Golub & LeVeque,
 * The American Statistician 37, 1983). */
static void channel_moments(sizes e, const real *x, int64_t c, double *mean, double *m2)
{
    int64_t count = e.n * e.pixels;
    double sum = 0, square = 0;
    for (int64_t i = 0; i < count; i++)
        sum += (double)x[channel_value_index(e, c, i)];
    *mean = sum / (double)count;
    for (int64_t i = 0; i < count; i++) {
        double d = (double)x[channel_value_index(e, c, i)] - *mean;
        square += d * d;
    }
    *m2 = square;
}

lt_status ENTRY(batchnorm_stats)(void *ctx, const lt_view *x, const lt_view *stats)
{
    IF_F64(x, batchnorm_stats, ctx, x, stats);
    lt_ref_call call = {0};
    sizes e = get_sizes(x);
    real *u = NAME(gather)(&call, x);
    double *rows = lt_ref_array(&call, 3 * e.c, sizeof *rows);
    if (!call.status) {
        for (int64_t c = 0; c < e.c; c++) {
            rows[c] = (double)(e.n * e.pixels);
            channel_moments(e, u, c, &rows[e.c + c], &rows[2 * e.c + c]);
        }
        lt_ref_scatter_f64(rows, stats);
    }
    return lt_ref_finish(&call);
}

static void write_relu_mask(sizes e, const real *y, int64_t count, const lt_view *mask)
{
    uint8_t *bytes = mask->data;
    for (int64_t i = 0; i < (count + 7) / 8; i++)
        bytes[i] = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t bit = mask_bit_index(e, i);
        if (y[i] > 0)
            bytes[bit / 8] = (uint8_t)(bytes[bit / 8] | 1U << bit % 8);
    }
}

lt_status ENTRY(batchnorm_apply)(void *ctx, const lt_batchnorm2d_config *config, const lt_view *x,
                                 const lt_view *coef, const lt_view *residual, const lt_view *y,
                                 const lt_view *mask)
{
    IF_F64(y, batchnorm_apply, ctx, config, x, coef, residual, y, mask);
    lt_ref_call call = {0};
    sizes e = get_sizes(x);
    int64_t count = lt_ref_element_count(x);
    real *u = NAME(gather)(&call, x), *k = NAME(gather)(&call, coef);
    real *add = NAME(gather)(&call, residual);
    if (!call.status) {
        for (int64_t i = 0; i < count; i++) {
            int64_t c = i / e.pixels % e.c;
            u[i] = u[i] * k[2 * e.c + c] + k[3 * e.c + c];
            if (add)
                u[i] += add[i];
            if (config->relu && u[i] < 0)
                u[i] = 0;
        }
        NAME(scatter)(u, y);
        if (lt_ref_has_data(mask))
            write_relu_mask(e, u, count, mask);
    }
    return lt_ref_finish(&call);
}

/* Gathered inputs of both halves of backward. */
typedef struct inputs {
    real *g; /* masked gradient */
    real *x;
    real *coef; /* rows: mean, 1/sqrt(var+eps), scale, shift */
} inputs;

static bool is_masked_out(const lt_batchnorm_grad *from, const inputs *in, sizes e, int64_t i)
{
    if (lt_ref_has_data(from->mask)) {
        int64_t bit = mask_bit_index(e, i);
        return !(((const uint8_t *)from->mask->data)[bit / 8] >> bit % 8 & 1);
    }
    int64_t c = i / e.pixels % e.c;
    return !(in->x[i] * in->coef[2 * e.c + c] + in->coef[3 * e.c + c] > 0);
}

static inputs gather_inputs(lt_ref_call *call, const lt_batchnorm_grad *from, sizes e)
{
    const inputs in = {NAME(gather_pair)(call, from->dy), NAME(gather)(call, from->x),
                       NAME(gather)(call, from->coef)};
    const int64_t count = call->status || !from->relu ? 0 : lt_ref_element_count(from->x);
    for (int64_t i = 0; i < count; i++)
        if (is_masked_out(from, &in, e, i))
            in.g[i] = 0;
    return in;
}

lt_status ENTRY(batchnorm_grad_stats)(void *ctx, const lt_batchnorm_grad *from, const lt_view *g,
                                      const lt_view *sums)
{
    IF_F64(from->x, batchnorm_grad_stats, ctx, from, g, sums);
    lt_ref_call call = {0};
    sizes e = get_sizes(from->x);
    const inputs in = gather_inputs(&call, from, e);
    double *rows = lt_ref_array(&call, 2 * e.c, sizeof *rows);
    if (!call.status) {
        for (int64_t i = 0, count = lt_ref_element_count(from->x); i < count; i++) {
            int64_t c = i / e.pixels % e.c;
            double centred = (double)in.x[i] - (double)in.coef[c];
            rows[c] += (double)in.g[i];
            rows[e.c + c] += (double)in.g[i] * centred * (double)in.coef[e.c + c];
        }
        lt_ref_scatter_f64(rows, sums);
        if (lt_ref_has_data(g))
            NAME(scatter)(in.g, g);
    }
    return lt_ref_finish(&call);
}

lt_status ENTRY(batchnorm_grad_x)(void *ctx, const lt_batchnorm_grad *from, const lt_view *sums,
                                  double count, const lt_view *dx)
{
    IF_F64(dx, batchnorm_grad_x, ctx, from, sums, count, dx);
    lt_ref_call call = {0};
    sizes e = get_sizes(from->x);
    const inputs in = gather_inputs(&call, from, e);
    const real *all = NAME(gather)(&call, sums), *s = count > 0 ? all : NULL;
    if (call.status)
        return lt_ref_finish(&call);
    for (int64_t i = 0, elements = lt_ref_element_count(from->x); i < elements; i++) {
        int64_t c = i / e.pixels % e.c;
        real g = in.g[i];
        if (s) {
            real xhat = (in.x[i] - in.coef[c]) * in.coef[e.c + c];
            g -= s[c] / (real)count + xhat * (s[e.c + c] / (real)count);
        }
        in.g[i] = in.coef[2 * e.c + c] * g;
    }
    NAME(scatter)(in.g, dx);
    for (int i = 0; i < 2; i++)
        if (from->affine[i].data)
            NAME(scatter)(all + i * e.c, &from->affine[i]);
    return lt_ref_finish(&call);
}
