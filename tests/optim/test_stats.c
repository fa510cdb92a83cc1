/* Norms and cosines of --optim-stats against formulas written out here, for all optimizers; they do not depend on ranks, and
 * measuring does not change training. */

#include "stats_problem.h"
#include "tensor/tensor.h"

#include "lather/detail/spectrum.h"

static void norms_are_those_of_the_formulas(void **state)
{
    const maker *m = *state;
    problem p = {.clip = 3};
    double all = 0;
    play(&p, m->make);
    for (int k = 0; k < IDLE - 1; k++)
        all += dot(p.grad[k], p.grad[k], lt_shape_count(shapes[k].shape));
    for (int k = 0; k < FROZEN; k++)
        check_param(&p, k, 3 / sqrt(all));
    assert_int_equal(number(&p, LT_TABLE_PARAMETER, FROZEN, LT_PARAM_RULE), LT_RULE_FROZEN);
    assert_int_equal(number(&p, LT_TABLE_PARAMETER, IDLE, LT_PARAM_RULE), LT_RULE_NO_GRADIENT);
    assert_true(isnan(number(&p, LT_TABLE_PARAMETER, IDLE, LT_PARAM_UPDATE_NORM)));
    assert_close(number(&p, LT_TABLE_PARAMETER, IDLE, LT_PARAM_WEIGHT_NORM),
                 sqrt(dot(p.value[2][IDLE], p.value[2][IDLE], 6)));
    stop(&p);
}

static void devices_with_memory_of_their_own_give_the_same(void **state)
{
    const maker *m = *state;
    problem near = {.clip = 3}, far = {.clip = 3, .far = true};
    play(&near, m->make);
    play(&far, m->make);
    assert_int_equal(near.numbers, far.numbers);
    assert_memory_equal(near.number, far.number, near.numbers * sizeof *near.number);
    stop(&near);
    stop(&far);
}

static void spectra_need_a_kernel_and_the_master_dtype(void **state)
{
    (void)state;
    lt_device *device = NULL;
    lt_tensor *matrix = NULL;
    lt_spectrum out;
    assert_ok(lt_device_open(&device, "ref", &(lt_device_config){.f64 = true}));
    assert_ok(lt_tensor_new(&matrix, device, LT_F32, LT_SHAPE(2, 2)));
    assert_fails(lt_spectrum_compute(&out, matrix, matrix, 0, false), LT_E_UNSUPPORTED,
                 "optim-stats: matrix of f32 and basis of f32: want f64");
    const lt_backend *whole = device->backend;
    lt_backend lacking = *whole;
    lacking.eigh = NULL;
    device->backend = &lacking;
    assert_fails(lt_spectrum_compute(&out, matrix, NULL, 0, false), LT_E_UNSUPPORTED,
                 "optim-stats: ref has no kernel eigh");
    device->backend = whole;
    lt_tensor_free(&matrix);
    lt_device_close(&device);
}

static void a_number_that_is_off_is_rejected(void **state)
{
    (void)state;
    assert_true(is_close(2 * (1 + 5e-7), 2));
    assert_false(is_close(2 * (1 + 3e-6), 2));
    assert_false(is_close((double)NAN, 2));
}

static void a_skipped_step_says_so(void **state)
{
    (void)state;
    problem p = {.steps = EVERY, .bad = EVERY};
    play(&p, make_plain);
    assert_true(p.stats->skipped);
    for (size_t k = 0; k < FROZEN; k++) {
        assert_int_equal(number(&p, LT_TABLE_PARAMETER, k, LT_PARAM_RULE), LT_RULE_SKIPPED);
        assert_true(isnan(number(&p, LT_TABLE_PARAMETER, k, LT_PARAM_GRADIENT_NORM)));
    }
    assert_int_equal(number(&p, LT_TABLE_PARAMETER, FROZEN, LT_PARAM_RULE), LT_RULE_FROZEN);
    assert_close(number(&p, LT_TABLE_PARAMETER, 0, LT_PARAM_WEIGHT_NORM),
                 sqrt(dot(p.value[2][0], p.value[2][0], 12)));
    stop(&p);
}

/* --- Ranks --- */

static problem ranks[4];

static void numbers_do_not_depend_on_ranks(void **state)
{
    const maker *m = *state;
    static float alone[NUMBERS];
    size_t numbers = 0;
    for (int count = 1; count <= 4; count *= 2) {
        const rank_group group = {RANKS_OF(ranks, count), .f64 = true, .run = run_problem,
                                  .end = end_problem};
        memset(ranks, 0, sizeof ranks);
        for (int r = 0; r < count; r++) {
            ranks[r].make = m->make;
            ranks[r].every = EVERY;
            ranks[r].steps = 2 * EVERY;
            ranks[r].clip = 3;
            ranks[r].shard = count > 1;
        }
        play_ranks(&group);
        for (int r = 0; r < count; r++)
            if (ranks[r].at.status)
                fail_msg("rank %d: %s", r, ranks[r].at.message);
        if (count == 1) {
            numbers = ranks[0].numbers;
            memcpy(alone, ranks[0].number, sizeof alone);
        }
        assert_int_equal(ranks[0].numbers, numbers);
        assert_memory_equal(ranks[0].number, alone, numbers * sizeof *alone);
    }
}

static void training_is_bitwise_the_same(void **state)
{
    const maker *m = *state;
    static double value[PARAMS][MOST];
    for (int shard = 0; shard < 2; shard++)
        for (int on = 0; on < 2; on++) {
            const rank_group group = {RANKS_OF(ranks, shard ? 2 : 1), .f64 = true,
                                      .run = run_problem, .end = end_problem};
            memset(ranks, 0, sizeof ranks);
            for (int r = 0; r < group.count; r++)
                ranks[r] = (problem){.make = m->make, .every = 2 * on, .steps = 7, .shard = shard};
            play_ranks(&group);
            assert_int_equal(ranks[0].at.status, LT_OK);
            if (!on)
                memcpy(value, ranks[0].value[2], sizeof value);
            assert_memory_equal(value, ranks[0].value[2], sizeof value);
        }
}

/* --- Patterns --- */

static void patterns_choose_parameters(void **state)
{
    (void)state;
    problem p = {.pattern = {"^ma", "bias|frozen"}}, none = {.pattern = {"matrix", "absent"}},
            never = {.every = -1};
    const lt_device_config config = {.f64 = true, .threads = 1};
    play(&p, make_plain);
    assert_int_equal(p.stats->table[LT_TABLE_PARAMETER].rows, 3);
    assert_int_equal(p.stats->table[LT_TABLE_BLOCK].rows, 2);
    assert_string_equal(p.stats->param[1].param->name, "bias");
    stop(&p);
    assert_ok(lt_device_open(&none.at.device, "ref", &config));
    none.make = never.make = make_plain;
    none.every = 1;
    never.at.device = none.at.device;
    assert_fails(open_problem(&none), LT_E_ARG, "no parameter matches 'absent'");
    assert_fails(open_problem(&never), LT_E_ARG, "--optim-stats -1: must be at least 1");
    end_problem(&never);
    stop(&none);
}

int main(void)
{
    struct CMUnitTest tests[4 + 4 * MAKERS] = {
        cmocka_unit_test(spectra_need_a_kernel_and_the_master_dtype),
        cmocka_unit_test(a_number_that_is_off_is_rejected),
        cmocka_unit_test(a_skipped_step_says_so),
        cmocka_unit_test(patterns_choose_parameters),
    };
    size_t count = 4;
    for (size_t i = 0; i < COUNT_OF(makers); i++) {
        tests[count++] = row_test(makers[i].name, norms_are_those_of_the_formulas, &makers[i]);
        tests[count++] = row_test(makers[i].name, numbers_do_not_depend_on_ranks, &makers[i]);
        tests[count++] = row_test(makers[i].name, training_is_bitwise_the_same, &makers[i]);
        if (makers[i].make != make_staggered /* it refreshes other blocks there */
            && makers[i].make != make_adafactor
            && makers[i].make != make_prodigy) /* need the host memory */
            tests[count++] = row_test(makers[i].name,
                                      devices_with_memory_of_their_own_give_the_same, &makers[i]);
    }
    return _cmocka_run_group_tests("stats", tests, count, NULL, NULL);
}
