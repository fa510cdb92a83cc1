/* Rows of Shampoo's kernels: elementwise expressions, contractions, eigendecompositions, norms. */

#include "base/alloc.h"
#include "conform.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct vec_row {
    const char *name;
    lt_vec_job job; /* numbers only */
    bool binary;
} vec_row;

static const vec_row vecs[] = {
    {"axpby", {.op = LT_VEC_AXPBY, .alpha = 0.1, .beta = 0.9}, false},
    {"axpby without y", {.op = LT_VEC_AXPBY, .alpha = 0.1, .beta = 0}, false},
    {"axpby times the rate",
     {.op = LT_VEC_AXPBY, .alpha = 2, .beta = 1, .factor = {.lr = true}},
     false},
    {"square", {.op = LT_VEC_SQUARE, .alpha = 0.1, .beta = 0.9}, false},
    {"product", {.op = LT_VEC_MUL, .alpha = 0.3}, true},
    {"rsqrt", {.op = LT_VEC_RSQRT, .alpha = 0.3, .beta = 2, .gamma = 1e-3}, true},
    {"rsqrt, bias corrected",
     {.op = LT_VEC_RSQRT,
      .alpha = 0.3,
      .beta = 2,
      .gamma = 1e-3,
      .factor = {.bias = 1, .base = 0.9}},
     true},
    {"rsqrt, a step missed",
     {.op = LT_VEC_RSQRT,
      .alpha = 0.3,
      .beta = 2,
      .gamma = 1e-3,
      .factor = {.bias = 1, .base = 0.9}},
     true},
    {"power", {.op = LT_VEC_POW, .alpha = 1, .beta = 2, .gamma = 1e-3, .delta = 0.75}, true},
};

static const layout storages[] = {ROWS, GAPS, REVERSED};

static lt_status call_vec(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                          bool absolute)
{
    (void)absolute;
    lt_scalars s = {.lr = 0.1, .grad_scale = 1, .applied = 3, .finite = 1, .loss_scale = 1};
    lt_vec_job job = t->config.vec;
    job.a = v[0];
    job.b = v[1];
    job.y = v[2];
    lt_scalars *device = scalars_new(be, ctx, &s);
    lt_scalars one = {.lr = 1}, *number = scalars_new(be, ctx, &one);
    job.factor.missed = strstr(t->name, "a step missed") ? &number->lr : NULL;
    lt_status st = be->vec(ctx, &job, 1, device);
    scalars_free(be, ctx, device, &s);
    scalars_free(be, ctx, number, &one);
    return st;
}

static void make_vec(const vec_row *r, layout storage, test *t)
{
    *t = (test){.entry = "vec", .name = r->name, .call = call_vec, .operands = 3, .master = true};
    t->config.vec = r->job;
    lt_shape shape = LT_SHAPE(3, 5, 17);
    t->operand[0] = (operand){IN, MASTER, shape, storage, .absolute = PLUS};
    t->operand[1] = (operand){IN, MASTER, shape, ROWS, PLUS, 0.3, 2, NULL};
    t->operand[2] = (operand){INOUT, MASTER, shape, storage, .absolute = PLUS};
    if (!r->binary)
        t->operand[1].shape.ndim = -1;
    t->terms = 8;
}

typedef struct list_row {
    const char *name;
    lt_shape shape;
    layout storage[3];  /* storage of a, y, z */
    int first, columns; /* a range of the last dimension; columns 0: all of it */
    bool scratch;       /* y is a temporary */
} list_row;

static const list_row lists[] = {
    {"row-major", {3, {67, 19, 31}}, {ROWS, ROWS, ROWS}, 0, 0, false},
    {"with jumps", {3, {67, 19, 31}}, {REVERSED, ROWS, REVERSED}, 0, 0, false},
    {"all reversed", {3, {7, 6, 31}}, {REVERSED, REVERSED, REVERSED}, 0, 0, false},
    {"channels-last", {4, {3, 20, 5, 7}}, {STORAGE, STORAGE, STORAGE}, 0, 0, false},
    {"channels-last and row-major", {4, {3, 20, 5, 7}}, {STORAGE, ROWS, STORAGE}, 0, 0, false},
    {"gaps in one of them", {2, {33, 37}}, {GAPS, ROWS, ROWS}, 0, 0, false},
    {"gaps in the last", {2, {33, 37}}, {ROWS, ROWS, GAPS}, 0, 0, false},
    {"three elements", {1, {3}}, {ROWS, ROWS, ROWS}, 0, 0, false},
    {"one element", {0, {0}}, {ROWS, ROWS, ROWS}, 0, 0, false},
    {"columns by fours", {2, {43, 24}}, {ROWS, ROWS, ROWS}, 4, 16, false},
    {"columns that are not aligned", {2, {43, 24}}, {ROWS, ROWS, ROWS}, 3, 16, false},
    {"columns of an odd number", {2, {43, 24}}, {ROWS, ROWS, ROWS}, 4, 7, false},
    {"columns of odd rows", {2, {43, 23}}, {ROWS, ROWS, ROWS}, 4, 16, false},
    {"row-major by scratch", {3, {67, 19, 31}}, {ROWS, ROWS, ROWS}, 0, 0, true},
    {"scratch with jumps", {3, {67, 19, 31}}, {ROWS, REVERSED, ROWS}, 0, 0, true},
    {"temporary with jumps", {3, {60, 19, 32}}, {ROWS, ROWS, REVERSED}, 0, 0, true},
    {"columns by fours of scratch", {2, {43, 24}}, {ROWS, ROWS, ROWS}, 4, 16, true},
};

static lt_view columns_of(const list_row *r, const lt_view *v)
{
    lt_view x = *v;
    const int last = r->shape.ndim - 1;
    if (r->columns) {
        x.shape.dim[last] = r->columns;
        x.data = (char *)x.data + lt_dtype_size(x.dtype) * (size_t)(r->first * x.stride[last]);
    }
    return x;
}

static lt_status run_list(const lt_backend *be, void *ctx, const lt_vec_list *list)
{
    if (be->vec_lists)
        return be->vec_lists(ctx, list, 1, NULL);
    for (size_t i = 0; i < list->count; i++)
        LT_TRY(be->vec(ctx, &list->job[i], 1, NULL));
    return LT_OK;
}

/* y = 0.1 a + 0.9 y, then z = 0.5 y y + 0.9 z; a backend without the kernel, like ref, runs one expression
 * after the other. With a temporary y also y = 0.3 z + 0.5 y, z = y + 0.9 z, y = a y, z = 0.2 y + z; copying
 * y to z is not part of the list. */
static lt_status call_list(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                           bool absolute)
{
    (void)absolute;
    enum { WITHOUT_SCRATCH = 2 };
    const list_row *r = &lists[t->config.dim];
    lt_view x[3];
    for (int k = 0; k < 3; k++)
        x[k] = columns_of(r, &v[k]);
    const lt_vec_job job[] = {
        {.op = LT_VEC_AXPBY, .alpha = 0.1, .beta = 0.9, .a = x[0], .y = x[1]},
        {.op = LT_VEC_SQUARE, .alpha = 0.5, .beta = 0.9, .a = x[1], .y = x[2]},
        {.op = LT_VEC_AXPBY, .alpha = 0.3, .beta = 0.5, .a = x[2], .y = x[1]},
        {.op = LT_VEC_AXPBY, .alpha = 1, .beta = 0.9, .a = x[1], .y = x[2]},
        {.op = LT_VEC_MUL, .alpha = 1, .a = x[0], .b = x[1], .y = x[1]},
        {.op = LT_VEC_AXPBY, .alpha = 0.2, .beta = 1, .a = x[1], .y = x[2]}};
    const lt_vec_job copy = {.op = LT_VEC_AXPBY, .alpha = 1, .a = x[2], .y = x[1]};
    if (!r->scratch)
        return run_list(be, ctx, &(lt_vec_list){.job = job, .count = WITHOUT_SCRATCH});
    LT_TRY(run_list(be, ctx,
                    &(lt_vec_list){.job = job, .count = COUNT_OF(job), .scratch = x[1].data}));
    return be->vec(ctx, &copy, 1, NULL);
}

static void make_list(size_t i, test *t)
{
    const list_row *r = &lists[i];
    *t = (test){.entry = "vec_lists", .call = call_list, .operands = 3, .master = true};
    t->name = r->name;
    t->config.dim = (int)i;
    t->operand[0] = (operand){IN, MASTER, r->shape, r->storage[0], .absolute = PLUS};
    t->operand[1] = (operand){INOUT, MASTER, r->shape, r->storage[1], .absolute = PLUS};
    t->operand[2] = (operand){INOUT, MASTER, r->shape, r->storage[2], .absolute = PLUS};
    t->terms = r->scratch ? 48 : 16;
}

/* Norms of expressions: the first on the views of each list, the others on those of the first list. */
static const vec_row normed[] = {
    {"graft",
     {.op = LT_VEC_RSQRT, .alpha = 1, .beta = 1, .gamma = 1e-3, .factor = {.bias = 1, .base = 0.9}},
     true},
    {"norm of axpby", {.op = LT_VEC_AXPBY, .alpha = 0.1}, false},
    {"norm of a square times the rate",
     {.op = LT_VEC_SQUARE, .alpha = 2, .factor = {.lr = true}},
     false},
    {"norm of a product", {.op = LT_VEC_MUL, .alpha = 0.3}, true},
    {"norm of a power",
     {.op = LT_VEC_POW, .alpha = 1, .beta = 2, .gamma = 1e-3, .delta = 0.75},
     true},
    {"norm of signs", {.op = LT_VEC_SIGN, .alpha = 0.5}, false},
};

/* A job on its views whose y has no memory. */
static lt_vec_job job_of(lt_vec_job numbers, const lt_view *a, const lt_view *b)
{
    lt_vec_job job = numbers;
    job.a = *a;
    if (b)
        job.b = *b;
    job.y = (lt_view){.dtype = a->dtype, .shape = a->shape};
    int64_t stride = 1;
    for (int d = a->shape.ndim - 1; d >= 0; d--) {
        job.y.stride[d] = stride;
        stride *= a->shape.dim[d];
    }
    return job;
}

/* Computes the norm as a backend without the kernel does, in host memory. */
static lt_status compose_norm(const lt_backend *be, void *ctx, lt_vec_job job, const lt_view *out,
                              const lt_scalars *s)
{
    job.y.data = lt_alloc((size_t)lt_shape_count(job.y.shape) + 1, lt_dtype_size(job.y.dtype));
    lt_status st = job.y.data ? be->vec(ctx, &job, 1, s) : LT_E_NOMEM;
    if (!st)
        st = be->frobenius(ctx, &job.y, 1, out);
    lt_free(job.y.data);
    return st;
}

static lt_status call_vec_norms(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                                bool absolute)
{
    (void)absolute;
    const list_row *r = &lists[(size_t)t->config.dim % COUNT_OF(lists)];
    const vec_row *n = &normed[(size_t)t->config.dim / COUNT_OF(lists)];
    const lt_vec_job plain = {.op = LT_VEC_AXPBY, .alpha = -2};
    const lt_view a = columns_of(r, &v[0]), b = columns_of(r, &v[1]);
    const lt_vec_job job[] = {job_of(plain, &v[1], NULL), job_of(n->job, &a, n->binary ? &b : NULL),
                              job_of(plain, &v[0], NULL)};
    lt_scalars s = {.lr = 0.1, .grad_scale = 1, .applied = 3, .finite = 1, .loss_scale = 1};
    lt_scalars *device = scalars_new(be, ctx, &s);
    lt_status st = be->vec_norms ? be->vec_norms(ctx, job, COUNT_OF(job), &v[2], device) : LT_OK;
    for (size_t i = 0; i < COUNT_OF(job) && !be->vec_norms && !st; i++) {
        lt_view out = v[2];
        out.shape = LT_SHAPE(1);
        out.data = (double *)v[2].data + (int64_t)i * v[2].stride[0];
        st = compose_norm(be, ctx, job[i], &out, device);
    }
    scalars_free(be, ctx, device, &s);
    return st;
}

static void make_norms(size_t i, test *t)
{
    const size_t shape = i < COUNT_OF(lists) ? i : 0;
    const size_t expression = i < COUNT_OF(lists) ? 0 : i - COUNT_OF(lists) + 1;
    const list_row *r = &lists[shape];
    *t = (test){.entry = "vec_norms", .call = call_vec_norms, .operands = 3, .master = true};
    t->name = expression ? normed[expression].name : r->name;
    t->config.dim = (int)(shape + expression * COUNT_OF(lists));
    t->operand[0] = (operand){IN, MASTER, r->shape, r->storage[0], .absolute = PLUS};
    t->operand[1] = (operand){IN, MASTER, r->shape, r->storage[1], PLUS, 0.3, 2, NULL};
    t->operand[2] = (operand){OUT, DOUBLE, LT_SHAPE(3), .absolute = PLUS};
    t->terms = 8;
}

typedef struct tensor_row {
    const char *name;
    lt_shape g;
    int dim;
    layout layout;
} tensor_row;

static const tensor_row tensors[] = {
    {"a vector", {1, {37}}, 0, ROWS},
    {"rows of a matrix", {2, {33, 70}}, 0, ROWS},
    {"columns of a matrix", {2, {70, 33}}, 1, ROWS},
    {"a transposed matrix", {2, {33, 70}}, 1, REVERSED},
    {"a matrix with gaps", {2, {17, 29}}, 0, GAPS},
    {"filters, first dimension", {4, {17, 5, 3, 3}}, 0, STORAGE},
    {"filters, second dimension", {4, {17, 5, 3, 3}}, 1, STORAGE},
    {"filters, last dimension", {4, {17, 5, 3, 3}}, 3, STORAGE},
    {"a part of joined filters", {4, {3, 4, 5, 6}}, 0, JOINED},
    {"one element", {2, {1, 1}}, 0, ROWS},
    {"a long vector", {1, {601}}, 0, ROWS},
    {"more rows than a task takes", {2, {531, 19}}, 0, ROWS},
    {"more columns than a task takes", {2, {21, 1100}}, 1, GAPS},
    {"a long contraction", {2, {65, 600}}, 0, ROWS},
    {"filters, a dimension between", {4, {40, 33, 3, 3}}, 1, ROWS},
    {"filters, a window's dimension", {4, {40, 33, 3, 5}}, 2, STORAGE},
    {"four vectors", {2, {67, 4}}, 0, ROWS},
    {"four vectors of one block", {2, {32, 4}}, 0, ROWS},
    {"four vectors with gaps", {2, {67, 4}}, 0, GAPS},
    {"a window of nine", {3, {48, 9, 50}}, 1, ROWS},
    {"a window of eight with gaps", {3, {60, 8, 40}}, 1, GAPS},
    {"many rows and columns", {2, {520, 512}}, 0, ROWS},
};

/* Dimension of a call's second job, whose size differs from the first's. */
static int other_dim(const tensor_row *r)
{
    return (r->dim + 1) % r->g.ndim;
}

/* Variants of a gram job, encoded in the test's number times LT_MAX_DIMS: without scalars, in a step that is
 * or is not skipped, with and without the promise of finite values. */
enum { WITHOUT, STEP, STEP_OF_FINITE, SKIPPED, SKIPPED_OF_FINITE, GRAM_WAYS };

static lt_status call_gram(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                           bool absolute)
{
    (void)absolute;
    const int dim = t->config.dim % LT_MAX_DIMS, way = t->config.dim / LT_MAX_DIMS;
    const double beta = v[1].shape.dim[0] % 2 ? 0.9 : 0;
    const bool finite = way == STEP_OF_FINITE || way == SKIPPED_OF_FINITE;
    lt_scalars s = {.finite = way == STEP || way == STEP_OF_FINITE};
    const lt_gram_job job[] = {
        {v[0], v[1], dim, 0.25, beta, finite},
        {v[2], v[3], (dim + 1) % v[2].shape.ndim, dim % 2 ? 0.25 : 0.5, 0.5, finite}};
    if (way == WITHOUT)
        return be->gram(ctx, job, COUNT_OF(job), NULL);
    lt_scalars *device = scalars_new(be, ctx, &s);
    lt_status st = be->gram(ctx, job, COUNT_OF(job), device);
    scalars_free(be, ctx, device, &s);
    return st;
}

static void symmetrize(operand *o)
{
    const int64_t n = o->shape.dim[0];
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < i; j++)
            o->value[i * n + j] = o->value[j * n + i];
}

static void make_symmetric(test *t)
{
    symmetrize(&t->operand[1]);
    symmetrize(&t->operand[3]);
}

/* For even sizes beta is 0: the old contents, NaN, must not be read. */
static void make_symmetric_or_nan(test *t)
{
    operand *f = &t->operand[1];
    make_symmetric(t);
    for (int64_t i = 0; f->shape.dim[0] % 2 == 0 && i < operand_count(f); i++)
        f->value[i] = (double)NAN;
}

static void make_symmetric_and_nan(test *t)
{
    make_symmetric(t);
    t->operand[0].value[1] = t->operand[2].value[0] = (double)NAN;
}

static void make_gram(const tensor_row *r, int way, test *t)
{
    const int dim[2] = {r->dim, other_dim(r)};
    int64_t least = INT64_MAX;
    *t = (test){.entry = "gram", .call = call_gram, .operands = 4, .master = true};
    t->name = r->name;
    t->config.dim = r->dim + LT_MAX_DIMS * way;
    t->prepare = way == SKIPPED   ? make_symmetric_and_nan
                 : way == WITHOUT ? make_symmetric_or_nan
                                  : make_symmetric;
    t->exact = way == SKIPPED || way == SKIPPED_OF_FINITE;
    for (int k = 0; k < 2; k++) {
        const int64_t n = r->g.dim[dim[k]];
        t->operand[2 * k] = (operand){IN, MASTER, r->g, r->layout, .absolute = PLUS};
        t->operand[2 * k + 1] = (operand){INOUT, MASTER, LT_SHAPE(n, n), .absolute = PLUS};
        least = n < least ? n : least;
    }
    const int64_t summed = lt_shape_count(r->g) / least;
    t->terms = (double)summed + 3;
}

/* Variants of a product, encoded likewise. */
enum { PLAIN, TRANSPOSED, SKIPPED_PRODUCT };

static lt_status call_mode(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                           bool absolute)
{
    (void)absolute;
    const int dim = t->config.dim % LT_MAX_DIMS, way = t->config.dim / LT_MAX_DIMS;
    const bool transpose = way == TRANSPOSED;
    lt_scalars s = {.finite = way != SKIPPED_PRODUCT};
    const lt_mode_product_job job[] = {{v[0], v[2], v[1], dim, transpose},
                                       {v[0], v[5], v[4], (dim + 1) % v[0].shape.ndim, transpose},
                                       {v[0], v[3], v[1], dim, transpose}};
    if (way != SKIPPED_PRODUCT)
        return be->mode_product(ctx, job, COUNT_OF(job), NULL);
    lt_scalars *device = scalars_new(be, ctx, &s);
    lt_status st = be->mode_product(ctx, job, COUNT_OF(job), device);
    scalars_free(be, ctx, device, &s);
    return st;
}

static void make_mode(const tensor_row *r, int way, test *t)
{
    const bool transpose = way == TRANSPOSED, skipped = way == SKIPPED_PRODUCT;
    const int64_t n = r->g.dim[r->dim], other = r->g.dim[other_dim(r)];
    *t = (test){.entry = "mode_product", .call = call_mode, .operands = 6, .master = true};
    t->operand[0] = (operand){IN, MASTER, r->g, r->layout, .absolute = PLUS};
    t->operand[1] = (operand){IN, MASTER, LT_SHAPE(n, n), .absolute = PLUS};
    t->operand[4] = (operand){IN, MASTER, LT_SHAPE(other, other), .absolute = PLUS};
    for (int k = 2; k < 6; k += k == 3 ? 2 : 1)
        t->operand[k] = (operand){skipped ? INOUT : OUT, MASTER, r->g, transpose ? ROWS : r->layout,
                                  .absolute = PLUS};
    t->exact = skipped;
    t->config.dim = r->dim + LT_MAX_DIMS * way;
    t->terms = (double)(n > other ? n : other) + 1;
}

static lt_status call_norm(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                           bool absolute)
{
    (void)t;
    (void)absolute;
    return be->frobenius(ctx, v, 2, &v[2]);
}

static void make_norm(const tensor_row *r, test *t)
{
    *t = (test){.entry = "frobenius", .call = call_norm, .operands = 3, .master = true};
    t->operand[0] = (operand){IN, MASTER, r->g, r->layout, .absolute = PLUS};
    t->operand[1] = (operand){IN, MASTER, LT_SHAPE(5), .absolute = PLUS};
    t->operand[2] = (operand){OUT, DOUBLE, LT_SHAPE(2), .absolute = PLUS};
    t->terms = 0x1p-24 + 0x1p-29 * (double)lt_shape_count(r->g); /* summed in double */
}

static lt_status call_eigh(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                           bool absolute)
{
    (void)t;
    (void)absolute;
    lt_eigh_job job = {.a = v[0], .values = v[1], .vectors = v[2]};
    LT_TRY(be->eigh(ctx, &job, 1));
    return job.status;
}

static void make_input_symmetric(test *t)
{
    symmetrize(&t->operand[0]);
}

static void make_scaled(test *t, double factor)
{
    symmetrize(&t->operand[0]);
    for (int64_t i = 0; i < operand_count(&t->operand[0]); i++)
        t->operand[0].value[i] *= factor;
}

/* Rank 2: equal eigenvalues, and zeros. */
static void make_deficient(test *t)
{
    double *a = t->operand[0].value;
    int64_t n = t->operand[0].shape.dim[0];
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            a[i * n + j] = 1 + (double)i * (double)j / (double)(n * n);
}

/* Rank 40, with blocks of 32 columns reduced at once: the coupling to the remaining part must be kept. */
static void make_low_rank(test *t)
{
    enum { RANK = 40 };
    double *a = t->operand[0].value;
    const int64_t n = t->operand[0].shape.dim[0];
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++) {
            double product = 0;
            for (int64_t k = 1; k <= RANK; k++)
                product += sin(1.3 * (double)((i + 1) * k)) * sin(1.3 * (double)((j + 1) * k));
            a[i * n + j] = a[j * n + i] = product;
        }
}

/* Nothing to reduce, and unsorted values. */
static void make_diagonal(test *t)
{
    double *a = t->operand[0].value;
    const int64_t n = t->operand[0].shape.dim[0];
    for (int64_t i = 0; i < n * n; i++)
        a[i] = i % (n + 1) ? 0 : (double)(i / n * 37 % n);
}

/* Squares of such elements underflow in f32. */
static void make_tiny(test *t)
{
    make_scaled(t, 0x1p-110);
}

static void make_huge(test *t)
{
    make_scaled(t, 0x1p+110);
}

/* max |A V - V diag(values)| and max |V^T V - 1|, relative to |A| and n; order; values. */
static const char *check_eigh(const test *t, double *const *got, double *const *want)
{
    static char why[128];
    const double *a = t->operand[0].value, *l = got[1], *v = got[2];
    int64_t n = t->operand[0].shape.dim[0];
    double norm = 0, residual = 0, skew = 0, apart = 0;
    for (int64_t i = 0; i < n * n; i++) {
        double r = -l[i % n] * v[i], o = -(double)(i / n == i % n);
        for (int64_t k = 0; k < n; k++) {
            r += a[i / n * n + k] * v[k * n + i % n];
            o += v[k * n + i / n] * v[k * n + i % n];
        }
        norm += a[i] * a[i];
        residual = fmax(residual, fabs(r));
        skew = fmax(skew, fabs(o));
        if (r != r || o != o)
            return "not a number";
    }
    for (int64_t i = 0; i < n; i++) {
        apart = fmax(apart, fabs(l[i] - want[1][i]));
        if (i && l[i] < l[i - 1])
            return "the eigenvalues do not ascend";
    }
    double u = 4 * (double)n * 0x1p-24, bound = u * sqrt(norm);
    if (residual <= bound && skew <= u && apart <= bound)
        return NULL;
    snprintf(why, sizeof why, "residual %g, values apart %g, bound %g; orthogonal to %g, bound %g",
             residual, apart, bound, skew, u);
    return why;
}

static const struct {
    const char *name;
    int64_t n;
    prepare_fn *prepare;
} eighs[] = {
    {"one element", 1, NULL},
    {"odd size", 33, make_input_symmetric},
    {"rank deficient", 20, make_deficient},
    {"several panels", 131, make_input_symmetric},
    {"several panels of rank 2", 97, make_deficient},
    {"several panels of rank 40", 141, make_low_rank},
    {"a diagonal matrix", 70, make_diagonal},
    {"tiny elements", 40, make_tiny},
    {"huge elements", 40, make_huge},
};

static void make_eigh(size_t i, test *t)
{
    const int64_t n = eighs[i].n;
    *t = (test){.entry = "eigh", .call = call_eigh, .operands = 3, .master = true};
    t->name = eighs[i].name;
    t->prepare = eighs[i].prepare;
    t->check = check_eigh;
    t->operand[0] = (operand){IN, MASTER, LT_SHAPE(n, n), .absolute = PLUS};
    t->operand[1] = (operand){OUT, MASTER, LT_SHAPE(n), .absolute = PLUS};
    t->operand[2] = (operand){OUT, MASTER, LT_SHAPE(n, n), .absolute = PLUS};
}

/* Tests of each row of tensors, and of each row of step_tensors. */
enum { TENSOR_TESTS = 4, STEP_TESTS = GRAM_WAYS - STEP + 1 };

static void make_tensor_test(size_t i, test *t)
{
    const tensor_row *r = &tensors[i / TENSOR_TESTS];
    switch (i % TENSOR_TESTS) {
    case 0:
        make_gram(r, WITHOUT, t);
        break;
    case 1:
        make_norm(r, t);
        break;
    default:
        make_mode(r, i % TENSOR_TESTS == 2 ? PLAIN : TRANSPOSED, t);
    }
    t->name = r->name;
}

static const tensor_row step_tensors[] = {
    {"rows in a step", {2, {33, 70}}, 0, ROWS},
    {"a matrix with gaps in a step", {2, {17, 29}}, 0, GAPS},
    {"a window in a step", {3, {48, 9, 50}}, 1, ROWS},
    {"many rows in a step", {2, {520, 512}}, 0, ROWS},
};

static void make_step_test(size_t i, test *t)
{
    const tensor_row *r = &step_tensors[i / STEP_TESTS];
    const int way = STEP + (int)(i % STEP_TESTS);
    if (way < GRAM_WAYS)
        make_gram(r, way, t);
    else
        make_mode(r, SKIPPED_PRODUCT, t);
    t->name = r->name;
}

bool matrix_tests(size_t i, test *t)
{
    if (within(&i, COUNT_OF(vecs) * COUNT_OF(storages)))
        make_vec(&vecs[i / COUNT_OF(storages)], storages[i % COUNT_OF(storages)], t);
    else if (within(&i, COUNT_OF(tensors) * TENSOR_TESTS))
        make_tensor_test(i, t);
    else if (within(&i, COUNT_OF(step_tensors) * STEP_TESTS))
        make_step_test(i, t);
    else if (within(&i, COUNT_OF(lists)))
        make_list(i, t);
    else if (within(&i, COUNT_OF(lists) + COUNT_OF(normed) - 1))
        make_norms(i, t);
    else if (within(&i, COUNT_OF(eighs)))
        make_eigh(i, t);
    else
        return false;
    return true;
}
