/* Rows of kernels for inverse roots: sums of shifted inverses, QR, Ritz values. */

#include "conform.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct rational_row {
    const char *name;
    int64_t n;
    int poles;
    double wide_below;
    bool scaled; /* all numbers are relative to a unit in device memory */
} rational_row;

static const rational_row rows[] = {
    {"one element", 1, 1, 0, false},
    {"more terms than are taken at once", 2, 3, 0, false},
    {"less than a block", 33, 3, 0, false},
    {"one block", 64, 2, 0, false},
    {"two blocks and a row", 129, 3, 0, false},
    {"in double", 65, 2, 1e9, false},
    {"some of it in double", 65, 3, 0.3, false},
    {"blocks on the diagonal", 300, 2, 0, false},
    {"blocks on the diagonal, an odd size", 261, 1, 0, false},
    {"blocks on the diagonal, some of it in double", 400, 2, 0.3, false},
    {"blocks of blocks", 516, 1, 0, false},
    {"blocks that may be rounded", 300, 3, 1e-3, false},
    {"no terms", 33, 0, 0, false},
    {"in a unit on the device", 65, 3, 0.3, true},
    {"in a unit on the device, blocks on the diagonal", 300, 2, 0, true},
    {"in a unit on the device, no terms", 7, 0, 0, true},
    {"not positive definite", 40, 2, 0, false},
    {"not positive definite, last block", 130, 2, 1, false},
    {"not positive definite, last block of many", 260, 1, 0, false},
    {"not positive definite in a unit on the device", 40, 2, 0, true},
};

static const double weights[] = {0.5, 2, 0.25}, shifts[] = {0.1, 0.4, 3};

enum { MANY = 1, INDEFINITE = 16 }; /* the row with many jobs; rows from here on are indefinite */
static const double unit = 1.5, exponent = 0.25;
enum { MOST_JOBS = 400, COUPLED = 256 };

static lt_status call(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                      bool absolute)
{
    (void)absolute;
    const rational_row *r = &rows[t->config.dim];
    static lt_rational_job job[MOST_JOBS];
    const size_t count = t->config.dim == MANY ? MOST_JOBS : 2, last = count - 1;
    job[0] = (lt_rational_job){.a = v[0], .y = v[1], .poles = r->poles, .constant = 0.75};
    job[0].wide_below = r->wide_below;
    job[0].exponent = exponent;
    job[0].scale = r->scaled ? v[3].data : NULL;
    for (int j = 0; j < r->poles; j++) {
        job[0].weight[j] = weights[j];
        job[0].shift[j] = shifts[j];
    }
    const int64_t square = r->n * r->n;
    for (size_t i = 0; i < last; i++) {
        job[i] = job[0];
        job[i].y.shape = LT_SHAPE(r->n, r->n);
        job[i].y.data = (char *)v[1].data + i * (size_t)square * lt_dtype_size(v[1].dtype);
    }
    job[last] = job[0];
    job[last].y = v[2];
    LT_TRY(be->rational(ctx, job, count));
    if (t->config.dim < INDEFINITE || r->scaled)
        return job[0].status ? job[0].status : job[last].status;
    if (!job[0].status || !job[last].status)
        return lt_fail(LT_E_ARG, "an indefinite matrix was inverted");
    /* The smaller one is definite, and comes first. Other outputs are undefined, equally on both sides. */
    lt_rational_job sizes[] = {job[0], job[last]};
    sizes[0].a.shape = sizes[0].y.shape = LT_SHAPE(1, 1);
    LT_TRY(be->fill(ctx, 0, &v[1]));
    LT_TRY(be->rational(ctx, sizes, 2));
    LT_TRY(be->fill(ctx, 0, &v[2]));
    if (sizes[0].status || !sizes[1].status)
        return lt_fail(LT_E_ARG, "matrices of two sizes have each other's status");
    return LT_OK;
}

/* Symmetric with eigenvalues in 1 .. 3 and large off-diagonal blocks. */
static void make_definite(double *a, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++)
            a[i * n + j] = a[j * n + i] = i == j             ? 2
                                          : i - j == COUPLED ? 0.6
                                                             : a[i * n + j] / (double)n;
}

/* Or with a negative last eigenvalue. */
static void prepare(test *t)
{
    const int64_t n = t->operand[0].shape.dim[0];
    make_definite(t->operand[0].value, n);
    if (t->config.dim >= INDEFINITE)
        t->operand[0].value[n * n - 1] = -3.5;
}

/* An inverse with condition c has a relative error of a few n c u. unit: eigenvalues are at least 1 / unit;
 * rounds: factors may be rounded to 11 bits if the condition is small. */
static double bound_of(int64_t n, int poles, double in_unit, bool rounds)
{
    double size = 0.75;
    for (int j = 0; j < poles; j++)
        size += weights[j] / (1 + shifts[j]) * (3 + shifts[j]) / (1 + shifts[j]);
    size *= in_unit;
    return 4 * (4 + sqrt((double)n)) * 0x1p-24 * size + (rounds ? 4 * 0x1p-11 * size : 0);
}

/* Returns the largest difference, infinite for NaN. */
static double distance(const double *got, const double *want, int64_t count)
{
    double apart = 0;
    for (int64_t i = 0; i < count; i++) {
        const double d = fabs(got[i] - want[i]);
        apart = d >= 0 ? fmax(apart, d) : HUGE_VAL;
    }
    return apart;
}

static const char *check(const test *t, double *const *got, double *const *want)
{
    static char why[128];
    const rational_row *r = &rows[t->config.dim];
    if (t->config.dim >= INDEFINITE && r->scaled)
        return isnan(got[1][0]) && isnan(got[2][0]) ? NULL : "an indefinite matrix was inverted";
    const double bound = bound_of(t->operand[0].shape.dim[0], r->poles, r->scaled ? unit : 1,
                                  t->tf32 && r->wide_below > 0);
    double apart = 0;
    for (int k = 1; k < 3; k++)
        apart = fmax(apart, distance(got[k], want[k], operand_count(&t->operand[k])));
    if (apart <= bound)
        return NULL;
    snprintf(why, sizeof why, "apart by %g, bound %g", apart, bound);
    return why;
}

/* --- Sizes in one call: one block on the diagonal or several, of which the last is narrow, some with rows that TF32 cannot read --- */

static const int64_t sides[] = {772, 64, 300, 261, 300, 256};
enum { SIDES = COUNT_OF(sides), SIDES_POLES = COUNT_OF(shifts) };

/* Terms are floats, of which some may be rounded, or one is in double. */
static lt_status call_sizes(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                            bool absolute)
{
    (void)absolute;
    (void)t;
    lt_rational_job job[SIDES];
    int64_t at = 0;
    for (int i = 0; i < SIDES; i++) {
        const size_t bytes = (size_t)at * lt_dtype_size(v[0].dtype);
        job[i] = (lt_rational_job){.a = v[0], .y = v[1], .poles = SIDES_POLES, .constant = 0.75};
        job[i].a.data = (char *)v[0].data + bytes;
        job[i].y.data = (char *)v[1].data + bytes;
        job[i].a.shape = job[i].y.shape = LT_SHAPE(sides[i], sides[i]);
        job[i].a.stride[0] = job[i].y.stride[0] = sides[i];
        job[i].a.stride[1] = job[i].y.stride[1] = 1;
        job[i].wide_below = i % 2 ? 0.2 : 1e-3;
        memcpy(job[i].weight, weights, sizeof weights);
        memcpy(job[i].shift, shifts, sizeof shifts);
        at += sides[i] * sides[i];
    }
    LT_TRY(be->rational(ctx, job, SIDES));
    for (int i = 0; i < SIDES; i++)
        LT_TRY(job[i].status);
    return LT_OK;
}

static void prepare_sizes(test *t)
{
    double *a = t->operand[0].value;
    for (int i = 0; i < SIDES; a += sides[i] * sides[i], i++)
        make_definite(a, sides[i]);
}

static const char *check_sizes(const test *t, double *const *got, double *const *want)
{
    static char why[128];
    int64_t at = 0;
    for (int i = 0; i < SIDES; at += sides[i] * sides[i], i++) {
        const double bound = bound_of(sides[i], SIDES_POLES, 1, t->tf32);
        const double apart = distance(got[1] + at, want[1] + at, sides[i] * sides[i]);
        if (apart <= bound)
            continue;
        snprintf(why, sizeof why, "number %d, of side %d: apart by %g, bound %g", i, (int)sides[i],
                 apart, bound);
        return why;
    }
    return NULL;
}

static bool sizes_test(test *t)
{
    int64_t elements = 0;
    for (int i = 0; i < SIDES; i++)
        elements += sides[i] * sides[i];
    *t = (test){.entry = "rational",
                .name = "sizes on both sides of a block",
                .call = call_sizes,
                .prepare = prepare_sizes,
                .check = check_sizes,
                .operands = 2,
                .master = true};
    t->operand[0] = (operand){IN, MASTER, LT_SHAPE(elements), .absolute = PLUS};
    t->operand[1] = (operand){OUT, MASTER, LT_SHAPE(elements), .absolute = PLUS};
    return true;
}

/* --- Orthonormal columns --- */

static lt_status call_qr(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                         bool absolute)
{
    (void)t;
    (void)absolute;
    const lt_qr_job job = {.a = v[0], .q = v[1]};
    return be->qr(ctx, &job, 1);
}

/* Unsorted and unequal diagonals; a column of zeros would have any direction. */
static void prepare_columns(test *t)
{
    double *a = t->operand[0].value;
    const int64_t n = t->operand[0].shape.dim[0];
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++)
            a[i * n + j] = a[j * n + i] =
                i == j ? 1 + (double)(i * 7 % n) / (double)n : a[i * n + j] / (8 * (double)n);
}

/* For matrices this close to a diagonal, results are within a few n u. */
static const char *check_near(const test *t, double *const *got, double *const *want)
{
    static char why[128];
    const int64_t n = t->operand[0].shape.dim[0];
    double apart = 0;
    for (int64_t i = 0; i < n * n; i++) {
        const double d = fabs(got[1][i] - want[1][i]);
        apart = d >= 0 ? fmax(apart, d) : HUGE_VAL;
    }
    const double bound = 8 * (double)(n + 8) * 0x1p-24;
    if (apart <= bound)
        return NULL;
    snprintf(why, sizeof why, "apart by %g, bound %g", apart, bound);
    return why;
}

enum { QR_SIZES = 3 };

static bool qr_test(size_t i, test *t)
{
    static const int64_t sizes[QR_SIZES] = {1, 19, 64};
    const int64_t n = sizes[i];
    *t = (test){.entry = "qr", .call = call_qr, .operands = 2, .master = true};
    t->name = n == 1 ? "one element" : n == 19 ? "odd size" : "a complete block";
    t->prepare = prepare_columns;
    t->check = check_near;
    t->operand[0] = (operand){IN, MASTER, LT_SHAPE(n, n), .absolute = PLUS};
    t->operand[1] = (operand){OUT, MASTER, LT_SHAPE(n, n), .absolute = PLUS};
    return true;
}

/* --- Ritz values --- */

typedef struct ritz_row {
    const char *name;
    int parts;
    double lowest; /* eigenvalues are lowest to 1 */
} ritz_row;

static const ritz_row ritzes[] = {
    {"one part", 1, 0.1}, {"some parts", 5, 0.1}, {"one eigenvalue", 2, 1}, {"zeros", 2, 0}};

/* The second job has only the first part, and no bound. */
static lt_status call_ritz(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                           bool absolute)
{
    (void)absolute;
    lt_ritz_job job[2] = {{.product = v[0], .bound = v[1].data, .value = v[2].data},
                          {.product = v[0], .value = (double *)v[2].data + 1}};
    (void)t;
    job[1].product.shape.dim[0] = 1;
    return be->ritz(ctx, job, 2);
}

/* Products of [X, B X, B^2 X] with themselves, B diagonal; each part is made of ROWS_OF_PART rows. */
static void prepare_ritz(test *t)
{
    enum { ROWS_OF_PART = 40, SIDE = LT_RITZ_COLUMNS };
    const ritz_row *r = &ritzes[t->config.dim];
    double *product = t->operand[0].value, z[SIDE];
    const int rows_of_all = ROWS_OF_PART * r->parts;
    for (int64_t i = 0; i < operand_count(&t->operand[0]); i++)
        product[i] = 0;
    for (int i = 0; i < rows_of_all; i++) {
        const double b = r->lowest + (1 - r->lowest) * i / (rows_of_all - 1);
        for (int k = 0; k < SIDE; k++)
            z[k] = k < LT_RITZ_VECTORS ? (r->lowest > 0) * sin(1 + 1.7 * k + (k + 0.3) * i)
                                       : b * z[k - LT_RITZ_VECTORS];
        double *part = product + (int64_t)(i / ROWS_OF_PART) * SIDE * SIDE;
        for (int k = 0; k < SIDE * SIDE; k++)
            part[k] += z[k / SIDE] * z[k % SIDE];
    }
}

/* Within two bisection steps; for zeros exactly the bound. */
static const char *check_ritz(const test *t, double *const *got, double *const *want)
{
    static char why[128];
    const double bound[] = {t->operand[1].value[0], 1};
    for (int i = 0; i < 2; i++) {
        const double most = ritzes[t->config.dim].lowest > 0 ? 0x1p-23 * bound[i] : 0;
        if (fabs(got[2][i] - want[2][i]) <= most && want[2][i] <= 1.001 * bound[i])
            continue;
        snprintf(why, sizeof why, "job %d: %g instead of %g", i, got[2][i], want[2][i]);
        return why;
    }
    return NULL;
}

static bool ritz_test(size_t i, test *t)
{
    const ritz_row *r = &ritzes[i];
    *t = (test){.entry = "ritz", .name = r->name, .call = call_ritz, .operands = 3, .master = true};
    t->config.dim = (int)i;
    t->prepare = prepare_ritz;
    t->check = check_ritz;
    t->operand[0] = (operand){IN, DOUBLE, LT_SHAPE(r->parts, LT_RITZ_COLUMNS, LT_RITZ_COLUMNS),
                              .absolute = PLUS};
    t->operand[1] = (operand){IN, DOUBLE, LT_SHAPE(1), ROWS, PLUS, 3, 5, NULL};
    t->operand[2] = (operand){OUT, DOUBLE, LT_SHAPE(2), .absolute = PLUS};
    return true;
}

bool rational_tests(size_t i, test *t)
{
    const size_t bases = COUNT_OF(rows) + QR_SIZES;
    if (i >= bases + COUNT_OF(ritzes))
        return i == bases + COUNT_OF(ritzes) && sizes_test(t);
    if (i >= bases)
        return ritz_test(i - bases, t);
    if (i >= COUNT_OF(rows))
        return qr_test(i - COUNT_OF(rows), t);
    const rational_row *r = &rows[i];
    *t = (test){.entry = "rational", .name = r->name, .call = call, .operands = 3, .master = true};
    t->config.dim = (int)i;
    t->prepare = prepare;
    t->check = check;
    t->operand[0] = (operand){IN, MASTER, LT_SHAPE(r->n, r->n), .absolute = PLUS};
    t->operand[1] = (operand){OUT, MASTER, LT_SHAPE(r->n, r->n), .absolute = PLUS};
    t->operand[2] = t->operand[1];
    if (r->scaled)
        t->operand[t->operands++] =
            (operand){IN, DOUBLE, LT_SHAPE(1), ROWS, KEEP, unit, unit, NULL};
    if (i == MANY)
        t->operand[1].shape = LT_SHAPE((MOST_JOBS - 1) * r->n, r->n);
    return true;
}
