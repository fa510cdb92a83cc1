/* Inverse powers of matrices with known results, and the residual for others. */

#include "fixture.h"
#include "tensor/tensor.h"

#include "lather/detail/roots.h"

#include <math.h>

enum { MOST = 24 };

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

static lt_shampoo_config config_of(lt_epsilon_rule rule, double epsilon, double rtol)
{
    lt_shampoo_config c = LT_SHAMPOO_REFERENCE;
    c.epsilon_rule = rule;
    c.epsilon = epsilon;
    c.rank_rtol = rtol;
    return c;
}

/* Computes out = a^(-exponent). */
static void solve(const lt_shampoo_config *c, double exponent, int n, const double *a, double *out)
{
    lt_device *device = NULL;
    lt_tensor *in = NULL, *root = NULL;
    assert_ok(lt_device_open(&device, "cpu", &(lt_device_config){.f64 = true, .threads = 1}));
    assert_ok(lt_tensor_new(&in, device, LT_F64, LT_SHAPE(n, n)));
    assert_ok(lt_tensor_new(&root, device, LT_F64, LT_SHAPE(n, n)));
    put(in, a);
    lt_root_job job = {.a = lt_tensor_view(in),
                       .exponent = exponent,
                       .out = lt_tensor_view(root),
                       .param = "test"};
    const lt_root_context context = {.config = c, .device = device, .step = 1};
    assert_ok(lt_root_run(&context, &job, 1));
    assert_ok(job.status);
    get(root, out);
    lt_tensor_free(&in);
    lt_tensor_free(&root);
    lt_device_close(&device);
}

static void has_the_known_power(void **state)
{
    const known *row = *state;
    const lt_shampoo_config c = config_of(row->rule, row->epsilon, row->rtol);
    double got[9];
    solve(&c, row->exponent, row->n, row->a, got);
    for (int i = 0; i < row->n * row->n; i++)
        assert_near(got[i], row->want[i], 1e-6);
}

/* --- The residual --- */

static void multiply(int n, const double *x, const double *y, double *out)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            double sum = 0;
            for (int k = 0; k < n; k++)
                sum += x[i * n + k] * y[k * n + j];
            out[i * n + j] = sum;
        }
}

/* Returns the largest element of |R^p A - I|. */
static double residual(int n, int p, const double *root, const double *a)
{
    double x[MOST * MOST], y[MOST * MOST], worst = 0;
    for (int i = 0; i < n * n; i++)
        x[i] = a[i];
    for (int k = 0; k < p; k++) {
        multiply(n, root, x, y);
        for (int i = 0; i < n * n; i++)
            x[i] = y[i];
    }
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            double e = fabs(x[i * n + j] - (i == j));
            worst = e <= worst ? worst : e; /* keeps a NaN */
        }
    return worst;
}

/* H D H of a reflection H = I - 2 v v^T and eigenvalues from 1 down to 1/condition, evenly in their
 * logarithm. */
static void make_matrix(int n, double condition, double *a)
{
    double v[MOST], norm = 0, x[MOST * MOST], h[MOST * MOST];
    for (int i = 0; i < n; i++) {
        v[i] = sin(1 + 2.3 * i);
        norm += v[i] * v[i];
    }
    for (int i = 0; i < n * n; i++)
        h[i] = (i % n == i / n) - 2 * v[i % n] * v[i / n] / norm;
    for (int i = 0; i < n * n; i++)
        x[i] = h[i] * pow(condition, -(double)(i % n) / (n - 1));
    multiply(n, x, h, a);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++)
            a[i * n + j] = a[j * n + i];
}

static double residual_at(double condition, double change)
{
    enum { ORDER = 4 };
    const lt_shampoo_config c = config_of(BEFORE, 1e-30, 0);
    double a[MOST * MOST], root[MOST * MOST];
    make_matrix(MOST, condition, a);
    solve(&c, 1.0 / ORDER, MOST, a, root);
    root[0] *= 1 + change;
    return residual(MOST, ORDER, root, a);
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

/* Tridiagonal: alpha on the diagonal, beta next to it and in the corners: eigenvalues alpha + 2 beta cos. */
static void rings_of_neighbours_are_inverted(void **state)
{
    (void)state;
    static const double values[] = {1e-3, 1e-2, 0.1, 1, 10, 100};
    const lt_shampoo_config c = config_of(AFTER, 1e-14, 0);
    enum { N = 10 };
    for (size_t i = 0; i < COUNT_OF(values); i++)
        for (size_t k = 0; k < COUNT_OF(values); k++) {
            double a[N * N] = {0}, root[N * N];
            if (2 * values[k] >= values[i])
                continue;
            for (int j = 0; j < N; j++) {
                int next = (j + 1) % N;
                a[j * N + j] = values[i];
                a[j * N + next] = a[next * N + j] = values[k];
            }
            solve(&c, 0.5, N, a, root);
            assert_true(residual(N, 2, root, a) <= 1e-9);
        }
}

int main(void)
{
    enum { R = COUNT_OF(rows) };
    struct CMUnitTest tests[R + 3];
    for (size_t i = 0; i < R; i++)
        tests[i] = row_test(rows[i].name, has_the_known_power, &rows[i]);
    tests[R] = (struct CMUnitTest)cmocka_unit_test(ill_conditioned_roots_have_a_small_residual);
    tests[R + 1] = (struct CMUnitTest)cmocka_unit_test(control_a_changed_root_has_a_residual);
    tests[R + 2] = (struct CMUnitTest)cmocka_unit_test(rings_of_neighbours_are_inverted);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
