/* Roots and bases that stay because their factor has hardly changed. */

#include "optim/low_precision/quantized_state.h"
#include "optim/shampoo/reference.h"
#include "refreshes.h"
#include "roots.h"
#include "snapshot.h"

/* --- One matrix --- */

enum { N = 24 };

/* The matrix of a problem, turned and stretched a little. */
static void move_matrix(const double *a, double *moved)
{
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            moved[i * N + j] = a[i * N + j] * (1 + 0.1 * (sin(3.0 * i) + sin(3.0 * j)))
                               + 0.01 * sin(i + 1.0) * sin(j + 1.0) / N;
}

/* Solves a, then looks at `moved` from there. */
static void look_again(problem *p, const double *a, const double *moved, lt_root_solver solver,
                       double exponent, double tolerance)
{
    static double first[N * N];
    write_doubles(p->a, a);
    p->config.refresh_tolerance = tolerance;
    assert_ok(run(p, solver, exponent, false));
    assert_false(p->job.kept);
    read_doubles(p->out, first);
    write_doubles(p->old, first);
    write_doubles(p->a, moved);
    assert_ok(run(p, solver, exponent, true));
    assert_int_equal(p->job.status, LT_OK);
}

/* |M - c I| / |c I| / q of M = R^q A, as A^(1/q) commutes with nothing here: both orders have the same
 * eigenvalues, and with little change nearly the same norm. */
static double exact_drift(const double *a, const double *r, int q, bool any_length)
{
    static double x[N * N], y[N * N];
    double trace = 0, square = 0;
    memcpy(x, a, sizeof x);
    for (int k = 0; k < q; k++) { /* half of the roots on either side */
        multiply(k % 2 ? x : r, k % 2 ? r : x, N, y);
        memcpy(x, y, sizeof x);
    }
    for (int i = 0; i < N; i++)
        trace += x[i * (N + 1)];
    const double c = any_length ? trace / N : 1;
    for (int i = 0; i < N * N; i++)
        square += (x[i] - (i % (N + 1) ? 0 : c)) * (x[i] - (i % (N + 1) ? 0 : c));
    return sqrt(square / N) / c / q;
}

static const lt_root_solver root_solvers[] = {LT_ROOT_EIGH, LT_ROOT_NEWTON, LT_ROOT_HIGHER_ORDER,
                                              LT_ROOT_NEWTON_DB, LT_ROOT_RATIONAL};

static void a_root_stays_within_the_tolerance_and_no_further(void **state)
{
    (void)state;
    static double a[N * N], moved[N * N], old[N * N], got[N * N];
    make_matrix(a, N, 1e3, N);
    move_matrix(a, moved);
    for (size_t k = 0; k < 4 * COUNT_OF(root_solvers); k++) {
        const lt_root_solver solver = root_solvers[k / 4];
        const int q = k % 2 ? 4 : 2;
        const bool any_length = k & 2;
        problem p;
        open_problem(&p, "ref", true, N, a);
        p.config.epsilon = 1e-9;
        p.config.solver_tolerance = 1e-4;
        p.config.grafting = any_length ? LT_GRAFTING_SGD : LT_GRAFTING_NONE;
        look_again(&p, a, moved, solver, 1.0 / q, 0.99);
        assert_true(p.job.kept);
        const double drift = p.job.residual;
        read_doubles(p.old, old);
        const double exact = exact_drift(moved, old, q, any_length);
        assert_true(drift > 0.5 * exact && drift < 2 * exact); /* four vectors of 24 */
        for (int above = 0; above < 2; above++) {
            double untouched[N * N];
            read_doubles(p.out, untouched);
            look_again(&p, a, moved, solver, 1.0 / q, drift * (above ? 1.01 : 0.99));
            assert_int_equal(p.job.kept, above);
            assert_int_equal(p.stats.kept, above);
            read_doubles(p.out, got);
            if (above) /* out has what the first call wrote */
                assert_memory_equal(got, old, sizeof got);
            else
                assert_true(residual_of(moved, got, q, N) < 1e-2);
        }
        close_problem(&p);
    }
}

static double drift_on(const char *device, bool f64, int64_t n, const double *a,
                       const double *moved, double *root)
{
    problem p;
    open_problem(&p, device, f64, n, a);
    p.config.epsilon = 0.05;
    p.config.epsilon_rule = LT_EPSILON_RELATIVE;
    p.config.refresh_tolerance = 0.99;
    if (f64) {
        assert_ok(run(&p, LT_ROOT_EIGH, 0.25, false));
        read_doubles(p.out, root);
    }
    write_doubles(p.old, root);
    write_doubles(p.a, moved);
    assert_ok(run(&p, LT_ROOT_EIGH, 0.25, true));
    assert_true(p.job.kept);
    const double drift = p.job.residual;
    close_problem(&p);
    return drift;
}

/* Where the host reads the matrices in f32 they have products of their own: rows by eights, and a rest. */
static void the_host_sees_what_the_reference_sees(void **state)
{
    (void)state;
    static const int64_t sizes[] = {2, 7, 8, 9, 24, 31};
    static double a[31 * 31], moved[31 * 31], root[31 * 31];
    for (size_t k = 0; k < COUNT_OF(sizes); k++) {
        const int64_t n = sizes[k];
        make_matrix(a, n, 50, n);
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++) {
                const double turn = sin(3.0 * (double)i) + sin(3.0 * (double)j);
                moved[i * n + j] = a[i * n + j] * (1 + 0.2 * turn);
            }
        const double want = drift_on("ref", true, n, a, moved, root);
        assert_true(want > 1e-3);
        assert_near(drift_on("cpu", false, n, a, moved, root), want, 1e-3 * want);
    }
}

/* Grafting gives the update its length; without, a root of another length is another root. */
static void length_counts_without_grafting(void **state)
{
    (void)state;
    static double a[N * N], longer[N * N];
    make_matrix(a, N, 1e3, N);
    for (int i = 0; i < N * N; i++)
        longer[i] = 4 * a[i];
    for (int grafts = 0; grafts < 2; grafts++) {
        problem p;
        open_problem(&p, "ref", true, N, a);
        p.config.epsilon = 1e-9;
        p.config.grafting = grafts ? LT_GRAFTING_ADAM : LT_GRAFTING_NONE;
        look_again(&p, a, longer, LT_ROOT_EIGH, 0.25, 0.7);
        assert_int_equal(p.job.kept, grafts);
        close_problem(&p);
    }
}

static double off_diagonal(const double *a, const double *q, double *diagonal)
{
    static double x[N * N], s[N * N], t[N * N];
    double off = 0, all = 0;
    for (int i = 0; i < N * N; i++)
        t[i] = q[i % N * N + i / N];
    multiply(a, q, N, x);
    multiply(t, x, N, s);
    for (int i = 0; i < N * N; i++) {
        all += s[i] * s[i];
        off += i % (N + 1) ? s[i] * s[i] : 0;
        if (i % (N + 1) == 0)
            diagonal[i / N] = s[i];
    }
    return sqrt(off / all);
}

static void a_basis_stays_and_its_eigenvalues_follow(void **state)
{
    (void)state;
    static const lt_root_solver solvers[] = {LT_ROOT_EIGH, LT_ROOT_QR, LT_ROOT_TRACKED};
    static double a[N * N], moved[N * N], old[N * N], got[N * N];
    double diagonal[N], power[N];
    make_matrix(a, N, 1e3, N);
    move_matrix(a, moved);
    for (size_t k = 0; k < 2 * COUNT_OF(solvers); k++) {
        problem p;
        open_problem(&p, "ref", true, N, a);
        p.config.epsilon = 1e-9;
        p.config.preconditioner =
            k % 2 ? LT_PRECONDITIONER_EIGENDECOMPOSED : LT_PRECONDITIONER_CORRECTED;
        look_again(&p, a, moved, solvers[k / 2], 0.25, 0.99);
        assert_true(p.job.kept);
        read_doubles(p.old, old);
        const double off = off_diagonal(moved, old, diagonal);
        assert_near(p.job.residual, off, 1e-6);
        read_doubles(p.out, got);
        assert_memory_equal(got, old, sizeof got);
        read_doubles(p.power, power);
        for (int i = 0; i < N && k % 2; i++)
            assert_near(power[i], pow(diagonal[i] + 1e-9, -0.25), 1e-6);
        look_again(&p, a, moved, solvers[k / 2], 0.25, 0.99 * off);
        assert_false(p.job.kept);
        read_doubles(p.out, got);
        assert_true(off_diagonal(moved, got, diagonal) < off);
        close_problem(&p);
    }
}

/* --- In an optimizer --- */

static lt_shampoo_config that_keeps(lt_refresh_timing timing, int64_t every, double tolerance)
{
    lt_shampoo_config c = small_blocks(timing, every);
    c.beta2 = 0.99;
    c.refresh_tolerance = tolerance;
    return c;
}

/* A factor that is looked at either stays or has a new root. */
static void a_step_says_how_many_stayed(void **state)
{
    (void)state;
    const lt_shampoo_config c = that_keeps(LT_REFRESH_REFERENCE, 2, 0.1);
    int64_t kept = 0, made = 0;
    seen s = {0};
    fixture f;
    open_blocks(&f, &c);
    for (int t = 1; t <= 30; t++) {
        step_blocks(&f);
        look(&s, f.optim);
        const lt_shampoo_stats got = lt_shampoo_statistics(f.optim);
        int changed = 0;
        for (int i = 0; i < s.count; i++)
            changed += t > 1 && s.block[i].changed;
        assert_true(got.roots >= changed); /* of several dimensions one is looked at here */
        assert_true(got.roots + got.kept <= (t % 2 ? 0 : 14));
        if (t == 2) /* the first ones are new */
            assert_int_equal(got.roots, 14);
        kept += got.kept;
        made += got.roots;
    }
    assert_true(kept > 14 && made > 20); /* some of each */
    fixture_close(&f);
}

/* Looks at roots that always stay. */
static int64_t looks(const lt_shampoo_config *c, int64_t begin, int64_t end)
{
    int64_t kept = 0;
    fixture f;
    open_blocks(&f, c);
    for (int64_t t = 1; t <= end; t++) {
        step_blocks(&f);
        const lt_shampoo_stats got = lt_shampoo_statistics(f.optim);
        assert_int_equal(got.roots, t == c->start_preconditioning_step ? 14 : 0);
        assert_int_equal(got.root_age,
                         t > c->start_preconditioning_step ? t - c->start_preconditioning_step : 0);
        kept += t >= begin ? got.kept : 0;
    }
    fixture_close(&f);
    return kept;
}

static void looks_become_rarer(void **state)
{
    (void)state;
    static const struct {
        int64_t begin, end;
        int times;
    } spans[] = {{20, 22, 1}, {23, 24, 1}, {25, 26, 0}, {27, 28, 1}, {29, 34, 0},
                 {35, 36, 1}, {37, 50, 0}, {51, 52, 1}, {53, 66, 0}, {67, 68, 1}};
    for (size_t k = 0; k < COUNT_OF(spans); k++)
        for (int staggered = 0; staggered < 2; staggered++) {
            lt_shampoo_config c =
                that_keeps(staggered ? LT_REFRESH_STAGGERED : LT_REFRESH_REFERENCE, 2, 0.99);
            c.start_preconditioning_step = 20;
            c.grafting = LT_GRAFTING_SGD;
            c.epsilon = 10; /* factors that are hardly anything else */
            c.epsilon_rule = k % 2 ? LT_EPSILON_RELATIVE : LT_EPSILON_BEFORE;
            c.root_solver = k % 3 ? LT_ROOT_EIGH : LT_ROOT_RATIONAL;
            c.use_bias_correction = false;
            assert_int_equal(looks(&c, spans[k].begin, spans[k].end), 14 * spans[k].times);
        }
}

/* Nothing but factors and roots decides, and a checkpoint has both. */
static void saved_in_any_step_continues_bit_for_bit(void **state)
{
    (void)state;
    enum { STEPS = 14 };
    static snapshot middle[STEPS + 1], again;
    for (int k = 0; k < 4; k++) {
        lt_shampoo_config c =
            that_keeps(k % 2 ? LT_REFRESH_STAGGERED : LT_REFRESH_REFERENCE, 2, 0.1);
        int64_t kept = 0;
        fixture f;
        c.preconditioner = k < 2 ? LT_PRECONDITIONER_ROOT : LT_PRECONDITIONER_CORRECTED;
        open_blocks(&f, &c);
        while (f.attempt < STEPS) {
            step_blocks(&f);
            kept += lt_shampoo_statistics(f.optim).kept;
            take(&middle[f.attempt], &f, false);
        }
        fixture_close(&f);
        assert_true(kept > 0);
        for (int t = 1; t < STEPS; t++) {
            open_blocks(&f, &c);
            take(&middle[t], &f, true);
            for (f.attempt = t; f.attempt < STEPS;)
                step_blocks(&f);
            take(&again, &f, false);
            assert_memory_equal(again.bytes, middle[STEPS].bytes, again.used);
            fixture_close(&f);
        }
    }
}

/* Roots as they are kept, opened. */
typedef struct opened {
    float value[512];
    size_t used;
} opened;

static lt_status open_root(void *context, const lt_state_entry *entry)
{
    opened *o = context;
    lt_tensor *dense = NULL;
    if (strncmp(entry->name, "root.", 5) != 0)
        return LT_OK;
    assert_ok(lt_quantized_open(entry->quantized, &dense));
    const size_t bytes = lt_tensor_bytes(dense);
    assert_true(o->used + bytes <= sizeof o->value);
    assert_ok(lt_tensor_read(dense, (char *)o->value + o->used, bytes));
    o->used += bytes;
    lt_tensor_free(&dense);
    return LT_OK;
}

static void open_roots(opened *o, lt_optim *optim)
{
    lt_state_visitor visitor = {open_root, see_number, o};
    o->used = 0;
    assert_ok(lt_optim_visit(optim, &visitor));
}

/* What stays is not rounded again. */
static void roots_in_fewer_bytes_stay_as_they_are(void **state)
{
    (void)state;
    static const lt_state_dtype dtypes[] = {LT_STATE_BF16, LT_STATE_INT8, LT_STATE_INT4};
    enum { START = 20, END = 30 };
    static opened before, after;
    for (size_t k = 0; k < COUNT_OF(dtypes); k++) {
        lt_shampoo_config c = that_keeps(LT_REFRESH_REFERENCE, 1, 0.99);
        fixture f = {0};
        c.grafting = LT_GRAFTING_SGD;
        c.start_preconditioning_step = START;
        c.factor_frequency = 1;
        c.factor_dtype = dtypes[k];
        assert_ok(lt_device_open(&f.device, "cpu", &(lt_device_config){.threads = 1}));
        fixture_add(&f, "large", LT_SHAPE(7, 6));
        fixture_add(&f, "vector", LT_SHAPE(13));
        fixture_add(&f, "small", LT_SHAPE(3, 2));
        assert_ok(lt_optim_shampoo(&f.optim, &f.list, &c));
        while (f.attempt < END) {
            step_blocks(&f);
            const int64_t age = f.attempt - START;
            const bool looks = age == 1 || age == 2 || age == 4 || age == 8;
            assert_int_equal(lt_shampoo_statistics(f.optim).kept, looks ? 14 : 0);
            open_roots(f.attempt <= START ? &before : &after, f.optim);
        }
        assert_int_equal(before.used, after.used);
        assert_memory_equal(before.value, after.value, before.used);
        fixture_close(&f);
    }
}

/* auto: looked at every 10 steps from step 10 on, with a tolerance of its own. */
static void auto_is_resolved(void **state)
{
    (void)state;
    lt_shampoo_config c = small_blocks(LT_REFRESH_REFERENCE, LT_AUTO_FREQUENCY);
    for (int given = 0; given < 2; given++) {
        fixture f;
        c.refresh_tolerance = given ? 0.3 : 0;
        open_blocks(&f, &c);
        const lt_shampoo_config *got = lt_shampoo_settings(f.optim);
        assert_int_equal(got->precondition_frequency, 10);
        assert_int_equal(got->start_preconditioning_step, 10);
        assert_near(got->refresh_tolerance, given ? 0.3 : 0.1, 0);
        fixture_close(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_root_stays_within_the_tolerance_and_no_further),
        cmocka_unit_test(the_host_sees_what_the_reference_sees),
        cmocka_unit_test(length_counts_without_grafting),
        cmocka_unit_test(a_basis_stays_and_its_eigenvalues_follow),
        cmocka_unit_test(a_step_says_how_many_stayed),
        cmocka_unit_test(looks_become_rarer),
        cmocka_unit_test(saved_in_any_step_continues_bit_for_bit),
        cmocka_unit_test(roots_in_fewer_bytes_stay_as_they_are),
        cmocka_unit_test(auto_is_resolved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
