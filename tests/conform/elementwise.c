/* Rows of the elementwise kernels, which take any strides. */

#include "conform.h"

#include <stdio.h>

typedef struct unary_row {
    const char *name;
    lt_shape shape;
    layout x, y;
} unary_row;

static const unary_row shapes[] = {
    {"one element", {1, {1}}, ROWS, ROWS},
    {"a scalar", {0, {0}}, ROWS, ROWS},
    {"odd count", {1, {1237}}, ROWS, ROWS},
    {"channels-last", {4, {2, 5, 3, 7}}, STORAGE, STORAGE},
    {"one channel", {4, {3, 1, 5, 5}}, STORAGE, STORAGE},
    {"row-major to channels-last", {4, {2, 5, 3, 7}}, ROWS, STORAGE},
    {"channels-last to gaps", {4, {2, 5, 3, 7}}, STORAGE, GAPS},
    {"transposed", {2, {33, 17}}, REVERSED, ROWS},
    {"gaps to transposed, 5 dimensions", {5, {2, 3, 1, 4, 5}}, GAPS, REVERSED},
    {"transposed, more than a block", {3, {70, 3, 131}}, REVERSED, ROWS},
    {"transposed, few rows", {2, {3, 150}}, REVERSED, ROWS},
    {"a repeated channel", {4, {2, 5, 3, 7}}, CHANNEL, STORAGE},
    {"a repeated element", {2, {3, 70}}, BROADCAST, ROWS},
};

static const double BOX = 0.5; /* dropout with a larger probability is of a sharded activation */

static lt_status call_unary(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                            bool absolute)
{
    (void)absolute;
    switch (t->entry[0]) {
    case 'c':
        return be->cast(ctx, &v[0], &v[1]);
    case 'r':
        return be->relu(ctx, &v[0], &v[1]);
    case 'd': {
        lt_random random = {.key = 12345, .counter = 67};
        /* Rows of 11 elements, with one random number per three elements. */
        if (t->config.number > BOX)
            random = (lt_random){
                .key = 9, .counter = 1, .first = 5, .width = 3, .columns = 11, .repeat = 3};
        return be->dropout(ctx, random, t->config.number, &v[0], &v[1]);
    }
    default:
        return be->scale(ctx, t->config.number, &v[0], &v[1]);
    }
}

static lt_status call_binary(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                             bool absolute)
{
    (void)absolute;
    switch (t->entry[0]) {
    case 'a':
        return be->add(ctx, &v[0], &v[1], &v[2]);
    case 'm':
        return be->mul(ctx, &v[0], &v[1], &v[2]);
    default:
        return be->relu_grad(ctx, &v[0], &v[1], &v[2]);
    }
}

static lt_status call_fill(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                           bool absolute)
{
    (void)absolute;
    return be->fill(ctx, t->config.number, &v[0]);
}

static void make_unary(const unary_row *row, test *t)
{
    t->call = call_unary;
    t->operands = 2;
    t->operand[0] = (operand){IN, DATA, row->shape, row->x, .absolute = PLUS};
    t->operand[1] = (operand){OUT, DATA, row->shape, row->y, .absolute = PLUS};
}

static void make_binary(const unary_row *row, test *t)
{
    t->call = call_binary;
    t->operands = 3;
    t->operand[0] = (operand){IN, DATA, row->shape, STORAGE, .absolute = PLUS};
    t->operand[1] = (operand){IN, DATA, row->shape, row->x, .absolute = PLUS};
    t->operand[2] = (operand){OUT, DATA, row->shape, row->y, .absolute = PLUS};
}

static void make_fill(const unary_row *row, test *t)
{
    t->call = call_fill;
    t->operands = 1;
    t->operand[0] = (operand){OUT, DATA, row->shape, row->y, .absolute = PLUS};
}

typedef struct entry_row {
    const char *name;
    void (*make)(const unary_row *row, test *t);
    double number;
} entry_row;

static const entry_row entries[] = {
    {"cast", make_unary, 0},      {"relu", make_unary, 0},       {"dropout", make_unary, 0.3},
    {"dropout", make_unary, 0.6}, {"scale", make_unary, -0.375}, {"add", make_binary, 0},
    {"mul", make_binary, 0},      {"relu_grad", make_binary, 0}, {"fill", make_fill, -1.5},
};

/* Casts between dtypes, as a 16-bit pass does with its weights, and back. */
typedef struct cast_row {
    const char *name;
    kind from, to;
    double high; /* values are in -high..high; pixels from 0 */
} cast_row;

static const cast_row casts[] = {
    {"to f32", DATA, MASTER, 1},       {"from f32", MASTER, DATA, 60000},
    {"to f64", DATA, DOUBLE, 1},       {"from f64", DOUBLE, DATA, 1},
    {"from pixels", PIXEL, DATA, 256}, {"to i32", DATA, LABEL, 100},
    {"from i64", COUNT, DATA, 30000},  {"to pixels", MASTER, PIXEL, 300},
};

static void make_cast(const cast_row *row, const unary_row *shape, test *t)
{
    static char name[96];
    snprintf(name, sizeof name, "%s, %s", row->name, shape->name);
    *t = (test){.entry = "cast", .name = name, .call = call_unary, .operands = 2, .terms = 2};
    make_unary(shape, t);
    t->operand[0].kind = row->from;
    t->operand[1].kind = row->to;
    t->operand[0].low = row->from == PIXEL ? 0 : -row->high;
    t->operand[0].high = row->high;
}

/* Sums, and the sizes that remain. */
typedef struct sum_row {
    const char *name;
    lt_shape x, y;
    layout layout;
} sum_row;

static const sum_row sums[] = {
    {"everything", {2, {33, 70}}, {2, {1, 1}}, ROWS},
    {"few elements", {1, {5}}, {1, {1}}, ROWS},
    {"everything, several chunks", {4, {3, 5, 67, 71}}, {4, {1, 1, 1, 1}}, STORAGE},
    {"per channel", {4, {3, 5, 4, 7}}, {4, {1, 5, 1, 1}}, STORAGE},
    {"over channels", {4, {3, 5, 4, 7}}, {4, {3, 1, 4, 7}}, STORAGE},
    {"over pixels, gaps", {4, {3, 5, 4, 7}}, {4, {3, 5, 1, 1}}, GAPS},
    {"columns", {2, {517, 3}}, {2, {1, 3}}, ROWS},
    {"rows of many elements", {2, {67, 5003}}, {2, {1, 5003}}, ROWS},
    {"two rows of images", {4, {2, 5, 31, 33}}, {4, {1, 5, 31, 33}}, STORAGE},
    {"rows, transposed", {2, {3, 517}}, {2, {3, 1}}, REVERSED},
    {"nothing", {2, {3, 5}}, {2, {3, 5}}, ROWS},
};

static lt_status call_sum(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                          bool absolute)
{
    (void)absolute;
    return be->sum(ctx, t->config.number, &v[0], &v[1]);
}

static void make_sum(const sum_row *row, test *t)
{
    *t = (test){.entry = "sum", .name = row->name, .call = call_sum, .operands = 2};
    t->config.number = 0.5;
    t->operand[0] = (operand){IN, DATA, row->x, row->layout, .absolute = PLUS};
    t->operand[1] = (operand){OUT, DATA, row->y, STORAGE, .absolute = PLUS};
    t->terms = (double)(lt_shape_count(row->x) / lt_shape_count(row->y)) + 2;
}

static const unary_row images[] = {
    {"pixels", {4, {2, 3, 5, 7}}, STORAGE, STORAGE},
    {"one channel", {4, {1, 1, 28, 28}}, STORAGE, STORAGE},
    {"images of one pixel", {4, {3, 4, 1, 1}}, STORAGE, STORAGE},
    {"row-major to channels-last", {4, {2, 3, 5, 7}}, ROWS, STORAGE},
    {"channels-last to gaps", {4, {2, 3, 5, 7}}, STORAGE, GAPS},
};

static lt_status call_normalize(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                                bool absolute)
{
    lt_normalize_config c = t->config.pixels;
    for (int i = 0; i < LT_MAX_PIXEL_CHANNELS && absolute; i++)
        c.mean[i] = -c.mean[i];
    return be->normalize(ctx, &c, &v[0], &v[1]);
}

static void make_normalize(const unary_row *row, test *t)
{
    *t = (test){.entry = "normalize", .name = row->name, .call = call_normalize, .operands = 2};
    t->config.pixels = LT_NORMALIZE_IMAGENET;
    t->config.pixels.mean[3] = 100;
    t->config.pixels.deviation[3] = 50;
    t->operand[0] = (operand){IN, PIXEL, row->shape, row->x, KEEP, 0, 256, NULL};
    t->operand[1] = (operand){OUT, DATA, row->shape, row->y, .absolute = PLUS};
    t->terms = 4;
}

bool elementwise_tests(size_t i, test *t)
{
    const unary_row *row = &shapes[i % COUNT_OF(shapes)];
    if (within(&i, COUNT_OF(entries) * COUNT_OF(shapes))) {
        const entry_row *e = &entries[i / COUNT_OF(shapes)];
        *t = (test){.entry = e->name, .name = row->name, .terms = 2};
        t->config.number = e->number;
        e->make(row, t);
    } else if (within(&i, COUNT_OF(casts) * COUNT_OF(shapes)))
        make_cast(&casts[i / COUNT_OF(shapes)], row, t);
    else if (within(&i, COUNT_OF(sums)))
        make_sum(&sums[i], t);
    else if (within(&i, COUNT_OF(images)))
        make_normalize(&images[i], t);
    else
        return false;
    return true;
}
