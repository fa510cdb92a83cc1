/* Properties of all optimizers: skipped steps, state, missing gradients, clipping, groups. */

#include "makers.h"
#include "snapshot.h"

#include <stdio.h>
#include <string.h>

/* --- Rows for every optimizer --- */

static void a_gradient_with_a_nan_changes_nothing(void **state)
{
    const maker *m = *state;
    const double bad[] = {(double)NAN, HUGE_VAL};
    static snapshot before, after;
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        fixture f;
        lt_step_result result;
        two_params(&f, m->make, false);
        steps(&f, 1, 3);
        take(&before, &f, false);
        give_gradients(&f, 4, 1);
        double g[5] = {1, 2, 3, 4, bad[i]};
        put_grad(&f.param[1], g);
        fixture_step(&f, 0.05);
        assert_ok(lt_optim_result(f.optim, &result));
        assert_false(result.applied);
        assert_false(isfinite(result.grad_norm));
        assert_int_equal(result.steps, 3);

        take(&after, &f, false);
        memcpy(after.bytes, before.bytes, sizeof(int64_t)); /* attempt still advances */
        assert_memory_equal(before.bytes, after.bytes, before.used);

        steps(&f, 5, 5);
        take(&after, &f, false);
        assert_memory_not_equal(before.bytes, after.bytes, before.used);
        fixture_close(&f);
    }
}

static void state_saved_and_restored_continues_bit_for_bit(void **state)
{
    const maker *m = *state;
    static snapshot middle, end, again;
    fixture f;
    two_params(&f, m->make, false);
    steps(&f, 1, 5);
    take(&middle, &f, false);
    steps(&f, 6, 9);
    take(&end, &f, false);
    fixture_close(&f);

    two_params(&f, m->make, false);
    take(&middle, &f, true);
    f.attempt = 5;
    steps(&f, 6, 9);
    take(&again, &f, false);
    assert_int_equal(end.used, again.used);
    assert_memory_equal(end.bytes, again.bytes, end.used);
    fixture_close(&f);
}

static void a_parameter_without_gradient_is_unchanged(void **state)
{
    const maker *m = *state;
    double before[12], after[12], other[5];
    fixture f;
    two_params(&f, m->make, true);
    steps(&f, 1, 2);
    get(f.param[0].value, before);
    get(f.param[1].value, other);
    give_gradients(&f, 3, 1);
    f.param[0].has_grad = false;
    fixture_step(&f, 0.05);
    get(f.param[0].value, after);
    assert_memory_equal(before, after, sizeof before);
    get(f.param[1].value, after);
    assert_memory_not_equal(other, after, sizeof other);
    fixture_close(&f);
}

/* Clipping to the norm n is the same as gradients that have the norm n. */
static void clipping_scales_all_gradients_equally(void **state)
{
    const maker *m = *state;
    double clipped[12], scaled[12], norm = 0;
    fixture f, g;
    two_params(&f, m->make, true);
    two_params(&g, m->make, true);
    for (int t = 1; t <= 3; t++) {
        lt_step_result result;
        give_gradients(&f, t, 8);
        const lt_step step = {.lr = 0.05, .attempt = t, .clip_norm = 0.25};
        assert_ok(lt_optim_step(f.optim, &step));
        assert_ok(lt_optim_result(f.optim, &result));
        norm = result.grad_norm;
        assert_true(norm > 1);
        give_gradients(&g, t, 8 * 0.25 / norm);
        fixture_step(&g, 0.05);
    }
    for (int k = 0; k < 2; k++) {
        get(f.param[k].value, clipped);
        get(g.param[k].value, scaled);
        for (int i = 0; i < (k ? 5 : 12); i++)
            assert_near(clipped[i], scaled[i], 1e-7);
    }
    fixture_close(&f);
    fixture_close(&g);
}

static void a_group_with_half_the_rate_moves_as_with_half_the_rate(void **state)
{
    const maker *m = *state;
    double a[12], b[12];
    fixture f, g;
    two_params(&f, m->make, true);
    two_params(&g, m->make, true);
    assert_ok(lt_optim_set_group(f.optim, "a", (lt_optim_group){0.5, (double)NAN}));
    for (int t = 1; t <= 4; t++) {
        give_gradients(&f, t, 1);
        fixture_step(&f, 0.05);
        give_gradients(&g, t, 1);
        fixture_step(&g, 0.025);
    }
    get(f.param[0].value, a);
    get(g.param[0].value, b);
    assert_memory_equal(a, b, sizeof a);
    get(f.param[1].value, a);
    get(g.param[1].value, b);
    assert_memory_not_equal(a, b, 5 * sizeof *a);
    fixture_close(&f);
    fixture_close(&g);
}

int main(void)
{
    static const struct {
        const char *name;
        CMUnitTestFunction run;
    } each[] = {
        {"a gradient with a NaN or Inf changes nothing", a_gradient_with_a_nan_changes_nothing},
        {"state saved and restored continues bit for bit",
         state_saved_and_restored_continues_bit_for_bit},
        {"a parameter without gradient is unchanged", a_parameter_without_gradient_is_unchanged},
        {"clipping scales all gradients equally", clipping_scales_all_gradients_equally},
        {"a group with half the rate moves so",
         a_group_with_half_the_rate_moves_as_with_half_the_rate},
    };
    enum { E = COUNT_OF(each), ALL = MAKERS * E };
    static struct CMUnitTest tests[ALL];
    static char names[ALL][96];
    for (size_t n = 0; n < ALL; n++) {
        const maker *m = &makers[n / E];
        snprintf(names[n], sizeof names[n], "%s: %s", m->name, each[n % E].name);
        tests[n] = row_test(names[n], each[n % E].run, m);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
