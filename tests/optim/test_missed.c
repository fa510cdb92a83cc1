/* Bias corrections that count steps per parameter, as torch.optim. */

#include "makers.h"
#include "snapshot.h"

#include <stdio.h>

enum { SIZE = 3, LAST = 3, SAVED = 6, SKIPPED = 6 };
static const double lr = 0.01;

static lt_status make_grafted(lt_optim **out, const lt_params *params)
{
    lt_shampoo_config c = LT_SHAMPOO_REFERENCE;
    c.epsilon = 1e-6;
    c.grafting = LT_GRAFTING_ADAM;
    c.start_preconditioning_step = 1000;
    c.per_param_steps = true;
    return lt_optim_shampoo(out, params, &c);
}

static lt_status make_all_steps(lt_optim **out, const lt_params *params)
{
    lt_shampoo_config c = LT_SHAMPOO_REFERENCE;
    c.epsilon = 1e-6;
    c.grafting = LT_GRAFTING_ADAM;
    c.start_preconditioning_step = 1000;
    return lt_optim_shampoo(out, params, &c);
}

static void open_two(fixture *f, make_fn *make)
{
    const double start[SIZE] = {0.5, -1.25, 2};
    fixture_open(f, true);
    for (int i = 0; i < 3; i++)
        put(fixture_add(f, i == 0 ? "a" : i == 1 ? "b" : "c", LT_SHAPE(SIZE))->value, start);
    assert_ok(make(&f->optim, &f->list));
}

/* One step; n: number of a's gradient, 0: it has none. b always has one, c never. */
static void step(fixture *f, int n, bool overflows)
{
    double g[SIZE];
    for (int i = 0; i < SIZE; i++)
        g[i] = overflows ? HUGE_VAL : 1 + n - 1.5 * i;
    f->param[0].has_grad = f->param[2].has_grad = false;
    if (n)
        put_grad(&f->param[0], g);
    put_grad(&f->param[1], g);
    fixture_step(f, lr);
}

/* a's gradients 1, 2, 3 in steps 5, 7, 9; step 6 overflows. */
static void late_steps(fixture *f, int begin, int end)
{
    for (int t = begin; t <= end; t++)
        step(f, t == SKIPPED ? 9 : t >= 5 && t % 2 ? (t - 3) / 2 : 0, t == SKIPPED);
}

static void gradients_that_come_late_act_as_those_that_come_first(void **state)
{
    fixture early, late;
    double want[SIZE], got[SIZE];
    open_two(&early, *(make_fn **)*state);
    open_two(&late, *(make_fn **)*state);
    for (int n = 1; n <= LAST; n++)
        step(&early, n, false);
    late_steps(&late, 1, 9);
    get(early.param[0].value, want);
    get(late.param[0].value, got);
    assert_memory_equal(got, want, sizeof want);
    fixture_close(&early);
    fixture_close(&late);
}

static void counts_are_saved(void **state)
{
    static snapshot middle, end, again;
    fixture f;
    open_two(&f, *(make_fn **)*state);
    late_steps(&f, 1, 9);
    take(&end, &f, false);
    fixture_close(&f);

    open_two(&f, *(make_fn **)*state);
    late_steps(&f, 1, SAVED);
    take(&middle, &f, false);
    late_steps(&f, SAVED + 1, 9);
    take(&again, &f, false); /* to save changes nothing */
    assert_memory_equal(end.bytes, again.bytes, end.used);
    fixture_close(&f);

    open_two(&f, *(make_fn **)*state);
    take(&middle, &f, true);
    f.attempt = SAVED;
    late_steps(&f, SAVED + 1, 9);
    take(&again, &f, false);
    assert_memory_equal(end.bytes, again.bytes, end.used);
    fixture_close(&f);
}

static void a_late_first_step_with_state_in_bf16_is_lr_long(void **state)
{
    const double start[SIZE] = {0.5, -1.25, 2};
    double w[SIZE];
    fixture f;
    (void)state;
    f = (fixture){0};
    assert_ok(lt_device_open(&f.device, "cpu", &(lt_device_config){.threads = 1}));
    for (int i = 0; i < 3; i++)
        put(fixture_add(&f, i == 0 ? "a" : i == 1 ? "b" : "c", LT_SHAPE(SIZE))->value, start);
    assert_ok(make_adam(&f.optim, &f.list));
    assert_ok(lt_optim_set_state_dtype(f.optim, LT_STATE_BF16));
    late_steps(&f, 1, 5);
    get(f.param[0].value, w);
    assert_near(fabs(w[0] - start[0]) / lr, 1, 0.02);
    fixture_close(&f);
}

/* As Meta's does: documented, and a control of the rows above. */
static void shampoo_counts_all_steps_unless_told(void **state)
{
    (void)state;
    fixture early, late;
    double want[SIZE], got[SIZE];
    open_two(&early, make_all_steps);
    open_two(&late, make_all_steps);
    step(&early, 1, false);
    late_steps(&late, 1, 5);
    get(early.param[0].value, want);
    get(late.param[0].value, got);
    assert_true(fabs(got[0] - want[0]) > 0.1 * lr);
    fixture_close(&early);
    fixture_close(&late);
}

int main(void)
{
    static make_fn *const made[] = {make_adam, make_adamw, make_muon, make_grafted};
    static const char *const name[] = {"adam", "adamw", "muon", "shampoo with per_param_steps"};
    enum { MADE = sizeof made / sizeof *made };
    static char text[2 * MADE][80];
    struct CMUnitTest tests[2 * MADE + 2] = {
        cmocka_unit_test(a_late_first_step_with_state_in_bf16_is_lr_long),
        cmocka_unit_test(shampoo_counts_all_steps_unless_told),
    };
    for (size_t i = 0; i < 2 * MADE; i++) {
        const bool saved = i >= MADE;
        snprintf(text[i], sizeof text[i], "%s: %s", name[i % MADE],
                 saved ? "counts are saved" : "a late first gradient acts as an early one");
        tests[2 + i] = (struct CMUnitTest){
            .name = text[i],
            .test_func =
                saved ? counts_are_saved : gradients_that_come_late_act_as_those_that_come_first,
            .initial_state = (void *)(uintptr_t)&made[i % MADE]};
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
