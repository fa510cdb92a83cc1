/* Elementwise kernels and sums. Formulas: detail/kernels.h, part 1. */

#include "real.h"
#include "ref.h"
#include "tensor/backend/random.h"

typedef real binary_rule(real a, real b);

static real add_values(real a, real b)
{
    return a + b;
}

static real multiply_values(real a, real b)
{
    return a * b;
}

static real pass_where_positive(real dy, real y)
{
    return y > 0 ? dy : 0;
}

static lt_status apply_binary(binary_rule *rule, const lt_view *a, const lt_view *b,
                              const lt_view *y)
{
    lt_ref_call call = {0};
    real *u = NAME(gather)(&call, a), *v = NAME(gather)(&call, b);
    if (!call.status) {
        for (int64_t i = 0, count = lt_ref_element_count(y); i < count; i++)
            u[i] = rule(u[i], v[i]);
        NAME(scatter)(u, y);
    }
    return lt_ref_finish(&call);
}

lt_status ENTRY(add)(void *ctx, const lt_view *a, const lt_view *b, const lt_view *y)
{
    IF_F64(y, add, ctx, a, b, y);
    return apply_binary(add_values, a, b, y);
}

lt_status ENTRY(mul)(void *ctx, const lt_view *a, const lt_view *b, const lt_view *y)
{
    IF_F64(y, mul, ctx, a, b, y);
    return apply_binary(multiply_values, a, b, y);
}

lt_status ENTRY(relu_grad)(void *ctx, const lt_view *dy, const lt_view *y, const lt_view *dx)
{
    IF_F64(dx, relu_grad, ctx, dy, y, dx);
    return apply_binary(pass_where_positive, dy, y, dx);
}

lt_status ENTRY(scale)(void *ctx, double factor, const lt_view *x, const lt_view *y)
{
    IF_F64(y, scale, ctx, factor, x, y);
    lt_ref_call call = {0};
    real *u = NAME(gather)(&call, x);
    LT_TRY(call.status);
    for (int64_t i = 0, count = lt_ref_element_count(y); i < count; i++)
        u[i] *= (real)factor;
    NAME(scatter)(u, y);
    return lt_ref_finish(&call);
}

lt_status ENTRY(relu)(void *ctx, const lt_view *x, const lt_view *y)
{
    IF_F64(y, relu, ctx, x, y);
    lt_ref_call call = {0};
    real *u = NAME(gather)(&call, x);
    LT_TRY(call.status);
    for (int64_t i = 0, count = lt_ref_element_count(y); i < count; i++)
        u[i] = u[i] < 0 ? 0 : u[i]; /* not fmax(): keeps NaN */
    NAME(scatter)(u, y);
    return lt_ref_finish(&call);
}

lt_status ENTRY(dropout)(void *ctx, lt_random random, double p, const lt_view *x, const lt_view *y)
{
    IF_F64(y, dropout, ctx, random, p, x, y);
    lt_ref_call call = {0};
    real *u = NAME(gather)(&call, x);
    LT_TRY(call.status);
    real factor = (real)(1 / (1 - p));
    lt_random_words words = {.group = -1};
    for (int64_t i = 0, count = lt_ref_element_count(y); i < count; i++)
        u[i] = (double)lt_random_word(&words, &random, i) * 0x1p-32 >= p ? u[i] * factor : 0;
    NAME(scatter)(u, y);
    return lt_ref_finish(&call);
}

lt_status ENTRY(normalize)(void *ctx, const lt_normalize_config *config, const lt_view *x,
                           const lt_view *y)
{
    IF_F64(y, normalize, ctx, config, x, y);
    lt_ref_call call = {0};
    real *u = NAME(gather)(&call, x);
    LT_TRY(call.status);
    int64_t channels = x->shape.dim[1], pixels = x->shape.dim[2] * x->shape.dim[3];
    for (int64_t i = 0, count = lt_ref_element_count(x); i < count; i++) {
        int64_t c = i / pixels % channels;
        u[i] = (u[i] - (real)config->mean[c]) / (real)config->deviation[c];
    }
    NAME(scatter)(u, y);
    return lt_ref_finish(&call);
}

/* Adds x's elements, from dimension dim on, to their sums; returns the position after them in x. */
static const real *accumulate_sums(const lt_view *x, const lt_view *y, int dim, const real *in,
                                   double *sums)
{
    if (dim >= LT_MAX_DIMS || dim == x->shape.ndim) {
        *sums += (double)*in;
        return in + 1;
    }
    int64_t inner = 1; /* step in y along this dimension; 0 if x is summed along it */
    for (int d = dim + 1; d < y->shape.ndim; d++)
        inner *= y->shape.dim[d];
    if (y->shape.dim[dim] == 1)
        inner = 0;
    for (int64_t i = 0; i < x->shape.dim[dim]; i++)
        in = accumulate_sums(x, y, dim + 1, in, sums + i * inner);
    return in;
}

lt_status ENTRY(sum)(void *ctx, double factor, const lt_view *x, const lt_view *y)
{
    IF_F64(x, sum, ctx, factor, x, y);
    lt_ref_call call = {0};
    int64_t count = lt_ref_element_count(y);
    real *u = NAME(gather)(&call, x), *v = lt_ref_array(&call, count, sizeof *v);
    double *sums = lt_ref_array(&call, count, sizeof *sums);
    if (!call.status) {
        accumulate_sums(x, y, 0, u, sums);
        for (int64_t j = 0; j < count; j++)
            v[j] = (real)(factor * sums[j]);
        NAME(scatter)(v, y);
    }
    return lt_ref_finish(&call);
}
