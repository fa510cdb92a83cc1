/* Constrained least squares: problems with known answers, invalid problems, the optimality conditions, and SciPy's and
 * scikit-learn's answers on 1,000 problems each (fit.txt, by make_fit_fixtures.py). */

#include "base/rng.h"
#include "near.h"

#include "lather/detail/fit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- Non-negative --- */

enum { WIDE = 20, TALL = 60, DRAWN = 300 };

static double a[TALL * WIDE], b[TALL];

static void draw(uint64_t key, int rows, int columns)
{
    lt_rng rng = {.key = key};
    for (int i = 0; i < rows * columns; i++)
        a[i] = lt_rng_normal(&rng);
    for (int i = 0; i < rows; i++)
        b[i] = lt_rng_normal(&rng);
}

/* a_j . (b - a x), and the scale of its terms. */
static double slope_at(int rows, int columns, const double *x, int j, double *scale)
{
    double sum = 0;
    *scale = 0;
    for (int i = 0; i < rows; i++) {
        double left = b[i];
        for (int k = 0; k < columns; k++)
            left -= a[i * columns + k] * x[k];
        sum += a[i * columns + j] * left;
        *scale += fabs(a[i * columns + j]) * (fabs(left) + 1);
    }
    return sum;
}

static void its_conditions_hold_on_random_problems(void **state)
{
    (void)state;
    for (int problem = 0; problem < DRAWN; problem++) {
        const int columns = 1 + problem % WIDE, rows = 1 + problem * 7 % TALL;
        double x[WIDE], norm = 0;
        draw((uint64_t)problem, rows, columns);
        assert_ok(lt_nnls(x, &norm, a, rows, columns, b));
        for (int j = 0; j < columns; j++) {
            double scale;
            const double g = slope_at(rows, columns, x, j, &scale);
            assert_true(x[j] >= 0);
            assert_true(g <= 1e-11 * scale);
            if (x[j] > 0)
                assert_near(g, 0, 1e-11 * scale);
        }
    }
}

static void a_sum_of_columns_is_found(void **state)
{
    (void)state;
    double x[4], norm = 1;
    draw(1, 12, 4);
    for (int i = 0; i < 12; i++)
        b[i] = 2 * a[i * 4] + 3 * a[i * 4 + 2];
    assert_ok(lt_nnls(x, &norm, a, 12, 4, b));
    assert_near(x[0], 2, 1e-12);
    assert_near(x[2], 3, 1e-12);
    assert_near(x[1] + x[3], 0, 1e-12);
    assert_near(norm, 0, 1e-12);
}

static void a_negative_answer_is_zero(void **state)
{
    (void)state;
    double x = 5, norm = 0;
    const double column[] = {1, 1}, wanted[] = {-3, -4};
    assert_ok(lt_nnls(&x, &norm, column, 2, 1, wanted));
    assert_true(x == 0);
    assert_near(norm, 5, 0);
}

/* Equal columns, zeros, and scales apart by 1e200. */
static void dependent_columns_and_any_scale_have_an_answer(void **state)
{
    (void)state;
    const double m[] = {1e-100, 1e-100, 0, 1e100, 2e-100, 2e-100, 0, -1e100};
    const double wanted[] = {3, 6};
    double x[4], norm = 1;
    assert_ok(lt_nnls(x, &norm, m, 2, 4, wanted));
    assert_near((x[0] + x[1]) * 1e-100, 3, 1e-12);
    assert_true(x[2] == 0);
    assert_near(norm, 0, 1e-12);
}

static void invalid_problems_of_nnls_are_named(void **state)
{
    (void)state;
    double x = 7;
    const double one[] = {1, 2}, nan_one[] = {1, (double)NAN};
    assert_fails(lt_nnls(&x, NULL, one, 0, 1, one), LT_E_ARG, "0 rows of 1 columns");
    assert_fails(lt_nnls(&x, NULL, nan_one, 2, 1, one), LT_E_ARG, "a[1,0] is nan");
    assert_fails(lt_nnls(&x, NULL, one, 2, 1, nan_one), LT_E_ARG, "b[1] is nan");
    assert_true(x == 7);
}

/* --- The Lasso --- */

/* One column of deviation 1: x = the correlation less the penalty, but not below 0. */
static void one_column_is_a_soft_threshold(void **state)
{
    (void)state;
    const double m[] = {-1, 1, -1, 1}, wanted[] = {6, 10, 6, 10};
    double x = 0, c = 0;
    assert_ok(lt_lasso(&x, &c, m, 4, 1, wanted, 0.5));
    assert_near(x, 1.5, 1e-14);
    assert_near(c, 8, 1e-14);
    assert_ok(lt_lasso(&x, &c, m, 4, 1, wanted, 2));
    assert_near(x, 0, 0);
    assert_near(c, 8, 1e-14);
}

static void a_constant_column_is_ignored(void **state)
{
    (void)state;
    const double m[] = {0.1, 1, 0.1, 2, 0.1, 4}, wanted[] = {5, 7, 11};
    double x[2], c = 0;
    assert_ok(lt_lasso(x, &c, m, 3, 2, wanted, 0));
    assert_near(x[0], 0, 0);
    assert_near(x[1], 2, 1e-13);
    assert_near(c, 3, 1e-13);
}

/* Nearly equal columns, as those of models are: coordinate descent would take millions of sweeps. */
static void nearly_equal_columns_are_distinguished(void **state)
{
    (void)state;
    enum { COUNT = 30 };
    double m[COUNT * 2], wanted[COUNT], x[2], c = 0;
    for (int i = 0; i < COUNT; i++) {
        m[2 * i] = sin(i);
        m[2 * i + 1] = sin(i) + 1e-5 * cos(7 * i);
        wanted[i] = 4 + m[2 * i] - 3 * m[2 * i + 1];
    }
    assert_ok(lt_lasso(x, &c, m, COUNT, 2, wanted, 0));
    assert_near(x[0], 1, 1e-8);
    assert_near(x[1], -3, 1e-8);
    assert_near(c, 4, 1e-12);
}

static void cross_validation_chooses_the_penalty(void **state)
{
    (void)state;
    enum { COUNT = 40 };
    double m[COUNT * 2], wanted[COUNT], penalty = 7, error = 7;
    int fold[COUNT];
    for (int i = 0; i < COUNT; i++) {
        m[2 * i] = sin(3 * i);
        m[2 * i + 1] = cos(5 * i);
        wanted[i] = 2 * m[2 * i];
        fold[i] = i % 4;
    }
    assert_ok(lt_lasso_choose(&penalty, &error, m, COUNT, 2, wanted, fold));
    assert_near(penalty, 0, 0);
    assert_near(error, 0, 1e-14);
    for (int i = 0; i < COUNT; i++)
        wanted[i] = i % 2; /* which the columns do not know */
    assert_ok(lt_lasso_choose(&penalty, &error, m, COUNT, 2, wanted, fold));
    assert_true(penalty > 0);
}

static void invalid_problems_of_the_lasso_are_named(void **state)
{
    (void)state;
    const double m[] = {1, 2}, wanted[] = {1, (double)INFINITY};
    const int fold[] = {0, 0};
    double x = 7, c = 7;
    assert_fails(lt_lasso(&x, &c, m, 2, 1, m, -1), LT_E_ARG, "penalty -1");
    assert_fails(lt_lasso(&x, &c, m, 2, 1, m, (double)NAN), LT_E_ARG, "penalty nan");
    assert_fails(lt_lasso(&x, &c, m, 2, 1, wanted, 1), LT_E_ARG, "b[1] is inf");
    assert_fails(lt_lasso(&x, &c, m, 2, 0, wanted, 1), LT_E_ARG, "2 rows of 0 columns");
    assert_fails(lt_lasso_choose(&x, &c, m, 2, 1, m, fold), LT_E_ARG, "1 fold");
    assert_near(x, 7, 0);
    assert_near(c, 7, 0);
}

/* --- Reference answers --- */

enum { COLUMNS = 12, ROWS = 70, PROBLEMS = 1000, CHOICES = 40, FOLDS = 4, LINE = 512 };

typedef struct problem {
    int rows, columns;
    double a[ROWS * COLUMNS], b[ROWS];
} problem;

/* As in the maker: uniform in [-1,1), splitmix64's output function. */
static double number(int p, int k)
{
    uint64_t z =
        (uint64_t)p * 0x9E3779B97F4A7C15U + (uint64_t)k * 0xD1B54A32D192ED03U + 0x632BE59BD9B4E019U;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    z ^= z >> 31;
    return (double)(z >> 11) * 0x1p-52 - 1;
}

static void make(problem *out, int p, int longer)
{
    out->columns = 1 + p % COLUMNS;
    out->rows = 14 + p * 7 % 31 + longer;
    for (int i = 0; i < out->rows; i++) {
        double *row = out->a + i * out->columns;
        out->b[i] = 0.25 + number(p, 200000 + i);
        for (int j = 0; j < out->columns; j++) {
            row[j] = number(p, i * out->columns + j) + 0.5 * number(p, 100000 + i);
            out->b[i] += row[j] * number(p, 300000 + j);
        }
    }
}

static FILE *answers(void)
{
    char path[4096];
    const char *root = getenv("LATHER_TEST_SOURCE");
    snprintf(path, sizeof path, "%s/tests/cost_model/fit.txt", root ? root : ".");
    FILE *file = fopen(path, "r");
    if (!file)
        fail_msg("%s cannot be read", path);
    return file;
}

/* The next answer of a kind, count numbers; false at the end. */
static bool next(FILE *file, const char *kind, int *p, double *value, int most)
{
    char line[LINE], name[16];
    int at = 0;
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%15s %d%n", name, p, &at) < 2 || strcmp(name, kind) != 0)
            continue;
        char *rest = line + at;
        for (int i = 0; i < most; i++)
            value[i] = strtod(rest, &rest);
        return true;
    }
    return false;
}

/* Equal to 1e-8 of the largest. */
static void compare(const double *x, const double *want, int count)
{
    double most = 0;
    for (int j = 0; j < count; j++)
        most = fmax(most, fabs(want[j]));
    for (int j = 0; j < count; j++)
        assert_near(x[j], want[j], 1e-8 * most);
}

static void nnls_equals_scipy(void **state)
{
    (void)state;
    FILE *file = answers();
    double want[COLUMNS + 1], x[COLUMNS], norm = 0;
    int p = 0, seen = 0;
    problem q;
    for (; next(file, "nnls", &p, want, COLUMNS + 1); seen++) {
        make(&q, p, 0);
        assert_ok(lt_nnls(x, &norm, q.a, q.rows, q.columns, q.b));
        compare(x, want + 1, q.columns);
        assert_near(norm, want[0], 1e-8 * want[0]);
    }
    fclose(file);
    assert_int_equal(seen, PROBLEMS);
}

static double penalty_of(int p)
{
    return 0.02 * (1 + p % 5);
}

static void the_lasso_equals_scikit_learn(void **state)
{
    (void)state;
    FILE *file = answers();
    double want[COLUMNS + 1], x[COLUMNS + 1];
    int p = 0, seen = 0;
    problem q;
    for (; next(file, "lasso", &p, want, COLUMNS + 1); seen++) {
        make(&q, p, 0);
        assert_ok(lt_lasso(x + 1, x, q.a, q.rows, q.columns, q.b, penalty_of(p)));
        compare(x, want, q.columns + 1);
    }
    fclose(file);
    assert_int_equal(seen, PROBLEMS);
}

static void cross_validation_equals_scikit_learn(void **state)
{
    (void)state;
    FILE *file = answers();
    double want[2], penalty = 0, error = 0;
    int fold[ROWS], p = 0, seen = 0;
    problem q;
    for (int i = 0; i < ROWS; i++)
        fold[i] = i % FOLDS;
    for (; next(file, "choose", &p, want, 2); seen++) {
        make(&q, p, 20);
        assert_ok(lt_lasso_choose(&penalty, &error, q.a, q.rows, q.columns, q.b, fold));
        assert_near(penalty, want[0], 1e-8 * want[0]);
        assert_near(error, want[1], 1e-8 * want[1]);
    }
    fclose(file);
    assert_int_equal(seen, CHOICES);
}

/* a_j . (b - a x - c). */
static double slope(const problem *q, const double *x, double c, int j)
{
    double sum = 0;
    for (int i = 0; i < q->rows; i++) {
        const double *row = q->a + i * q->columns;
        double left = q->b[i] - c;
        for (int k = 0; k < q->columns; k++)
            left -= row[k] * x[k];
        sum += row[j] * left;
    }
    return sum;
}

static void the_conditions_of_the_lasso_hold(void **state)
{
    (void)state;
    double x[COLUMNS], c = 0;
    problem q;
    for (int p = 0; p < PROBLEMS; p++) {
        make(&q, p, 0);
        const double bound = penalty_of(p) * q.rows;
        assert_ok(lt_lasso(x, &c, q.a, q.rows, q.columns, q.b, penalty_of(p)));
        for (int j = 0; j < q.columns; j++) {
            assert_true(fabs(slope(&q, x, c, j)) <= bound + 1e-10);
            if (fabs(x[j]) > 0)
                assert_near(slope(&q, x, c, j), copysign(bound, x[j]), 1e-10);
        }
    }
}

int main(void)
{
    const struct CMUnitTest rows[] = {
        cmocka_unit_test(its_conditions_hold_on_random_problems),
        cmocka_unit_test(a_sum_of_columns_is_found),
        cmocka_unit_test(a_negative_answer_is_zero),
        cmocka_unit_test(dependent_columns_and_any_scale_have_an_answer),
        cmocka_unit_test(invalid_problems_of_nnls_are_named),
        cmocka_unit_test(one_column_is_a_soft_threshold),
        cmocka_unit_test(a_constant_column_is_ignored),
        cmocka_unit_test(nearly_equal_columns_are_distinguished),
        cmocka_unit_test(cross_validation_chooses_the_penalty),
        cmocka_unit_test(invalid_problems_of_the_lasso_are_named),
        cmocka_unit_test(nnls_equals_scipy),
        cmocka_unit_test(the_lasso_equals_scikit_learn),
        cmocka_unit_test(the_conditions_of_the_lasso_hold),
        cmocka_unit_test(cross_validation_equals_scikit_learn),
    };
    return cmocka_run_group_tests(rows, NULL, NULL);
}
