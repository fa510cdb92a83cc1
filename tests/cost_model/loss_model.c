/* Hemingway's model of a run's loss: coefficients and floor without noise, held-out numbers of ranks, goals, and
 * too few measurements. */

#include "base/rng.h"
#include "near.h"

#include "lather/detail/fit.h"

#include <math.h>

enum { SIZES = 8, EACH = 40, POINTS = SIZES * EACH };

static const double size_of[SIZES] = {1, 2, 3, 4, 6, 8, 12, 16};

static double loss(double m, double i, double floor)
{
    return floor + pow(10, -0.3 - 0.06 * i / m - 0.4 * log(i) + 0.05 * log(m));
}

static lt_loss_point *measure(lt_loss_point point[POINTS], double floor, double noise)
{
    lt_rng rng = {.key = 5};
    for (int k = 0; k < POINTS; k++) {
        const double m = size_of[k / EACH], i = 1 + k % EACH;
        const double gap = loss(m, i, floor) - floor;
        point[k] = (lt_loss_point){m, i, floor + gap * pow(10, noise * lt_rng_normal(&rng))};
    }
    return point;
}

static void assert_true_terms(const lt_loss_model *model)
{
    const double want[LT_LOSS_TERMS] = {[2] = -0.06, [4] = -0.4, [8] = 0.05};
    assert_near(model->intercept, -0.3, 1e-8);
    for (int j = 0; j < LT_LOSS_TERMS; j++)
        assert_near(model->x[j], want[j], 1e-8);
    assert_near(model->held_out, 0, 1e-8);
}

/* Gives each term alone a coefficient. */
static void each_term_is_that_of_the_model(void **state)
{
    const double m = 4, i = 25;
    const double terms[LT_LOSS_TERMS] = {
        i, sqrt(i), i / m, i / m / m, log(i), log(i) / m, log(i) * log(m), 1 / i, log(m), 1 / m, m};
    (void)state;
    for (int j = 0; j < LT_LOSS_TERMS; j++) {
        lt_loss_model model = {.floor = 0.5};
        model.x[j] = -0.01;
        assert_near(log10(lt_loss_predict(&model, m, i) - model.floor), -0.01 * terms[j], 1e-9);
    }
}

static void coefficients_are_found_above_a_known_floor(void **state)
{
    (void)state;
    lt_loss_point point[POINTS];
    lt_loss_model model;
    assert_ok(lt_loss_fit_above(&model, measure(point, 0.137, 0), POINTS, 0.137));
    assert_true_terms(&model);
    assert_near(model.floor, 0.137, 0);
    assert_near(model.last, EACH, 0);
    assert_near(model.least, 1, 0);
    assert_near(model.most, 16, 0);
}

static void coefficients_and_the_floor_are_found(void **state)
{
    (void)state;
    lt_loss_point point[POINTS];
    lt_loss_model model;
    assert_ok(lt_loss_fit(&model, measure(point, 0.137, 0), POINTS));
    assert_near(model.floor, 0.137, 1e-9);
    assert_true_terms(&model);
}

/* Fits the runs on 1, 2, 4, ... ranks up to `most`. */
static void fit_up_to(lt_loss_model *model, double most)
{
    lt_loss_point point[POINTS], kept[POINTS];
    size_t count = 0;
    measure(point, 0, 0);
    for (int k = 0; k < POINTS; k++)
        for (double m = 1; m <= most; m *= 2)
            if (fabs(point[k].ranks - m) < 0.5)
                kept[count++] = point[k];
    assert_ok(lt_loss_fit(model, kept, count));
}

/* Apart from i, the terms have 1, log m, 1/m and m, which four numbers of ranks identify. */
static void four_numbers_of_ranks_are_enough(void **state)
{
    (void)state;
    lt_loss_model model;
    double steps;
    fit_up_to(&model, 8);
    assert_true_terms(&model);
    assert_ok(lt_loss_steps(&steps, &model, 16, loss(16, 200, 0)));
    assert_near(steps, 200, 1);
}

/* Three numbers of ranks identify it without the term m, which is 0 here. */
static void three_numbers_of_ranks_are_enough_without_the_last_term(void **state)
{
    (void)state;
    lt_loss_model model;
    double steps;
    fit_up_to(&model, 4);
    assert_true(!(model.x[LT_LOSS_TERMS - 1] > 0) && !(model.x[LT_LOSS_TERMS - 1] < 0));
    assert_ok(lt_loss_steps(&steps, &model, 8, loss(8, 100, 0)));
    print_message("8 ranks, of 1, 2 and 4: %g steps of 100\n", steps);
    assert_near(steps, 100, 10);
}

static void a_loss_without_a_floor_has_0(void **state)
{
    (void)state;
    lt_loss_point point[POINTS];
    lt_loss_model model;
    assert_ok(lt_loss_fit(&model, measure(point, 0, 0), POINTS));
    assert_near(model.floor, 0, 0);
    assert_true_terms(&model);
}

/* The likelihood is independent of units: losses shifted by -10 and scaled by 1,000. */
static void a_floor_may_be_below_0_where_losses_are(void **state)
{
    (void)state;
    lt_loss_point point[POINTS];
    lt_loss_model model;
    measure(point, 0, 0);
    for (int k = 0; k < POINTS; k++)
        point[k].loss = 1000 * (point[k].loss - 10);
    assert_ok(lt_loss_fit(&model, point, POINTS));
    assert_near(model.floor, -10000, 1e-5);
    assert_near(model.x[2], -0.06, 1e-8);
}

/* Two sizes, left out in turn, with 5 % noise of loss - floor. */
static void ranks_that_were_not_measured_are_predicted(void **state)
{
    (void)state;
    lt_loss_point point[POINTS], kept[POINTS];
    measure(point, 0.137, log10(1.05));
    for (int without = 3; without < SIZES; without += 4) {
        lt_loss_model model;
        size_t count = 0;
        double worst = 0;
        for (int k = 0; k < POINTS; k++)
            if (k / EACH != without)
                kept[count++] = point[k];
        assert_ok(lt_loss_fit(&model, kept, count));
        for (int i = 1; i <= EACH; i++) {
            const double m = size_of[without], want = loss(m, i, 0);
            worst = fmax(worst, fabs(log10((lt_loss_predict(&model, m, i) - 0.137) / want)));
        }
        print_message("%g ranks: at most %.3f, said %.3f, floor %.4f\n", size_of[without], worst,
                      model.held_out, model.floor);
        assert_true(worst < 0.15);
        assert_near(model.floor, 0.137, 0.003);
        assert_true(model.held_out > 0.5 * log10(1.05) && model.held_out < 0.1);
    }
}

static void the_first_step_with_a_goal_is_found(void **state)
{
    (void)state;
    const lt_loss_model model = {.floor = 0.5, .x = {[4] = -1 / log(10)}, .last = 100, .most = 8};
    double steps = 0; /* loss: 0.5 + 1 / i */
    assert_ok(lt_loss_steps(&steps, &model, 4, 0.5 + 1 / 700.5));
    assert_near(steps, 701, 0);
    assert_ok(lt_loss_steps(&steps, &model, 4, 3));
    assert_near(steps, 1, 0);
    assert_fails(lt_loss_steps(&steps, &model, 4, 0.5), LT_E_ARG,
                 "the goal 0.5 is not above the floor 0.5");
    assert_fails(lt_loss_steps(&steps, &model, 4, 0.50001), LT_E_ARG, "0.5001 after 10000 steps");
    assert_near(steps, 1, 0);
}

static void too_few_measurements_are_counted(void **state)
{
    (void)state;
    lt_loss_model model = {.most = 7};
    lt_loss_point point[6];
    for (int i = 0; i < 6; i++)
        point[i] = (lt_loss_point){1 + i % 2, 1 + i, 6 - i};
    assert_fails(lt_loss_fit(&model, point, 6), LT_E_ARG,
                 "2 different numbers of ranks, want at least 3");
    assert_fails(lt_loss_fit(&model, point, 0), LT_E_ARG, "0 different numbers of ranks");
    for (int i = 0; i < 6; i++)
        point[i] = (lt_loss_point){1 + i % 4, 1 + i, 6};
    assert_fails(lt_loss_fit(&model, point, 6), LT_E_ARG, "all 6 losses are 6");
    point[0].loss = 5;
    assert_fails(lt_loss_fit_above(&model, point, 6, 5.5), LT_E_ARG,
                 "the loss 5 is not above the floor 5.5");
    point[4].loss = (double)NAN;
    assert_fails(lt_loss_fit(&model, point, 6), LT_E_ARG,
                 "point 4: the loss of step 5 on 1 ranks is nan");
    point[4] = (lt_loss_point){2, 0, 1};
    assert_fails(lt_loss_fit(&model, point, 6), LT_E_ARG, "point 4: step 0 on 2 ranks");
    assert_near(model.most, 7, 0);
}

int main(void)
{
    const struct CMUnitTest rows[] = {
        cmocka_unit_test(each_term_is_that_of_the_model),
        cmocka_unit_test(coefficients_are_found_above_a_known_floor),
        cmocka_unit_test(coefficients_and_the_floor_are_found),
        cmocka_unit_test(four_numbers_of_ranks_are_enough),
        cmocka_unit_test(three_numbers_of_ranks_are_enough_without_the_last_term),
        cmocka_unit_test(a_loss_without_a_floor_has_0),
        cmocka_unit_test(a_floor_may_be_below_0_where_losses_are),
        cmocka_unit_test(ranks_that_were_not_measured_are_predicted),
        cmocka_unit_test(the_first_step_with_a_goal_is_found),
        cmocka_unit_test(too_few_measurements_are_counted),
    };
    return cmocka_run_group_tests(rows, NULL, NULL);
}
