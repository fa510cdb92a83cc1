/* A-optimal designs: the equivalence theorem, an exhaustive grid, the budget, and candidates that say too little. */

#include "base/rng.h"
#include "near.h"

#include "lather/fit.h"

#include <math.h>

enum { MOST = 60, COLUMNS = 4 };

/* The trace of the inverse of a symmetric matrix, in place: Gauss and Jordan's elimination. */
static double trace_of_inverse(double m[COLUMNS][2 * COLUMNS], int n)
{
    double trace = 0;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            m[i][n + j] = i == j;
    for (int k = 0; k < n; k++) {
        const double pivot = m[k][k];
        for (int j = 0; j < 2 * n; j++)
            m[k][j] /= pivot;
        for (int i = 0; i < n; i++) {
            const double part = m[i][k];
            for (int j = 0; i != k && j < 2 * n; j++)
                m[i][j] -= part * m[k][j];
        }
    }
    for (int i = 0; i < n; i++)
        trace += m[i][n + i];
    return trace;
}

static double trace_of(const double *w, const double *f, int candidates, int n)
{
    double m[COLUMNS][2 * COLUMNS] = {{0}};
    for (int i = 0; i < candidates; i++)
        for (int j = 0; j < n; j++)
            for (int k = 0; k < n; k++)
                m[j][k] += w[i] * f[i * n + j] * f[i * n + k];
    return trace_of_inverse(m, n);
}

/* Directions of descent by differences: no candidate lowers the trace by more per unit of cost than the gap allows. */
static void assert_optimal(const double *w, const double *f, int candidates, const double *cost,
                           double budget)
{
    double v[MOST], sum = 0, most = 0;
    const double trace = trace_of(w, f, candidates, COLUMNS);
    for (int i = 0; i < candidates; i++) {
        assert_true(w[i] >= 0);
        sum += w[i] * cost[i];
        for (int k = 0; k < candidates; k++)
            v[k] = w[k];
        const double h = 1e-5 * budget / cost[i];
        v[i] += h;
        most = fmax(most, (trace - trace_of(v, f, candidates, COLUMNS)) / (h * cost[i]));
    }
    assert_near(sum, budget, 1e-9 * budget);
    assert_true(most * budget / trace - 1 < 1.5e-4);
}

static void no_candidate_lowers_the_trace(void **state)
{
    (void)state;
    double f[MOST * COLUMNS], cost[MOST], w[MOST], gap = 1;
    for (int problem = 0; problem < 20; problem++) {
        lt_rng rng = {.key = (uint64_t)problem};
        const int candidates = 5 + problem * 7 % 50;
        for (int i = 0; i < candidates * COLUMNS; i++)
            f[i] = lt_rng_normal(&rng) * (i % COLUMNS ? 1 : 30);
        for (int i = 0; i < candidates; i++)
            cost[i] = 0.1 + lt_rng_uniform(&rng);
        assert_ok(lt_design(w, &gap, f, candidates, COLUMNS, cost, 3));
        assert_true(gap >= 0 && gap < 1e-4);
        assert_optimal(w, f, candidates, cost, 3);
    }
}

/* Three candidates of two columns with a budget of 1: weights in hundredths, all of them. */
static void a_grid_has_nothing_better(void **state)
{
    (void)state;
    enum { PARTS = 400 };
    const double f[] = {1, 0, 1, 1, 1, 3}, cost[] = {1, 2, 5};
    double w[3], best[3] = {0}, least = (double)INFINITY;
    for (int i = 1; i < PARTS; i++)
        for (int j = 1; i + j <= PARTS; j++) {
            const double v[] = {(double)i / PARTS, j / 2.0 / PARTS, (PARTS - i - j) / 5.0 / PARTS};
            const double trace = trace_of(v, f, 3, 2);
            for (int k = 0; trace < least && k < 3; k++)
                best[k] = v[k];
            least = fmin(least, trace);
        }
    assert_ok(lt_design(w, NULL, f, 3, 2, cost, 1));
    assert_true(trace_of(w, f, 3, 2) <= least * (1 + 1e-4));
    for (int k = 0; k < 3; k++)
        assert_near(w[k] * cost[k], best[k] * cost[k], 2.0 / PARTS);
}

/* Two columns that do not meet: weights are as 1 to 2 where the second is half as long (A-optimal, by hand). */
static void weights_are_those_of_the_formula(void **state)
{
    (void)state;
    const double f[] = {1, 0, 0, 0.5};
    double w[2];
    assert_ok(lt_design(w, NULL, f, 2, 2, NULL, 6));
    assert_near(w[0], 2, 1e-2);
    assert_near(w[1], 4, 1e-2);
}

/* Steps of the model, each part of the data; what is chosen determines the model, and says it more exactly than as much
 * of each candidate. */
static void steps_to_measure_are_chosen(void **state)
{
    (void)state;
    enum { SIZES = 5, SCALES = 3, POINTS = SIZES * SCALES };
    lt_time_point point[POINTS];
    double w[POINTS], even[POINTS], cost[POINTS], f[POINTS * COLUMNS], gap = 1, sum = 0, all = 0;
    double mean[COLUMNS] = {0};
    for (int i = 0; i < POINTS; i++) {
        const double m = 1 << i % SIZES, s = 1.0 / (1 << i / SIZES);
        point[i] = (lt_time_point){m, s, 0.1 + 2 * s / m + 0.02 * m};
        cost[i] = m * point[i].seconds;
        const double term[] = {1, s / m, log(m), m};
        for (int j = 0; j < COLUMNS; j++) {
            f[i * COLUMNS + j] = term[j];
            mean[j] += term[j] / POINTS;
        }
        all += cost[i];
    }
    assert_ok(lt_time_design(w, &gap, point, POINTS, cost, 7));
    assert_true(gap >= 0 && gap < 1e-4);
    for (int i = 0; i < POINTS; i++) {
        sum += w[i] * cost[i];
        even[i] = 7 / all;
        for (int j = 0; j < COLUMNS; j++)
            f[i * COLUMNS + j] /= mean[j] * point[i].seconds;
    }
    assert_near(sum, 7, 1e-9);
    assert_optimal(w, f, POINTS, cost, 7);
    assert_true(trace_of(w, f, POINTS, COLUMNS) < 0.5 * trace_of(even, f, POINTS, COLUMNS));
    point[3].seconds = 0;
    assert_fails(lt_time_design(w, &gap, point, POINTS, cost, 7), LT_E_ARG, "point 3: 0 seconds");
}

static void what_is_no_problem_is_said(void **state)
{
    (void)state;
    const double f[] = {1, 0, 2, 0, 3, 0}, cost[] = {1, 0, 1}, wrong[] = {1, (double)NAN, 2, 1};
    double w[3] = {7, 7, 7}, gap = 7;
    assert_fails(lt_design(w, &gap, f, 3, 2, NULL, 1), LT_E_ARG,
                 "3 candidates do not determine 2 columns");
    assert_fails(lt_design(w, &gap, f, 1, 2, NULL, 1), LT_E_ARG,
                 "1 candidates do not determine 2 columns");
    assert_fails(lt_design(w, &gap, f, 0, 2, NULL, 1), LT_E_ARG, "0 candidates");
    assert_fails(lt_design(w, &gap, f, 3, 2, cost, 1), LT_E_ARG, "candidate 1 costs 0");
    assert_fails(lt_design(w, &gap, f, 3, 2, NULL, 0), LT_E_ARG, "a budget of 0");
    assert_fails(lt_design(w, &gap, wrong, 2, 2, NULL, 1), LT_E_ARG,
                 "column 1 of candidate 0 is nan");
    assert_near(w[0] + w[1] + w[2] + gap, 28, 0);
}

int main(void)
{
    const struct CMUnitTest rows[] = {
        cmocka_unit_test(no_candidate_lowers_the_trace),
        cmocka_unit_test(a_grid_has_nothing_better),
        cmocka_unit_test(weights_are_those_of_the_formula),
        cmocka_unit_test(steps_to_measure_are_chosen),
        cmocka_unit_test(what_is_no_problem_is_said),
    };
    return cmocka_run_group_tests(rows, NULL, NULL);
}
