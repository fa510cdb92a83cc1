/* Rows of reductions, running sums, selection by masks and indices, and interpolation. */

#include "conform.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- reductions: the sizes of y are 1 in reduced dimensions --- */

typedef struct reduce_row {
    const char *name;
    lt_shape x, y;
    layout layout;
} reduce_row;

static const reduce_row reductions[] = {
    {"everything", {2, {33, 70}}, {2, {1, 1}}, ROWS},
    {"rows of one element", {2, {33, 1}}, {2, {33, 1}}, ROWS},
    {"rows", {2, {17, 131}}, {2, {17, 1}}, ROWS},
    {"columns", {2, {37, 300}}, {2, {1, 300}}, ROWS},
    {"in the middle", {3, {3, 19, 7}}, {3, {3, 1, 7}}, ROWS},
    {"pixels of channels-last images", {4, {2, 5, 3, 7}}, {4, {2, 5, 1, 1}}, STORAGE},
    {"channels", {4, {2, 5, 3, 7}}, {4, {2, 1, 3, 7}}, STORAGE},
    {"two dimensions apart", {3, {5, 3, 7}}, {3, {1, 3, 1}}, ROWS},
    {"gaps", {2, {9, 21}}, {2, {9, 1}}, GAPS},
    {"stored backwards", {2, {9, 21}}, {2, {1, 21}}, REVERSED},
};

static const struct {
    const char *name;
    lt_reduce_how how;
} kinds[] = {
    {"max", {LT_REDUCTION_MAX, 0}},        {"min", {LT_REDUCTION_MIN, 0}},
    {"product", {LT_REDUCTION_PROD, 0}},   {"log-sum-exp", {LT_REDUCTION_LOGSUMEXP, 0}},
    {"variance", {LT_REDUCTION_VAR, 0.5}}, {"deviation", {LT_REDUCTION_STD, 0}},
};

enum { RX, RY, RDY, RDX };

/* Equal elements share gradients of max and min; one row has a zero, for products. */
static void prepare_ties(test *t)
{
    const lt_reduce_kind what = t->config.reduction.kind;
    double *x = t->operand[RX].value;
    const int64_t count = operand_count(&t->operand[RX]);
    for (int64_t i = 0; i < count && what <= LT_REDUCTION_MIN; i += 2)
        x[i] = x[i / 3];
    if (what == LT_REDUCTION_PROD && count > 1)
        x[1] = 0;
}

static lt_status call_reduce(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                             bool absolute)
{
    (void)absolute;
    const lt_reduce_how *how = &t->config.reduction;
    return be->reduce(ctx, how, &v[RX], &v[RY]);
}

/* The gradient at the values that the backend itself computes. */
static lt_status call_reduce_grad(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                                  bool absolute)
{
    (void)absolute;
    const lt_reduce_how *how = &t->config.reduction;
    LT_TRY(be->reduce(ctx, how, &v[RX], &v[RY]));
    return be->reduce_grad(ctx, how, &v[RDY], &v[RX], &v[RY], &v[RDX]);
}

/* Differences from a mean err relative to 1, the size of x; y is rounded before its gradient. */
static void reduce_magnitude(const test *t, double *const *want, double *const *magnitude)
{
    const bool exact = t->config.reduction.kind <= LT_REDUCTION_PROD;
    for (int out = RY; out <= RDX; out++)
        for (int64_t i = 0; i < operand_count(&t->operand[out]) && magnitude[out]; i++)
            magnitude[out][i] = fabs(want[out][i]) + (exact ? 0 : 1);
}

static void make_reduce(const reduce_row *r, size_t which, bool gradient, test *t)
{
    static char name[96];
    snprintf(name, sizeof name, "%s, %s", kinds[which].name, r->name);
    *t = (test){.entry = gradient ? "reduce_grad" : "reduce", .name = name};
    t->call = gradient ? call_reduce_grad : call_reduce;
    t->prepare = prepare_ties;
    t->magnitude = reduce_magnitude;
    t->config.reduction = kinds[which].how;
    t->operands = gradient ? RDX + 1 : RY + 1;
    t->terms = 4;
    t->inner = gradient ? 2 : 0; /* y */
    t->operand[RX] = (operand){IN, DATA, r->x, r->layout, KEEP, 0.5, 1.5, NULL};
    t->operand[RY] = (operand){OUT, DATA, r->y, STORAGE, .absolute = KEEP};
    if (gradient) {
        t->operand[RDY] = (operand){IN, DATA, r->y, STORAGE, .absolute = KEEP};
        t->operand[RDX] = (operand){OUT, DATA, r->x, r->layout, .absolute = KEEP};
    }
}

/* --- running sums, and the largest elements --- */

typedef struct line_row {
    const char *name;
    lt_shape x;
    layout layout;
    bool from_end;
    int64_t k;
} line_row;

static const line_row lines[] = {
    {"one element", {3, {1, 1, 1}}, ROWS, false, 1},
    {"a vector", {3, {1, 301, 1}}, ROWS, false, 3},
    {"many columns", {3, {2, 5, 517}}, ROWS, true, 517},
    {"many rows", {3, {70, 7, 3}}, ROWS, true, 2},
    {"gaps", {3, {2, 5, 7}}, GAPS, false, 5},
    {"stored backwards", {3, {4, 5, 7}}, REVERSED, false, 4},
};

static lt_status call_cumsum(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                             bool absolute)
{
    (void)absolute;
    return be->cumsum(ctx, t->config.dim, &v[0], &v[1]);
}

static void make_cumsum(const line_row *r, test *t)
{
    *t = (test){.entry = "cumsum", .name = r->name, .call = call_cumsum, .operands = 2};
    t->config.dim = r->from_end;
    t->terms = (double)r->x.dim[1] + 1;
    t->operand[0] = (operand){IN, DATA, r->x, r->layout, .absolute = PLUS};
    t->operand[1] = (operand){OUT, DATA, r->x, r->layout, .absolute = PLUS};
}

static lt_status call_topk(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                           bool absolute)
{
    (void)t;
    (void)absolute;
    return be->topk(ctx, &v[0], &v[1]);
}

/* Some elements are equal, or NaN. */
static void prepare_topk(test *t)
{
    double *x = t->operand[0].value;
    for (int64_t i = 0; i < operand_count(&t->operand[0]); i++) {
        x[i] = floor(8 * x[i]) / 8;
        x[i] = i % 29 == 11 ? (double)NAN : x[i];
    }
}

static void make_topk(const line_row *r, test *t)
{
    const lt_shape rows = LT_SHAPE(r->x.dim[0] * r->x.dim[1], r->x.dim[2]);
    const int64_t k = r->k < rows.dim[1] ? r->k : rows.dim[1];
    *t = (test){.entry = "topk", .name = r->name, .call = call_topk, .operands = 2};
    t->prepare = prepare_topk;
    t->exact = true;
    t->terms = 1;
    t->operand[0] = (operand){IN, DATA, rows, r->layout, .absolute = KEEP};
    t->operand[1] = (operand){OUT, LABEL, LT_SHAPE(rows.dim[0], k), ROWS, .absolute = KEEP};
}

/* --- where --- */

static const struct {
    const char *name;
    lt_shape shape;
    layout mask, a, y;
} choices[] = {
    {"a scalar", {0, {0}}, ROWS, ROWS, ROWS},
    {"odd count", {1, {1237}}, ROWS, ROWS, ROWS},
    {"channels-last", {4, {2, 5, 3, 7}}, STORAGE, STORAGE, STORAGE},
    {"per channel", {4, {2, 5, 3, 7}}, CHANNEL, STORAGE, STORAGE},
    {"a repeated element", {2, {30, 70}}, ROWS, BROADCAST, ROWS},
    {"gaps to transposed", {3, {4, 5, 7}}, REVERSED, GAPS, REVERSED},
};

static lt_status call_where(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                            bool absolute)
{
    (void)t;
    (void)absolute;
    return be->where(ctx, &v[0], &v[1], &v[2], &v[3]);
}

static void make_where(size_t i, test *t)
{
    const lt_shape shape = choices[i].shape;
    *t = (test){.entry = "where", .name = choices[i].name, .call = call_where, .operands = 4};
    t->exact = true;
    t->terms = 1;
    t->operand[0] = (operand){IN, PIXEL, shape, choices[i].mask, KEEP, 0, 2, NULL};
    t->operand[1] = (operand){IN, DATA, shape, choices[i].a, .absolute = KEEP};
    t->operand[2] = (operand){IN, DATA, shape, ROWS, .absolute = KEEP};
    t->operand[3] = (operand){OUT, DATA, shape, choices[i].y, .absolute = KEEP};
}

/* --- gather_by_index and scatter_add --- */

typedef struct index_row {
    const char *name;
    int64_t outer, n, m, inner;
    layout x, index;
    int ignored; /* N: each N-th index is LT_IGNORED_LABEL; 0: none */
} index_row;

static const index_row picks[] = {
    {"one element", 1, 1, 1, 1, ROWS, ROWS, 0},
    {"of rows", 33, 70, 3, 1, ROWS, ROWS, 0},
    {"labels", 130, 10, 1, 1, ROWS, ROWS, 3},
    {"many of few", 3, 2, 301, 5, ROWS, ROWS, 0},
    {"one list for all", 3, 7, 5, 150, ROWS, BROADCAST, 0},
    {"gaps", 3, 7, 5, 9, GAPS, GAPS, 0},
    {"stored backwards", 3, 7, 5, 9, REVERSED, REVERSED, 4},
};

enum { INDEX, FROM, TO };

static void prepare_index(test *t)
{
    double *index = t->operand[INDEX].value;
    const int64_t n = t->operand[strcmp(t->entry, "scatter_add") ? FROM : TO].shape.dim[1];
    const int ignored = picks[t->config.dim].ignored;
    for (int64_t i = 0; i < operand_count(&t->operand[INDEX]); i++)
        index[i] = ignored && i % ignored == 0 ? LT_IGNORED_LABEL : (double)((i * 37 + n / 2) % n);
}

static lt_status call_index(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                            bool absolute)
{
    (void)absolute;
    const lt_index index = {"conform", v[INDEX], picks[t->config.dim].ignored > 0};
    if (strcmp(t->entry, "scatter_add"))
        return be->gather_by_index(ctx, &index, &v[FROM], &v[TO]);
    return be->scatter_add(ctx, &index, &v[FROM], &v[TO]);
}

static void make_index(size_t i, bool add, test *t)
{
    const index_row *r = &picks[i];
    const lt_shape all = LT_SHAPE(r->outer, r->n, r->inner),
                   some = LT_SHAPE(r->outer, r->m, r->inner);
    *t = (test){.entry = add ? "scatter_add" : "gather_by_index", .name = r->name};
    t->call = call_index;
    t->prepare = prepare_index;
    t->operands = TO + 1;
    t->exact = !add;
    t->terms = (double)r->m + 1;
    t->config.dim = (int)i;
    t->operand[INDEX] = (operand){IN, LABEL, some, r->index, .absolute = KEEP};
    t->operand[FROM] = (operand){IN, DATA, add ? some : all, r->x, .absolute = PLUS};
    t->operand[TO] = (operand){add ? INOUT : OUT, DATA, add ? all : some, r->x, .absolute = PLUS};
}

/* --- interpolation --- */

static const struct {
    const char *name;
    lt_shape x;
    lt_upsample_config config;
    layout layout;
} sizes[] = {
    {"nearest, twice", {4, {2, 5, 3, 7}}, {LT_UPSAMPLE_NEAREST, 6, 14, false}, STORAGE},
    {"nearest, odd", {4, {2, 70, 5, 7}}, {LT_UPSAMPLE_NEAREST, 8, 3, false}, STORAGE},
    {"bilinear", {4, {2, 70, 5, 7}}, {LT_UPSAMPLE_BILINEAR, 13, 10, false}, STORAGE},
    {"bilinear, fewer pixels", {4, {2, 5, 9, 7}}, {LT_UPSAMPLE_BILINEAR, 4, 1, false}, STORAGE},
    {"corners", {4, {2, 5, 3, 7}}, {LT_UPSAMPLE_BILINEAR, 8, 11, true}, STORAGE},
    {"corners of one pixel", {4, {2, 5, 3, 1}}, {LT_UPSAMPLE_BILINEAR, 1, 4, true}, STORAGE},
    {"row-major", {4, {2, 5, 3, 7}}, {LT_UPSAMPLE_BILINEAR, 6, 14, false}, ROWS},
};

static lt_status call_upsample(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                               bool absolute)
{
    (void)absolute;
    const lt_upsample_config *c = &sizes[t->config.dim].config;
    return strcmp(t->entry, "upsample") ? be->upsample_grad(ctx, c, &v[0], &v[1])
                                        : be->upsample(ctx, c, &v[0], &v[1]);
}

static void make_upsample(size_t i, bool gradient, test *t)
{
    const lt_shape x = sizes[i].x;
    const lt_shape y = LT_SHAPE(x.dim[0], x.dim[1], sizes[i].config.h, sizes[i].config.w);
    *t = (test){.entry = gradient ? "upsample_grad" : "upsample", .name = sizes[i].name};
    t->call = call_upsample;
    t->operands = 2;
    t->config.dim = (int)i;
    t->terms = gradient ? (double)(y.dim[2] * y.dim[3]) : 6;
    t->operand[0] = (operand){IN, DATA, gradient ? y : x, sizes[i].layout, .absolute = PLUS};
    t->operand[1] = (operand){OUT, DATA, gradient ? x : y, sizes[i].layout, .absolute = PLUS};
}

bool select_tests(size_t i, test *t)
{
    const size_t reduced = COUNT_OF(reductions), each = COUNT_OF(kinds);
    if (within(&i, 2 * reduced * each))
        make_reduce(&reductions[i / 2 % reduced], i / 2 / reduced, i % 2, t);
    else if (within(&i, COUNT_OF(lines)))
        make_cumsum(&lines[i], t);
    else if (within(&i, COUNT_OF(lines)))
        make_topk(&lines[i], t);
    else if (within(&i, COUNT_OF(choices)))
        make_where(i, t);
    else if (within(&i, 2 * COUNT_OF(picks)))
        make_index(i / 2, i % 2, t);
    else if (within(&i, 2 * COUNT_OF(sizes)))
        make_upsample(i / 2, i % 2, t);
    else
        return false;
    return true;
}
