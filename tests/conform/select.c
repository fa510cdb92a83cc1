/* Rows of top-k by magnitude. */

#include "conform.h"

#include <math.h>

typedef struct select_row {
    const char *name;
    int64_t n, count;
    layout x;
    double levels; /* values are rounded down to this many levels per unit; 0: not rounded */
    int nans;
    bool large;
} select_row;

static const select_row rows[] = {
    {"one of one", 1, 1, ROWS, 0, 0, false},
    {"one of many", 1000, 1, ROWS, 0, 0, false},
    {"all", 333, 333, ROWS, 0, 0, false},
    {"all but one", 333, 332, ROWS, 0, 0, false},
    {"one in a hundred", 5000, 50, ROWS, 0, 0, false},
    {"ties go to the lower place", 5000, 700, ROWS, 3, 0, false},
    {"all are equal", 777, 100, ROWS, 0.5, 0, false},
    {"NaNs first", 4099, 5, ROWS, 0, 9, false},
    {"NaNs and others", 4099, 50, ROWS, 8, 9, false},
    {"gaps", 500, 20, GAPS, 4, 0, false},
    {"several chunks, ties in all of them", 300007, 1234, ROWS, 100, 0, false},
    {"several chunks, most of them", 300007, 299000, ROWS, 0, 3, false},
    {"a bucket", 6400000, 64000, ROWS, 0, 0, true},
    {"ResNet-50", 25600000, 256000, ROWS, 0, 0, true},
};

enum { X, INDEX };

/* Signs of zeros and of infinities, and magnitudes of every size. */
static void prepare(test *t)
{
    const select_row *r = &rows[(size_t)t->config.number];
    double *x = t->operand[X].value;
    const int64_t n = r->n;
    for (int64_t i = 0; i < n; i++)
        x[i] =
            r->levels > 0 ? floor(x[i] * r->levels) / r->levels : ldexp(x[i], -(int)(i * 7 % 40));
    if (r->levels > 0 && r->levels < 1)
        for (int64_t i = 0; i < n; i++)
            x[i] = i % 2 ? 0.0 : -0.0;
    if (n > 100 && !(r->levels > 0)) {
        x[n / 3] = -(double)INFINITY;
        x[n / 2] = (double)INFINITY;
        x[n / 2 + 1] = -0.0;
    }
    for (int i = 0; i < r->nans; i++)
        x[n / 10 * (i + 1) - 1] = i % 2 ? -(double)NAN : (double)NAN;
}

static lt_status call(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                      bool absolute)
{
    (void)t;
    (void)absolute;
    return be->topk_select(ctx, &v[X], &v[INDEX]);
}

bool select_tests(size_t i, test *t)
{
    if (i >= COUNT_OF(rows))
        return false;
    const select_row *r = &rows[i];
    *t = (test){.entry = "topk_select", .name = r->name, .call = call, .prepare = prepare};
    t->exact = true;
    t->large = r->large;
    t->config.number = (double)i;
    t->operands = 2;
    t->operand[X] = (operand){IN, DATA, LT_SHAPE(r->n), r->x, .absolute = KEEP};
    t->operand[INDEX] = (operand){OUT, LABEL, LT_SHAPE(r->count), .absolute = KEEP};
    return true;
}
