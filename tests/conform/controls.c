/* Kernels with one fault each, which the checkers must reject. */

#include "base/alloc.h"
#include "conform.h"

#include <stdio.h>
#include <string.h>

/* Reads each row of x one column too far to the left, with wrap-around. */
static lt_status shifted_conv(void *ctx, const lt_conv2d_config *config, const lt_view *x,
                              const lt_view *w, const lt_view *b, const lt_view *y)
{
    lt_conv2d_config c = *config;
    lt_view to = *y;
    to.shape.dim[3]--;
    to.data = (float *)y->data + y->stride[3];
    LT_TRY(lt_backend_ref()->conv2d(ctx, &c, x, w, b, y));
    return lt_backend_ref()->conv2d(ctx, &c, x, w, b, &to);
}

static lt_status one_percent_off(void *ctx, const lt_view *a, const lt_view *b, const lt_view *y)
{
    LT_TRY(lt_backend_ref()->add(ctx, a, b, y));
    float *last = (float *)y->data + lt_shape_count(y->shape) - 1;
    *last *= 1.01F;
    return LT_OK;
}

static lt_status writes_past_the_end(void *ctx, const lt_view *x, const lt_view *y)
{
    LT_TRY(lt_backend_ref()->relu(ctx, x, y));
    ((float *)y->data)[lt_shape_count(y->shape)] = 0;
    return LT_OK;
}

static lt_status changes_its_input(void *ctx, const lt_view *a, const lt_view *b, const lt_view *y)
{
    LT_TRY(lt_backend_ref()->mul(ctx, a, b, y));
    *(float *)a->data += 1;
    return LT_OK;
}

static lt_status leaves_one_out(void *ctx, double factor, const lt_view *x, const lt_view *y)
{
    lt_view shorter = *x;
    shorter.shape.dim[0]--;
    return lt_backend_ref()->sum(ctx, factor, &shorter, y);
}

static lt_status gives_nan(void *ctx, double factor, const lt_view *x, const lt_view *y)
{
    LT_TRY(lt_backend_ref()->scale(ctx, factor, x, y));
    *(float *)y->data = 0.0F / 0.0F;
    return LT_OK;
}

static lt_status last_of_equals(void *ctx, const lt_pool2d_config *config, const lt_view *x,
                                const lt_view *y, const lt_view *index)
{
    LT_TRY(lt_backend_ref()->maxpool2d(ctx, config, x, y, index));
    if (index)
        *(uint8_t *)index->data = (uint8_t)(*(uint8_t *)index->data + 1);
    return LT_OK;
}

static lt_status skewed_vectors(void *ctx, lt_eigh_job *job, size_t count)
{
    LT_TRY(lt_backend_ref()->eigh(ctx, job, count));
    *(float *)job->vectors.data += 1e-4F;
    return LT_OK;
}

static lt_status omits_a_pole(void *ctx, lt_rational_job *job, size_t count)
{
    for (size_t i = 0; i < count; i++)
        job[i].poles--;
    return lt_backend_ref()->rational(ctx, job, count);
}

static lt_status flips_a_column(void *ctx, const lt_qr_job *job, size_t count)
{
    LT_TRY(lt_backend_ref()->qr(ctx, job, count));
    float *last = (float *)job->q.data + lt_shape_count(job->q.shape) - 1;
    *last = -*last;
    return LT_OK;
}

static lt_status stops_halving(void *ctx, const lt_ritz_job *job, size_t count)
{
    LT_TRY(lt_backend_ref()->ritz(ctx, job, count));
    for (size_t i = 0; i < count; i++)
        *job[i].value *= 1 + 0x1p-20;
    return LT_OK;
}

static lt_status steps_anyway(void *ctx, double eps, const lt_optim_item *item, size_t count,
                              const lt_scalars *scalars)
{
    lt_scalars s = *scalars;
    s.finite = 1;
    return lt_backend_ref()->adagrad(ctx, eps, item, count, &s);
}

static lt_status norm_in_single(void *ctx, const lt_view *x, size_t count, const lt_view *out)
{
    LT_TRY(lt_backend_ref()->frobenius(ctx, x, count, out));
    for (size_t i = 0; i < count; i++)
        ((double *)out->data)[i] = (double)(float)((double *)out->data)[i];
    return LT_OK;
}

/* Without bias correction of the second moment: ref has no kernel for it. */
static lt_status norms_of_biased(void *ctx, const lt_vec_job *job, size_t count, const lt_view *out,
                                 const lt_scalars *scalars)
{
    for (size_t i = 0; i < count; i++) {
        lt_vec_job one = job[i];
        lt_view to = *out;
        one.factor.bias = 0;
        one.y.data = lt_alloc((size_t)lt_shape_count(one.y.shape), lt_dtype_size(one.y.dtype));
        to.data = (double *)out->data + i;
        LT_ASSERT(one.y.data);
        lt_status st = lt_backend_ref()->vec(ctx, &one, 1, scalars);
        if (!st)
            st = lt_backend_ref()->frobenius(ctx, &one.y, 1, &to);
        lt_free(one.y.data);
        LT_TRY(st);
    }
    return LT_OK;
}

static lt_status scales_the_spread(void *ctx, const lt_conv2d_config *config, const lt_view *x,
                                   const lt_view *w, const lt_view *y, const lt_view *stats,
                                   bool *sums)
{
    (void)sums;
    lt_view m2 = *stats;
    m2.shape.dim[0] = 1;
    m2.data = (float *)stats->data + 2 * stats->stride[0];
    LT_TRY(lt_backend_ref()->conv2d(ctx, config, x, w, NULL, y));
    LT_TRY(lt_backend_ref()->batchnorm_stats(ctx, y, stats));
    return lt_backend_ref()->scale(ctx, 0.9, &m2, &m2);
}

static lt_status sums_unmasked(void *ctx, const lt_conv2d_config *config, const lt_view *dy,
                               const lt_view *w, const lt_batchnorm_before *norm, const lt_view *dx,
                               const lt_view *sums)
{
    const lt_batchnorm_grad in = {.dy = {*dx}, .x = norm->x, .coef = norm->coef};
    LT_TRY(lt_backend_ref()->conv2d_grad_x(ctx, config, dy, w, dx));
    return lt_backend_ref()->batchnorm_grad_stats(ctx, &in, NULL, sums);
}

typedef struct control {
    tests_fn *tests;
    const char *entry, *name;
} control;

static lt_status gradient_of_the_other(void *ctx, const lt_pointwise *f, int input,
                                       const lt_view *dy, const lt_view *a, const lt_view *b,
                                       const lt_view *d)
{
    return lt_backend_ref()->pointwise_grad(ctx, f, !input, dy, a, b, d);
}

/* Sixteen units in the last place: more than the allowed rounding. */
static lt_status value_a_little_off(void *ctx, const lt_pointwise *f, const lt_view *a,
                                    const lt_view *b, const lt_view *y)
{
    LT_TRY(lt_backend_ref()->pointwise(ctx, f, a, b, y));
    return lt_backend_ref()->scale(ctx, 1 + 0x1p-20, y, y);
}

static lt_status unbiased_variance(void *ctx, const lt_group_norm_config *config, const lt_view *x,
                                   const lt_view *gamma, const lt_view *beta, const lt_view *stats,
                                   const lt_view *y)
{
    const double size =
        (double)lt_shape_count(x->shape) / (double)x->shape.dim[0] / (double)config->groups;
    lt_view rstd = *stats;
    LT_TRY(lt_backend_ref()->group_norm(ctx, config, x, gamma, beta, stats, y));
    rstd.shape.dim[0] = 1;
    rstd.data = (float *)stats->data + stats->stride[0];
    return lt_backend_ref()->scale(ctx, (size - 1) / size, &rstd, &rstd);
}

static lt_status one_percent_more(void *ctx, const lt_group_norm_config *config,
                                  const lt_group_norm_grad *g)
{
    LT_TRY(lt_backend_ref()->group_norm_grad(ctx, config, g));
    return lt_backend_ref()->scale(ctx, 1.01, g->dx, g->dx);
}

static lt_status looks_ahead(void *ctx, const lt_attention_config *config, const lt_view *q,
                             const lt_view *k, const lt_view *v, const lt_view *y,
                             const lt_view *lse)
{
    lt_attention_config c = *config;
    c.causal = false;
    return lt_backend_ref()->attention(ctx, &c, q, k, v, y, lse);
}

static lt_status without_the_mean(void *ctx, const lt_attention_config *config,
                                  const lt_attention_grad *g)
{
    lt_attention_grad other = *g;
    other.y = g->dy;
    return lt_backend_ref()->attention_grad(ctx, config, &other);
}

static lt_status turns_back(void *ctx, const lt_rotary_config *config, bool inverse,
                            const lt_view *x, const lt_view *y)
{
    return lt_backend_ref()->rotary(ctx, config, !inverse, x, y);
}

static lt_status eps_left_out(void *ctx, const lt_layernorm_config *config, const lt_view *x,
                              const lt_view *gamma, const lt_view *beta, const lt_view *stats,
                              const lt_view *y)
{
    const lt_layernorm_config none = {.eps = 1e-12, .rms = config->rms};
    return lt_backend_ref()->layernorm(ctx, &none, x, gamma, beta, stats, y);
}

/* Without the gradient's mean. */
static lt_status mean_left_out(void *ctx, const lt_layernorm_config *config,
                               const lt_layernorm_grad *g)
{
    const lt_layernorm_config rms = {.eps = config->eps, .rms = true};
    return lt_backend_ref()->layernorm_grad(ctx, &rms, g);
}

/* Omits the last position from the sums. */
static lt_status leaves_the_last_out(void *ctx, const lt_view *ids, const lt_view *dy,
                                     const lt_view *dw)
{
    lt_view fewer = *ids;
    fewer.shape.dim[0]--;
    return lt_backend_ref()->embedding_grad(ctx, &fewer, dy, dw);
}

/* Ids counted from 1. */
static lt_status next_row(void *ctx, const lt_view *ids, const lt_view *w, const lt_view *y)
{
    lt_view from = *w;
    from.shape.dim[0]--;
    from.data = (float *)w->data + w->stride[0];
    return lt_backend_ref()->embedding(ctx, ids, &from, y);
}

/* The mean over all rows, including ignored ones. */
static lt_status mean_of_all_rows(void *ctx, double smoothing, const lt_view *logits,
                                  const lt_view *labels, const lt_view *lse, const lt_view *loss)
{
    LT_TRY(lt_backend_ref()->softmax_xent(ctx, smoothing, logits, labels, lse, loss));
    const int64_t rows = logits->shape.dim[0], left = rows - (rows + 2) / 3;
    return lt_backend_ref()->scale(ctx, (double)left / (double)rows, loss, loss);
}

/* Without the correction of the count. */
static lt_status correction_left_out(void *ctx, const lt_reduce_how *how, const lt_view *x,
                                     const lt_view *y)
{
    return lt_backend_ref()->reduce(ctx, &(lt_reduce_how){.kind = how->kind}, x, y);
}

static lt_status grad_without_correction(void *ctx, const lt_reduce_how *how, const lt_view *dy,
                                         const lt_view *x, const lt_view *y, const lt_view *dx)
{
    return lt_backend_ref()->reduce_grad(ctx, &(lt_reduce_how){.kind = how->kind}, dy, x, y, dx);
}

static lt_status sum_from_the_start(void *ctx, bool from_end, const lt_view *x, const lt_view *y)
{
    return lt_backend_ref()->cumsum(ctx, from_end && x->shape.dim[1] < 2, x, y);
}

static lt_status corners_apart(void *ctx, const lt_upsample_config *config, const lt_view *x,
                               const lt_view *y)
{
    lt_upsample_config c = *config;
    c.align_corners = false;
    return lt_backend_ref()->upsample(ctx, &c, x, y);
}

static lt_status adds_twice(void *ctx, const lt_index *index, const lt_view *x, const lt_view *y)
{
    LT_TRY(lt_backend_ref()->scatter_add(ctx, index, x, y));
    return lt_backend_ref()->scatter_add(ctx, index, x, y);
}

static const control rows[] = {
    {select_tests, "reduce", "variance, rows"},
    {select_tests, "reduce_grad", "variance, columns"},
    {select_tests, "cumsum", "many rows"},
    {select_tests, "scatter_add", "many of few"},
    {select_tests, "upsample", "corners"},
    {product_tests, "conv2d", "3x3 pad 1"},
    {elementwise_tests, "add", "odd count"},
    {elementwise_tests, "relu", "odd count"},
    {elementwise_tests, "mul", "odd count"},
    {elementwise_tests, "sum", "columns"},
    {elementwise_tests, "scale", "odd count"},
    {pointwise_tests, "pointwise", "tanh, odd count"},
    {pointwise_tests, "pointwise_grad", "div, odd count"},
    {group_norm_tests, "group_norm", "one group"},
    {group_norm_tests, "group_norm_grad", "two groups"},
    {pointwise_tests, "pointwise", "gelu, odd count"},
    {pointwise_tests, "pointwise_grad", "swiglu by b, odd count"},
    {layernorm_tests, "layernorm", "odd extents"},
    {layernorm_tests, "layernorm_grad", "odd extents"},
    {embedding_tests, "embedding", "odd sizes"},
    {embedding_tests, "embedding_grad", "odd sizes"},
    {loss_tests, "softmax_xent", "ignored labels"},
    {pool_tests, "maxpool2d", "2x2 stride 2, odd"},
    {matrix_tests, "eigh", "odd size"},
    {optim_tests, "adagrad", "a skipped step"},
    {matrix_tests, "frobenius", "rows of a matrix"},
    {matrix_tests, "vec_norms", "row-major"},
    {rational_tests, "rational", "one block"},
    {rational_tests, "qr", "odd size"},
    {rational_tests, "ritz", "some parts"},
    {attention_tests, "attention", "odd T, causal"},
    {attention_tests, "attention_grad", "odd T"},
    {rotary_tests, "rotary", "halves"},
    {fused_tests, "conv2d_stats", "3x3 pad 1"},
    {fused_tests, "conv2d_grad_x_sums", "3x3 pad 1"},
};

static bool find(const control *c, test *t)
{
    for (size_t i = 0; c->tests(i, t); i++)
        if (!strcmp(t->entry, c->entry) && !strcmp(t->name, c->name))
            return true;
    return false;
}

int controls(void)
{
    lt_backend broken = *lt_backend_ref();
    broken.conv2d = shifted_conv;
    broken.reduce = correction_left_out;
    broken.reduce_grad = grad_without_correction;
    broken.cumsum = sum_from_the_start;
    broken.scatter_add = adds_twice;
    broken.upsample = corners_apart;
    broken.add = one_percent_off;
    broken.relu = writes_past_the_end;
    broken.mul = changes_its_input;
    broken.sum = leaves_one_out;
    broken.scale = gives_nan;
    broken.pointwise = value_a_little_off;
    broken.pointwise_grad = gradient_of_the_other;
    broken.group_norm = unbiased_variance;
    broken.group_norm_grad = one_percent_more;
    broken.layernorm = eps_left_out;
    broken.layernorm_grad = mean_left_out;
    broken.embedding = next_row;
    broken.embedding_grad = leaves_the_last_out;
    broken.softmax_xent = mean_of_all_rows;
    broken.maxpool2d = last_of_equals;
    broken.eigh = skewed_vectors;
    broken.adagrad = steps_anyway;
    broken.frobenius = norm_in_single;
    broken.vec_norms = norms_of_biased;
    broken.rational = omits_a_pole;
    broken.qr = flips_a_column;
    broken.ritz = stops_halving;
    broken.attention = looks_ahead;
    broken.attention_grad = without_the_mean;
    broken.rotary = turns_back;
    broken.conv2d_stats = scales_the_spread;
    broken.conv2d_grad_x_sums = sums_unmasked;
    int accepted = 0;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        test t;
        LT_ASSERT(find(&rows[i], &t));
        if (conform(&t, LT_F32, lt_backend_ref(), NULL, NULL))
            printf("FAIL control %s: rejected although right\n", rows[i].entry);
        else if (conform(&t, LT_F32, &broken, NULL, NULL))
            continue;
        printf("FAIL control %s: accepted although wrong\n", rows[i].entry);
        accepted++;
    }
    return accepted;
}
