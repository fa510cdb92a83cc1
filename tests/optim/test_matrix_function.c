/* Inverse powers of matrices with known results, and the residual for others. */

#include "roots.h"

typedef struct known {
    const char *name;
    int n;
    double a[9], want[9];
    double exponent, epsilon, rtol;
    lt_epsilon_rule rule;
} known;

#define TINY   1e-14
#define BEFORE LT_EPSILON_BEFORE
#define AFTER  LT_EPSILON_AFTER
#define PSEUDO LT_EPSILON_PSEUDO_INVERSE
#define SHARE  LT_EPSILON_RELATIVE

/* Source: integers by hand: the first matrix is the inverse square of its root. */
static const known rows[] = {
    /* clang-format off */
    {"a matrix with an integer inverse square root", 3, {1195, -944, -224, -944, 746, 177, -224, 177, 42},
     {1, 1, 1, 1, 2, -3, 1, -3, 18}, 0.5, TINY, 0, BEFORE},
    {"its inverse is that root's square", 3, {1195, -944, -224, -944, 746, 177, -224, 177, 42},
     {3, 0, 16, 0, 14, -59, 16, -59, 334}, 1, TINY, 0, AFTER},
    {"a diagonal", 2, {1, 0, 0, 4}, {1, 0, 0, 0.5}, 0.5, TINY, 0, BEFORE},
    {"power 1/4", 2, {1, 0, 0, 16}, {1, 0, 0, 0.5}, 0.25, TINY, 0, BEFORE},
    {"power 2/3 is the square of 1/3", 2, {1, 0, 0, 8}, {1, 0, 0, 0.25}, 2.0 / 3, TINY, 0, AFTER},
    {"epsilon before: below it, all is shifted up", 2, {-0.9, 0, 0, 2.1}, {1, 0, 0, 0.5}, 0.5, 1, 0,
     BEFORE},
    {"epsilon before: else it is added", 2, {0, 0, 0, 3}, {1, 0, 0, 0.5}, 0.5, 1, 0, BEFORE},
    {"epsilon after", 2, {0.1, 0, 0, 3.1}, {1, 0, 0, 0.5}, 0.5, 0.9, 0, AFTER},
    {"epsilon after: a negative value is taken for 0", 2, {-0.5, 0, 0, 2.5}, {1, 0, 0, 0.5}, 0.5, 1,
     0, AFTER},
    {"pseudo-inverse: 0 remains 0", 3, {1, 0, 0, 0, 4, 0, 0, 0, 0}, {1, 0, 0, 0, 0.5, 0, 0, 0, 0},
     0.5, 0, 0, PSEUDO},
    {"pseudo-inverse: eigenvalues below the cutoff become 0", 3, {1, 0, 0, 0, 4, 0, 0, 0, 0.03},
     {1, 0, 0, 0, 0.5, 0, 0, 0, 0}, 0.5, 0, 0.01, PSEUDO},
    {"relative: a third of the largest is added", 2, {0, 0, 0, 3}, {1, 0, 0, 0.5}, 0.5, 1.0 / 3, 0,
     SHARE},
    {"relative: of nothing nothing is known", 2, {0}, {0}, 0.5, 1e-6, 0, SHARE},
    /* clang-format on */
};

static void open_by_rule(problem *p, int n, const double *a, lt_epsilon_rule rule, double epsilon)
{
    open_problem(p, "cpu", true, n, a);
    p->config.epsilon_rule = rule;
    p->config.epsilon = epsilon;
}

static void has_the_known_power(void **state)
{
    const known *row = *state;
    problem p;
    double got[9];
    open_by_rule(&p, row->n, row->a, row->rule, row->epsilon);
    p.config.rank_rtol = row->rtol;
    assert_ok(run(&p, LT_ROOT_EIGH, row->exponent, false));
    assert_ok(p.job.status);
    get(p.out, got);
    for (int i = 0; i < row->n * row->n; i++)
        assert_near(got[i], row->want[i], 1e-6);
    close_problem(&p);
}

/* --- The residual --- */

/* Returns the residual of a fourth root in f64 whose first element is changed by a factor 1 + change. */
static double residual_at(double condition, double change)
{
    enum { N = 24, ORDER = 4 };
    double a[N * N], root[N * N];
    problem p;
    make_matrix(a, N, condition, N);
    open_by_rule(&p, N, a, BEFORE, 1e-30);
    assert_ok(run(&p, LT_ROOT_EIGH, 1.0 / ORDER, false));
    assert_ok(p.job.status);
    get(p.out, root);
    close_problem(&p);
    root[0] *= 1 + change;
    return residual_of(a, root, ORDER, N);
}

static void ill_conditioned_roots_have_a_small_residual(void **state)
{
    (void)state;
    static const double conditions[] = {1e2, 1e4, 1e6, 1e8};
    for (size_t i = 0; i < COUNT_OF(conditions); i++) {
        double got = residual_at(conditions[i], 0), bound = 1e-13 * conditions[i];
        if (!(got <= bound))
            fail_msg("condition %g: %g, allowed %g", conditions[i], got, bound);
    }
}

static void control_a_changed_root_has_a_residual(void **state)
{
    (void)state;
    assert_true(residual_at(1e4, 1e-6) > 1e-7);
}

int main(void)
{
    enum { R = COUNT_OF(rows) };
    struct CMUnitTest tests[R + 2];
    for (size_t i = 0; i < R; i++)
        tests[i] = row_test(rows[i].name, has_the_known_power, &rows[i]);
    tests[R] = (struct CMUnitTest)cmocka_unit_test(ill_conditioned_roots_have_a_small_residual);
    tests[R + 1] = (struct CMUnitTest)cmocka_unit_test(control_a_changed_root_has_a_residual);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
