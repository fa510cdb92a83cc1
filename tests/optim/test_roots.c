/* Inverse roots by every solver. */

#include "roots.h"

static const lt_root_solver root_solvers[] = {LT_ROOT_EIGH, LT_ROOT_NEWTON, LT_ROOT_HIGHER_ORDER,
                                              LT_ROOT_NEWTON_DB, LT_ROOT_RATIONAL};

static bool can(lt_root_solver solver, double exponent)
{
    lt_shampoo_config c = LT_SHAMPOO_REFERENCE;
    c.root_solver = solver;
    return !lt_root_check(&c, exponent, "shampoo");
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
            damped[i] -= 1e-3; /* restored by epsilon */
        open_problem(&p, "ref", true, 3, damped);
        p.config.epsilon = 1e-3;
        p.config.solver_tolerance = 1e-6;
        assert_ok(run(&p, root_solvers[k], 0.5, false));
        assert_int_equal(p.job.status, LT_OK);
        assert_int_equal(p.job.used, root_solvers[k]);
        get(p.out, got);
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
        get(p.out, got);
        for (int i = 0; i < 100; i++)
            assert_near(got[i], i % 11 == 0, 1e-5);
        close_problem(&p);
    }
}

/* Tridiagonal: diagonal alpha, beta next to it; corner: 1 adds beta to both ends, -1 subtracts beta from
 * the first. */
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
        get(p.out, r);
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
        get(p.out, r);
        for (int i = 0; i < N; i++)
            a[i * (N + 1)] += epsilon; /* the largest eigenvalue is 1 */
        const double tolerance = lt_root_method_of(solver)->tolerance;
        const double bound = tolerance + 4 * sqrt(N) * u / epsilon;
        assert_true(residual_of(a, r, 4, N) <= bound);
        close_problem(&p);
    }
}

/* --- A device with a stream: its memory is not the host's --- */

static int read_backs;
static lt_status (*copy)(void *ctx, void *dst, const void *src, size_t bytes, lt_copy_kind kind);

static lt_status counted_copy(void *ctx, void *dst, const void *src, size_t bytes,
                              lt_copy_kind kind)
{
    read_backs += kind == LT_COPY_OUT;
    return copy(ctx, dst, src, bytes, kind);
}

static lt_backend queued(const lt_device *device)
{
    lt_backend b = *device->backend;
    b.host_memory = false;
    copy = b.copy;
    b.copy = counted_copy;
    return b;
}

/* --- Largest eigenvalues --- */

static lt_root_set set_of(const problem *p, lt_root_item *item, size_t count)
{
    return (lt_root_set){.config = &p->config,
                         .device = p->device,
                         .be = p->device->backend,
                         .ctx = p->device->ctx,
                         .dtype = lt_device_master_dtype(p->device),
                         .output = LT_OUTPUT_ROOT,
                         .item = item,
                         .count = count};
}

/* outlier: all eigenvalues but one of rank are 1 - outlier, so the estimate comes from nearly a single
 * direction. */
static void the_largest_eigenvalue_is_found_to_five_per_cent(void **state)
{
    (void)state;
    static const struct {
        double condition, outlier;
        int64_t rank;
    } rows[] = {{1, 0, 96},   {10, 0, 96},  {1e2, 0, 96},   {1e4, 0, 96},  {1e8, 0, 96},
                {1e4, 0, 24}, {1, 0.1, 1},  {1, 0.2, 1},    {1, 0.9, 1},   {1e2, 0.1, 96},
                {1, 0.1, 4},  {1, 0.1, 48}, {1e2, 0.5, 96}, {1, 1e-3, 96}, {1, 1, 1}};
    enum { N = 96 };
    static double a[N * N];
    for (size_t k = 0; k < 2 * COUNT_OF(rows); k++) {
        problem p;
        double got = 0, norm = 0;
        const double outlier = rows[k / 2].outlier;
        make_matrix(a, N, rows[k / 2].condition, rows[k / 2].rank);
        for (int i = 0; i < N * N; i++) {
            a[i] = outlier > 0 ? outlier * a[i] + (i % (N + 1) ? 0 : 1 - outlier) : a[i];
            norm += a[i] * a[i];
        }
        open_problem(&p, "cpu", k % 2, N, a);
        lt_root_item item = {.job = &p.job, .n = N, .a = lt_tensor_view(p.a), .norm = sqrt(norm)};
        const lt_root_set set = set_of(&p, &item, 1);
        assert_ok(lt_root_estimate_largest(&set, &got));
        assert_true(got >= 0.95 && got <= 1.001);
        close_problem(&p);
    }
}

/* Matrices with more rows than one part of a product, and with one row, which is epsilon. All eigenvalues
 * but one are 0.9 of it. */
static void each_matrix_of_a_set_has_its_own_largest_eigenvalue(void **state)
{
    (void)state;
    static const int64_t rows[] = {300, 129, 128, 3, 1};
    enum { COUNT = COUNT_OF(rows), MOST_ROWS = 300 };
    static double a[MOST_ROWS * MOST_ROWS];
    problem p[COUNT];
    lt_root_item item[COUNT];
    double got[COUNT];
    for (int k = 0; k < COUNT; k++) {
        const int64_t n = rows[k];
        memset(a, 0, sizeof a);
        for (int64_t i = 0; i < n; i++)
            a[i * (n + 1)] = (k + 1) * (i == n - 1 ? 1 : 0.9);
        open_problem(&p[k], "cpu", false, n, a);
        item[k] = (lt_root_item){.job = &p[k].job, .n = n, .a = lt_tensor_view(p[k].a)};
        item[k].norm = n > 1 ? (k + 1) * sqrt(1 + 0.81 * (double)(n - 1)) : 0;
        item[k].epsilon = n > 1 ? 0 : k + 1;
    }
    const lt_root_set set = set_of(&p[0], item, COUNT);
    assert_ok(lt_root_estimate_largest(&set, got));
    for (int k = 0; k < COUNT; k++) {
        assert_near(got[k] / (k + 1), 1, 5e-3);
        close_problem(&p[k]);
    }
}

/* One read-back, whatever the matrix's size; none if its norm is on the device. */
static void a_queue_finds_the_same_largest_eigenvalue(void **state)
{
    (void)state;
    enum { N = 96 };
    static double a[N * N];
    for (int scale = -24; scale <= 24; scale += 8) {
        problem p;
        double host = 0, queue = 0, norm = 0, device[4] = {1};
        make_matrix(a, N, 1e4, N);
        for (int i = 0; i < N * N; i++)
            a[i] *= pow(10, scale), norm += a[i] * a[i];
        open_problem(&p, "cpu", false, N, a);
        const lt_backend other = queued(p.device), *const own = p.device->backend;
        lt_root_item item = {.job = &p.job, .n = N, .a = lt_tensor_view(p.a), .norm = sqrt(norm)};
        lt_root_set set = set_of(&p, &item, 1);
        assert_ok(lt_root_estimate_largest(&set, &host));
        p.device->backend = set.be = &other;
        read_backs = 0;
        assert_ok(lt_root_estimate_largest(&set, &queue));
        assert_int_equal(read_backs, 1);
        assert_near(queue / host, 1, 1e-5);
        item.norm = 0;
        device[1] = sqrt(norm);
        device[2] = 1 / device[1];
        item.norm_at = &device[1];
        item.inverse_at = &device[2];
        set.device_one = &device[0];
        const lt_view value = {
            .data = &device[3], .dtype = LT_F64, .shape = LT_SHAPE(1), .stride = {1}};
        assert_ok(lt_root_enqueue_largest(&set, &value));
        assert_int_equal(read_backs, 1);
        assert_near(device[3] / host, 1, 1e-5);
        p.device->backend = own;
        close_problem(&p);
    }
}

/* run() where the host cannot read the memory; returns the number of read-backs. */
static int run_queued(problem *p, double exponent)
{
    const lt_backend other = queued(p->device), *const own = p->device->backend;
    p->device->backend = &other;
    read_backs = 0;
    const lt_status st = run(p, LT_ROOT_RATIONAL, exponent, false);
    p->device->backend = own;
    assert_ok(st);
    return read_backs;
}

/* The root's residual and the numbers read with it. Unless epsilon is relative to a device estimate, the
 * host reads norms first. */
static void a_queue_finds_a_root_in_one_read_back(void **state)
{
    (void)state;
    static const struct {
        double scale, exponent;
        lt_epsilon_rule rule;
        int reads;
    } rows[] = {{1, 0.25, LT_EPSILON_RELATIVE, 1},
                {1e-24, 0.25, LT_EPSILON_RELATIVE, 1},
                {1e24, 0.5, LT_EPSILON_RELATIVE, 1},
                {1, 0.1234567, LT_EPSILON_RELATIVE, 1}, /* no residual */
                {1, 0.25, LT_EPSILON_AFTER, 2},
                {1e-8, 0.25, LT_EPSILON_AFTER, 2}};
    enum { N = 96 };
    static double a[N * N], r[2][N * N];
    for (size_t k = 0; k < COUNT_OF(rows); k++) {
        double far = 0, square = 0;
        problem p;
        make_matrix(a, N, 1e6, N);
        for (int i = 0; i < N * N; i++)
            a[i] *= rows[k].scale;
        open_problem(&p, "cpu", false, N, a);
        p.config.epsilon = rows[k].rule == LT_EPSILON_AFTER ? 1e-5 * rows[k].scale : 1e-5;
        p.config.epsilon_rule = rows[k].rule;
        assert_ok(run(&p, LT_ROOT_RATIONAL, rows[k].exponent, false));
        assert_int_equal(p.job.used, LT_ROOT_RATIONAL);
        get(p.out, r[0]);
        put(p.a, a);
        assert_int_equal(run_queued(&p, rows[k].exponent), rows[k].reads);
        assert_int_equal(p.job.used, LT_ROOT_RATIONAL);
        assert_int_equal(p.job.status, LT_OK);
        assert_false(p.job.retried);
        get(p.out, r[1]);
        for (int i = 0; i < N * N; i++) {
            far += (r[0][i] - r[1][i]) * (r[0][i] - r[1][i]);
            square += r[0][i] * r[0][i];
        }
        assert_true(sqrt(far / square) < lt_root_method_of(LT_ROOT_RATIONAL)->tolerance);
        close_problem(&p);
    }
}

/* Failures on the device are repeated as by a host: epsilon at the rounding level makes f32 indefinite; for
 * zeros no direction is known; a tolerance of 0 is never reached. */
static void a_queue_does_again_what_failed(void **state)
{
    (void)state;
    static const struct {
        double scale, epsilon, tolerance;
        lt_root_solver used;
    } rows[] = {
        {0, 1e-6, 0, LT_ROOT_EIGH}, {1, 1e-9, 0, LT_ROOT_EIGH}, {1, 1e-4, 1e-7, LT_ROOT_RATIONAL}};
    enum { N = 48 };
    static double a[N * N], r[2][N * N];
    for (size_t k = 0; k < COUNT_OF(rows); k++) {
        problem p;
        make_matrix(a, N, 1e12, N / 2);
        for (int i = 0; i < N * N; i++)
            a[i] *= rows[k].scale;
        open_problem(&p, "cpu", false, N, a);
        p.config.epsilon = rows[k].epsilon;
        p.config.epsilon_rule = LT_EPSILON_RELATIVE;
        p.config.solver_tolerance = rows[k].tolerance;
        assert_ok(run(&p, LT_ROOT_RATIONAL, 0.25, false));
        assert_int_equal(p.job.used, rows[k].used);
        get(p.out, r[0]);
        put(p.a, a);
        assert_true(run_queued(&p, 0.25) > 1);
        assert_int_equal(p.job.status, LT_OK);
        assert_int_equal(p.job.used, rows[k].used);
        assert_int_equal(p.job.retried, rows[k].used == LT_ROOT_RATIONAL);
        get(p.out, r[1]);
        for (int i = 0; i < N * N; i++)
            assert_near(r[1][i], r[0][i], 1e-3 * fabs(r[0][i / N * (N + 1)]));
        close_problem(&p);
    }
}

/* The last result is unchanged. */
static void a_queue_names_a_matrix_that_is_not_finite(void **state)
{
    (void)state;
    static const double bad[] = {(double)NAN, HUGE_VAL};
    const double old[4] = {1, 2, 2, 5};
    double got[4];
    for (size_t k = 0; k < 2 * COUNT_OF(bad); k++) {
        const double a[4] = {1, 0, 0, bad[k / 2]};
        problem p;
        open_problem(&p, "cpu", false, 2, a);
        put(p.out, old);
        p.config.epsilon = 1e-6;
        p.config.epsilon_rule = k % 2 ? LT_EPSILON_RELATIVE : LT_EPSILON_AFTER;
        const lt_backend other = queued(p.device), *const own = p.device->backend;
        p.device->backend = &other;
        const lt_status st = run(&p, LT_ROOT_RATIONAL, 0.5, false);
        p.device->backend = own;
        assert_status(st, LT_E_ARG);
        assert_non_null(strstr(lt_error_message(), "layer.weight block 3, dimension 1"));
        get(p.out, got);
        assert_memory_equal(got, old, sizeof got);
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
        get(p.out, got);
        for (int i = 0; i < 16; i++)
            assert_near(got[i], i % 5 ? 0 : 10, 0.3);
        close_problem(&p);
    }
}

/* With a largest eigenvalue of 0 no direction is known: the root is 0 on every backend. The sum of inverses
 * is then infinite or NaN, and must not be stored. */
static void a_zero_matrix_without_damping_has_the_root_zero(void **state)
{
    (void)state;
    static const struct {
        const char *device;
        bool f64;
    } places[] = {{"ref", false}, {"ref", true}, {"cpu", false}, {"cpu", true}};
    double a[16] = {0}, got[16];
    for (size_t k = 0; k < COUNT_OF(root_solvers) * COUNT_OF(places); k++) {
        const size_t place = k % COUNT_OF(places);
        problem p;
        open_problem(&p, places[place].device, places[place].f64, 4, a);
        p.config.epsilon = 1e-6;
        p.config.epsilon_rule = LT_EPSILON_RELATIVE;
        assert_ok(run(&p, root_solvers[k / COUNT_OF(places)], 0.25, false));
        assert_int_equal(p.job.status, LT_OK);
        get(p.out, got);
        for (int i = 0; i < 16; i++)
            assert_near(got[i], 0, 0);
        close_problem(&p);
    }
}

/* f32 can represent 1e-44, but not 1e44. */
static void a_root_that_f32_cannot_hold_leaves_the_old_one(void **state)
{
    (void)state;
    const double old[4] = {1, 2, 2, 5};
    double a[4] = {0}, got[4];
    for (size_t k = 0; k < COUNT_OF(root_solvers); k++) {
        if (!can(root_solvers[k], 1))
            continue;
        problem p;
        open_problem(&p, "ref", false, 2, a);
        put(p.out, old);
        p.config.epsilon = 1e-44;
        assert_ok(run(&p, root_solvers[k], 1, false));
        assert_int_equal(p.job.status, LT_E_ARG);
        assert_int_equal(p.stats.failures, 1);
        get(p.out, got);
        assert_memory_equal(got, old, sizeof got);
        close_problem(&p);
    }
}

/* A longer series takes fewer steps. */
static void every_order_of_the_series_finds_the_root(void **state)
{
    (void)state;
    enum { N = 24, LOW = 2, HIGH = 6 };
    double a[N * N], r[N * N];
    int steps[HIGH + 1] = {0};
    make_matrix(a, N, 1e3, N);
    for (int order = LOW; order <= HIGH; order++) {
        problem p;
        open_problem(&p, "ref", true, N, a);
        p.config.epsilon = 1e-9;
        p.config.solver_tolerance = 1e-6;
        p.config.solver_order = order;
        assert_ok(run(&p, LT_ROOT_HIGHER_ORDER, 0.25, false));
        assert_int_equal(p.job.used, LT_ROOT_HIGHER_ORDER);
        get(p.out, r);
        assert_true(residual_of(a, r, 4, N) <= 1e-5);
        steps[order] = p.job.iterations;
        close_problem(&p);
    }
    assert_true(steps[HIGH] < steps[3]);
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
    get(p.out, r);
    assert_true(residual_of(a, r, 4, N) <= 0.05);
    close_problem(&p);
}

static void a_matrix_that_is_not_finite_is_named(void **state)
{
    (void)state;
    double a[4] = {1, 0, 0, (double)NAN};
    problem p;
    open_problem(&p, "ref", false, 2, a);
    assert_status(run(&p, LT_ROOT_RATIONAL, 0.5, false), LT_E_ARG);
    assert_non_null(strstr(lt_error_message(), "layer.weight block 3, dimension 1"));
    assert_non_null(strstr(lt_error_message(), "step 7"));
    close_problem(&p);
    a[3] = 1;
    open_problem(&p, "ref", false, 2, a);
    assert_fails(run(&p, LT_ROOT_NEWTON, 0.1234567, false), LT_E_ARG,
                 "coupled iteration: exponent 0.123457 is not a ratio of small integers");
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
        {LT_ROOT_QR, 0.5, LT_PRECONDITIONER_KL, 0, "eigenvectors"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        lt_shampoo_config c = LT_SHAMPOO_REFERENCE;
        c.root_solver = rows[i].solver;
        c.preconditioner = rows[i].kind;
        c.epsilon_rule = rows[i].rule;
        assert_status(lt_root_check(&c, rows[i].exponent, "shampoo"), LT_E_ARG);
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
        get(p.out, r);
        assert_true(residual_of(a, r, 4, N) <= 1e-6);
        assert_near(p.job.residual, 0, 1e-6);
        close_problem(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integer_roots_of_a_badly_conditioned_matrix),
        cmocka_unit_test(the_identity_is_its_own_root),
        cmocka_unit_test(tridiagonal_families),
        cmocka_unit_test(residuals_over_condition_numbers),
        cmocka_unit_test(every_order_of_the_series_finds_the_root),
        cmocka_unit_test(the_largest_eigenvalue_is_found_to_five_per_cent),
        cmocka_unit_test(each_matrix_of_a_set_has_its_own_largest_eigenvalue),
        cmocka_unit_test(a_queue_finds_the_same_largest_eigenvalue),
        cmocka_unit_test(a_queue_finds_a_root_in_one_read_back),
        cmocka_unit_test(a_queue_does_again_what_failed),
        cmocka_unit_test(a_queue_names_a_matrix_that_is_not_finite),
        cmocka_unit_test(a_zero_matrix_has_the_root_that_eigh_gives_it),
        cmocka_unit_test(a_zero_matrix_without_damping_has_the_root_zero),
        cmocka_unit_test(a_root_that_f32_cannot_hold_leaves_the_old_one),
        cmocka_unit_test(a_residual_above_the_tolerance_is_eighs),
        cmocka_unit_test(a_matrix_that_is_not_finite_is_named),
        cmocka_unit_test(what_a_solver_cannot_do_is_an_error_at_construction),
        cmocka_unit_test(coupled_iterations_of_every_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
