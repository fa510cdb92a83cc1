/* Ernest's model of a step: coefficients without noise, predictions with noise, and too few measurements. */

#include "base/rng.h"
#include "near.h"

#include "lather/detail/fit.h"

#include <math.h>
#include <stdlib.h>

static const double truth[LT_TIME_TERMS] = {0.05, 2, 0.01, 0.003};

static double seconds(double ranks)
{
    return truth[0] + truth[1] / ranks + truth[2] * log(ranks) + truth[3] * ranks;
}

static void coefficients_are_found_without_noise(void **state)
{
    (void)state;
    lt_time_point point[5];
    lt_time_model model;
    for (int i = 0; i < 5; i++)
        point[i] = (lt_time_point){1 << i, seconds(1 << i)};
    for (size_t count = 4; count <= 5; count++) {
        assert_ok(lt_time_fit(&model, point, count));
        for (int j = 0; j < LT_TIME_TERMS; j++)
            assert_near(model.x[j], truth[j], 1e-8 * truth[j]);
    }
    assert_near(lt_time_predict(&model, 24), seconds(24), 1e-8);
}

/* Fits the seconds themselves, not divided by them. */
static void fit_plainly(lt_time_model *out, const lt_time_point *point, int count)
{
    double a[64 * LT_TIME_TERMS], b[64];
    for (int i = 0; i < count; i++) {
        double *row = a + i * LT_TIME_TERMS;
        const double m = point[i].ranks;
        row[0] = 1;
        row[1] = 1 / m;
        row[2] = log(m);
        row[3] = m;
        b[i] = point[i].seconds;
    }
    assert_ok(lt_nnls(out->x, NULL, a, count, LT_TIME_TERMS, b));
}

/* Mostly parallel work, and communication that grows with the ranks. */
static double parallel(double ranks)
{
    return 0.02 + 10 / ranks + 0.02 * ranks;
}

/* Compares mean relative errors at 64 ranks, of fits to 1 to 16 ranks with 5 % noise. */
static void weighted_rows_predict_more_ranks_better(void **state)
{
    (void)state;
    enum { TRIALS = 200, EACH = 3, SIZES = 5 };
    double off = 0, plain = 0;
    for (int trial = 0; trial < TRIALS; trial++) {
        lt_rng rng = {.key = (uint64_t)trial};
        lt_time_point point[SIZES * EACH];
        lt_time_model model;
        for (int i = 0; i < SIZES * EACH; i++) {
            const double m = 1 << i % SIZES, noise = 1 + 0.05 * lt_rng_normal(&rng);
            point[i] = (lt_time_point){m, parallel(m) * noise};
        }
        assert_ok(lt_time_fit(&model, point, SIZES * EACH));
        off += fabs(lt_time_predict(&model, 64) / parallel(64) - 1) / TRIALS;
        fit_plainly(&model, point, SIZES * EACH);
        plain += fabs(lt_time_predict(&model, 64) / parallel(64) - 1) / TRIALS;
    }
    print_message("mean error at 64 ranks: %.3f, without weights %.3f\n", off, plain);
    assert_true(off < 0.2);
    assert_true(off < 0.8 * plain);
}

static void too_few_measurements_are_counted(void **state)
{
    (void)state;
    lt_time_model model = {.x = {7}};
    lt_time_point point[6];
    for (int i = 0; i < 6; i++)
        point[i] = (lt_time_point){1 + i % 3, 1};
    assert_fails(lt_time_fit(&model, point, 6), LT_E_ARG,
                 "3 different numbers of ranks, want at least 4");
    assert_fails(lt_time_fit(&model, point, 0), LT_E_ARG, "0 different numbers of ranks");
    point[4].seconds = 0;
    assert_fails(lt_time_fit(&model, point, 6), LT_E_ARG, "point 4: 0 seconds on 2 ranks");
    point[4].seconds = (double)NAN;
    assert_fails(lt_time_fit(&model, point, 6), LT_E_ARG, "point 4: nan seconds");
    point[4] = (lt_time_point){0, 1};
    assert_fails(lt_time_fit(&model, point, 6), LT_E_ARG, "point 4: 0 ranks");
    point[4] = (lt_time_point){0.999, 1};
    assert_fails(lt_time_fit(&model, point, 6), LT_E_ARG, "point 4: 0.999 ranks");
    point[4] = (lt_time_point){(double)INFINITY, 1};
    assert_fails(lt_time_fit(&model, point, 6), LT_E_ARG, "point 4: inf ranks");
    assert_near(model.x[0], 7, 0);
    point[4] = (lt_time_point){4, 1e-9};
    assert_ok(lt_time_fit(&model, point, 6));
}

int main(void)
{
    const struct CMUnitTest rows[] = {
        cmocka_unit_test(coefficients_are_found_without_noise),
        cmocka_unit_test(weighted_rows_predict_more_ranks_better),
        cmocka_unit_test(too_few_measurements_are_counted),
    };
    return cmocka_run_group_tests(rows, NULL, NULL);
}
