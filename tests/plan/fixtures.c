/* Least squares with conditions on 1,000 problems each: SciPy's and scikit-learn's answers (fit.txt, by
 * make_fit_fixtures.py), and the conditions that the minimum fulfils. */

#include "near.h"

#include "lather/fit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    snprintf(path, sizeof path, "%s/tests/plan/fit.txt", root ? root : ".");
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

static void the_conditions_of_nnls_hold(void **state)
{
    (void)state;
    double x[COLUMNS];
    problem q;
    for (int p = 0; p < PROBLEMS; p++) {
        make(&q, p, 0);
        assert_ok(lt_nnls(x, NULL, q.a, q.rows, q.columns, q.b));
        for (int j = 0; j < q.columns; j++) {
            assert_true(x[j] >= 0);
            assert_true(slope(&q, x, 0, j) <= 1e-10);
            if (x[j] > 0)
                assert_near(slope(&q, x, 0, j), 0, 1e-10);
        }
    }
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
        cmocka_unit_test(nnls_equals_scipy),
        cmocka_unit_test(the_conditions_of_nnls_hold),
        cmocka_unit_test(the_lasso_equals_scikit_learn),
        cmocka_unit_test(the_conditions_of_the_lasso_hold),
        cmocka_unit_test(cross_validation_equals_scikit_learn),
    };
    return cmocka_run_group_tests(rows, NULL, NULL);
}
