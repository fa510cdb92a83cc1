/* Rows of layer and RMS normalisation. */

#include "conform.h"

#include <math.h>

typedef struct layer_row {
    const char *name;
    int64_t n, c;
    bool rms, gain, shift, offset; /* offset: values far from 0, whose mean is subtracted */
    layout layout;
    bool large;
} layer_row;

static const layer_row rows[] = {
    {"odd extents", 7, 33, false, true, true, false, ROWS, false},
    {"one channel", 5, 1, false, true, true, false, ROWS, false},
    {"one row", 1, 129, false, true, true, false, ROWS, false},
    {"a transformer's width", 70, 384, false, true, true, false, ROWS, false},
    {"more rows than a chunk of sums", 1031, 17, false, true, true, false, ROWS, false},
    {"far from 0", 9, 200, false, true, true, true, ROWS, false},
    {"no gain", 6, 40, false, false, true, false, ROWS, false},
    {"no shift", 6, 40, false, true, false, false, ROWS, false},
    {"neither gain nor shift", 6, 40, false, false, false, false, ROWS, false},
    {"gaps", 6, 19, false, true, true, false, GAPS, false},
    {"transposed", 6, 19, false, true, true, false, REVERSED, false},
    {"rms, odd extents", 7, 33, true, true, false, false, ROWS, false},
    {"rms, one channel", 5, 1, true, true, false, false, ROWS, false},
    {"rms, a transformer's width", 70, 384, true, true, false, false, ROWS, false},
    {"rms, no gain", 6, 40, true, false, false, false, ROWS, false},
    {"rms, gaps", 6, 19, true, true, false, false, GAPS, false},
    {"ViT-S/16, 32 images", 6304, 384, false, true, true, false, ROWS, true},
    {"GPT-2, 4 x 256", 1024, 768, false, true, true, false, ROWS, true},
    {"rms, 4 x 256", 1024, 768, true, true, false, false, ROWS, true},
};

enum { X, GAMMA, BETA, STATS, Y, FORWARD_OPERANDS };
enum { DY = BETA, DX = Y, DGAMMA, DBETA, BACKWARD_OPERANDS };

static const lt_view *present(const lt_view *v)
{
    return v->data ? v : NULL;
}

static lt_status call(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                      bool absolute)
{
    (void)absolute;
    return be->layernorm(ctx, &t->config.layer, &v[X], present(&v[GAMMA]), present(&v[BETA]),
                         &v[STATS], &v[Y]);
}

static lt_status call_grad(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                           bool absolute)
{
    (void)absolute;
    const lt_layernorm_grad g = {&v[DY],
                                 &v[X],
                                 present(&v[GAMMA]),
                                 &v[STATS],
                                 present(&v[DX]),
                                 present(&v[DGAMMA]),
                                 present(&v[DBETA])};
    return be->layernorm_grad(ctx, &t->config.layer, &g);
}

static double gain_of(const test *t, int64_t c)
{
    const double *gamma = t->operand[GAMMA].value;
    return gamma ? fabs(gamma[c]) : 1;
}

/* The mean errs in proportion to the summed values, the deviation to itself, the result to both. */
static void magnitude(const test *t, double *const *want, double *const *magnitudes)
{
    const int64_t rows_ = t->operand[X].shape.dim[0], count = t->operand[X].shape.dim[1];
    const double *stats = want[STATS], *beta = t->operand[BETA].value;
    for (int64_t n = 0; n < rows_; n++) {
        const double mean = fabs(stats[n]), rstd = stats[rows_ + n];
        magnitudes[STATS][n] = mean + (t->config.layer.rms ? 0 : 1 / rstd);
        /* An error of the mean enters the variance n times, and half of that enters the root. */
        magnitudes[STATS][rows_ + n] = rstd * (1 + mean * rstd);
        for (int64_t i = n * count; i < (n + 1) * count; i++) {
            const double x = (fabs(t->operand[X].value[i]) + mean) * rstd;
            magnitudes[Y][i] =
                gain_of(t, i % count) * (x + 1) * (1 + x) + (beta ? fabs(beta[i % count]) : 0);
        }
    }
}

/* Sums of absolute values of the same terms. */
static void grad_magnitude(const test *t, double *const *want, double *const *magnitudes)
{
    (void)want;
    const int64_t rows_ = t->operand[X].shape.dim[0], count = t->operand[X].shape.dim[1];
    const double *stats = t->operand[STATS].value, *x = t->operand[X].value;
    const double *dy = t->operand[DY].value;
    for (int64_t i = 0; i < rows_ * count; i++) {
        const int64_t n = i / count;
        const double rstd = stats[rows_ + n], mean = fabs(stats[n]);
        const double hat = (fabs(x[i]) + mean) * rstd;
        double sum = 0, product = 0;
        for (int64_t k = n * count; k < (n + 1) * count; k++) {
            const double h = gain_of(t, k % count) * fabs(dy[k]);
            sum += h;
            product += h * (fabs(x[k]) + mean) * rstd;
        }
        if (magnitudes[DX])
            magnitudes[DX][i] =
                rstd
                * (gain_of(t, i % count) * fabs(dy[i]) + (sum + hat * product) / (double)count);
        if (magnitudes[DGAMMA])
            magnitudes[DGAMMA][i % count] += fabs(dy[i]) * hat;
        if (magnitudes[DBETA])
            magnitudes[DBETA][i % count] += fabs(dy[i]);
    }
}

/* Possible statistics of x. */
static void prepare_grad(test *t)
{
    operand *stats = &t->operand[STATS];
    const int64_t count = operand_count(stats) / 2;
    for (int64_t n = 0; n < count; n++) {
        stats->value[n] = t->config.layer.rms ? 0 : stats->value[n];
        stats->value[count + n] = 1 + 0.25 * stats->value[count + n];
    }
}

static void make(const layer_row *r, test *t)
{
    const lt_shape absent = {.ndim = -1}, c = LT_SHAPE(r->c), x = LT_SHAPE(r->n, r->c);
    const double low = r->offset ? 9 : -1, high = r->offset ? 11 : 1;
    t->entry = "layernorm";
    t->call = call;
    t->magnitude = magnitude;
    t->operands = FORWARD_OPERANDS;
    t->operand[X] = (operand){IN, DATA, x, r->layout, KEEP, low, high, NULL};
    t->operand[GAMMA] = (operand){IN, MASTER, r->gain ? c : absent, ROWS, KEEP, 0.5, 1.5, NULL};
    t->operand[BETA] = (operand){IN, MASTER, r->shift ? c : absent, ROWS, KEEP, -1, 1, NULL};
    t->operand[STATS] = (operand){OUT, MASTER, LT_SHAPE(2, r->n), .absolute = KEEP};
    t->operand[Y] = (operand){OUT, DATA, x, r->layout, .absolute = KEEP};
    t->terms = (double)r->c + 4;
}

static void make_grad(const layer_row *r, test *t)
{
    const lt_shape absent = {.ndim = -1}, c = LT_SHAPE(r->c), x = LT_SHAPE(r->n, r->c);
    make(r, t);
    t->entry = "layernorm_grad";
    t->call = call_grad;
    t->prepare = prepare_grad;
    t->magnitude = grad_magnitude;
    t->operands = BACKWARD_OPERANDS;
    t->operand[DY] = (operand){IN, DATA, x, r->layout, KEEP, -1, 1, NULL};
    t->operand[STATS].use = IN;
    t->operand[STATS].low = -1;
    t->operand[STATS].high = 1;
    t->operand[DGAMMA] = (operand){OUT, MASTER, r->gain ? c : absent, .absolute = KEEP};
    t->operand[DBETA] = (operand){OUT, MASTER, r->shift ? c : absent, .absolute = KEEP};
    t->terms = (double)(r->c + r->n + 4);
}

/* Only the gradients of the parameters. */
static void make_grad_without_x(const layer_row *r, test *t)
{
    make_grad(r, t);
    t->operand[DX].shape = (lt_shape){.ndim = -1};
}

bool layernorm_tests(size_t i, test *t)
{
    if (i > 2 * COUNT_OF(rows))
        return false;
    const bool alone = i == 2 * COUNT_OF(rows);
    const layer_row *r = &rows[alone ? 0 : i / 2];
    *t = (test){.name = alone ? "the parameters alone" : r->name, .large = r->large};
    t->config.layer = (lt_layernorm_config){1e-5, r->rms};
    (alone ? make_grad_without_x : i % 2 ? make_grad : make)(r, t);
    return true;
}
