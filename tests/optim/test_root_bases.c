/* Eigenbases updated by orthogonal iteration, and the fit used by the rational solver. */

#include "optim/shampoo/root/fit.h"
#include "roots.h"

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
    enum { N = 16 };
    double a[N * N], moved[N * N], q[N * N], next[N * N];
    make_matrix(a, N, 1e3, N);
    memcpy(moved, a, sizeof a);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            moved[i * N + j] += 0.02 * sin(i + 1.0) * sin(j + 1.0) / N;
    problem p;
    open_problem(&p, "ref", true, N, a);
    p.config.preconditioner = LT_PRECONDITIONER_CORRECTED;
    p.config.epsilon = 1e-9;
    assert_ok(run(&p, LT_ROOT_QR, 0.5, false));
    assert_int_equal(p.job.used, LT_ROOT_EIGH); /* no old basis */
    get(p.out, q);
    put(p.old, q);
    const double before = off_diagonal(moved, q, N);
    put(p.a, moved);
    assert_ok(run(&p, LT_ROOT_QR, 0.5, true));
    assert_int_equal(p.job.used, LT_ROOT_QR);
    get(p.out, next);
    assert_true(off_diagonal(moved, next, N) < 0.7 * before);
    assert_near(p.job.residual, before, 1e-6);
    for (int j = 0; j < N; j++) { /* unit columns */
        double square = 0;
        for (int i = 0; i < N; i++)
            square += next[i * N + j] * next[i * N + j];
        assert_near(square, 1, 1e-6);
    }
    close_problem(&p);
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
        cmocka_unit_test(bases_follow_a_matrix_that_moves),
        cmocka_unit_test(fits_are_as_good_as_they_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
