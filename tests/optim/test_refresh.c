/* Schedule of Shampoo's refreshes, and statistics of a step. */

#include "refreshes.h"

/* --- Staggered --- */

static const int64_t frequencies[] = {1, 2, 3, 4, 7, 9, 20};

static void every_block_is_refreshed_once_in_any_f_steps_after_the_first(void **state)
{
    (void)state;
    for (size_t k = 0; k < COUNT_OF(frequencies); k++) {
        const int64_t n = frequencies[k];
        const lt_shampoo_config c = small_blocks(LT_REFRESH_STAGGERED, n);
        int64_t last[MAX_BLOCKS] = {0};
        seen s = {0};
        fixture f;
        open_blocks(&f, &c);
        look(&s, f.optim);
        while (f.attempt < 4 * n) {
            step_blocks(&f);
            look(&s, f.optim);
            for (int i = 0; i < s.count; i++) {
                assert_int_equal(s.block[i].changed && f.attempt < n, false);
                assert_int_equal(f.attempt == n && !s.block[i].changed, false);
                if (!s.block[i].changed)
                    continue;
                if (last[i] > n) /* between two refreshes */
                    assert_int_equal(f.attempt - last[i], n);
                last[i] = f.attempt;
            }
        }
        for (int i = 0; i < s.count; i++)
            assert_true(last[i] > 3 * n);
        fixture_close(&f);
    }
}

/* The step of the first refresh is skipped: the next one refreshes all. */
static void a_skipped_start_is_made_up_for(void **state)
{
    (void)state;
    enum { START = 5 };
    const double bad[6] = {(double)NAN};
    for (int timing = LT_REFRESH_REFERENCE; timing <= LT_REFRESH_ASYNC; timing++) {
        const lt_shampoo_config c = small_blocks((lt_refresh_timing)timing, START);
        seen s = {0};
        fixture f;
        open_blocks(&f, &c);
        while (f.attempt < START - 1)
            step_blocks(&f);
        look(&s, f.optim);
        put_grad(&f.param[2], bad);
        fixture_step(&f, 0.05);
        look(&s, f.optim);
        for (int i = 0; i < s.count; i++)
            assert_false(s.block[i].changed);
        step_blocks(&f);
        look(&s, f.optim);
        for (int i = 0; i < s.count; i++)
            assert_true(s.block[i].changed);
        fixture_close(&f);
    }
}

/* The largest cost of a step, against the mean of f steps and the largest block. */
static bool is_balanced(lt_refresh_timing timing, int64_t n)
{
    const lt_shampoo_config c = small_blocks(timing, n);
    double most = 0, all = 0, largest = 0;
    seen s = {0};
    fixture f;
    open_blocks(&f, &c);
    while (f.attempt < 3 * n) {
        double cost = 0;
        step_blocks(&f);
        look(&s, f.optim);
        for (int i = 0; i < s.count; i++) {
            cost += s.block[i].changed ? s.block[i].cost : 0;
            largest = fmax(largest, s.block[i].cost);
            all += f.attempt == n ? s.block[i].cost : 0;
        }
        most = fmax(most, f.attempt > n ? cost : 0);
    }
    fixture_close(&f);
    return most <= all / (double)n + largest;
}

static void no_step_costs_more_than_the_mean_and_one_block(void **state)
{
    (void)state;
    for (size_t k = 0; k < COUNT_OF(frequencies); k++)
        assert_true(is_balanced(LT_REFRESH_STAGGERED, frequencies[k]));
    assert_false(is_balanced(LT_REFRESH_REFERENCE, 4)); /* a control */
}

/* Blocks of a parameter without a gradient in their step wait for the next. */
static void a_block_without_gradient_misses_its_turn(void **state)
{
    (void)state;
    const lt_shampoo_config c = small_blocks(LT_REFRESH_STAGGERED, 2);
    seen s = {0};
    fixture f;
    open_blocks(&f, &c);
    for (int t = 1; t <= 3; t++)
        step_blocks(&f);
    look(&s, f.optim);
    for (int t = 4; t <= 5; t++) {
        f.param[1].has_grad = false;
        const lt_step step = {.lr = 0.05, .attempt = ++f.attempt};
        assert_ok(lt_optim_step(f.optim, &step));
    }
    look(&s, f.optim);
    for (int i = 0; i < s.count; i++)
        assert_int_equal(s.block[i].changed, i < 4 || i > 7);
    fixture_close(&f);
}

/* --- Statistics of a step --- */

static void statistics_count_the_roots_and_their_age(void **state)
{
    (void)state;
    const lt_shampoo_config c = small_blocks(LT_REFRESH_REFERENCE, 3);
    /* Factors: 2 * 4 of "large", 4 of "vector", 2 of "small". */
    static const struct {
        int64_t roots, age;
    } want[] = {{0, 0}, {0, 0}, {14, 0}, {0, 1}, {0, 2}, {14, 0}};
    fixture f;
    open_blocks(&f, &c);
    for (size_t i = 0; i < COUNT_OF(want); i++) {
        step_blocks(&f);
        const lt_shampoo_stats got = lt_shampoo_statistics(f.optim);
        assert_int_equal(got.roots, want[i].roots);
        assert_int_equal(got.root_age, want[i].age);
        assert_int_equal(got.failures, 0);
        assert_true(got.factor_seconds > 0);
        assert_true(got.apply_seconds > 0);
        assert_int_equal(got.root_seconds > 0, want[i].roots > 0);
    }
    fixture_close(&f);
}

static void statistics_of_a_skipped_step_are_zero(void **state)
{
    (void)state;
    const lt_shampoo_config c = small_blocks(LT_REFRESH_REFERENCE, 1);
    const double bad[6] = {0, 1, (double)NAN, 2, 3, 4};
    fixture f;
    open_blocks(&f, &c);
    step_blocks(&f);
    assert_int_equal(lt_shampoo_statistics(f.optim).roots, 14);
    put_grad(&f.param[2], bad);
    fixture_step(&f, 0.05);
    const lt_shampoo_stats got = lt_shampoo_statistics(f.optim);
    assert_int_equal(got.roots, 0);
    assert_near(got.factor_seconds, 0, 0);
    assert_int_equal(got.root_age, 1);
    fixture_close(&f);
}

static void other_optimizers_have_no_statistics(void **state)
{
    (void)state;
    fixture f;
    two_params(&f, make_adam, false);
    steps(&f, 1, 1);
    const lt_shampoo_stats got = lt_shampoo_statistics(f.optim);
    assert_near(got.apply_seconds, 0, 0);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_block_is_refreshed_once_in_any_f_steps_after_the_first),
        cmocka_unit_test(no_step_costs_more_than_the_mean_and_one_block),
        cmocka_unit_test(a_skipped_start_is_made_up_for),
        cmocka_unit_test(a_block_without_gradient_misses_its_turn),
        cmocka_unit_test(statistics_count_the_roots_and_their_age),
        cmocka_unit_test(statistics_of_a_skipped_step_are_zero),
        cmocka_unit_test(other_optimizers_have_no_statistics),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
