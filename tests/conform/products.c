/* Rows of matrix products. */

#include "conform.h"

typedef struct matmul_row {
    const char *name;
    int64_t batch, m, n, k;
    layout a, b;
    bool shared; /* one b for the whole batch: a stride of 0 */
} matmul_row;

static const matmul_row matmuls[] = {
    {"1 x 1 x 1", 1, 1, 1, 1, ROWS, ROWS, false},
    {"odd sizes", 1, 17, 13, 29, ROWS, ROWS, false},
    {"a row times a matrix", 1, 1, 37, 70, ROWS, ROWS, false},
    {"a matrix times a column", 1, 37, 1, 70, ROWS, ROWS, false},
    {"one product", 1, 19, 23, 1, ROWS, ROWS, false},
    {"batch of 3", 3, 7, 9, 33, ROWS, ROWS, false},
    {"batch of 3, b shared", 3, 7, 9, 33, ROWS, ROWS, true},
    {"gaps in a", 1, 5, 9, 33, GAPS, ROWS, false},
    {"gaps in b", 2, 5, 9, 33, ROWS, GAPS, false},
    {"a stored backwards", 1, 17, 13, 29, REVERSED, ROWS, false},
    {"b stored backwards", 1, 17, 13, 29, ROWS, REVERSED, false},
    {"both stored backwards, batch of 2", 2, 17, 13, 29, REVERSED, REVERSED, false},
    {"long sums", 1, 3, 4, 2000, ROWS, ROWS, false},
};

static lt_status call_matmul(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                             bool absolute)
{
    (void)absolute;
    lt_view b = v[1];
    if (b.shape.dim[0] != v[2].shape.dim[0]) {
        b.shape.dim[0] = v[2].shape.dim[0];
        b.stride[0] = 0;
    }
    (void)t;
    return be->matmul(ctx, &v[0], &b, &v[2]);
}

static void make_matmul(const matmul_row *r, test *t)
{
    *t = (test){.entry = "matmul", .name = r->name, .call = call_matmul, .operands = 3};
    t->operand[0] = (operand){IN, DATA, LT_SHAPE(r->batch, r->m, r->k), r->a, .absolute = PLUS};
    t->operand[1] =
        (operand){IN, DATA, LT_SHAPE(r->shared ? 1 : r->batch, r->k, r->n), r->b, .absolute = PLUS};
    t->operand[2] = (operand){OUT, DATA, LT_SHAPE(r->batch, r->m, r->n), ROWS, .absolute = PLUS};
    t->terms = (double)r->k + 1;
}

typedef struct linear_row {
    const char *name;
    int64_t n, c, k;
    bool bias;
} linear_row;

static const linear_row linears[] = {
    {"1 x 1", 1, 1, 1, true},
    {"odd sizes with bias", 5, 33, 17, true},
    {"odd sizes without bias", 5, 33, 17, false},
    {"one row", 1, 512, 10, true},
    {"a thousand classes", 4, 64, 1000, true},
};

static lt_status call_linear(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                             bool absolute)
{
    (void)t;
    (void)absolute;
    return be->linear(ctx, &v[0], &v[1], v[2].data ? &v[2] : NULL, &v[3]);
}

static void make_linear(const linear_row *r, test *t)
{
    *t = (test){.entry = "linear", .name = r->name, .call = call_linear, .operands = 4};
    t->operand[0] = (operand){IN, DATA, LT_SHAPE(r->n, r->c), ROWS, .absolute = PLUS};
    t->operand[1] = (operand){IN, WEIGHT, LT_SHAPE(r->k, r->c), ROWS, .absolute = PLUS};
    t->operand[2] = (operand){IN, MASTER, LT_SHAPE(r->k), ROWS, .absolute = PLUS};
    t->operand[3] = (operand){OUT, DATA, LT_SHAPE(r->n, r->k), ROWS, .absolute = PLUS};
    if (!r->bias)
        t->operand[2].shape.ndim = -1;
    t->terms = (double)r->c + 2;
}

bool product_tests(size_t i, test *t)
{
    if (i < COUNT_OF(matmuls)) {
        make_matmul(&matmuls[i], t);
        return true;
    }
    i -= COUNT_OF(matmuls);
    if (i < COUNT_OF(linears)) {
        make_linear(&linears[i], t);
        return true;
    }
    return conv_tests(i - COUNT_OF(linears), t);
}
