/* Inverse roots and eigenbases by every solver. */

#include "near.h"
#include "optim/shampoo/root/fit.h"
#include "optim/shampoo/root/root.h"

#include <math.h>
#include <string.h>

enum { MOST = 96 * 96 };

static const lt_root_solver root_solvers[] = {LT_ROOT_EIGH, LT_ROOT_NEWTON, LT_ROOT_HIGHER_ORDER,
                                              LT_ROOT_NEWTON_DB, LT_ROOT_RATIONAL};

/* --- One matrix on a device --- */

typedef struct problem {
    lt_device *device;
    lt_tensor *a, *old, *out, *power;
    lt_shampoo_config config;
    lt_root_job job;
    lt_root_stats stats;
    int64_t n;
} problem;

static void write_doubles(lt_tensor *to, const double *from)
{
    lt_tensor *wide = NULL;
    assert_ok(lt_tensor_new(&wide, lt_tensor_device(to), LT_F64, lt_tensor_shape(to)));
    assert_ok(lt_tensor_write(wide, from, lt_tensor_bytes(wide)));
    assert_ok(lt_tensor_copy(to, wide));
    lt_tensor_free(&wide);
}

static void read_doubles(const lt_tensor *from, double *to)
{
    lt_tensor *wide = NULL;
    assert_ok(lt_tensor_new(&wide, lt_tensor_device(from), LT_F64, lt_tensor_shape(from)));
    assert_ok(lt_tensor_copy(wide, from));
    assert_ok(lt_tensor_read(wide, to, lt_tensor_bytes(wide)));
    lt_tensor_free(&wide);
}

static void open_problem(problem *p, const char *device, bool f64, int64_t n, const double *a)
{
    *p = (problem){.config = LT_SHAMPOO_DEFAULTS, .n = n};
    const lt_device_config config = {.f64 = f64, .threads = 1};
    assert_ok(lt_device_open(&p->device, device, &config));
    const lt_dtype dtype = f64 ? LT_F64 : LT_F32;
    assert_ok(lt_tensor_new(&p->a, p->device, dtype, LT_SHAPE(n, n)));
    assert_ok(lt_tensor_new(&p->old, p->device, dtype, LT_SHAPE(n, n)));
    assert_ok(lt_tensor_new(&p->out, p->device, dtype, LT_SHAPE(n, n)));
    assert_ok(lt_tensor_new(&p->power, p->device, dtype, LT_SHAPE(n)));
    write_doubles(p->a, a);
}

static void close_problem(problem *p)
{
    lt_tensor_free(&p->a);
    lt_tensor_free(&p->old);
    lt_tensor_free(&p->out);
    lt_tensor_free(&p->power);
    lt_device_close(&p->device);
}

static lt_status run(problem *p, lt_root_solver solver, double exponent, bool has_old)
{
    p->config.root_solver = solver;
    p->stats = (lt_root_stats){0};
    p->job = (lt_root_job){.a = lt_tensor_view(p->a),
                           .exponent = exponent,
                           .out = lt_tensor_view(p->out),
                           .power = lt_tensor_view(p->power),
                           .param = "layer.weight",
                           .block = 3,
                           .dim = 1};
    if (has_old)
        p->job.old = lt_tensor_view(p->old);
    const lt_root_context context = {
        .config = &p->config, .device = p->device, .step = 7, .stats = &p->stats};
    return lt_root_run(&context, &p->job, 1);
}

/* --- Arithmetic of the tests --- */

static void multiply(const double *a, const double *b, int64_t n, double *y)
{
    for (int64_t i = 0; i < n * n; i++) {
        y[i] = 0;
        for (int64_t k = 0; k < n; k++)
            y[i] += a[i / n * n + k] * b[k * n + i % n];
    }
}

/* |R^p A - I| / sqrt(n), Frobenius. */
static double residual_of(const double *a, const double *r, int power, int64_t n)
{
    static double x[MOST], y[MOST];
    double square = 0;
    memcpy(x, a, (size_t)(n * n) * sizeof *x);
    for (int k = 0; k < power; k++) {
        multiply(r, x, n, y);
        memcpy(x, y, (size_t)(n * n) * sizeof *x);
    }
    for (int64_t i = 0; i < n * n; i++)
        square += (x[i] - (i % (n + 1) == 0)) * (x[i] - (i % (n + 1) == 0));
    return sqrt(square / (double)n);
}

/* Eigenvalues 1 .. 1/condition, of which those from rank on are 0, in a basis of reflections. */
static void make_matrix(double *a, int64_t n, double condition, int64_t rank)
{
    memset(a, 0, (size_t)(n * n) * sizeof *a);
    for (int64_t i = 0; i < rank; i++)
        a[i * (n + 1)] = pow(condition, -(double)i / (double)(n - 1));
    for (int k = 0; k < 3; k++) {
        double v[96], w[96], square = 0, middle = 0;
        for (int64_t i = 0; i < n; i++) {
            v[i] = sin(1 + (double)i * (1.7 + k) + (double)(i * i) * 0.3);
            square += v[i] * v[i];
        }
        for (int64_t i = 0; i < n; i++) {
            w[i] = 0;
            for (int64_t j = 0; j < n; j++)
                w[i] += a[i * n + j] * v[j];
            middle += v[i] * w[i];
        }
        for (int64_t i = 0; i < n * n; i++)
            a[i] += 4 * middle / square / square * v[i / n] * v[i % n]
                    - 2 / square * (v[i / n] * w[i % n] + w[i / n] * v[i % n]);
    }
}

static bool can(lt_root_solver solver, double exponent)
{
    lt_shampoo_config c = LT_SHAMPOO_DEFAULTS;
    c.root_solver = solver;
    return !lt_root_check(&c, exponent);
}

/* --- Known answers --- */

static void integer_roots_of_a_badly_conditioned_matrix(void **state)
{
    (void)state;
    const double a[] = {1195, -944, -224, -944, 746, 177, -224, 177, 42};
    const double root[] = {1, 1, 1, 1, 2, -3, 1, -3, 18};
    for (size_t k = 0; k < COUNT_OF(root_solvers); k++) {
        problem p;
        double damped[9], got[9];
        memcpy(damped, a, sizeof a);
        for (int i = 0; i < 9; i += 4)
            damped[i] -= 1e-3; /* what epsilon brings back */
        open_problem(&p, "ref", true, 3, damped);
        p.config.epsilon = 1e-3;
        p.config.solver_tolerance = 1e-6;
        assert_ok(run(&p, root_solvers[k], 0.5, false));
        assert_int_equal(p.job.status, LT_OK);
        assert_int_equal(p.job.used, root_solvers[k]);
        read_doubles(p.out, got);
        for (int i = 0; i < 9; i++)
            assert_near(got[i], root[i], 1e-5);
        close_problem(&p);
    }
}

static void the_identity_is_its_own_root(void **state)
{
    (void)state;
    static const int powers[] = {1, 2, 4, 8};
    double a[100] = {0}, got[100];
    for (int i = 0; i < 10; i++)
        a[i * 11] = 1;
    for (size_t k = 0; k < COUNT_OF(root_solvers) * COUNT_OF(powers); k++) {
        const lt_root_solver solver = root_solvers[k / COUNT_OF(powers)];
        const int power = powers[k % COUNT_OF(powers)];
        if (!can(solver, 1.0 / power))
            continue;
        problem p;
        open_problem(&p, "ref", true, 10, a);
        p.config.epsilon = 1e-9;
        p.config.solver_tolerance = 1e-5;
        assert_ok(run(&p, solver, 1.0 / power, false));
        assert_int_equal(p.job.used, solver);
        read_doubles(p.out, got);
        for (int i = 0; i < 100; i++)
            assert_near(got[i], i % 11 == 0, 1e-5);
        close_problem(&p);
    }
}

/* Diagonal alpha, beta beside it; corner: 1 on both ends gets + beta, -1 the first gets - beta. */
static void tridiagonal_families(void **state)
{
    (void)state;
    static const double sizes[] = {1e-3, 0.1, 1, 100};
    enum { N = 10, SIZES = COUNT_OF(sizes) };
    double a[N * N], r[N * N];
    for (size_t k = 0; k < COUNT_OF(root_solvers) * SIZES * SIZES * 2; k++) {
        const double alpha = sizes[k % SIZES], beta = sizes[k / SIZES % SIZES];
        const int corner = k / SIZES / SIZES % 2 ? 1 : -1;
        const lt_root_solver solver = root_solvers[k / SIZES / SIZES / 2];
        if (2 * beta > alpha)
            continue;
        memset(a, 0, sizeof a);
        for (int i = 0; i < N; i++) {
            a[i * (N + 1)] = alpha;
            if (i)
                a[i * (N + 1) - 1] = a[(i - 1) * (N + 1) + 1] = beta;
        }
        a[0] += corner * beta;
        a[N * N - 1] += corner > 0 ? beta : 0;
        problem p;
        open_problem(&p, "ref", true, N, a);
        p.config.epsilon = 1e-5 * alpha;
        p.config.solver_tolerance = 1e-4;
        assert_ok(run(&p, solver, 0.25, false));
        assert_int_equal(p.job.used, solver);
        read_doubles(p.out, r);
        for (int i = 0; i < N; i++)
            a[i * (N + 1)] += p.config.epsilon;
        assert_true(residual_of(a, r, 4, N) <= 1e-4);
        for (int i = 0; i < N * N; i++)
            r[i] *= 1.001;
        assert_false(residual_of(a, r, 4, N) <= 1e-4); /* the control */
        close_problem(&p);
    }
}

/* In f32 an eigenvalue is known to u |A|: the residual's bound is the tolerance of an iteration
 * plus p n^(1/2) u condition. */
static void residuals_over_condition_numbers(void **state)
{
    (void)state;
    static const struct {
        double condition;
        int64_t rank;
    } rows[] = {{1e2, 96}, {1e4, 96}, {1e6, 96}, {1e8, 96}, {1e4, 24}};
    enum { N = 96 };
    static double a[N * N], r[N * N];
    const double epsilon = 1e-5, u = 0x1p-24;
    for (size_t k = 0; k < COUNT_OF(root_solvers) * COUNT_OF(rows); k++) {
        const lt_root_solver solver = root_solvers[k / COUNT_OF(rows)];
        const size_t row = k % COUNT_OF(rows);
        problem p;
        make_matrix(a, N, rows[row].condition, rows[row].rank);
        open_problem(&p, "cpu", false, N, a);
        p.config.epsilon = epsilon;
        p.config.epsilon_rule = LT_EPSILON_RELATIVE;
        assert_ok(run(&p, solver, 0.25, false));
        assert_int_equal(p.job.status, LT_OK);
        read_doubles(p.out, r);
        for (int i = 0; i < N; i++)
            a[i * (N + 1)] += epsilon; /* the largest eigenvalue is 1 */
        const double tolerance = lt_root_method_of(solver)->tolerance;
        const double bound = tolerance + 4 * sqrt(N) * u / epsilon;
        assert_true(residual_of(a, r, 4, N) <= bound);
        close_problem(&p);
    }
}

static void a_zero_matrix_has_the_root_that_eigh_gives_it(void **state)
{
    (void)state;
    double a[16] = {0}, got[16];
    for (size_t k = 0; k < COUNT_OF(root_solvers); k++) {
        problem p;
        open_problem(&p, "ref", true, 4, a);
        p.config.epsilon = 1e-4;
        assert_ok(run(&p, root_solvers[k], 0.25, false));
        read_doubles(p.out, got);
        for (int i = 0; i < 16; i++)
            assert_near(got[i], i % 5 ? 0 : 10, 0.3);
        close_problem(&p);
    }
}

/* --- What fails --- */

static void a_residual_above_the_tolerance_is_eighs(void **state)
{
    (void)state;
    enum { N = 12 };
    double a[N * N], r[N * N];
    make_matrix(a, N, 1e4, N);
    problem p;
    open_problem(&p, "ref", false, N, a);
    p.config.epsilon = 1e-6;
    p.config.solver_iterations = 2; /* far too few */
    assert_ok(run(&p, LT_ROOT_NEWTON, 0.25, false));
    assert_int_equal(p.job.status, LT_OK);
    assert_int_equal(p.job.used, LT_ROOT_EIGH);
    assert_int_equal(p.stats.fallbacks, 1);
    read_doubles(p.out, r);
    assert_true(residual_of(a, r, 4, N) <= 0.05);
    close_problem(&p);
}

static void a_matrix_that_is_not_finite_is_named(void **state)
{
    (void)state;
    double a[4] = {1, 0, 0, NAN};
    problem p;
    open_problem(&p, "ref", false, 2, a);
    assert_status(run(&p, LT_ROOT_RATIONAL, 0.5, false), LT_E_ARG);
    assert_non_null(strstr(lt_error_message(), "layer.weight block 3, dimension 1"));
    assert_non_null(strstr(lt_error_message(), "step 7"));
    close_problem(&p);
}

static void what_a_solver_cannot_do_is_an_error_at_construction(void **state)
{
    (void)state;
    static const struct {
        lt_root_solver solver;
        double exponent;
        lt_preconditioner kind;
        lt_epsilon_rule rule;
        const char *says;
    } rows[] = {
        {LT_ROOT_NEWTON, 0.3, 0, 0, "is not 1/p"},
        {LT_ROOT_HIGHER_ORDER, 0.1234567, 0, 0, "is not q/p"},
        {LT_ROOT_NEWTON_DB, 1.0 / 6, 0, 0, "is not 1/2 or 1/4"},
        {LT_ROOT_RATIONAL, 1.5, 0, 0, "(0,1]"},
        {LT_ROOT_NEWTON, 0.5, 0, LT_EPSILON_PSEUDO_INVERSE, "pseudo_inverse"},
        {LT_ROOT_RATIONAL, 0.5, LT_PRECONDITIONER_CORRECTED, 0, "eigenvectors"},
        {LT_ROOT_QR, 0.5, LT_PRECONDITIONER_ROOT, 0, "eigenvectors"},
        {LT_ROOT_TRACKED, 0.5, LT_PRECONDITIONER_KL, 0, "eigenvectors"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        lt_shampoo_config c = LT_SHAMPOO_DEFAULTS;
        c.root_solver = rows[i].solver;
        c.preconditioner = rows[i].kind;
        c.epsilon_rule = rows[i].rule;
        assert_status(lt_root_check(&c, rows[i].exponent), LT_E_ARG);
        assert_non_null(strstr(lt_error_message(), rows[i].says));
    }
}

/* --- Series of every order --- */

static void coupled_iterations_of_every_order(void **state)
{
    (void)state;
    enum { N = 12 };
    double a[N * N], r[N * N];
    make_matrix(a, N, 1e3, N);
    for (int order = 2; order <= 6; order++) {
        problem p;
        open_problem(&p, "ref", true, N, a);
        p.job.exponent = 0.25;
        lt_root_item item = {
            .job = &p.job, .n = N, .a = lt_tensor_view(p.a), .result = lt_tensor_view(p.out)};
        const lt_root_set set = {.config = &p.config,
                                 .device = p.device,
                                 .be = p.device->backend,
                                 .ctx = p.device->ctx,
                                 .dtype = LT_F64,
                                 .item = &item,
                                 .count = 1};
        assert_ok(lt_root_coupled(&set, order));
        read_doubles(p.out, r);
        assert_true(residual_of(a, r, 4, N) <= 1e-6);
        assert_near(p.job.residual, 0, 1e-6);
        close_problem(&p);
    }
}

/* --- Eigenbases --- */

static double off_diagonal(const double *a, const double *q, int64_t n)
{
    static double x[MOST], s[MOST], t[MOST];
    double off = 0, all = 0;
    for (int64_t i = 0; i < n * n; i++)
        t[i] = q[i % n * n + i / n];
    multiply(a, q, n, x);
    multiply(t, x, n, s);
    for (int64_t i = 0; i < n * n; i++) {
        all += s[i] * s[i];
        off += i % (n + 1) ? s[i] * s[i] : 0;
    }
    return sqrt(off / all);
}

static void bases_follow_a_matrix_that_moves(void **state)
{
    (void)state;
    static const lt_root_solver solvers[] = {LT_ROOT_QR, LT_ROOT_TRACKED};
    enum { N = 16 };
    double a[N * N], moved[N * N], q[N * N], next[N * N];
    make_matrix(a, N, 1e3, N);
    memcpy(moved, a, sizeof a);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            moved[i * N + j] += 0.02 * sin(i + 1.0) * sin(j + 1.0) / N;
    for (size_t k = 0; k < COUNT_OF(solvers); k++) {
        problem p;
        open_problem(&p, "ref", true, N, a);
        p.config.preconditioner = LT_PRECONDITIONER_CORRECTED;
        p.config.epsilon = 1e-9;
        assert_ok(run(&p, solvers[k], 0.5, false));
        assert_int_equal(p.job.used, LT_ROOT_EIGH); /* nothing to begin from */
        read_doubles(p.out, q);
        write_doubles(p.old, q);
        const double before = off_diagonal(moved, q, N);
        write_doubles(p.a, moved);
        assert_ok(run(&p, solvers[k], 0.5, true));
        assert_int_equal(p.job.used, solvers[k]);
        read_doubles(p.out, next);
        assert_true(off_diagonal(moved, next, N) < 0.7 * before);
        assert_near(p.job.residual, off_diagonal(moved, next, N), 1e-6);
        for (int j = 0; j < N; j++) { /* unit columns */
            double square = 0;
            for (int i = 0; i < N; i++)
                square += next[i * N + j] * next[i * N + j];
            assert_near(square, 1, 1e-6);
        }
        close_problem(&p);
    }
}

/* --- The fit --- */

static void fits_are_as_good_as_they_say(void **state)
{
    (void)state;
    static const double exponents[] = {0.25, 0.5, 1.0 / 6, 0.455}, tolerances[] = {0.02, 1e-3};
    for (size_t k = 0; k < COUNT_OF(exponents) * COUNT_OF(tolerances) * 4; k++) {
        const double e = exponents[k % 4], tolerance = tolerances[k / 4 % 2];
        const double range = pow(10, 2 + 3 * (double)(k / 8));
        const lt_fit f = lt_fit_power(e, range, tolerance);
        assert_true(f.poles >= 1 && f.poles <= LT_MAX_POLES);
        assert_true(f.error <= tolerance);
        for (int i = 0; i < 1000; i++) {
            const double x = pow(range, i / 999.0);
            double sum = f.constant;
            for (int j = 0; j < f.poles; j++)
                sum += f.weight[j] / (x + f.shift[j]);
            assert_true(fabs(sum * pow(x, e) - 1) <= 1.01 * f.error);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integer_roots_of_a_badly_conditioned_matrix),
        cmocka_unit_test(the_identity_is_its_own_root),
        cmocka_unit_test(tridiagonal_families),
        cmocka_unit_test(residuals_over_condition_numbers),
        cmocka_unit_test(a_zero_matrix_has_the_root_that_eigh_gives_it),
        cmocka_unit_test(a_residual_above_the_tolerance_is_eighs),
        cmocka_unit_test(a_matrix_that_is_not_finite_is_named),
        cmocka_unit_test(what_a_solver_cannot_do_is_an_error_at_construction),
        cmocka_unit_test(coupled_iterations_of_every_order),
        cmocka_unit_test(bases_follow_a_matrix_that_moves),
        cmocka_unit_test(fits_are_as_good_as_they_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
