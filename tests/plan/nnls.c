/* Non-negative least squares: the optimality conditions on random problems, and problems of which the answer is known. */

#include "base/rng.h"
#include "near.h"

#include "lather/fit.h"

#include <math.h>
#include <string.h>

enum { COLUMNS = 20, ROWS = 60, PROBLEMS = 300 };

static double a[ROWS * COLUMNS], b[ROWS];

static void draw(uint64_t key, int rows, int columns)
{
    lt_rng rng = {.key = key};
    for (int i = 0; i < rows * columns; i++)
        a[i] = lt_rng_normal(&rng);
    for (int i = 0; i < rows; i++)
        b[i] = lt_rng_normal(&rng);
}

/* a_j . (b - a x), and the scale of its terms. */
static double slope(int rows, int columns, const double *x, int j, double *scale)
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
    for (int problem = 0; problem < PROBLEMS; problem++) {
        const int columns = 1 + problem % COLUMNS, rows = 1 + problem * 7 % ROWS;
        double x[COLUMNS], norm = 0;
        draw((uint64_t)problem, rows, columns);
        assert_ok(lt_nnls(x, &norm, a, rows, columns, b));
        for (int j = 0; j < columns; j++) {
            double scale;
            const double g = slope(rows, columns, x, j, &scale);
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

static void what_is_no_problem_is_said(void **state)
{
    (void)state;
    double x = 7;
    const double one[] = {1, 2}, nan_one[] = {1, (double)NAN};
    assert_fails(lt_nnls(&x, NULL, one, 0, 1, one), LT_E_ARG, "0 rows of 1 columns");
    assert_fails(lt_nnls(&x, NULL, nan_one, 2, 1, one), LT_E_ARG, "a[1,0] is nan");
    assert_fails(lt_nnls(&x, NULL, one, 2, 1, nan_one), LT_E_ARG, "b[1] is nan");
    assert_true(x == 7);
}

int main(void)
{
    const struct CMUnitTest rows[] = {
        cmocka_unit_test(its_conditions_hold_on_random_problems),
        cmocka_unit_test(a_sum_of_columns_is_found),
        cmocka_unit_test(a_negative_answer_is_zero),
        cmocka_unit_test(dependent_columns_and_any_scale_have_an_answer),
        cmocka_unit_test(what_is_no_problem_is_said),
    };
    return cmocka_run_group_tests(rows, NULL, NULL);
}
