/* LARS and LAMB where the result is known without them: trust ratios, the parameters that have one,
 * batches, and rejected input. tests/oracle compares the rest with a model. */

#include "shared_rows.h"

#include "lather/ext/optim.h"
#include "lather/ext/optim_stats.h"

/* --- Ratios --- */

typedef struct ratio_row {
    const char *name, *json;
    double w[2], g[2];
    double want; /* w[0] after the first step, at lr 0.5 */
} ratio_row;

/* |w| = 5, |g| = 10. LAMB's first update is the sign of g: its length is sqrt 2. */
static const ratio_row ratios[] = {
    {"lars: the length of its update follows the weight",
     "\"optim\": \"lars\", \"always_adapt\": true, \"trust_coefficient\": 0.1, \"epsilon\": 0",
     {3, 4},
     {6, 8},
     3 - 0.5 * 0.1 * 5 / 10 * 6},
    {"lars: decay is in the numerator and in the denominator",
     "\"optim\": \"lars\", \"weight_decay\": 2, \"trust_coefficient\": 0.1, \"epsilon\": 0",
     {3, 4},
     {6, 8},
     3 - 0.5 * 0.1 * 5 / (10 + 2 * 5) * (6 + 2 * 3)},
    {"lars: epsilon is in the denominator",
     "\"optim\": \"lars\", \"always_adapt\": true, \"trust_coefficient\": 0.1, \"epsilon\": 10",
     {3, 4},
     {6, 8},
     3 - 0.5 * 0.1 * 5 / 20 * 6},
    {"lars: without decay it is sgd", "\"optim\": \"lars\"", {3, 4}, {6, 8}, 3 - 0.5 * 6},
    {"lars: its first momentum is not dampened",
     "\"optim\": \"lars\", \"momentum\": 0.9, \"dampening\": 0.5",
     {3, 4},
     {6, 8},
     3 - 0.5 * 6},
    {"lars: a zero weight has ratio 1",
     "\"optim\": \"lars\", \"weight_decay\": 1",
     {0, 0},
     {6, 8},
     -0.5 * 6},
    {"lars: a zero gradient has ratio 1",
     "\"optim\": \"lars\", \"weight_decay\": 0.5",
     {3, 4},
     {0, 0},
     3 - 0.5 * 0.5 * 3},
    {"lars: clipped, a rate is not above lr",
     "\"optim\": \"lars\", \"always_adapt\": true, \"trust_coefficient\": 100, \"trust_clip\": true",
     {3, 4},
     {6, 8},
     3 - 0.5 * 6},
    {"lars: clipped, a smaller one is not lr's",
     "\"optim\": \"lars\", \"always_adapt\": true, \"trust_coefficient\": 0.1, \"trust_clip\": true, \"epsilon\": 0",
     {3, 4},
     {6, 8},
     3 - 0.1 * 5 / 10 * 6},
    {"lamb: an update is as long as the weight",
     "\"optim\": \"lamb\", \"always_adapt\": true, \"weight_decay\": 0, \"epsilon\": 0",
     {3, 4},
     {6, 8},
     3 - 0.5 * 5 / 1.4142135623730951},
    {"lamb: decay is in the update",
     "\"optim\": \"lamb\", \"weight_decay\": 1, \"epsilon\": 0",
     {3, 4},
     {6, 8},
     3 - 0.5 * 5 / 6.4031242374328485 * (1 + 3)},
    {"lamb: clipped, its ratio is at most 1",
     "\"optim\": \"lamb\", \"always_adapt\": true, \"weight_decay\": 0, \"trust_clip\": true, \"epsilon\": 0",
     {3, 4},
     {6, 8},
     3 - 0.5},
    {"lamb: sums without correction", /* m = g, v = 0.001 g g */
     "\"optim\": \"lamb\", \"weight_decay\": 0, \"bias_correction\": false, \"grad_averaging\": false, \"epsilon\": 0",
     {3, 4},
     {6, 8},
     3 - 0.5 * 31.622776601683793},
};

static void its_first_step_is_known(void **state)
{
    const ratio_row *row = *state;
    char json[256];
    double w[2];
    lt_optim_config c = {0};
    fixture f;
    fixture_open(&f, true);
    lt_param *p = fixture_add(&f, "w", LT_SHAPE(2));
    put(p->value, row->w);
    snprintf(json, sizeof json, "{%s, \"lr\": 0.5}", row->json);
    assert_ok(lt_optim_config_parse(&c, json, strlen(json)));
    assert_ok(lt_optim_config_make(&f.optim, &c, &f.list));
    lt_optim_config_clear(&c);
    put_grad(p, row->g);
    fixture_step(&f, 0.5);
    get(p->value, w);
    assert_near(w[0], row->want, 1e-14);
    fixture_close(&f);
}

/* --- Parameters with a trust ratio --- */

/* The second one is a bias: no decay, so no ratio by default. */
static void step_both(lt_decay_scope scope, bool always, bool lamb, double moved[2])
{
    static const double w[2] = {3, 4}, g[2] = {6, 8};
    lt_lars_config lars_config = LT_LARS_DEFAULTS;
    lt_lamb_config lamb_config = LT_LAMB_DEFAULTS;
    fixture f;
    fixture_open(&f, true);
    lars_config.decay_scope = lamb_config.decay_scope = scope;
    lars_config.always_adapt = lamb_config.always_adapt = always;
    for (int k = 0; k < 2; k++)
        put(fixture_add(&f, k ? "b" : "w", LT_SHAPE(2))->value, w);
    f.param[1].role = LT_PARAM_BIAS;
    assert_ok(lamb ? lt_optim_lamb(&f.optim, &f.list, &lamb_config)
                   : lt_optim_lars(&f.optim, &f.list, &lars_config));
    for (int k = 0; k < 2; k++)
        put_grad(&f.param[k], g);
    fixture_step(&f, 0.01);
    for (int k = 0; k < 2; k++) {
        double now[2];
        get(f.param[k].value, now);
        moved[k] = w[0] - now[0];
    }
    fixture_close(&f);
}

static void biases_have_none_by_default(void **state)
{
    (void)state;
    double usual[2], all[2], always[2];
    step_both(LT_DECAY_WEIGHTS, false, false, usual);
    step_both(LT_DECAY_ALL, false, false, all);
    step_both(LT_DECAY_WEIGHTS, true, false, always);
    assert_near(usual[1], 0.06, 1e-12); /* lr g */
    assert_true(usual[0] < 1e-3 * usual[1]);
    assert_near(all[1], all[0], 0);
    assert_true(always[1] < 1e-3 * usual[1]);
    step_both(LT_DECAY_WEIGHTS, false, true, usual);
    assert_near(usual[1], 0.01, 1e-8); /* lr */
    assert_true(usual[0] > 3 * usual[1]);
}

/* --- State in fewer bytes: a step is several calls, each for some of the parameters --- */

static void read_ratios(lt_state_dtype dtype, double ratio[3])
{
    fixture f = {0};
    assert_ok(lt_device_open(&f.device, "cpu", &(lt_device_config){.threads = 1}));
    for (int k = 0; k < 3; k++) {
        lt_param *p = fixture_add(&f,
                                  k == 2 ? "small"
                                  : k    ? "second"
                                         : "first",
                                  LT_SHAPE(k < 2 ? 1100 : 3, 1000));
        assert_ok(lt_tensor_fill(p->value, 0.5 / (k + 1)));
        assert_ok(lt_tensor_fill(p->grad, 1));
        p->has_grad = true;
    }
    assert_ok(lt_optim_lamb(&f.optim, &f.list, NULL));
    assert_ok(lt_optim_set_state_dtype(f.optim, dtype));
    for (int t = 0; t < 2; t++)
        fixture_step(&f, 1e-4);
    for (int k = 0; k < 3; k++) {
        double out[LT_MAX_STATS];
        lt_optim_rule rule = LT_RULE_NONE;
        assert_ok(f.optim->ops->stats(f.optim, &f.optim->slot[k], &rule, out));
        ratio[k] = out[0];
    }
    fixture_close(&f);
}

static void ratios_are_of_all_calls_of_a_step(void **state)
{
    (void)state;
    double want[3], got[3];
    read_ratios(LT_STATE_F32, want);
    read_ratios(LT_STATE_INT8, got);
    for (int k = 0; k < 3; k++) {
        assert_near(want[k], 0.5 / (k + 1), 0.01);
        assert_near(got[k], want[k], 0.01);
    }
}

/* --- Rejected input --- */

static const bad_row bad[] = {
    {"no coefficient", "\"optim\": \"lars\", \"trust_coefficient\": 0",
     "trust_coefficient 0 is not in"},
    {"momentum 1", "\"optim\": \"lars\", \"momentum\": 1", "momentum 1 is not in [0,1)"},
    {"a negative epsilon", "\"optim\": \"lamb\", \"epsilon\": -1", "epsilon -1 is not in"},
    {"lamb has no momentum", "\"optim\": \"lamb\", \"momentum\": 0.9", "momentum"},
};

int main(void)
{
    static make_fn *const both[] = {make_lars, make_lamb};
    enum { R = COUNT_OF(ratios), B = COUNT_OF(bad) };
    struct CMUnitTest tests[R + B + 4];
    size_t n = 0;
    for (size_t i = 0; i < R; i++)
        tests[n++] = row_test(ratios[i].name, its_first_step_is_known, &ratios[i]);
    for (size_t i = 0; i < B; i++)
        tests[n++] = row_test(bad[i].name, is_refused, &bad[i]);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(biases_have_none_by_default);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(ratios_are_of_all_calls_of_a_step);
    for (size_t i = 0; i < COUNT_OF(both); i++)
        tests[n++] = row_test(i ? "lamb: parameters in batches are those alone"
                                : "lars: parameters in batches are those alone",
                              parameters_in_batches_are_those_alone, &both[i]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
