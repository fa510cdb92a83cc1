/* Rows of softmax, of its cross-entropy and of top-k counts. */

#include "conform.h"

#include <math.h>
#include <string.h>

/* Class indices; one target per class; targets with a class of target 0 and logit -Inf; class indices of
 * which every third, or all, are LT_IGNORED_LABEL. */
typedef enum target { HARD, SOFT, MASKED, SOME_IGNORED, ALL_IGNORED } target;

typedef struct loss_row {
    const char *name;
    int64_t n, k;
    target labels;
    double smoothing, scale; /* logits are in -scale..scale */
} loss_row;

static const loss_row rows[] = {
    {"class indices", 5, 10, HARD, 0, 4},
    {"label smoothing", 7, 33, HARD, 0.1, 4},
    {"soft targets", 5, 17, SOFT, 0, 4},
    {"soft targets with smoothing", 3, 70, SOFT, 0.2, 4},
    {"large logits do not overflow", 4, 9, HARD, 0.1, 200},
    {"one row", 1, 1000, HARD, 0.1, 10},
    {"two classes", 65, 2, HARD, 0, 3},
    {"one class", 3, 1, HARD, 0.1, 5},
    {"one class and one row, soft", 1, 1, SOFT, 0, 5},
    {"17 classes", 33, 17, HARD, 0.1, 4},
    {"1000 classes, soft", 3, 1000, SOFT, 0, 6},
    {"1000 classes, soft, with smoothing", 2, 1000, SOFT, 0.1, 6},
    {"logits of ten thousand", 5, 19, HARD, 0.1, 1e4},
    {"soft targets, logits of ten thousand", 5, 37, SOFT, 0, 1e4},
    {"logits of ten thousand without smoothing", 4, 16, HARD, 0, 1e4},
    {"smoothing alone", 4, 20, HARD, 1, 4},
    {"a batch of ImageNet", 256, 1000, HARD, 0.1, 8},
    {"a class that cannot occur", 3, 21, MASKED, 0, 4},
    {"ignored labels", 7, 33, SOME_IGNORED, 0.1, 4},
    {"ignored labels without smoothing", 65, 5, SOME_IGNORED, 0, 4},
    {"one row, which is ignored", 1, 10, SOME_IGNORED, 0, 4},
    {"nothing but ignored labels", 5, 9, ALL_IGNORED, 0.1, 4},
    {"GPT-2's vocabulary", 3, 50257, HARD, 0, 8},
    {"a batch of GPT-2", 1024, 50257, SOME_IGNORED, 0, 8},
};

enum { LOGITS, LABELS, LSE, LOSS, DLOGITS };

/* Class indices in range; soft targets that sum to 1. */
static void prepare(test *t)
{
    operand *labels = &t->operand[LABELS];
    int64_t classes = t->operand[LOGITS].shape.dim[1];
    for (int64_t i = 0; i < operand_count(labels); i++) {
        if (labels->kind == LABEL) {
            labels->value[i] = (double)(i * 7 % classes);
            continue;
        }
        double sum = 0;
        int64_t row = i / classes * classes;
        for (int64_t k = row; i == row && k < row + classes; k++)
            sum += labels->value[k] = fabs(labels->value[k]);
        for (int64_t k = row; i == row && k < row + classes; k++)
            labels->value[k] /= sum;
    }
}

/* Ignores every label whose position is a multiple of step. */
static void ignore(test *t, int64_t step)
{
    operand *labels = &t->operand[LABELS];
    for (int64_t i = 0; i < operand_count(labels); i += step)
        labels->value[i] = LT_IGNORED_LABEL;
}

static void ignore_some_or_all(test *t)
{
    ignore(t, strstr(t->name, "nothing") ? 1 : 3);
}

static void prepare_ignored(test *t)
{
    prepare(t);
    ignore_some_or_all(t);
}

/* Masks the middle class of every row. */
static void mask(test *t)
{
    operand *z = &t->operand[LOGITS], *labels = &t->operand[LABELS];
    int64_t classes = z->shape.dim[1];
    for (int64_t i = classes / 2; i < operand_count(z); i += classes) {
        z->value[i] = -(double)INFINITY;
        labels->value[i] = 0;
    }
}

static void prepare_masked(test *t)
{
    prepare(t);
    mask(t);
}

static lt_status call_loss(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                           bool absolute)
{
    (void)absolute;
    return be->softmax_xent(ctx, t->config.number, &v[LOGITS], &v[LABELS], &v[LSE], &v[LOSS]);
}

static double rows_that_count(const test *t)
{
    const operand *labels = &t->operand[LABELS];
    double count = 0;
    for (int64_t n = 0; n < t->operand[LOGITS].shape.dim[0]; n++)
        count += labels->kind != LABEL || labels->value[n] != LT_IGNORED_LABEL;
    return count > 0 ? count : 1;
}

/* The error of log(sum(exp)) is the rounding of differences to the largest logit. */
static void loss_magnitude(const test *t, double *const *want, double *const *magnitude)
{
    const double *z = t->operand[LOGITS].value;
    int64_t rows_count = t->operand[LOGITS].shape.dim[0], k_count = t->operand[LOGITS].shape.dim[1];
    magnitude[LOSS][0] = 0;
    for (int64_t n = 0; n < rows_count; n++) {
        double top = 1;
        for (int64_t k = 0; k < k_count; k++)
            top = isinf(z[n * k_count + k]) ? top : fmax(top, fabs(z[n * k_count + k]));
        magnitude[LSE][n] = top + fabs(want[LSE][n]);
        magnitude[LOSS][0] += 2 * magnitude[LSE][n] / rows_that_count(t);
    }
}

static bool has_ignored(const loss_row *r)
{
    return r->labels == SOME_IGNORED || r->labels == ALL_IGNORED;
}

static void make_common(const loss_row *r, test *t)
{
    t->prepare = has_ignored(r) ? prepare_ignored : r->labels == MASKED ? prepare_masked : prepare;
    t->operand[LOGITS] =
        (operand){IN, DATA, LT_SHAPE(r->n, r->k), ROWS, PLUS, -r->scale, r->scale, NULL};
    t->operand[LABELS] = (operand){IN, LABEL, LT_SHAPE(r->n), .absolute = KEEP};
    if (r->labels == SOFT || r->labels == MASKED)
        t->operand[LABELS] = (operand){IN, MASTER, LT_SHAPE(r->n, r->k), .low = 0.01, .high = 1};
    t->operand[LSE] = (operand){OUT, MASTER, LT_SHAPE(r->n), .absolute = PLUS};
    t->operand[LOSS] = (operand){OUT, MASTER, LT_SCALAR, .absolute = PLUS};
}

static void make_loss(const loss_row *r, test *t)
{
    make_common(r, t);
    t->entry = "softmax_xent";
    t->call = call_loss;
    t->magnitude = loss_magnitude;
    t->operands = 4;
    t->terms = (double)r->k + 4;
}

static lt_status call_grad(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                           bool absolute)
{
    (void)absolute;
    return be->softmax_xent_grad(ctx, t->config.number, &v[LOSS], &v[LOGITS], &v[LABELS], &v[LSE],
                                 &v[DLOGITS]);
}

static void prepare_grad(test *t)
{
    prepare(t);
    const operand *z = &t->operand[LOGITS];
    int64_t k_count = z->shape.dim[1];
    t->operand[LOSS].value[0] = 0.7;
    for (int64_t n = 0; n < z->shape.dim[0]; n++) {
        double top = z->value[n * k_count], sum = 0;
        for (int64_t k = 1; k < k_count; k++)
            top = fmax(top, z->value[n * k_count + k]);
        for (int64_t k = 0; k < k_count; k++)
            sum += exp(z->value[n * k_count + k] - top);
        t->operand[LSE].value[n] = top + log(sum);
    }
}

static void prepare_ignored_grad(test *t)
{
    prepare_grad(t);
    ignore_some_or_all(t);
}

static void prepare_masked_grad(test *t)
{
    prepare_grad(t);
    mask(t);
}

/* The relative error of exp(z - lse) is the rounding of z - lse. */
static void grad_magnitude(const test *t, double *const *want, double *const *magnitude)
{
    const double *z = t->operand[LOGITS].value, *lse = t->operand[LSE].value;
    const int64_t k_count = t->operand[LOGITS].shape.dim[1];
    (void)want;
    for (int64_t i = 0; i < operand_count(&t->operand[LOGITS]); i++) {
        double l = lse[i / k_count], p = exp(z[i] - l);
        double from_exp = p > 0 ? p * (2 + fabs(z[i]) + fabs(l)) : 0;
        magnitude[DLOGITS][i] = (from_exp + 1) / rows_that_count(t);
    }
}

static void make_grad(const loss_row *r, test *t)
{
    make_common(r, t);
    t->entry = "softmax_xent_grad";
    t->call = call_grad;
    t->prepare = has_ignored(r)        ? prepare_ignored_grad
                 : r->labels == MASKED ? prepare_masked_grad
                                       : prepare_grad;
    t->magnitude = grad_magnitude;
    t->operands = 5;
    t->operand[LSE].use = t->operand[LOSS].use = IN;
    t->operand[DLOGITS] = (operand){OUT, DATA, LT_SHAPE(r->n, r->k), .absolute = PLUS};
    t->terms = 4;
}

static lt_status call_topk(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                           bool absolute)
{
    (void)t;
    (void)absolute;
    return be->topk_hits(ctx, &v[0], &v[1], &v[2]);
}

/* Ties, a row with a NaN, an ignored label if there are several, and previous hits. */
static void prepare_topk(test *t)
{
    operand *z = &t->operand[0], *labels = &t->operand[1];
    for (int64_t i = 0; i < operand_count(z); i++)
        z->value[i] = floor(z->value[i]);
    z->value[operand_count(z) / 2] = (double)NAN;
    for (int64_t i = 0; i < operand_count(labels); i++)
        labels->value[i] = (double)(i * 7 % z->shape.dim[1]);
    if (operand_count(labels) > 1)
        labels->value[1] = LT_IGNORED_LABEL;
    for (int64_t i = 0; i < operand_count(&t->operand[2]); i++)
        t->operand[2].value[i] = (double)(3 + 37 * i);
}

static void make_topk(const loss_row *r, test *t)
{
    t->entry = "topk_hits";
    t->call = call_topk;
    t->prepare = prepare_topk;
    t->exact = true;
    t->operands = 3;
    t->operand[0] =
        (operand){IN, DATA, LT_SHAPE(r->n, r->k), ROWS, KEEP, -r->scale, r->scale, NULL};
    t->operand[1] = (operand){IN, LABEL, LT_SHAPE(r->n), .absolute = KEEP};
    t->operand[2] = (operand){INOUT, COUNT, LT_SHAPE(r->n % 2 ? 3 : 2), .absolute = KEEP};
}

typedef struct softmax_row {
    const char *name;
    int64_t n, k;
    layout x, y;
    double scale; /* x is in -scale..scale */
} softmax_row;

static const softmax_row softmax_rows[] = {
    {"odd rows", 5, 33, ROWS, ROWS, 4},
    {"one column", 3, 1, ROWS, ROWS, 4},
    {"one row", 1, 1000, ROWS, ROWS, 10},
    {"two columns", 65, 2, ROWS, ROWS, 3},
    {"large values do not overflow", 4, 19, ROWS, ROWS, 1e4},
    {"gaps", 5, 17, GAPS, GAPS, 4},
    {"transposed", 6, 17, REVERSED, ROWS, 4},
    {"attention of 12 heads", 12 * 197, 197, ROWS, ROWS, 8},
};

enum { X, Y, DY = X, DX = 2 };

static lt_status call_softmax(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                              bool absolute)
{
    (void)absolute;
    return t->operands == 2 ? be->softmax(ctx, &v[X], &v[Y])
                            : be->softmax_grad(ctx, &v[DY], &v[Y], &v[DX]);
}

/* The relative error of exp(x - top) is the rounding of x - top; near 0, its error is the smallest normal
 * number. */
static void softmax_magnitude(const test *t, double *const *want, double *const *magnitude)
{
    const int64_t k_count = t->operand[X].shape.dim[1];
    for (int64_t i = 0; i < operand_count(&t->operand[X]); i++) {
        const double *row = t->operand[X].value + i / k_count * k_count;
        double top = row[0];
        for (int64_t k = 1; k < k_count; k++)
            top = fmax(top, row[k]);
        magnitude[Y][i] = want[Y][i] * (2 + top - row[i % k_count]) + 0x1p-102;
    }
}

static void softmax_grad_magnitude(const test *t, double *const *want, double *const *magnitude)
{
    (void)want;
    const int64_t k_count = t->operand[Y].shape.dim[1];
    const double *y = t->operand[Y].value, *dy = t->operand[DY].value;
    for (int64_t i = 0; i < operand_count(&t->operand[Y]); i++) {
        double sum = fabs(dy[i]);
        for (int64_t k = i / k_count * k_count; k < (i / k_count + 1) * k_count; k++)
            sum += fabs(dy[k]) * y[k];
        magnitude[DX][i] = y[i] * sum;
    }
}

static void make_softmax(const softmax_row *r, bool gradient, test *t)
{
    const lt_shape shape = LT_SHAPE(r->n, r->k);
    *t = (test){.name = r->name, .large = r->n > 1000};
    t->entry = gradient ? "softmax_grad" : "softmax";
    t->call = call_softmax;
    t->magnitude = gradient ? softmax_grad_magnitude : softmax_magnitude;
    t->operands = gradient ? 3 : 2;
    t->operand[X] = (operand){IN, DATA, shape, r->x, PLUS, -r->scale, r->scale, NULL};
    t->operand[Y] = (operand){gradient ? IN : OUT, DATA, shape, r->y, PLUS, 0, 1, NULL};
    t->operand[DX] = (operand){OUT, DATA, shape, r->y, PLUS, 0, 0, NULL};
    t->terms = 4;
}

bool loss_tests(size_t i, test *t)
{
    static void (*const make[])(const loss_row *, test *) = {make_loss, make_grad, make_topk};
    if (i < 2 * COUNT_OF(softmax_rows)) {
        make_softmax(&softmax_rows[i / 2], i % 2, t);
        return true;
    }
    i -= 2 * COUNT_OF(softmax_rows);
    if (i >= COUNT_OF(rows) * COUNT_OF(make))
        return false;
    const loss_row *r = &rows[i / COUNT_OF(make)];
    *t = (test){.name = r->name};
    t->config.number = r->smoothing;
    t->large = r->n > 100;
    make[i % COUNT_OF(make)](r, t);
    return true;
}
