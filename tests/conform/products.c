/* Rows of matrix products. */

#include "conform.h"

#include <math.h>

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
    {"sums of two blocks, more columns than a range", 1, 9, 1500, 1601, ROWS, REVERSED, false},
    {"rows and columns of several tasks", 1, 300, 900, 34, ROWS, ROWS, false},
    {"rows of a page in b, batch of 2", 2, 40, 1024, 37, ROWS, ROWS, false},
    {"rows of a page in b, batch of 3, b shared", 3, 33, 1024, 9, ROWS, ROWS, true},
    {"rows of a page in b, sums of several blocks", 1, 300, 1024, 600, GAPS, ROWS, false},
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

/* b, in f32, is a parameter: counts as rounded to a's dtype. */
static lt_status call_parameter(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                                bool absolute)
{
    static uint64_t version = 1;
    lt_view b = v[1];
    b.version = ++version;
    (void)t;
    (void)absolute;
    return be->matmul(ctx, &v[0], &b, &v[2]);
}

static const matmul_row parameters[] = {
    {"a parameter", 1, 17, 13, 29, ROWS, ROWS, false},
    {"a parameter stored backwards", 1, 17, 13, 29, ROWS, REVERSED, false},
    {"rows of a transformer times a parameter", 1, 70, 96, 200, ROWS, ROWS, false},
};

static void make_parameter(const matmul_row *r, test *t)
{
    make_matmul(r, t);
    t->call = call_parameter;
    t->operand[1].kind = WEIGHT;
}

/* Sums of 16-bit products with f32 results, as gradients of weights; larger than a block in one dimension
 * each. */
static const matmul_row wide[] = {
    {"to f32, odd sizes", 1, 17, 13, 29, ROWS, ROWS, false},
    {"to f32, a gradient of a weight", 1, 150, 70, 801, REVERSED, ROWS, false},
    {"to f32, both stored backwards", 1, 41, 200, 64, REVERSED, REVERSED, false},
    {"to f32, more columns than a range", 1, 3, 2800, 770, ROWS, REVERSED, false},
};

static void make_wide(const matmul_row *r, test *t)
{
    make_matmul(r, t);
    t->operand[2].kind = MASTER;
}

static const matmul_row backwards[] = {
    {"y stored backwards", 1, 17, 13, 29, ROWS, ROWS, false},
    {"y stored backwards, columns of a page in a", 1, 1024, 40, 37, REVERSED, ROWS, false},
};

static void make_backwards(const matmul_row *r, test *t)
{
    make_matmul(r, t);
    t->operand[2].layout = REVERSED;
}

typedef struct linear_row {
    const char *name;
    int64_t n, c, k;
    bool bias, in_out; /* in_out: w is stored as [C,K] */
} linear_row;

static const linear_row linears[] = {
    {"1 x 1", 1, 1, 1, true, false},
    {"odd sizes with bias", 5, 33, 17, true, false},
    {"odd sizes without bias", 5, 33, 17, false, false},
    {"odd sizes, w stored backwards", 5, 33, 17, true, true},
    {"one row", 1, 512, 10, true, false},
    {"two rows, odd features", 2, 77, 131, true, false},
    {"one row, odd features, w stored backwards", 1, 77, 131, true, true},
    {"three rows, w stored backwards", 3, 77, 131, true, true},
    {"three rows without bias", 3, 513, 65, false, false},
    {"four rows", 4, 64, 129, true, false},
    {"one row, w stored backwards", 1, 512, 10, true, true},
    {"a thousand classes", 4, 64, 1000, true, false},
    {"more rows and features than a block", 300, 130, 530, true, false},
    {"more terms than a block, w stored backwards", 70, 1100, 70, true, true},
};

static lt_status call_linear(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                             bool absolute)
{
    (void)t;
    (void)absolute;
    return be->linear(ctx, &v[0], &v[1], v[2].data ? &v[2] : NULL, &v[3]);
}

/* Reduces the bias to few bits: a backend may round it. */
static void shorten_bias(test *t)
{
    for (int64_t i = 0; i < operand_count(&t->operand[2]); i++)
        t->operand[2].value[i] = floor(64 * t->operand[2].value[i]) / 64;
}

static void make_linear(const linear_row *r, test *t)
{
    *t = (test){.entry = "linear", .name = r->name, .call = call_linear, .operands = 4};
    t->operand[0] = (operand){IN, DATA, LT_SHAPE(r->n, r->c), ROWS, .absolute = PLUS};
    t->operand[1] =
        (operand){IN, WEIGHT, LT_SHAPE(r->k, r->c), r->in_out ? REVERSED : ROWS, .absolute = PLUS};
    t->operand[2] = (operand){IN, MASTER, LT_SHAPE(r->k), ROWS, .absolute = PLUS};
    t->operand[3] = (operand){OUT, DATA, LT_SHAPE(r->n, r->k), ROWS, .absolute = PLUS};
    if (r->bias)
        t->prepare = shorten_bias;
    else
        t->operand[2].shape.ndim = -1;
    t->terms = (double)r->c + 2;
}

static lt_view as_batch(const lt_view *m, int rows)
{
    lt_view v = *m;
    v.shape = LT_SHAPE(1, m->shape.dim[rows], m->shape.dim[1 - rows]);
    v.stride[0] = 0;
    v.stride[1] = m->stride[rows];
    v.stride[2] = m->stride[1 - rows];
    return v;
}

/* Operands dy, x, dw, db. */
static lt_status call_linear_grad(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                                  bool absolute)
{
    const lt_view dy = as_batch(&v[0], 1), x = as_batch(&v[1], 0), dw = as_batch(&v[2], 0);
    lt_view row = v[3];
    (void)t;
    (void)absolute;
    if (be->linear_grad_w)
        return be->linear_grad_w(ctx, &v[0], &v[1], &v[2], &v[3]);
    row.shape = LT_SHAPE(1, v[3].shape.dim[0]);
    row.stride[0] = 0;
    row.stride[1] = v[3].stride[0];
    LT_TRY(be->matmul(ctx, &dy, &x, &dw));
    return be->sum(ctx, 1, &v[0], &row);
}

static void make_linear_grad(const linear_row *r, test *t)
{
    *t = (test){.entry = "linear_grad_w", .name = r->name, .call = call_linear_grad, .operands = 4};
    t->operand[0] = (operand){IN, DATA, LT_SHAPE(r->n, r->k), ROWS, .absolute = PLUS};
    t->operand[1] = (operand){IN, DATA, LT_SHAPE(r->n, r->c), ROWS, .absolute = PLUS};
    t->operand[2] =
        (operand){OUT, MASTER, LT_SHAPE(r->k, r->c), r->in_out ? REVERSED : ROWS, .absolute = PLUS};
    t->operand[3] = (operand){OUT, MASTER, LT_SHAPE(r->k), ROWS, .absolute = PLUS};
    t->terms = (double)r->n + 2;
}

bool product_tests(size_t i, test *t)
{
    if (within(&i, COUNT_OF(matmuls)))
        make_matmul(&matmuls[i], t);
    else if (within(&i, COUNT_OF(parameters)))
        make_parameter(&parameters[i], t);
    else if (within(&i, COUNT_OF(wide)))
        make_wide(&wide[i], t);
    else if (within(&i, COUNT_OF(backwards)))
        make_backwards(&backwards[i], t);
    else if (within(&i, COUNT_OF(linears)))
        make_linear(&linears[i], t);
    else if (within(&i, COUNT_OF(linears)))
        make_linear_grad(&linears[i], t);
    else
        return conv_tests(i, t);
    return true;
}
