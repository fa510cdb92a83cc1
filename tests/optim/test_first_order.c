/* First-order optimizers against 50-digit numbers (tests/golden/first_order.py); decay, averages of
 * weights, a custom optimizer. */

#include "makers.h"
#include "tensor/tensor.h"

#include "lather/ema.h"
#include "lather/ext/optim.h"
#include "lather/ext/vec.h"

#include <stdio.h>
#include <string.h>

enum { COUNT = 3, GOLDEN = 5 }; /* the first makers are in the file */

static void dyadic_gradient(double *g, int t)
{
    for (int i = 0; i < COUNT; i++)
        g[i] = ((7 * t + 3 * i) % 11 - 5) / 4.0;
}

/* Reads a line of the golden file; returns false at its end. */
static bool read_golden(FILE *file, char *name, int *t, double *w)
{
    char line[256];
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "%15s %d %la %la %la", name, t, &w[0], &w[1], &w[2]) == 5)
            return true;
    return false;
}

static double golden_error(const maker *m, double lr)
{
    static const double start[COUNT] = {0.5, -1.25, 2};
    char path[512], name[16];
    double want[COUNT], got[COUNT], g[COUNT], worst = 0;
    int t, rows = 0;
    snprintf(path, sizeof path, "%s/tests/golden/first_order.txt", getenv("LATHER_TEST_SOURCE"));
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    fixture f;
    fixture_open(&f, true);
    lt_param *p = fixture_add(&f, "w", LT_SHAPE(COUNT));
    put(p->value, start);
    assert_ok(m->make(&f.optim, &f.list));
    while (read_golden(file, name, &t, want)) {
        if (strcmp(name, m->name) != 0)
            continue;
        dyadic_gradient(g, t);
        put_grad(p, g);
        fixture_step(&f, lr);
        get(p->value, got);
        for (int i = 0; i < COUNT; i++)
            worst = fmax(worst, fabs(got[i] - want[i]));
        rows++;
    }
    fclose(file);
    fixture_close(&f);
    assert_int_equal(rows, 10);
    return worst;
}

static void agrees_with_50_digits(void **state)
{
    const maker *m = *state;
    assert_near(golden_error(m, 0.1), 0, 1e-14);
    assert_true(golden_error(m, 0.1 + 1e-12) > 1e-14); /* a control */
}

/* --- Single rows --- */

static void decay_can_leave_out_biases(void **state)
{
    (void)state;
    const lt_sgd_config c = {.weight_decay = 0.5, .decay_scope = LT_DECAY_WEIGHTS};
    const double zero[12] = {0};
    double w[12];
    fixture f;
    two_params(&f, make_sgd, true);
    lt_optim_free(&f.optim);
    f.param[1].role = LT_PARAM_BIAS;
    assert_ok(lt_optim_sgd(&f.optim, &f.list, &c));
    put_grad(&f.param[0], zero);
    put_grad(&f.param[1], zero);
    fixture_step(&f, 1);
    get(f.param[0].value, w);
    assert_near(w[1], -1, 0);
    get(f.param[1].value, w);
    assert_near(w[1], -2, 0);
    assert_ok(lt_optim_set_group(f.optim, "b", (lt_optim_group){1, 0.25}));
    fixture_step(&f, 1);
    get(f.param[1].value, w);
    assert_near(w[1], -1.5, 0);
    fixture_close(&f);
}

static void bad_arguments_are_refused(void **state)
{
    (void)state;
    fixture f;
    two_params(&f, make_adam, true);
    lt_optim *o = NULL;
    lt_params none = {0};
    const lt_sgd_config momentum = {.momentum = 1};
    const lt_adam_config beta = {.beta1 = -0.1};
    lt_ema *ema = NULL;
    lt_step step = {.lr = 1, .clip_norm = -0.5, .attempt = 1};
    const lt_adam_config decay = {.weight_decay = -0.25};
    assert_fails(lt_optim_set_group(f.optim, "a", (lt_optim_group){1, -0.25}), LT_E_ARG,
                 "adam: weight_decay -0.25 of a is not a number >= 0");
    assert_fails(lt_optim_step(f.optim, &step), LT_E_ARG, "adam: clip_norm -0.5 is not >= 0");
    assert_fails(lt_optim_adam(&o, &f.list, &decay), LT_E_ARG,
                 "adam: weight_decay -0.25 is not in [0,inf)");
    assert_fails(lt_ema_new(&ema, &f.list, 1), LT_E_ARG, "ema: decay 1 is not in [0,1)");
    assert_fails(lt_ema_new(&ema, &f.list, -0.5), LT_E_ARG, "ema: decay -0.5 is not in [0,1)");
    assert_fails(lt_ema_new(&ema, &none, 0.5), LT_E_ARG, "ema: no parameters");
    assert_null(ema);
    assert_status(lt_optim_set_group(f.optim, "c", (lt_optim_group){1, (double)NAN}), LT_E_ARG);
    assert_status(lt_optim_set_group(f.optim, "a", (lt_optim_group){-1, (double)NAN}), LT_E_ARG);
    assert_status(lt_optim_step(f.optim, &(lt_step){.lr = -1, .attempt = 1}), LT_E_ARG);
    assert_status(lt_optim_step(f.optim, &(lt_step){.lr = (double)NAN, .attempt = 1}), LT_E_ARG);
    assert_status(lt_optim_step(f.optim, &(lt_step){.lr = 1}), LT_E_ARG);
    assert_status(lt_optim_sgd(&o, &f.list, &momentum), LT_E_ARG);
    assert_status(lt_optim_adam(&o, &f.list, &beta), LT_E_ARG);
    assert_status(lt_optim_sgd(&o, &none, NULL), LT_E_ARG);
    assert_null(o);
    fixture_close(&f);
}

static void parameters_are_on_one_device(void **state)
{
    (void)state;
    fixture f, other;
    lt_optim *o = NULL;
    lt_params both = {0};
    fixture_open(&f, true);
    fixture_open(&other, true);
    assert_ok(lt_params_add(&both, fixture_add(&f, "first", LT_SHAPE(2))));
    assert_ok(lt_params_add(&both, fixture_add(&other, "second", LT_SHAPE(2))));
    assert_fails(lt_optim_sgd(&o, &both, NULL), LT_E_ARG,
                 "optim: second is on another device than the first parameter");
    assert_null(o);
    lt_params_clear(&both);
    fixture_close(&other);
    fixture_close(&f);
}

/* A custom backend may lack kernels. */
static void a_missing_kernel_is_named(void **state)
{
    (void)state;
    fixture f;
    lt_optim *o = NULL;
    lt_ema *ema = NULL;
    two_params(&f, make_sgd, true);
    assert_ok(lt_ema_new(&ema, &f.list, 0.5));
    const lt_backend *whole = f.device->backend;
    lt_backend lacking = *whole;
    lacking.vec = NULL;
    f.device->backend = &lacking;
    assert_fails(lt_optim_adam(&o, &f.list, NULL), LT_E_UNSUPPORTED,
                 "adam: backend ref has no kernel for vec");
    assert_fails(lt_ema_update_by_steps(ema, 1), LT_E_UNSUPPORTED,
                 "ema: backend ref has no kernel for vec");
    assert_fails(lt_vec_axpby(f.param[0].value, 1, f.param[0].value, 0, NULL), LT_E_UNSUPPORTED,
                 "vec: backend ref has no kernel");
    f.device->backend = whole;
    lt_ema_free(&ema);
    fixture_close(&f);
}

static void the_average_of_weights_follows_and_swaps(void **state)
{
    (void)state;
    double before[12], average[12], w[12], expected[12];
    fixture f;
    lt_ema *ema = NULL;
    lt_state_visitor visitor = {.number = ignore_number};
    two_params(&f, make_sgd, true);
    get(f.param[0].value, expected);
    assert_ok(lt_ema_new(&ema, &f.list, 0.75));
    for (int t = 1; t <= 3; t++) {
        steps(&f, t, t);
        assert_ok(lt_ema_update(ema, f.optim));
        get(f.param[0].value, before);
        for (int i = 0; i < 12; i++)
            expected[i] += 0.25 * (before[i] - expected[i]);
    }
    give_gradients(&f, 4, (double)NAN); /* a skipped step does not count */
    fixture_step(&f, 1);
    assert_ok(lt_ema_update(ema, f.optim));

    uint64_t version = lt_tensor_view(f.param[0].value).version;
    assert_ok(lt_ema_swap(ema));
    assert_true(lt_ema_is_swapped(ema));
    assert_status(lt_ema_update(ema, f.optim), LT_E_ARG);
    assert_fails(lt_ema_update_by_steps(ema, 1), LT_E_ARG,
                 "ema: update while the averages are swapped in: call lt_ema_swap() first");
    assert_fails(lt_ema_visit(ema, &visitor), LT_E_ARG,
                 "ema: visit while the averages are swapped in: call lt_ema_swap() first");
    assert_true(lt_tensor_view(f.param[0].value).version != version);
    get(f.param[0].value, average);
    for (int i = 0; i < 12; i++)
        assert_near(average[i], expected[i], 1e-14);
    assert_ok(lt_ema_swap(ema));
    get(f.param[0].value, w);
    assert_memory_equal(w, before, sizeof w);
    lt_ema_free(&ema);
    fixture_close(&f);
}

/* A custom optimizer: m is a moving average, and its sign is the update. */
static lt_status average_update(lt_optim *self, lt_slot *slot, const lt_scalars *s)
{
    (void)self;
    LT_TRY(lt_vec_lerp(slot->state[0], slot->grad, 0.5, s));
    return lt_vec_add_lr(slot->param->value, -slot->lr_scale, slot->state[0], s);
}

static lt_status average_step(lt_optim *self, const lt_scalars *s)
{
    return lt_optim_for_each_slot(self, average_update, s);
}

static const lt_optim_ops average_ops = {
    .name = "average",
    .bytes = sizeof(lt_optim),
    .slot_state = {"m"},
    .step = average_step,
};

static void an_optimizer_of_ones_own_reads_clipped_gradients(void **state)
{
    (void)state;
    const double one[12] = {1, 1, 1, 1}, zero[12] = {0}; /* norm 2 */
    double w[12];
    fixture f;
    two_params(&f, make_sgd, true);
    lt_optim_free(&f.optim);
    assert_fails(lt_optim_new(&f.optim, &average_ops, &f.list, -0.25, LT_DECAY_ALL), LT_E_ARG,
                 "average: weight_decay -0.25 is not a number >= 0");
    assert_fails(lt_optim_new(&f.optim, &average_ops, &f.list, HUGE_VAL, LT_DECAY_ALL), LT_E_ARG,
                 "average: weight_decay inf is not a number >= 0");
    assert_ok(lt_optim_new(&f.optim, &average_ops, &f.list, 0, LT_DECAY_ALL));
    put(f.param[0].value, zero);
    put_grad(&f.param[0], one);
    f.param[1].has_grad = false;
    assert_ok(lt_optim_step(f.optim, &(lt_step){.lr = 1, .attempt = 1, .clip_norm = 1}));
    get(f.param[0].value, w);
    assert_near(w[0], -0.25, 1e-15);
    assert_int_equal(lt_optim_state_bytes(f.optim), 17 * sizeof(double));
    fixture_close(&f);
}

int main(void)
{
    static const struct CMUnitTest single[] = {
        cmocka_unit_test(decay_can_leave_out_biases),
        cmocka_unit_test(bad_arguments_are_refused),
        cmocka_unit_test(parameters_are_on_one_device),
        cmocka_unit_test(a_missing_kernel_is_named),
        cmocka_unit_test(the_average_of_weights_follows_and_swaps),
        cmocka_unit_test(an_optimizer_of_ones_own_reads_clipped_gradients),
    };
    struct CMUnitTest tests[GOLDEN + COUNT_OF(single)];
    for (size_t k = 0; k < GOLDEN; k++)
        tests[k] = row_test(makers[k].name, agrees_with_50_digits, &makers[k]);
    for (size_t i = 0; i < COUNT_OF(single); i++)
        tests[GOLDEN + i] = single[i];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
