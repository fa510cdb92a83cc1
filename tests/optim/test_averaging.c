/* Weight averaging around an optimizer: both sequences against their formulas, skipped steps, parameters
 * without gradient, and rejection of steps and saves with the wrong weights. */

#include "makers.h"

#include "lather/averaging.h"

#include <stdio.h>
#include <string.h>

enum { COUNT = 12, STEPS = 6 };
#define SETTINGS(of, mu_y, mu_x, power, y, first)                                             \
    {                                                                                         \
        .kind = LT_AVERAGING_##of, .train_interp_coeff = (mu_y), .eval_interp_coeff = (mu_x), \
        .eval_coeff_lr_power = (power), .decay_of_y = (y), .tail_start = (first),             \
        .lookahead_start = 1                                                                  \
    }
#define LOOKAHEAD(beta, gamma, start, end)                                           \
    {                                                                                \
        .kind = LT_AVERAGING_EMA_NESTEROV, .train_interp_coeff = 1, .tail_start = 1, \
        .lookahead = (beta), .lookahead_decay = (gamma), .lookahead_start = (start), \
        .lookahead_end = (end)                                                       \
    }
static const double rates[STEPS] = {0, 0.01, 0.03, 0.05, 0.05, 0.05}; /* a warm-up from 0 */

static lt_status make_plain(lt_optim **out, const lt_params *params)
{
    return lt_optim_sgd(out, params, &(lt_sgd_config){.weight_decay = 0.25});
}

static void average(fixture *f, lt_averaging_config c)
{
    assert_ok(lt_optim_start_averaging(f->optim, &f->list, &c));
}

static lt_averaging_config config_of(lt_averaging_kind kind)
{
    lt_averaging_config c = LT_AVERAGING_DEFAULTS;
    c.kind = kind;
    return c;
}

static void gradient_of(const fixture *f, int k, double *g)
{
    lt_tensor *grad = f->param[k].grad;
    get(grad, g);
}

static void assert_all_near(const double *got, const double *want, double bound)
{
    for (int i = 0; i < COUNT; i++)
        assert_near(got[i], want[i], bound);
}

/* Computes the formulas of lather/averaging.h. */
static void sequences_follow_their_formulas(void **state)
{
    const lt_averaging_config *c = *state;
    double x[COUNT], y[COUNT], z[COUNT], g[COUNT], sum = 0;
    fixture f;
    two_params(&f, make_plain, true);
    get(f.param[0].value, z);
    memcpy(x, z, sizeof x);
    memcpy(y, z, sizeof y);
    average(&f, *c);
    for (int t = 1; t <= STEPS; t++) {
        const bool tail = c->kind == LT_AVERAGING_TAIL;
        const double lr = rates[t - 1], mu_y = tail ? 0 : c->train_interp_coeff,
                     weight = tail ? t >= c->tail_start : pow(lr, c->eval_coeff_lr_power);
        sum += weight;
        double mu = 1 - (sum > 0 ? weight / sum : 1);
        if (c->kind == LT_AVERAGING_PRIMAL)
            mu = c->eval_interp_coeff;
        give_gradients(&f, t, 1);
        gradient_of(&f, 0, g);
        fixture_step(&f, lr);
        for (int i = 0; i < COUNT; i++) {
            z[i] -= lr * (g[i] + 0.25 * (c->decay_of_y ? y[i] : z[i]));
            x[i] = mu * x[i] + (1 - mu) * z[i];
        }
        get(f.param[0].value, y);
        for (int i = 0; i < COUNT; i++)
            assert_near(y[i], mu_y * x[i] + (1 - mu_y) * z[i], 1e-14);
        assert_ok(lt_optim_eval(f.optim));
        get(f.param[0].value, g);
        assert_all_near(g, x, 1e-14);
        assert_ok(lt_optim_train(f.optim));
        get(f.param[0].value, g);
        assert_memory_equal(g, y, sizeof g); /* not a bit is lost */
    }
    fixture_close(&f);
}

static const lt_averaging_config kinds[] = {
    SETTINGS(SCHEDULE_FREE, 0.8, 0.9, 2, false, 1), SETTINGS(SCHEDULE_FREE, 0.25, 0, 1, false, 1),
    SETTINGS(SCHEDULE_FREE, 0.8, 0.9, 2, true, 1),  SETTINGS(PRIMAL, 0.8, 0.9, 2, false, 1),
    SETTINGS(PRIMAL, 0.8, 0.9, 2, true, 1),         SETTINGS(PRIMAL, 1, 0.5, 0, true, 1),
    SETTINGS(TAIL, 0.8, 0.9, 2, false, 1),          SETTINGS(TAIL, 0.8, 0.9, 2, false, 3),
    SETTINGS(TAIL, 0.8, 0.9, 2, false, STEPS + 1), /* x is z */
};

static void what_has_no_gradient_or_is_skipped_stays(void **state)
{
    const maker *m = *state;
    double y[2][COUNT], x[2][COUNT], now[COUNT];
    fixture f;
    two_params(&f, m->make, true);
    average(&f, config_of(LT_AVERAGING_SCHEDULE_FREE));
    steps(&f, 1, 3);
    assert_ok(lt_optim_eval(f.optim));
    for (int k = 0; k < 2; k++)
        get(f.param[k].value, x[k]);
    assert_ok(lt_optim_train(f.optim));
    for (int k = 0; k < 2; k++)
        get(f.param[k].value, y[k]);
    give_gradients(&f, 4, (double)NAN);
    fixture_step(&f, 0.05);
    get(f.param[0].value, now);
    assert_memory_equal(now, y[0], sizeof now);
    give_gradients(&f, 5, 1);
    f.param[1].has_grad = false;
    fixture_step(&f, 0.05);
    get(f.param[1].value, now);
    assert_memory_equal(now, y[1], 5 * sizeof *now);
    get(f.param[0].value, now);
    assert_true(memcmp(now, y[0], sizeof now) != 0); /* control */
    assert_ok(lt_optim_eval(f.optim));
    get(f.param[1].value, now);
    assert_memory_equal(now, x[1], 5 * sizeof *now);
    fixture_close(&f);
}

static void read_both(const fixture *f, double y[2][COUNT], double x[2][COUNT])
{
    double again[COUNT];
    for (int k = 0; k < 2; k++)
        get(f->param[k].value, y[k]);
    assert_ok(lt_optim_eval(f->optim));
    for (int k = 0; k < 2; k++)
        get(f->param[k].value, x[k]);
    assert_ok(lt_optim_train(f->optim));
    for (int k = 0; k < 2; k++) {
        get(f->param[k].value, again);
        assert_memory_equal(again, y[k], (k ? 5 : COUNT) * sizeof *again);
    }
}

/* Steps 1 to 6: in step 3 the bias has no gradient, step 4 is skipped, the lookahead is of steps 2 to 5. */
static void ema_nesterov_looks_ahead_along_changes(void **state)
{
    (void)state;
    static const double lr[] = {0.02, 0.04, 0.01, 0.03, 0.02, 0.02};
    static const double beta[] = {
        2, 2, 0.5, 0.5, 0, 0}; /* 2 lr / largest lr; after the skipped step as before it */
    double y[2][COUNT], x[2][COUNT], m[2][COUNT] = {{0}}, g[2][COUNT], now[2][COUNT],
                                     eval[2][COUNT];
    const lt_averaging_config c = LOOKAHEAD(2, 0.75, 2, 6);
    fixture f;
    two_params(&f, make_plain, true);
    average(&f, c);
    read_both(&f, y, x);
    for (int t = 1; t <= STEPS; t++) {
        give_gradients(&f, t, t == 4 ? (double)NAN : 1);
        f.param[1].has_grad = t != 3;
        for (int k = 0; k < 2; k++)
            gradient_of(&f, k, g[k]);
        fixture_step(&f, lr[t - 1]);
        for (int k = 0; k < 2 && t != 4; k++)
            for (int i = 0; i < (k ? 5 : COUNT); i++) {
                const bool moves = f.param[k].has_grad;
                const double next = y[k][i] - lr[t - 1] * (g[k][i] + 0.25 * y[k][i]);
                m[k][i] = moves ? 0.75 * m[k][i] + 0.25 * (next - x[k][i]) : m[k][i];
                x[k][i] = moves ? next : x[k][i];
                y[k][i] = x[k][i] + beta[t - 1] * m[k][i];
            }
        read_both(&f, now, eval);
        for (int k = 0; k < 2; k++)
            for (int i = 0; i < (k ? 5 : COUNT); i++) {
                assert_near(now[k][i], y[k][i], 1e-14);
                assert_near(eval[k][i], x[k][i], 1e-14);
            }
    }
    fixture_close(&f);
}

/* Heavy ball with momentum b is primal averaging with mu_y 1, mu_x b and a rate 1/(1-b) times as high. */
static void primal_averaging_is_heavy_ball(void **state)
{
    (void)state;
    const lt_sgd_config ball = {.momentum = 0.5}, plain = {0};
    double a[COUNT], b[COUNT];
    fixture f, other;
    two_params(&f, make_sgd, true);
    two_params(&other, make_sgd, true);
    lt_optim_free(&f.optim);
    lt_optim_free(&other.optim);
    assert_ok(lt_optim_sgd(&f.optim, &f.list, &ball));
    assert_ok(lt_optim_sgd(&other.optim, &other.list, &plain));
    average(&other, (lt_averaging_config)SETTINGS(PRIMAL, 1, 0.5, 0, false, 1));
    for (int t = 1; t <= STEPS; t++) {
        give_gradients(&f, t, 1);
        give_gradients(&other, t, 1);
        fixture_step(&f, 0.01);
        fixture_step(&other, 0.02);
        get(f.param[0].value, a);
        get(other.param[0].value, b);
        assert_all_near(a, b, 1e-13);
    }
    fixture_close(&f);
    fixture_close(&other);
}

static lt_status no_entry(void *context, const lt_state_entry *entry)
{
    (void)entry;
    ++*(int *)context;
    return LT_OK;
}

static void the_wrong_sequence_is_neither_stepped_nor_saved(void **state)
{
    (void)state;
    const lt_step step = {.lr = 0.1, .attempt = 1};
    int entries = 0;
    fixture f;
    lt_state_visitor visitor = {.entry = no_entry, .number = ignore_number, .context = &entries};
    two_params(&f, make_plain, true);
    assert_true(lt_optim_is_eval(f.optim)); /* without averaging */
    const size_t bytes = lt_optim_state_bytes(f.optim);
    average(&f, config_of(LT_AVERAGING_PRIMAL));
    assert_int_equal(lt_optim_state_bytes(f.optim) - bytes, 2 * (12 + 5) * sizeof(double));
    assert_false(lt_optim_is_eval(f.optim));
    assert_status(lt_optim_visit(f.optim, &visitor), LT_E_ARG);
    assert_non_null(strstr(lt_error_message(), "lt_optim_eval()"));
    give_gradients(&f, 1, 1);
    assert_ok(lt_optim_eval(f.optim));
    assert_ok(lt_optim_eval(f.optim));
    assert_true(lt_optim_is_eval(f.optim));
    assert_status(lt_optim_step(f.optim, &step), LT_E_ARG);
    assert_ok(lt_optim_visit(f.optim, &visitor));
    assert_int_equal(entries, 0);
    assert_ok(lt_optim_visit_iterates(f.optim, &visitor));
    assert_int_equal(entries, 2);
    assert_ok(lt_optim_train(f.optim));
    assert_ok(lt_optim_step(f.optim, &step));
    fixture_close(&f);
}

static void bad_coefficients_are_refused(void **state)
{
    (void)state;
    static const struct {
        lt_averaging_config c;
        const char *word;
    } rows[] = {
        {SETTINGS(OFF, 0.8, 0.9, 2, false, 1), "kind 0"},
        {SETTINGS(PRIMAL, 0, 0.9, 2, false, 1), "train_interp_coeff 0 "},
        {SETTINGS(PRIMAL, 1.5, 0.9, 2, false, 1), "train_interp_coeff 1.5"},
        {SETTINGS(PRIMAL, 0.8, 1, 2, false, 1), "eval_interp_coeff 1 "},
        {SETTINGS(SCHEDULE_FREE, 0.8, 0.9, -1, false, 1), "eval_coeff_lr_power -1"},
        {SETTINGS(TAIL, 0.8, 0.9, 2, false, 0), "tail_start 0 "},
        {SETTINGS(TAIL, 0.8, 0.9, 2, true, 1), "decay_of_y needs schedule-free or primal"},
        {LOOKAHEAD(-1, 0.9, 1, 0), "lookahead -1 "},
        {LOOKAHEAD(1, 1, 1, 0), "lookahead_decay 1 "},
        {LOOKAHEAD(1, 0.9, 0, 0), "lookahead_start 0 "},
        {LOOKAHEAD(1, 0.9, 5, 5), "lookahead_end 5 "},
    };
    fixture f;
    two_params(&f, make_plain, true);
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        assert_status(lt_optim_start_averaging(f.optim, &f.list, &rows[i].c), LT_E_ARG);
        assert_non_null(strstr(lt_error_message(), rows[i].word));
        assert_false(lt_optim_is_averaged(f.optim));
    }
    average(&f, config_of(LT_AVERAGING_PRIMAL));
    assert_status(lt_optim_start_averaging(f.optim, &f.list, &rows[1].c), LT_E_ARG); /* once */
    fixture_close(&f);

    lt_averaging_config of_y = config_of(LT_AVERAGING_PRIMAL); /* L2 decay is in Adam's moments */
    of_y.decay_of_y = true;
    two_params(&f, make_adam, true);
    assert_status(lt_optim_start_averaging(f.optim, &f.list, &of_y), LT_E_UNSUPPORTED);
    fixture_close(&f);
}

int main(void)
{
    static char name[COUNT_OF(kinds)][64];
    struct CMUnitTest tests[COUNT_OF(kinds) + 4 + MAKERS];
    size_t count = 0;
    for (size_t i = 0; i < COUNT_OF(kinds); i++) {
        snprintf(name[i], sizeof *name, "sequences follow their formulas: %zu", i);
        tests[count++] = row_test(name[i], sequences_follow_their_formulas, &kinds[i]);
    }
    for (size_t i = 0; i < MAKERS; i++)
        tests[count++] =
            row_test(makers[i].name, what_has_no_gradient_or_is_skipped_stays, &makers[i]);
    const struct CMUnitTest single[] = {
        cmocka_unit_test(ema_nesterov_looks_ahead_along_changes),
        cmocka_unit_test(primal_averaging_is_heavy_ball),
        cmocka_unit_test(the_wrong_sequence_is_neither_stepped_nor_saved),
        cmocka_unit_test(bad_coefficients_are_refused),
    };
    memcpy(tests + count, single, sizeof single);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
