/* Sharded parameters: bitwise equal to sharded gradients alone, and gathers are in flight before they are
 * needed. */

#include "full.h"
#include "shard_params.h"

#include "lather/averaging.h"
#include "lather/cautious.h"

static rank_run whole[RANKS], sharded[RANKS];

/* --- Bitwise equal --- */

static lt_status make_small(lt_optim **out, const lt_params *params, const char *preset)
{
    lt_shampoo_config c;
    LT_TRY(lt_shampoo_preset(preset, &c));
    c.max_preconditioner_dim = 8;
    c.precondition_frequency = c.start_preconditioning_step = 2;
    return lt_optim_shampoo(out, params, &c);
}

static lt_status make_soap(lt_optim **out, const lt_params *params)
{
    return make_small(out, params, "soap");
}

static lt_status make_transformer(lt_optim **out, const lt_params *params)
{
    return make_small(out, params, "transformer");
}

static const scenario rows[] = {
    {.make = make_sgd, .bucket_bytes = 700},
    {.make = make_nesterov, .bucket_bytes = 1},
    {.make = make_adagrad, .bucket_bytes = 2000},
    {.make = make_adam, .bucket_bytes = 700, .average = true},
    {.make = make_adamw},
    {.make = make_adamw, .bucket_bytes = 700, .kind = "cpu", .clip = 0.1},
    {.make = make_adamw, .bucket_bytes = 700, .accum = 3, .clip = 0.1},
    {.make = make_adamw, .bucket_bytes = 700, .no_overlap = true, .no_prefetch = true},
    {.make = make_muon, .bucket_bytes = 700},
    {.make = make_lars, .bucket_bytes = 700},
    {.make = make_lamb, .bucket_bytes = 700, .recompute = true},
    {.make = make_shampoo, .bucket_bytes = 700, .clip = 0.1},
    {.make = make_shampoo, .bucket_bytes = 700, .f64 = true},
    {.make = make_shampoo, .bucket_bytes = 700, .communicate_params = true, .kind = "cpu"},
    {.make = make_shampoo, .bucket_bytes = 700, .kind = "cpu", .average = true},
    {.make = make_soap, .bucket_bytes = 700},
    {.make = make_transformer, .bucket_bytes = 700},
    {.make = make_staggered, .bucket_bytes = 700},
    {.make = make_async, .bucket_bytes = 700},
    {.make = make_adam, .bucket_bytes = 700, .bad_step = 3, .average = true},
    {.make = make_shampoo, .bucket_bytes = 700, .bad_step = 2, .half = true},
    {.make = make_adam, .bucket_bytes = 700, .gather_in = 3, .average = true},
    {.make = make_adam, .bucket_bytes = 700, .gather_in = 4, .stay_gathered = true},
    {.make = make_adam, .bucket_bytes = 700, .gather_in = 1, .stay_gathered = true},
};

static void compare(const rank_run *a, const rank_run *b, int ranks)
{
    for (int r = 0; r < ranks; r++) {
        assert_true(a[r].values > 500);
        assert_int_equal(a[r].values, b[r].values);
        assert_memory_equal(a[r].value, b[r].value, sizeof a->value);
        assert_memory_equal(a[r].average, b[r].average, sizeof a->average);
        assert_memory_equal(a[r].loss, b[r].loss, sizeof a->loss);
        assert_memory_equal(a[r].norm + 1, b[r].norm + 1, STEPS * sizeof(double));
        assert_memory_equal(a[r].applied, b[r].applied, sizeof a->applied);
    }
}

/* Runs on 1 to RANKS ranks; without ./check --full on one of these numbers, in turn. */
static void test_row(void **state)
{
    static int turn;
    scenario s = *(const scenario *)*state;
    scenario other = s;
    s.shard_params = true;
    turn++;
    for (int ranks = 1; ranks <= RANKS; ranks++) {
        if (!test_full() && ranks != 1 + turn % RANKS)
            continue;
        run_and_expect(whole, ranks, &other);
        run_and_expect(sharded, ranks, &s);
        compare(sharded, whole, ranks);
        for (int t = 1; t <= STEPS; t++)
            assert_int_equal(sharded[0].applied[t], t != s.bad_step);
    }
}

/* --- Prefetch --- */

/* All gathers of a pass but the first start while operations read the previous unit. */
static void gathers_are_in_flight_before_they_are_read(void **state)
{
    (void)state;
    scenario s = {.make = make_adamw, .shard_params = true, .bucket_bytes = 700, .accum = 2};
    run_and_expect(sharded, 3, &s);
    for (int r = 0; r < 3; r++) {
        const int64_t gathers = sharded[r].after.gathers - sharded[r].before.gathers;
        assert_true(gathers > 20);
        assert_int_equal(sharded[r].after.prefetched - sharded[r].before.prefetched, gathers - 2);
        assert_int_equal(sharded[r].after.flight_bytes, 0);
    }
    s.no_prefetch = true;
    run_and_expect(sharded, 3, &s);
    assert_int_equal(sharded[0].after.prefetched, 0);
}

/* --- Rejected input --- */

static void ranks_that_read_other_parameters_fail(void **state)
{
    (void)state;
    scenario s = {
        .make = make_adamw, .shard_params = true, .bucket_bytes = 1, .swapped_order = true};
    run_all(sharded, 2, &s);
    assert_int_equal(sharded[1].base.status, LT_E_ARG);
    assert_non_null(strstr(sharded[1].base.message,
                           "expected h.0.ln_1.weight, got h.1.ln_1.weight; every pass"));
    assert_int_not_equal(sharded[0].base.status, LT_OK);
    s.late = true;
    run_all(sharded, 2, &s);
    for (int r = 0; r < 2; r++)
        assert_int_equal(sharded[r].base.status, LT_E_COMM);
    assert_non_null(strstr(sharded[0].base.message, "mismatched calls"));
}

static void averages_must_be_sharded_too(void **state)
{
    (void)state;
    const scenario s = {
        .make = make_adamw, .shard_params = true, .average = true, .whole_average = true};
    run_all(sharded, 2, &s);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(sharded[r].base.status, LT_E_ARG);
        assert_non_null(strstr(sharded[r].base.message, "lt_optim_shard_ema()"));
    }
}

typedef struct alone {
    lt_device *device;
    lt_comm *comm;
    lt_tape *tape;
    lt_data_parallel *dp;
    lt_optim *optim;
    model m;
} alone;

static void open_alone(alone *a)
{
    const scenario s = {0};
    *a = (alone){0};
    assert_ok(lt_device_open(&a->device, "ref", NULL));
    assert_ok(lt_comm_open(&a->comm, "self", a->device));
    assert_ok(make_model(&a->m, &s, a->device));
    assert_ok(lt_tape_new(&a->tape, a->device));
    assert_ok(lt_data_parallel_new(&a->dp, a->comm, &a->m.list, a->tape, NULL));
    assert_ok(make_adamw(&a->optim, &a->m.list));
}

static void close_alone(alone *a)
{
    lt_optim_free(&a->optim);
    lt_data_parallel_free(&a->dp);
    lt_tape_free(&a->tape);
    free_model(&a->m);
    lt_comm_close(&a->comm);
    lt_device_close(&a->device);
}

static void parameters_are_sharded_after_state_and_gradients(void **state)
{
    (void)state;
    alone a;
    lt_shard_params_stats stats;
    open_alone(&a);
    const lt_shard_config bf16 = {.comm = a.comm, .shard_params = true, .dtype = LT_BF16};
    const lt_shard_config groups = {.comm = a.comm, .shard_params = true, .group = 1};
    const lt_shard_config good = {.comm = a.comm, .shard_params = true};
    lt_averaging_config primal = LT_AVERAGING_DEFAULTS;
    primal.kind = LT_AVERAGING_PRIMAL;
    assert_fails(lt_optim_shard_params(a.optim, a.tape, NULL), LT_E_ARG,
                 "cannot be sharded before the state");
    assert_fails(lt_optim_shard(a.optim, &bf16), LT_E_ARG, "got dtype bf16");
    assert_fails(lt_optim_shard(a.optim, &groups), LT_E_ARG, "groups of 1");
    assert_ok(lt_optim_shard(a.optim, &good));
    assert_fails(lt_optim_shard_params(a.optim, a.tape, NULL), LT_E_ARG,
                 "cannot be sharded before the state");
    assert_ok(lt_optim_shard_gradients(a.optim, a.dp));
    assert_ok(lt_optim_shard_params(a.optim, a.tape, NULL));
    assert_fails(lt_optim_shard_params(a.optim, a.tape, NULL), LT_E_ARG, "already sharded");
    assert_fails(lt_optim_shard(a.optim, &good), LT_E_ARG, "adamw: state is already sharded");
    assert_fails(lt_optim_start_averaging(a.optim, &a.m.list, &primal), LT_E_UNSUPPORTED,
                 "adamw: weight averaging does not support sharded parameters");
    assert_fails(lt_optim_start_cautious(a.optim, &(lt_cautious_config){.mask = true}), LT_E_ARG,
                 "adamw: cautious updates must be enabled once, before the first step");
    lt_optim_shard_params_stats(a.optim, &stats);
    assert_true(stats.value_bytes > 4000);
    close_alone(&a);
}

static void averaged_parameters_are_not_sharded(void **state)
{
    (void)state;
    alone a;
    open_alone(&a);
    const lt_shard_config good = {.comm = a.comm, .shard_params = true};
    lt_averaging_config primal = LT_AVERAGING_DEFAULTS;
    primal.kind = LT_AVERAGING_PRIMAL;
    assert_fails(lt_optim_shard_two_level(a.optim, NULL), LT_E_ARG, "adamw: state is not sharded");
    assert_ok(lt_optim_start_averaging(a.optim, &a.m.list, &primal));
    assert_ok(lt_optim_shard(a.optim, &good));
    assert_ok(lt_optim_shard_gradients(a.optim, a.dp));
    assert_fails(lt_optim_shard_params(a.optim, a.tape, NULL), LT_E_UNSUPPORTED,
                 "adamw: sharded parameters do not support weight averaging");
    close_alone(&a);
}

static void owners_and_attached_tensors_are_checked(void **state)
{
    (void)state;
    alone a;
    lt_shard_params *sp = NULL;
    lt_tensor *other = NULL;
    open_alone(&a);
    lt_owned_param one = {a.m.list.item[0], 1};
    assert_fails(lt_shard_params_new(&sp, a.comm, a.tape, &one, 0, NULL), LT_E_ARG,
                 "shard-params: empty list of parameters");
    assert_fails(lt_shard_params_new(&sp, a.comm, a.tape, &one, 1, NULL), LT_E_ARG,
                 "has owner 1, want 0 to 0");
    one.owner = -1;
    assert_fails(lt_shard_params_new(&sp, a.comm, a.tape, &one, 1, NULL), LT_E_ARG,
                 "has owner -1, want 0 to 0");
    one.owner = 0;
    assert_ok(lt_shard_params_new(&sp, a.comm, a.tape, &one, 1, NULL));
    assert_ok(lt_tensor_new(&other, a.device, LT_F32, LT_SHAPE(5)));
    assert_fails(lt_shard_params_follow(sp, a.m.list.item[1], other), LT_E_ARG,
                 "is not a sharded parameter");
    assert_non_null(strstr(lt_error_message(), a.m.list.item[1]->name));
    assert_fails(lt_shard_params_follow(sp, one.param, other), LT_E_ARG,
                 "must have the parameter's shape");
    assert_non_null(strstr(lt_error_message(), one.param->name));
    lt_shard_params_free(&sp);
    lt_tensor_free(&other);
    close_alone(&a);
}

static lt_status make_masked(lt_optim **out, const lt_params *params)
{
    LT_TRY(make_adamw(out, params));
    return lt_optim_start_cautious(*out, &(lt_cautious_config){.mask = true});
}

/* Optimizers that add up or compare whole parameters are refused before the first step; the state alone can be sharded. */
static void whole_parameters_are_not_sharded(void **state)
{
    (void)state;
    static const struct {
        lt_status (*make)(lt_optim **out, const lt_params *params);
        const char *message;
    } list[] = {{make_prodigy, "prodigy: needs whole parameters and gradients on each rank"},
                {make_masked, "adamw: cautious updates need whole parameters and gradients"}};
    for (size_t i = 0; i < COUNT_OF(list); i++) {
        alone a;
        open_alone(&a);
        lt_optim_free(&a.optim);
        assert_ok(list[i].make(&a.optim, &a.m.list));
        const lt_shard_config config = {.comm = a.comm}, of_params = {a.comm, .shard_params = true};
        assert_fails(lt_optim_shard_gradients(a.optim, NULL), LT_E_UNSUPPORTED, list[i].message);
        assert_fails(lt_optim_shard(a.optim, &of_params), LT_E_UNSUPPORTED, list[i].message);
        assert_ok(lt_optim_shard(a.optim, &config));
        assert_fails(lt_optim_shard_gradients(a.optim, a.dp), LT_E_UNSUPPORTED, list[i].message);
        close_alone(&a);
    }
}

/* The host cannot read a value without memory; it can once memory is allocated again. */
static void values_of_other_ranks_have_no_memory(void **state)
{
    (void)state;
    alone a;
    float value[15];
    open_alone(&a);
    lt_tensor_free_memory(a.m.idle.value);
    assert_int_equal(lt_tensor_read(a.m.idle.value, value, sizeof value), LT_E_ARG);
    assert_ok(lt_tensor_allocate_raw(a.m.idle.value));
    assert_ok(lt_tensor_read(a.m.idle.value, value, sizeof value));
    close_alone(&a);
}

int main(void)
{
    static const struct CMUnitTest single[] = {
        cmocka_unit_test(gathers_are_in_flight_before_they_are_read),
        cmocka_unit_test(ranks_that_read_other_parameters_fail),
        cmocka_unit_test(averages_must_be_sharded_too),
        cmocka_unit_test(parameters_are_sharded_after_state_and_gradients),
        cmocka_unit_test(averaged_parameters_are_not_sharded),
        cmocka_unit_test(whole_parameters_are_not_sharded),
        cmocka_unit_test(owners_and_attached_tensors_are_checked),
        cmocka_unit_test(values_of_other_ranks_have_no_memory)};
    static char name[COUNT_OF(rows)][TEXT];
    struct CMUnitTest tests[COUNT_OF(rows) + COUNT_OF(single)];
    size_t n = 0;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        snprintf(name[i], TEXT, "bitwise equal to sharded gradients: row %zu", i);
        tests[n++] = row_test(name[i], test_row, &rows[i]);
    }
    memcpy(&tests[n], single, sizeof single);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
