/* The loss scale of f16 passes: the sequence of torch.amp.GradScaler's defaults, skipped steps that change
 * nothing, and a training step that gives the same result as without scale. */

#include "fixture.h"

#include "lather/ext/optim.h"
#include "lather/ops.h"

enum { COUNT = 3 };

typedef struct row {
    const char *name;
    lt_loss_scaling config;
    const char *steps; /* g: finite gradients, i: an infinite one, n: a NaN */
    double scale;
    int good;
    int64_t applied;
} row;

static const row rows[] = {
    {"the scale is unchanged before the interval ends", {65536, 2, 0.5, 4, 0}, "ggg", 65536, 3, 3},
    {"it doubles after the interval", {65536, 2, 0.5, 4, 0}, "gggg", 131072, 0, 4},
    {"it halves after an overflow", {65536, 2, 0.5, 4, 0}, "ggi", 32768, 0, 2},
    {"a NaN is an overflow", {65536, 2, 0.5, 4, 0}, "n", 32768, 0, 0},
    {"an overflow starts the count again", {1024, 2, 0.5, 4, 0}, "gggigggg", 1024, 0, 7},
    {"overflows in a row halve each time", {65536, 2, 0.5, 4, 0}, "iiiig", 4096, 1, 1},
    {"a resumed run continues its count", {256, 2, 0.5, 4, 3}, "g", 512, 0, 1},
    {"no growth beyond what f32 holds", {0x1p125, 8, 0.5, 1, 0}, "g", 0x1p125, 0, 1},
};

static void put_gradient(lt_param *p, char kind, double scale)
{
    double g[COUNT] = {scale, -2 * scale, 3 * scale};
    if (kind != 'g')
        g[1] = kind == 'i' ? (double)INFINITY : (double)NAN;
    put(p->grad, g);
    p->has_grad = true;
}

static void check_sequence(void **state)
{
    const row *r = *state;
    static const double start[COUNT] = {1, 2, 3};
    fixture f;
    lt_step_result result = {0};
    fixture_open(&f, false);
    lt_param *p = fixture_add(&f, "w", LT_SHAPE(COUNT));
    put(p->value, start);
    assert_ok(lt_optim_sgd(&f.optim, &f.list, NULL));
    assert_ok(lt_optim_scale_loss(f.optim, &r->config));
    for (int64_t t = 0; r->steps[t]; t++) {
        double before[COUNT], after[COUNT], scale = 0;
        assert_ok(lt_tensor_item(lt_optim_loss_scale(f.optim), &scale));
        get(p->value, before);
        put_gradient(p, r->steps[t], scale);
        const lt_step step = {.lr = 0.5, .attempt = t + 1};
        assert_ok(lt_optim_step(f.optim, &step));
        assert_ok(lt_optim_result(f.optim, &result));
        get(p->value, after);
        const bool good = r->steps[t] == 'g';
        assert_int_equal(result.applied, good);
        for (int i = 0; i < COUNT; i++) /* gradients 1, -2, 3 once unscaled */
            assert_near(after[i], before[i] - (good ? 0.5 * (i == 1 ? -2 : i + 1) : 0), 1e-6);
    }
    assert_near(result.loss_scale, r->scale, 0);
    assert_int_equal(result.good_steps, r->good);
    assert_int_equal(result.steps, r->applied);
    fixture_close(&f);
}

/* Results that are read one step late are the same, in order; a skipped step is no update. */
static void check_late(void **state)
{
    const row *r = *state;
    static const double start[COUNT] = {1, 2, 3};
    fixture f;
    lt_step_result result = {0};
    int64_t steps = 0, good = 0;
    fixture_open(&f, false);
    lt_param *p = fixture_add(&f, "w", LT_SHAPE(COUNT));
    put(p->value, start);
    assert_ok(lt_optim_adam(&f.optim, &f.list, NULL));
    assert_ok(lt_optim_scale_loss(f.optim, &r->config));
    for (; r->steps[steps]; steps++) {
        put_gradient(p, r->steps[steps], 1);
        assert_ok(lt_optim_step(f.optim, &(lt_step){.lr = 0.5, .attempt = steps + 1}));
        assert_ok(lt_optim_send_result(f.optim));
        if (!steps)
            continue;
        assert_ok(lt_optim_result(f.optim, &result));
        good += r->steps[steps - 1] == 'g';
        assert_int_equal(result.applied, r->steps[steps - 1] == 'g');
        assert_int_equal(result.steps, good);
    }
    lt_state_visitor none = {0};
    assert_status(lt_optim_visit(f.optim, &none), LT_E_ARG); /* one is in flight */
    assert_ok(lt_optim_result(f.optim, &result));
    assert_near(result.loss_scale, r->scale, 0);
    assert_int_equal(result.good_steps, r->good);
    assert_int_equal(result.steps, r->applied);
    assert_int_equal(f.optim->slot[0].updates, r->applied);
    for (int i = 0; i < 2; i++)
        assert_ok(lt_optim_send_result(f.optim));
    assert_status(lt_optim_send_result(f.optim), LT_E_ARG);
    fixture_close(&f);
}

/* Momentum's first update after skipped ones is still its first. */
static void skipped_steps_count_no_update(void **state)
{
    (void)state;
    fixture f;
    double first[COUNT], later[COUNT];
    const lt_sgd_config config = {.momentum = 0.9, .dampening = 0.5};
    for (int skips = 0; skips < 2; skips++) {
        fixture_open(&f, false);
        lt_param *p = fixture_add(&f, "w", LT_SHAPE(COUNT));
        assert_ok(lt_optim_sgd(&f.optim, &f.list, &config));
        for (int64_t t = 0; t < 1 + skips; t++) {
            put_gradient(p, t < skips ? 'i' : 'g', 1);
            const lt_step step = {.lr = 1, .attempt = t + 1};
            assert_ok(lt_optim_step(f.optim, &step));
        }
        get(p->value, skips ? later : first);
        fixture_close(&f);
    }
    for (int i = 0; i < COUNT; i++)
        assert_near(later[i], first[i], 0);
}

/* The gradient of a linear layer on the tape with a scale of the device's, and without one. */
static void gradients_carry_the_scale(void **state)
{
    (void)state;
    fixture f;
    lt_tape *tape = NULL;
    double plain[COUNT], scaled[COUNT];
    fixture_open(&f, false);
    lt_param *p = fixture_add(&f, "w", LT_SHAPE(COUNT));
    assert_ok(lt_optim_sgd(&f.optim, &f.list, NULL));
    assert_ok(lt_tape_new(&tape, f.device));
    for (int pass = 0; pass < 2; pass++) {
        const lt_loss_scaling c = {.start = 1024, .growth = 2, .backoff = 0.5, .interval = 10};
        if (pass)
            assert_ok(lt_optim_scale_loss(f.optim, &c));
        lt_params_zero_grad(&f.list);
        lt_tape_reset(tape, LT_PASS_TRAIN);
        lt_tensor *loss =
            lt_sum(tape, lt_scale(tape, lt_tape_param(tape, p), 3), (lt_reduce_config){0});
        assert_ok(lt_tape_backward_by(tape, loss, 0.25, lt_optim_loss_scale(f.optim)));
        get(p->grad, pass ? scaled : plain);
    }
    for (int i = 0; i < COUNT; i++) {
        assert_near(plain[i], 0.75, 0);
        assert_near(scaled[i], 1024 * 0.75, 0);
    }
    lt_tape_free(&tape);
    fixture_close(&f);
}

static void wrong_numbers_are_refused(void **state)
{
    (void)state;
    static const lt_loss_scaling wrong[] = {
        {0, 2, 0.5, 10, 0}, {1e300, 2, 0.5, 10, 0}, {1, 0.5, 0.5, 10, 0},
        {1, 2, 0, 10, 0},   {1, 2, 1.5, 10, 0},     {1, 2, 0.5, -1, 0},
    };
    fixture f;
    fixture_open(&f, false);
    (void)fixture_add(&f, "w", LT_SHAPE(COUNT));
    assert_ok(lt_optim_sgd(&f.optim, &f.list, NULL));
    for (size_t i = 0; i < COUNT_OF(wrong); i++)
        assert_status(lt_optim_scale_loss(f.optim, &wrong[i]), LT_E_ARG);
    assert_null(lt_optim_loss_scale(f.optim));
    fixture_close(&f);
}

int main(void)
{
    enum { OTHERS = 3 };
    struct CMUnitTest tests[2 * COUNT_OF(rows) + OTHERS] = {
        cmocka_unit_test(skipped_steps_count_no_update),
        cmocka_unit_test(gradients_carry_the_scale),
        cmocka_unit_test(wrong_numbers_are_refused),
    };
    for (size_t i = 0; i < 2 * COUNT_OF(rows); i++) {
        const row *r = &rows[i / 2];
        tests[OTHERS + i] = row_test(r->name, i % 2 ? check_late : check_sequence, r);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
