/* The Lasso on problems of which the answer is known, and what is no problem. */

#include "near.h"

#include "lather/fit.h"

#include <math.h>

/* One column of deviation 1: x = the correlation less the penalty, but not below 0. */
static void one_column_is_a_soft_threshold(void **state)
{
    (void)state;
    const double a[] = {-1, 1, -1, 1}, b[] = {6, 10, 6, 10};
    double x = 0, c = 0;
    assert_ok(lt_lasso(&x, &c, a, 4, 1, b, 0.5));
    assert_near(x, 1.5, 1e-14);
    assert_near(c, 8, 1e-14);
    assert_ok(lt_lasso(&x, &c, a, 4, 1, b, 2));
    assert_near(x, 0, 0);
    assert_near(c, 8, 1e-14);
}

static void a_constant_column_is_left_alone(void **state)
{
    (void)state;
    const double a[] = {0.1, 1, 0.1, 2, 0.1, 4}, b[] = {5, 7, 11};
    double x[2], c = 0;
    assert_ok(lt_lasso(x, &c, a, 3, 2, b, 0));
    assert_near(x[0], 0, 0);
    assert_near(x[1], 2, 1e-13);
    assert_near(c, 3, 1e-13);
}

/* Columns that are almost the same, as those of models are: coordinate descent would take millions of sweeps. */
static void columns_that_are_almost_equal_are_told_apart(void **state)
{
    (void)state;
    enum { ROWS = 30 };
    double a[ROWS * 2], b[ROWS], x[2], c = 0;
    for (int i = 0; i < ROWS; i++) {
        a[2 * i] = sin(i);
        a[2 * i + 1] = sin(i) + 1e-5 * cos(7 * i);
        b[i] = 4 + a[2 * i] - 3 * a[2 * i + 1];
    }
    assert_ok(lt_lasso(x, &c, a, ROWS, 2, b, 0));
    assert_near(x[0], 1, 1e-8);
    assert_near(x[1], -3, 1e-8);
    assert_near(c, 4, 1e-12);
}

static void what_was_left_out_chooses_the_penalty(void **state)
{
    (void)state;
    enum { ROWS = 40 };
    double a[ROWS * 2], b[ROWS], penalty = 7, error = 7;
    int fold[ROWS];
    for (int i = 0; i < ROWS; i++) {
        a[2 * i] = sin(3 * i);
        a[2 * i + 1] = cos(5 * i);
        b[i] = 2 * a[2 * i];
        fold[i] = -i % 4;
    }
    assert_ok(lt_lasso_choose(&penalty, &error, a, ROWS, 2, b, fold));
    assert_near(penalty, 0, 0);
    assert_near(error, 0, 1e-14);
    for (int i = 0; i < ROWS; i++)
        b[i] = i % 2; /* which the columns do not know */
    assert_ok(lt_lasso_choose(&penalty, &error, a, ROWS, 2, b, fold));
    assert_true(penalty > 0);
}

static void what_is_no_problem_is_said(void **state)
{
    (void)state;
    const double a[] = {1, 2}, b[] = {1, (double)INFINITY};
    const int fold[] = {3, 3};
    double x = 7, c = 7;
    assert_fails(lt_lasso(&x, &c, a, 2, 1, a, -1), LT_E_ARG, "penalty -1");
    assert_fails(lt_lasso(&x, &c, a, 2, 1, a, (double)NAN), LT_E_ARG, "penalty nan");
    assert_fails(lt_lasso(&x, &c, a, 2, 1, b, 1), LT_E_ARG, "b[1] is inf");
    assert_fails(lt_lasso(&x, &c, a, 2, 0, b, 1), LT_E_ARG, "2 rows of 0 columns");
    assert_fails(lt_lasso_choose(&x, &c, a, 2, 1, a, fold), LT_E_ARG, "1 fold");
    assert_near(x, 7, 0);
    assert_near(c, 7, 0);
}

int main(void)
{
    const struct CMUnitTest rows[] = {
        cmocka_unit_test(one_column_is_a_soft_threshold),
        cmocka_unit_test(a_constant_column_is_left_alone),
        cmocka_unit_test(columns_that_are_almost_equal_are_told_apart),
        cmocka_unit_test(what_was_left_out_chooses_the_penalty),
        cmocka_unit_test(what_is_no_problem_is_said),
    };
    return cmocka_run_group_tests(rows, NULL, NULL);
}
