/* Ernest's model of a step: coefficients without noise, predictions with it, and measurements that say too little. */

#include "base/rng.h"
#include "near.h"

#include "lather/detail/fit.h"

#include <math.h>
#include <stdlib.h>

static const double truth[LT_TIME_TERMS] = {0.05, 2, 0.01, 0.003};

static double seconds(double ranks, double scale)
{
    return truth[0] + truth[1] * scale / ranks + truth[2] * log(ranks) + truth[3] * ranks;
}

static void coefficients_are_found_without_noise(void **state)
{
    (void)state;
    lt_time_point point[5];
    lt_time_model model;
    for (int i = 0; i < 5; i++)
        point[i] = (lt_time_point){1 << i, 1, seconds(1 << i, 1)};
    for (size_t count = 4; count <= 5; count++) {
        assert_ok(lt_time_fit(&model, point, count));
        for (int j = 0; j < LT_TIME_TERMS; j++)
            assert_near(model.x[j], truth[j], 1e-8 * truth[j]);
        assert_near(model.error, 0, 1e-12);
    }
    assert_near(model.held_out, 0, 1e-12);
    assert_near(lt_time_predict(&model, 24, 0.5), seconds(24, 0.5), 1e-8);
    assert_near(model.least, 1, 0);
    assert_near(model.most, 16, 0);
}

/* Parts of the data stand in for a number of ranks. */
static void three_numbers_of_ranks_and_two_scales_are_enough(void **state)
{
    (void)state;
    const double ranks[] = {1, 2, 8, 8}, scale[] = {1, 1, 1, 0.25};
    lt_time_point point[4];
    lt_time_model model;
    for (int i = 0; i < 4; i++)
        point[i] = (lt_time_point){ranks[i], scale[i], seconds(ranks[i], scale[i])};
    assert_ok(lt_time_fit(&model, point, 4));
    for (int j = 0; j < LT_TIME_TERMS; j++)
        assert_near(model.x[j], truth[j], 1e-8 * truth[j]);
}

/* The same without 1/t: each of the seconds counts as much as another. */
static void fit_plainly(lt_time_model *out, const lt_time_point *point, int count)
{
    double a[64 * LT_TIME_TERMS], b[64];
    for (int i = 0; i < count; i++) {
        double *row = a + i * LT_TIME_TERMS;
        const double m = point[i].ranks;
        row[0] = 1;
        row[1] = point[i].scale / m;
        row[2] = log(m);
        row[3] = m;
        b[i] = point[i].seconds;
    }
    assert_ok(lt_nnls(out->x, NULL, a, count, LT_TIME_TERMS, b));
}

/* A step of which most is divided, and an exchange that grows with the ranks. */
static double divided(double ranks)
{
    return 0.02 + 10 / ranks + 0.02 * ranks;
}

/* Mean relative errors at 64 ranks of fits to 1 .. 16 with 5 % noise, of which the first is the library's. */
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
            point[i] = (lt_time_point){m, 1, divided(m) * noise};
        }
        assert_ok(lt_time_fit(&model, point, SIZES * EACH));
        off += fabs(lt_time_predict(&model, 64, 1) / divided(64) - 1) / TRIALS;
        fit_plainly(&model, point, SIZES * EACH);
        plain += fabs(lt_time_predict(&model, 64, 1) / divided(64) - 1) / TRIALS;
    }
    print_message("mean error at 64 ranks: %.3f, without weights %.3f\n", off, plain);
    assert_true(off < 0.2);
    assert_true(off < 0.8 * plain);
}

/* What was left out is predicted worse than what was fitted. */
static void the_error_of_what_was_left_out_is_its_own(void **state)
{
    (void)state;
    const double m[] = {1, 2, 4, 8}, t[] = {2, 1.3, 0.4, 0.5};
    lt_time_point point[4];
    lt_time_model model;
    for (int i = 0; i < 4; i++)
        point[i] = (lt_time_point){m[i], 1, t[i]};
    assert_ok(lt_time_fit(&model, point, 4));
    assert_true(model.held_out > 1.5 * model.error);
    double sum = 0;
    for (int i = 0; i < 4; i++)
        sum += pow(lt_time_predict(&model, m[i], 1) / t[i] - 1, 2) / 4;
    assert_near(model.error, sqrt(sum), 1e-12);
}

static void too_little_is_said_with_both_numbers(void **state)
{
    (void)state;
    lt_time_model model = {.most = 7};
    lt_time_point point[6];
    for (int i = 0; i < 6; i++)
        point[i] = (lt_time_point){1 + i % 2, 1 + i, 1};
    assert_fails(lt_time_fit(&model, point, 6), LT_E_ARG,
                 "2 different numbers of ranks, want at least 3");
    for (int i = 0; i < 6; i++)
        point[i] = (lt_time_point){1 + i % 3, 1, 1};
    assert_fails(lt_time_fit(&model, point, 6), LT_E_ARG,
                 "3 different pairs of ranks and scale for 4 parameters");
    assert_fails(lt_time_fit(&model, point, 0), LT_E_ARG, "0 different numbers of ranks");
    point[4].seconds = 0;
    assert_fails(lt_time_fit(&model, point, 6), LT_E_ARG, "point 4: 0 seconds on 2 ranks");
    point[4].seconds = (double)NAN;
    assert_fails(lt_time_fit(&model, point, 6), LT_E_ARG, "point 4: nan seconds");
    point[4] = (lt_time_point){0, 1, 1};
    assert_fails(lt_time_fit(&model, point, 6), LT_E_ARG, "point 4: 0 ranks");
    point[4] = (lt_time_point){1, -1, 1};
    assert_fails(lt_time_fit(&model, point, 6), LT_E_ARG, "with -1 of the data");
    assert_near(model.most, 7, 0);
}

int main(void)
{
    const struct CMUnitTest rows[] = {
        cmocka_unit_test(coefficients_are_found_without_noise),
        cmocka_unit_test(three_numbers_of_ranks_and_two_scales_are_enough),
        cmocka_unit_test(weighted_rows_predict_more_ranks_better),
        cmocka_unit_test(the_error_of_what_was_left_out_is_its_own),
        cmocka_unit_test(too_little_is_said_with_both_numbers),
    };
    return cmocka_run_group_tests(rows, NULL, NULL);
}
