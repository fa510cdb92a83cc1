/* Rows of group normalisation, and of layer and RMS normalisation. All normalise blocks of consecutive values: a group
 * of an image, or a row. */

#include "conform.h"

#include <math.h>

enum { X, GAMMA, BETA, STATS, Y, FORWARD_OPERANDS };
enum { DY = BETA, DX = Y, DGAMMA, DBETA, BACKWARD_OPERANDS };

static const lt_view *present(const lt_view *v)
{
    return v->data ? v : NULL;
}

static bool is_layer(const test *t)
{
    return t->operand[X].shape.ndim == 2;
}

static lt_status call(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                      bool absolute)
{
    const lt_view *gamma = present(&v[GAMMA]), *beta = present(&v[BETA]);
    (void)absolute;
    if (is_layer(t))
        return be->layernorm(ctx, &t->config.layer, &v[X], gamma, beta, &v[STATS], &v[Y]);
    return be->group_norm(ctx, &t->config.group, &v[X], gamma, beta, &v[STATS], &v[Y]);
}

static lt_status call_grad(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                           bool absolute)
{
    const lt_view *gamma = present(&v[GAMMA]), *dx = present(&v[DX]);
    const lt_view *dgamma = present(&v[DGAMMA]), *dbeta = present(&v[DBETA]);
    const lt_layernorm_grad layer = {&v[DY], &v[X], gamma, &v[STATS], dx, dgamma, dbeta};
    const lt_group_norm_grad group = {&v[DY], &v[X], gamma, &v[STATS], dx, dgamma, dbeta};
    (void)absolute;
    return is_layer(t) ? be->layernorm_grad(ctx, &t->config.layer, &layer)
                       : be->group_norm_grad(ctx, &t->config.group, &group);
}

static int64_t blocks(const test *t)
{
    return operand_count(&t->operand[STATS]) / 2;
}

static int64_t block_size(const test *t)
{
    return operand_count(&t->operand[X]) / blocks(t);
}

/* Channel of row-major element i. */
static int64_t channel_of(const test *t, int64_t i)
{
    const lt_shape x = t->operand[X].shape;
    return is_layer(t) ? i % x.dim[1] : i / (x.dim[2] * x.dim[3]) % x.dim[1];
}

static double gain_of(const test *t, int64_t i)
{
    const double *gamma = t->operand[GAMMA].value;
    return gamma ? fabs(gamma[channel_of(t, i)]) : 1;
}

/* The mean errs in proportion to the summed values, the deviation to itself, the result to both. */
static void magnitude(const test *t, double *const *want, double *const *magnitudes)
{
    const bool rms = is_layer(t) && t->config.layer.rms;
    const double *stats = want[STATS], *beta = t->operand[BETA].value;
    for (int64_t b = 0; b < blocks(t); b++) {
        const double mean = fabs(stats[b]), rstd = stats[blocks(t) + b];
        magnitudes[STATS][b] = mean + (rms ? 0 : 1 / rstd);
        /* An error of the mean enters the variance n times, and half of that enters the root. */
        magnitudes[STATS][blocks(t) + b] = rstd * (1 + mean * rstd);
        for (int64_t i = b * block_size(t); i < (b + 1) * block_size(t); i++) {
            const double x = (fabs(t->operand[X].value[i]) + mean) * rstd;
            magnitudes[Y][i] =
                gain_of(t, i) * (x + 1) * (1 + x) + (beta ? fabs(beta[channel_of(t, i)]) : 0);
        }
    }
}

/* Sums of absolute values of the same terms. */
static void grad_magnitude(const test *t, double *const *want, double *const *magnitudes)
{
    (void)want;
    const int64_t size = block_size(t);
    const double *x = t->operand[X].value, *dy = t->operand[DY].value;
    for (int64_t b = 0; b < blocks(t); b++) {
        const double *stats = t->operand[STATS].value + b;
        const double mean = fabs(stats[0]), rstd = stats[blocks(t)];
        double sum = 0, product = 0;
        for (int64_t i = b * size; i < (b + 1) * size; i++) {
            const double h = gain_of(t, i) * fabs(dy[i]);
            sum += h;
            product += h * (fabs(x[i]) + mean) * rstd;
        }
        for (int64_t i = b * size; i < (b + 1) * size; i++) {
            const double hat = (fabs(x[i]) + mean) * rstd;
            if (magnitudes[DX])
                magnitudes[DX][i] =
                    rstd * (gain_of(t, i) * fabs(dy[i]) + (sum + hat * product) / (double)size);
            if (magnitudes[DGAMMA])
                magnitudes[DGAMMA][channel_of(t, i)] += fabs(dy[i]) * hat;
            if (magnitudes[DBETA])
                magnitudes[DBETA][channel_of(t, i)] += fabs(dy[i]);
        }
    }
}

/* Possible statistics of x. */
static void prepare_grad(test *t)
{
    double *stats = t->operand[STATS].value;
    for (int64_t b = 0; b < blocks(t); b++) {
        stats[b] = is_layer(t) && t->config.layer.rms ? 0 : stats[b];
        stats[blocks(t) + b] = 1 + 0.25 * stats[blocks(t) + b];
    }
}

/* A row of either table. */
typedef struct norm {
    lt_shape x, stats;
    bool gain, shift, offset; /* offset: values far from 0, whose mean is subtracted */
    layout layout;
} norm;

static void make(const norm *r, test *t)
{
    const lt_shape absent = {.ndim = -1}, c = LT_SHAPE(r->x.dim[1]);
    const double low = r->offset ? 9 : -1, high = r->offset ? 11 : 1;
    t->call = call;
    t->magnitude = magnitude;
    t->operands = FORWARD_OPERANDS;
    t->operand[X] = (operand){IN, DATA, r->x, r->layout, KEEP, low, high, NULL};
    t->operand[GAMMA] = (operand){IN, MASTER, r->gain ? c : absent, ROWS, KEEP, 0.5, 1.5, NULL};
    t->operand[BETA] = (operand){IN, MASTER, r->shift ? c : absent, ROWS, KEEP, -1, 1, NULL};
    t->operand[STATS] = (operand){OUT, MASTER, r->stats, .absolute = KEEP};
    t->operand[Y] = (operand){OUT, DATA, r->x, r->layout, .absolute = KEEP};
    t->terms = (double)block_size(t) + 4;
}

static void make_grad(const norm *r, test *t)
{
    const lt_shape absent = {.ndim = -1}, c = LT_SHAPE(r->x.dim[1]);
    make(r, t);
    t->call = call_grad;
    t->prepare = prepare_grad;
    t->magnitude = grad_magnitude;
    t->operands = BACKWARD_OPERANDS;
    t->operand[DY] = (operand){IN, DATA, r->x, r->layout, KEEP, -1, 1, NULL};
    t->operand[STATS].use = IN;
    t->operand[STATS].low = -1;
    t->operand[STATS].high = 1;
    t->operand[DGAMMA] = (operand){OUT, MASTER, r->gain ? c : absent, .absolute = KEEP};
    t->operand[DBETA] = (operand){OUT, MASTER, r->shift ? c : absent, .absolute = KEEP};
    const int64_t count = lt_shape_count(r->x);
    t->terms = (double)(count / r->x.dim[1] + count / r->x.dim[0] + (is_layer(t) ? 4 : 0));
}

/* --- Group normalisation --- */

typedef struct group_row {
    const char *name;
    lt_shape x;
    int groups;
    bool affine, offset;
    layout layout;
} group_row;

static const group_row group_rows[] = {
    {"two groups", {4, {3, 6, 4, 5}}, 2, true, false, STORAGE},
    {"one group", {4, {2, 5, 3, 7}}, 1, true, false, STORAGE},
    {"a group a channel", {4, {2, 33, 5, 4}}, 33, true, false, STORAGE},
    {"no gain", {4, {2, 8, 3, 3}}, 4, false, false, STORAGE},
    {"one pixel", {4, {7, 24, 1, 1}}, 3, true, false, STORAGE},
    {"one image of many pixels", {4, {1, 8, 60, 61}}, 4, true, false, STORAGE},
    {"far from 0", {4, {2, 16, 9, 7}}, 4, true, true, STORAGE},
    {"many channels", {4, {2, 320, 5, 4}}, 32, true, false, STORAGE},
    {"row-major", {4, {2, 6, 3, 5}}, 3, true, false, ROWS},
    {"gaps", {4, {2, 6, 3, 5}}, 2, true, false, GAPS},
};

bool group_norm_tests(size_t i, test *t)
{
    if (i >= 2 * COUNT_OF(group_rows))
        return false;
    const group_row *r = &group_rows[i / 2];
    const norm n = {r->x,     LT_SHAPE(2, r->x.dim[0], r->groups), r->affine, r->affine, r->offset,
                    r->layout};
    *t = (test){.name = r->name, .entry = i % 2 ? "group_norm_grad" : "group_norm"};
    t->config.group = (lt_group_norm_config){r->groups, 1e-5};
    (i % 2 ? make_grad : make)(&n, t);
    return true;
}

/* --- Layer and RMS normalisation --- */

typedef struct layer_row {
    const char *name;
    int64_t n, c;
    bool rms, gain, shift, offset;
    layout layout;
    bool large;
} layer_row;

static const layer_row layer_rows[] = {
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

/* The last test is of the gradients of the parameters alone. */
bool layernorm_tests(size_t i, test *t)
{
    if (i > 2 * COUNT_OF(layer_rows))
        return false;
    const bool alone = i == 2 * COUNT_OF(layer_rows), grad = alone || i % 2;
    const layer_row *r = &layer_rows[alone ? 0 : i / 2];
    const norm n = {
        LT_SHAPE(r->n, r->c), LT_SHAPE(2, r->n), r->gain, r->shift, r->offset, r->layout};
    *t = (test){.name = alone ? "the parameters alone" : r->name,
                .entry = grad ? "layernorm_grad" : "layernorm",
                .large = r->large};
    t->config.layer = (lt_layernorm_config){1e-5, r->rms};
    (grad ? make_grad : make)(&n, t);
    if (alone)
        t->operand[DX].shape = (lt_shape){.ndim = -1};
    return true;
}
