/* Rows of group normalisation. */

#include "conform.h"

#include <math.h>

typedef struct group_row {
    const char *name;
    lt_shape x;
    int groups;
    bool affine, offset; /* offset: values far from 0, whose mean is subtracted */
    layout layout;
} group_row;

static const group_row rows[] = {
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
    return be->group_norm(ctx, &t->config.group, &v[X], present(&v[GAMMA]), present(&v[BETA]),
                          &v[STATS], &v[Y]);
}

static lt_status call_grad(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                           bool absolute)
{
    (void)absolute;
    const lt_group_norm_grad g = {&v[DY],
                                  &v[X],
                                  present(&v[GAMMA]),
                                  &v[STATS],
                                  &v[DX],
                                  present(&v[DGAMMA]),
                                  present(&v[DBETA])};
    return be->group_norm_grad(ctx, &t->config.group, &g);
}

/* Group of row-major element i; channel_of() its channel. */
static int64_t group_of(const test *t, int64_t i)
{
    const lt_shape x = t->operand[X].shape;
    return i / (lt_shape_count(x) / x.dim[0] / t->config.group.groups);
}

static int64_t channel_of(const test *t, int64_t i)
{
    const lt_shape x = t->operand[X].shape;
    return i / (x.dim[2] * x.dim[3]) % x.dim[1];
}

static double gain_of(const test *t, int64_t i)
{
    const double *gamma = t->operand[GAMMA].value;
    return gamma ? fabs(gamma[channel_of(t, i)]) : 1;
}

/* The mean errs in proportion to the summed values, the deviation to itself, the result to both. */
static void magnitude(const test *t, double *const *want, double *const *magnitudes)
{
    const int64_t groups = operand_count(&t->operand[STATS]) / 2;
    const double *stats = want[STATS], *beta = t->operand[BETA].value;
    for (int64_t g = 0; g < groups; g++) {
        magnitudes[STATS][g] = fabs(stats[g]) + 1 / stats[groups + g];
        /* An error of the mean enters the variance n times, and half of that enters the root. */
        magnitudes[STATS][groups + g] =
            stats[groups + g] * (1 + fabs(stats[g]) * stats[groups + g]);
    }
    for (int64_t i = 0; i < operand_count(&t->operand[Y]); i++) {
        const double rstd = stats[groups + group_of(t, i)];
        const double x = fabs(t->operand[X].value[i]) + fabs(stats[group_of(t, i)]);
        magnitudes[Y][i] = gain_of(t, i) * (x * rstd + 1) * (1 + x * rstd)
                           + (beta ? fabs(beta[channel_of(t, i)]) : 0);
    }
}

/* Sums of absolute values of the same terms. */
static void grad_magnitude(const test *t, double *const *want, double *const *magnitudes)
{
    (void)want;
    const int64_t groups = operand_count(&t->operand[STATS]) / 2, c = t->operand[X].shape.dim[1];
    const int64_t count = operand_count(&t->operand[X]), size = count / groups;
    const double *stats = t->operand[STATS].value;
    for (int64_t i = 0; i < count; i++) {
        const int64_t g = group_of(t, i);
        const double rstd = stats[groups + g], dy = fabs(t->operand[DY].value[i]);
        const double hat = (fabs(t->operand[X].value[i]) + fabs(stats[g])) * rstd;
        double sum = 0, product = 0;
        for (int64_t k = g * size; k < (g + 1) * size; k++) {
            const double h = gain_of(t, k) * fabs(t->operand[DY].value[k]);
            sum += h;
            product += h * (fabs(t->operand[X].value[k]) + fabs(stats[g])) * rstd;
        }
        magnitudes[DX][i] = rstd * (gain_of(t, i) * dy + (sum + hat * product) / (double)size);
        if (t->operand[DGAMMA].shape.ndim > 0) {
            magnitudes[DGAMMA][channel_of(t, i) % c] += dy * hat;
            magnitudes[DBETA][channel_of(t, i) % c] += dy;
        }
    }
}

/* Possible statistics of x. */
static void prepare_grad(test *t)
{
    operand *stats = &t->operand[STATS];
    const int64_t groups = operand_count(stats) / 2;
    for (int64_t g = 0; g < groups; g++)
        stats->value[groups + g] = 1 + 0.25 * stats->value[groups + g];
}

static void make(const group_row *r, test *t)
{
    const lt_shape absent = {.ndim = -1}, c = LT_SHAPE(r->x.dim[1]);
    const double low = r->offset ? 9 : -1, high = r->offset ? 11 : 1;
    t->entry = "group_norm";
    t->call = call;
    t->magnitude = magnitude;
    t->operands = FORWARD_OPERANDS;
    t->operand[X] = (operand){IN, DATA, r->x, r->layout, KEEP, low, high, NULL};
    t->operand[GAMMA] = (operand){IN, MASTER, r->affine ? c : absent, ROWS, KEEP, 0.5, 1.5, NULL};
    t->operand[BETA] = (operand){IN, MASTER, r->affine ? c : absent, ROWS, KEEP, -1, 1, NULL};
    t->operand[STATS] =
        (operand){OUT, MASTER, LT_SHAPE(2, r->x.dim[0], r->groups), .absolute = KEEP};
    t->operand[Y] = (operand){OUT, DATA, r->x, r->layout, .absolute = KEEP};
    t->terms = (double)(lt_shape_count(r->x) / r->x.dim[0] / r->groups) + 4;
}

static void make_grad(const group_row *r, test *t)
{
    const lt_shape absent = {.ndim = -1}, c = LT_SHAPE(r->x.dim[1]);
    make(r, t);
    t->entry = "group_norm_grad";
    t->call = call_grad;
    t->prepare = prepare_grad;
    t->magnitude = grad_magnitude;
    t->operands = BACKWARD_OPERANDS;
    t->operand[DY] = (operand){IN, DATA, r->x, r->layout, KEEP, -1, 1, NULL};
    t->operand[STATS].use = IN;
    t->operand[STATS].low = -1;
    t->operand[STATS].high = 1;
    t->operand[DGAMMA] = (operand){OUT, MASTER, r->affine ? c : absent, .absolute = KEEP};
    t->operand[DBETA] = t->operand[DGAMMA];
    t->terms = (double)(lt_shape_count(r->x) / r->x.dim[1] + lt_shape_count(r->x) / r->x.dim[0]);
}

bool group_norm_tests(size_t i, test *t)
{
    if (i >= 2 * COUNT_OF(rows))
        return false;
    const group_row *r = &rows[i / 2];
    *t = (test){.name = r->name};
    t->config.group = (lt_group_norm_config){r->groups, 1e-5};
    (i % 2 ? make_grad : make)(r, t);
    return true;
}
