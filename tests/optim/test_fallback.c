/* Shampoo's fallbacks when roots fail more often than is tolerated. */

#include "faulty.h"

static void keep_goes_on_with_the_old_root(void **state)
{
    (void)state;
    lt_shampoo_config c = usual();
    fixture f;
    heard h;
    listen(&h);
    c.on_failure = LT_ON_FAILURE_KEEP;
    open_faulty(&f, true, &c);
    assert_ok(try_step(&f, NONE));
    const roots old = roots_of(&f);
    for (int i = 0; i < 6; i++)
        assert_ok(try_step(&f, ONE_SIZE));
    const roots new = roots_of(&f);
    assert_memory_equal(old.value[0], new.value[0], sizeof old.value[0]);
    assert_int_equal(new.block_failures, 6);
    assert_int_equal(h.count, 6);
    assert_int_equal(lt_shampoo_statistics(f.optim).root_age, 6);
    lt_log_set(NULL, NULL);
    fixture_close(&f);
}

/* Without a gradient F is 0, and (1e-44)^(-1) no number of f32. */
static lt_shampoo_config infinite_roots(lt_on_failure on_failure)
{
    lt_shampoo_config c = usual();
    c.on_failure = on_failure;
    c.tolerated_failures = 0;
    c.epsilon = 1e-44;
    c.grafting = LT_GRAFTING_SGD;
    for (int d = 0; d < 2; d++) {
        c.inverse_exponent.value[2][d] = 1;
        c.inverse_exponent.set[2][d] = true;
    }
    return c;
}

static lt_status step_without_gradient(fixture *f)
{
    give(f, 0);
    const lt_step step = {.lr = 0.1, .attempt = ++f->attempt};
    return lt_optim_step(f->optim, &step);
}

static void keep_goes_on_with_the_old_root_where_the_new_one_is_infinite(void **state)
{
    (void)state;
    const lt_shampoo_config c = infinite_roots(LT_ON_FAILURE_KEEP);
    fixture f;
    heard h;
    listen(&h);
    open_faulty(&f, false, &c);
    for (int i = 0; i < 3; i++)
        assert_ok(step_without_gradient(&f));
    const roots r = roots_of(&f);
    for (int i = 0; i < ROWS * ROWS; i++)
        assert_near(r.value[0][i], i % (ROWS + 1) == 0, 0); /* as at the start */
    assert_int_equal(r.block_failures, 3);
    assert_non_null(strstr(h.last, "the old root is kept"));
    lt_log_set(NULL, NULL);
    fixture_close(&f);
}

static void a_diagonal_without_a_power_fails_the_step(void **state)
{
    (void)state;
    const lt_shampoo_config c = infinite_roots(LT_ON_FAILURE_DIAGONAL);
    fixture f;
    open_faulty(&f, false, &c);
    assert_fails(step_without_gradient(&f), LT_E_ARG,
                 "dimension 1: the factor's diagonal has no power -1 at step 1");
    fixture_close(&f);
}

typedef struct rule {
    const char *name;
    lt_epsilon_rule epsilon;
    double beta2, trace_scaling;
    lt_preconditioner kind;
} rule;

static const rule rules[] = {
    {"epsilon before", LT_EPSILON_BEFORE, 1, 0, LT_PRECONDITIONER_ROOT},
    {"epsilon after", LT_EPSILON_AFTER, 1, 0, LT_PRECONDITIONER_ROOT},
    {"bias correction", LT_EPSILON_BEFORE, 0.9, 0, LT_PRECONDITIONER_ROOT},
    {"trace scaling", LT_EPSILON_BEFORE, 1, 0.5, LT_PRECONDITIONER_ROOT},
    {"eigenvectors", LT_EPSILON_BEFORE, 1, 0, LT_PRECONDITIONER_EIGENDECOMPOSED},
    {"basis alone", LT_EPSILON_BEFORE, 1, 0, LT_PRECONDITIONER_CORRECTED},
};

/* R is diagonal, with (diag A + epsilon)^(-1/4); a basis is the standard one. factor: F after that number
 * of steps. */
static void check_diagonal(const roots *r, const double *factor, int steps, const rule *c)
{
    const double epsilon = usual().epsilon;
    double a[ROWS], trace = 0;
    for (int i = 0; i < ROWS; i++) {
        a[i] = factor[i * ROWS + i] / (c->beta2 < 1 ? 1 - pow(c->beta2, steps) : 1);
        trace += a[i];
    }
    for (int i = 0; i < ROWS; i++) {
        const double scale = c->trace_scaling > 0 ? pow(trace, -c->trace_scaling) : 1;
        const double power = pow(a[i] * scale + epsilon, -0.25);
        const double want = c->kind == LT_PRECONDITIONER_ROOT ? power : 1;
        for (int j = 0; j < ROWS; j++)
            assert_near(r->value[0][i * ROWS + j], i == j ? want : 0, 1e-12 * want);
        if (c->kind == LT_PRECONDITIONER_EIGENDECOMPOSED)
            assert_near(r->power[0][i], power, 1e-12 * power);
    }
}

static lt_shampoo_config diagonal_config(const rule *r)
{
    lt_shampoo_config c = usual();
    c.on_failure = LT_ON_FAILURE_DIAGONAL;
    c.tolerated_failures = 1;
    c.epsilon_rule = r->epsilon;
    c.beta2 = r->beta2;
    c.trace_scaling = r->trace_scaling;
    c.preconditioner = r->kind;
    return c;
}

static void diagonal_stands_in_for_a_factor_until_it_has_a_root_again(void **state)
{
    (void)state;
    for (size_t k = 0; k < COUNT_OF(rules); k++) {
        const lt_shampoo_config c = diagonal_config(&rules[k]);
        fixture f;
        heard h;
        listen(&h);
        open_faulty(&f, true, &c);
        assert_ok(try_step(&f, NONE));
        const roots old = roots_of(&f);
        assert_ok(try_step(&f, ONE_SIZE));
        assert_memory_equal(roots_of(&f).value[0], old.value[0], sizeof old.value[0]);
        for (int i = 0; i < 2; i++) {
            assert_ok(try_step(&f, ONE_SIZE));
            const roots r = roots_of(&f);
            check_diagonal(&r, r.factor[0], (int)f.attempt, &rules[k]);
        }
        assert_non_null(strstr(h.last, "its diagonal is used instead"));
        assert_ok(try_step(&f, NONE));
        const roots whole = roots_of(&f);
        assert_true(fabs(whole.value[0][1]) > 1e-6);
        assert_int_equal(whole.block_failures, 0);
        lt_log_set(NULL, NULL);
        fixture_close(&f);
    }
}

/* F changes while the thread works: the diagonal is that of the last step before the swap. */
static void asynchronous_roots_that_fail_give_way_to_the_diagonal_of_the_swap(void **state)
{
    (void)state;
    const rule bias = {.beta2 = 0.9};
    lt_shampoo_config c = diagonal_config(&bias);
    fixture f;
    heard h;
    listen(&h);
    c.tolerated_failures = 0;
    c.precondition_frequency = 2;
    c.refresh_timing = LT_REFRESH_ASYNC;
    open_faulty(&f, true, &c);
    for (int t = 1; t <= 3; t++)
        assert_ok(try_step(&f, NONE));
    for (int t = 4; t <= 5; t++)
        assert_ok(try_step(&f, ONE_SIZE));
    const roots before = roots_of(&f);
    assert_ok(try_step(&f, ONE_SIZE));
    const roots after = roots_of(&f);
    check_diagonal(&after, before.factor[0], 5, &bias);
    assert_non_null(strstr(h.last, "no root at step 4"));
    lt_log_set(NULL, NULL);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keep_goes_on_with_the_old_root),
        cmocka_unit_test(keep_goes_on_with_the_old_root_where_the_new_one_is_infinite),
        cmocka_unit_test(a_diagonal_without_a_power_fails_the_step),
        cmocka_unit_test(diagonal_stands_in_for_a_factor_until_it_has_a_root_again),
        cmocka_unit_test(asynchronous_roots_that_fail_give_way_to_the_diagonal_of_the_swap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
