/* Shampoo's counting and messages when roots cannot be computed. */

#include "faulty.h"

/* --- Tolerated, and not --- */

typedef struct script {
    const char *name;
    lt_shape shape[3];
    int params;
} script;

/* Five factors each. */
static const script scripts[] = {
    {"one block with five dimensions", {{5, {2, 3, 2, 3, 2}}}, 1},
    {"three blocks", {{2, {3, 2}}, {2, {4, 2}}, {1, {5}}}, 3},
};

/* As in Shampoo's reference implementation: all but one fail, all fail twice, all succeed, which resets the
 * count, all fail three times; the next failure is the fourth in a row. */
static void the_fourth_failure_in_a_row_is_an_error(void **state)
{
    (void)state;
    static const fault_kind fault[] = {ALL_BUT_ONE, ALL, ALL, NONE, ALL, ALL, ALL};
    static const int failures[] = {4, 5, 5, 0, 5, 5, 5};
    for (size_t k = 0; k < COUNT_OF(scripts); k++) {
        lt_shampoo_config c = usual();
        c.target_dimensionality = LT_NO_LIMIT; /* nothing merges */
        fixture f;
        heard h;
        open_shapes(&f, true, &c, scripts[k].shape, scripts[k].params);
        listen(&h);
        for (size_t i = 0; i < COUNT_OF(fault); i++) {
            assert_ok(try_step(&f, fault[i]));
            const lt_shampoo_stats got = lt_shampoo_statistics(f.optim);
            assert_int_equal(got.roots, 5);
            assert_int_equal(got.failures, failures[i]);
        }
        assert_int_equal(h.count, 4 + 5 + 5 + 5 + 5 + 5);
        assert_status(try_step(&f, FIRST), LT_E_ARG);
        lt_log_set(NULL, NULL);
        fixture_close(&f);
    }
}

static void messages_name_parameter_block_dimension_step_and_reason(void **state)
{
    (void)state;
    lt_shampoo_config c = usual();
    fixture f;
    heard h;
    c.tolerated_failures = 1;
    open_faulty(&f, false, &c);
    listen(&h);
    assert_ok(try_step(&f, ONE_SIZE));
    assert_string_equal(h.last, "shampoo: layer.weight block 0, dimension 0 (3 x 3): no root at "
                                "step 1: eigh returned LT_E_DEVICE, in double precision too; the "
                                "old root is kept (1 in a row, 1 tolerated)");
    assert_status(try_step(&f, ONE_SIZE), LT_E_ARG);
    assert_string_equal(lt_error_message(),
                        "shampoo: layer.weight block 0, dimension 0 (3 x 3): no root at step 2: "
                        "eigh returned LT_E_DEVICE, in double precision too; the block's roots "
                        "failed 2 times in a row, 1 tolerated");
    lt_log_set(NULL, NULL);
    fixture_close(&f);
}

static void a_matrix_that_fails_keeps_its_old_root_and_the_others_get_new_ones(void **state)
{
    (void)state;
    const lt_shampoo_config c = usual();
    fixture f;
    heard h;
    listen(&h);
    open_faulty(&f, true, &c);
    assert_ok(try_step(&f, NONE));
    roots old = roots_of(&f);
    assert_ok(try_step(&f, ONE_SIZE));
    roots new = roots_of(&f);
    assert_memory_equal(old.value[0], new.value[0], sizeof old.value[0]);
    assert_memory_not_equal(old.value[1], new.value[1], sizeof old.value[1]);
    lt_log_set(NULL, NULL);
    fixture_close(&f);
}

static void failures_are_counted_by_factor_and_by_block_and_saved(void **state)
{
    (void)state;
    static const fault_kind fault[] = {ALL, ONE_SIZE, FIRST, NONE};
    static const int64_t want[][3] = {{1, 1, 1}, {2, 2, 0}, {3, 0, 1}, {0, 0, 0}};
    const lt_shampoo_config c = usual(); /* large ones come first: FIRST is dimension 1 */
    fixture f;
    heard h;
    listen(&h);
    open_faulty(&f, true, &c);
    for (size_t i = 0; i < COUNT_OF(fault); i++) {
        assert_ok(try_step(&f, fault[i]));
        const roots r = roots_of(&f);
        assert_int_equal(r.block_failures, want[i][0]);
        assert_int_equal(r.failures[0], want[i][1]);
        assert_int_equal(r.failures[1], want[i][2]);
    }
    lt_log_set(NULL, NULL);
    fixture_close(&f);
}

/* --- Precision, and failures that no policy tolerates --- */

static void what_fails_in_f32_is_tried_once_in_f64(void **state)
{
    (void)state;
    const lt_shampoo_config c = usual();
    double f32[ENTRIES], f64[ENTRIES];
    fixture f, g;
    open_faulty(&f, false, &c);
    assert_ok(try_step(&f, SINGLE_PRECISION));
    assert_int_equal(calls_f32, 2);
    assert_int_equal(calls_f64, 2);
    assert_int_equal(lt_shampoo_statistics(f.optim).retries, 2);
    assert_int_equal(lt_shampoo_statistics(f.optim).failures, 0);
    get(f.param[0].value, f32);
    fixture_close(&f);

    open_faulty(&g, true, &c);
    assert_ok(try_step(&g, NONE));
    get(g.param[0].value, f64);
    for (int i = 0; i < ENTRIES; i++)
        assert_near(f32[i], f64[i], 1e-5);
    fixture_close(&g);
}

static void a_factor_that_overflows_is_an_error_with_its_name_under_every_policy(void **state)
{
    (void)state;
    static const lt_on_failure policies[] = {LT_ON_FAILURE_ABORT, LT_ON_FAILURE_KEEP,
                                             LT_ON_FAILURE_DIAGONAL};
    for (size_t i = 0; i < COUNT_OF(policies); i++) {
        lt_shampoo_config c = usual();
        fixture f;
        c.on_failure = policies[i];
        open_faulty(&f, false, &c);
        assert_ok(try_step(&f, NONE));
        give(&f, 1e25);
        const lt_step step = {.lr = 0.1, .attempt = ++f.attempt};
        assert_status(lt_optim_step(f.optim, &step), LT_E_ARG);
        assert_non_null(strstr(lt_error_message(), "layer.weight block 0, dimension"));
        assert_non_null(strstr(lt_error_message(), "the factor is not finite at step 2"));
        fixture_close(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_fourth_failure_in_a_row_is_an_error),
        cmocka_unit_test(messages_name_parameter_block_dimension_step_and_reason),
        cmocka_unit_test(a_matrix_that_fails_keeps_its_old_root_and_the_others_get_new_ones),
        cmocka_unit_test(failures_are_counted_by_factor_and_by_block_and_saved),
        cmocka_unit_test(what_fails_in_f32_is_tried_once_in_f64),
        cmocka_unit_test(a_factor_that_overflows_is_an_error_with_its_name_under_every_policy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
