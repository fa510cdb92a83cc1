/* What all optimizers share: golden numbers, skipped steps, clipping, groups, state. */

#include "fixture.h"

#include "lather/ema.h"
#include "lather/ext/optim.h"
#include "lather/ext/vec.h"
#include "lather/shampoo.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- Golden numbers --- */

typedef lt_status make_fn(lt_optim **out, const lt_params *params);

static lt_status make_sgd(lt_optim **out, const lt_params *params)
{
    const lt_sgd_config c = {.momentum = 0.9, .dampening = 0.25, .weight_decay = 0.01};
    return lt_optim_sgd(out, params, &c);
}

static lt_status make_nesterov(lt_optim **out, const lt_params *params)
{
    const lt_sgd_config c = {.momentum = 0.9, .nesterov = true};
    return lt_optim_sgd(out, params, &c);
}

static lt_status make_adagrad(lt_optim **out, const lt_params *params)
{
    const lt_adagrad_config c = {.eps = 1e-10, .weight_decay = 0.01};
    return lt_optim_adagrad(out, params, &c);
}

static lt_status make_adam(lt_optim **out, const lt_params *params)
{
    lt_adam_config c = LT_ADAM_DEFAULTS;
    c.weight_decay = 0.01;
    return lt_optim_adam(out, params, &c);
}

static lt_status make_adamw(lt_optim **out, const lt_params *params)
{
    lt_adam_config c = LT_ADAM_DEFAULTS;
    c.weight_decay = 0.01;
    c.decoupled = true;
    return lt_optim_adam(out, params, &c);
}

static lt_status make_shampoo(lt_optim **out, const lt_params *params)
{
    lt_shampoo_config c = LT_SHAMPOO_DEFAULTS;
    c.epsilon = 1e-6;
    c.max_preconditioner_dim = 2;
    c.precondition_frequency = 2;
    c.beta2 = 0.9;
    c.momentum = 0.9;
    c.weight_decay = 0.01;
    c.grafting = LT_GRAFTING_ADAM;
    return lt_optim_shampoo(out, params, &c);
}

static lt_status make_corrected(lt_optim **out, const lt_params *params)
{
    lt_shampoo_config c = LT_SHAMPOO_DEFAULTS;
    c.epsilon = 1e-6;
    c.precondition_frequency = 2;
    c.preconditioner = LT_PRECONDITIONER_CORRECTED;
    return lt_optim_shampoo(out, params, &c);
}

static lt_status make_eigendecomposed(lt_optim **out, const lt_params *params)
{
    lt_shampoo_config c = LT_SHAMPOO_DEFAULTS;
    c.epsilon = 1e-6;
    c.preconditioner = LT_PRECONDITIONER_EIGENDECOMPOSED;
    return lt_optim_shampoo(out, params, &c);
}

typedef struct maker {
    const char *name;
    make_fn *make;
} maker;

static const maker makers[] = {
    {"sgd", make_sgd},
    {"nesterov", make_nesterov},
    {"adagrad", make_adagrad},
    {"adam", make_adam},
    {"adamw", make_adamw},
    {"shampoo", make_shampoo},
    {"corrected", make_corrected},
    {"eigendecomposed", make_eigendecomposed},
};
enum { MAKERS = COUNT_OF(makers), GOLDEN = 5, COUNT = 3 };

static void dyadic_gradient(double *g, int t)
{
    for (int i = 0; i < COUNT; i++)
        g[i] = ((7 * t + 3 * i) % 11 - 5) / 4.0;
}

/* A line of the golden file; false at its end. */
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

/* --- Everything that an optimizer may change --- */

typedef struct snapshot {
    unsigned char bytes[1 << 14];
    size_t used;
    bool restore; /* write the bytes back instead of taking them */
} snapshot;

static void move(snapshot *s, void *memory, size_t bytes)
{
    assert_true(s->used + bytes <= sizeof s->bytes);
    if (s->restore)
        memcpy(memory, s->bytes + s->used, bytes);
    else
        memcpy(s->bytes + s->used, memory, bytes);
    s->used += bytes;
}

static lt_status move_tensor(snapshot *s, lt_tensor *tensor)
{
    unsigned char host[1024];
    size_t bytes = lt_tensor_bytes(tensor);
    assert_true(bytes <= sizeof host);
    LT_TRY(lt_tensor_read(tensor, host, bytes));
    move(s, host, bytes);
    return lt_tensor_write(tensor, host, bytes);
}

static lt_status on_entry(void *context, const lt_state_entry *entry)
{
    return move_tensor(context, entry->tensor);
}

static lt_status on_number(void *context, const char *name, int64_t *value)
{
    snapshot *s = context;
    if (!s->restore || strcmp(name, "attempt") != 0)
        move(s, value, sizeof *value);
    else
        s->used += sizeof *value;
    return LT_OK;
}

static void take(snapshot *s, fixture *f, bool restore)
{
    s->used = 0;
    s->restore = restore;
    lt_state_visitor visitor = {on_entry, on_number, s};
    assert_ok(lt_optim_visit(f->optim, &visitor));
    for (size_t i = 0; i < f->list.count; i++)
        assert_ok(move_tensor(s, f->list.item[i]->value));
}

static void two_params(fixture *f, make_fn *make, bool f64)
{
    static const double start[12] = {1, -2, 3, -4, 5, -6, 7, -8, 9, -10, 11, -12};
    fixture_open(f, f64);
    put(fixture_add(f, "a", LT_SHAPE(3, 4))->value, start);
    put(fixture_add(f, "b", LT_SHAPE(5))->value, start);
    assert_ok(make(&f->optim, &f->list));
}

static void give_gradients(fixture *f, int t, double factor)
{
    double g[12];
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < 12; i++)
            g[i] = factor * sin(1 + 7.0 * t + 3.0 * k + 1.7 * i + 0.9 * t * i);
        put_grad(&f->param[k], g);
    }
}

static void steps(fixture *f, int from, int to)
{
    for (int t = from; t <= to; t++) {
        give_gradients(f, t, 1);
        fixture_step(f, 0.05);
    }
}

/* --- Rows that run for every optimizer --- */

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
        memcpy(after.bytes, before.bytes, sizeof(int64_t)); /* attempt counts on */
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

static void a_parameter_without_gradient_stays(void **state)
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
static void clipping_scales_all_gradients_alike(void **state)
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
    f.param[1].role = LT_ROLE_BIAS;
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

static void the_average_of_weights_follows_and_swaps(void **state)
{
    (void)state;
    double before[12], average[12], w[12], expected[12];
    fixture f;
    lt_ema *ema = NULL;
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

/* An optimizer as a user writes one: m is a moving average, the sign of it is the direction. */
static lt_status average_update(lt_optim *self, lt_slot *slot, const lt_scalars *s)
{
    (void)self;
    LT_TRY(lt_vec_lerp(slot->state[0], slot->grad, 0.5, s));
    return lt_vec_add_lr(slot->param->value, -slot->lr_scale, slot->state[0], s);
}

static lt_status average_step(lt_optim *self, const lt_scalars *s)
{
    return lt_optim_each(self, average_update, s);
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
    static const struct {
        const char *name;
        CMUnitTestFunction run;
    } each[] = {
        {"a gradient with a NaN or Inf changes nothing", a_gradient_with_a_nan_changes_nothing},
        {"state saved and restored continues bit for bit",
         state_saved_and_restored_continues_bit_for_bit},
        {"a parameter without gradient stays", a_parameter_without_gradient_stays},
        {"clipping scales all gradients alike", clipping_scales_all_gradients_alike},
        {"a group with half the rate moves so",
         a_group_with_half_the_rate_moves_as_with_half_the_rate},
    };
    static const struct CMUnitTest single[] = {
        cmocka_unit_test(decay_can_leave_out_biases),
        cmocka_unit_test(bad_arguments_are_refused),
        cmocka_unit_test(the_average_of_weights_follows_and_swaps),
        cmocka_unit_test(an_optimizer_of_ones_own_reads_clipped_gradients),
    };
    enum { E = COUNT_OF(each), S = COUNT_OF(single), ALL = GOLDEN + MAKERS * E + S };
    static struct CMUnitTest tests[ALL];
    static char names[ALL][96];
    size_t n = 0;
    for (size_t k = 0; k < MAKERS; k++) {
        void *state = (void *)(uintptr_t)&makers[k];
        if (k < GOLDEN) {
            snprintf(names[n], sizeof names[n], "%s: agrees with 50 digits", makers[k].name);
            tests[n] = (struct CMUnitTest){names[n], agrees_with_50_digits, NULL, NULL, state};
            n++;
        }
        for (size_t i = 0; i < E; i++, n++) {
            snprintf(names[n], sizeof names[n], "%s: %s", makers[k].name, each[i].name);
            tests[n] = (struct CMUnitTest){names[n], each[i].run, NULL, NULL, state};
        }
    }
    for (size_t i = 0; i < S; i++)
        tests[n++] = single[i];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
