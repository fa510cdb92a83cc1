/* All configurations against the model's numbers (tests/golden/optim_replay.py), and rejected input. */

#include "fixture.h"

#include "lather/detail/shampoo_report.h"
#include "lather/optim_config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { TENSORS = 5, STEPS = 12, MOST = 128, LINE = 1024 };

static const lt_shape shapes[TENSORS] = {
    {1, {7}}, {2, {5, 6}}, {4, {4, 3, 3, 2}}, {5, {2, 3, 2, 1, 3}}, {0, {0}}};

/* The same hash as in the script. */
static double hashed(int t, int k, int i)
{
    uint32_t x = (uint32_t)(t * 1000003 + k * 10007 + i * 101 + 1) * 2654435761U;
    x = (x ^ x >> 15) * 2246822519U;
    x = (x ^ x >> 13) * 3266489917U;
    return (x ^ x >> 16) / 2147483648.0 - 1;
}

typedef struct replay {
    lt_device *device;
    lt_param param[TENSORS];
    lt_params list;
    lt_optim_config config;
    lt_optim *optim;
} replay;

static void fill(lt_tensor *tensor, int t, int k)
{
    double value[MOST];
    int64_t count = lt_tensor_count(tensor);
    for (int i = 0; i < count; i++)
        value[i] = hashed(t, k, i);
    put(tensor, value);
}

static void start(replay *r, const char *json, bool f64)
{
    *r = (replay){0};
    assert_ok(lt_optim_config_parse(&r->config, json, strlen(json)));
    assert_ok(lt_device_open(&r->device, "cpu", &(lt_device_config){.f64 = f64, .threads = 1}));
    for (int k = 0; k < TENSORS; k++) {
        char name[] = {(char)('0' + k), 0};
        assert_ok(shapes[k].ndim == 4
                      ? lt_param_init_filter(&r->param[k], r->device, "", name, shapes[k])
                      : lt_param_init(&r->param[k], r->device, "", name, shapes[k], 0));
        assert_ok(lt_params_add(&r->list, &r->param[k]));
        fill(r->param[k].value, 0, k);
    }
    assert_ok(lt_optim_config_make(&r->optim, &r->config, &r->list));
}

static void run(replay *r)
{
    for (int t = 1; t <= STEPS; t++) {
        lt_step step = {.attempt = t};
        for (int k = 0; k < TENSORS; k++) {
            r->param[k].has_grad = !(t % 5 == 4 && k == t / 5);
            if (r->param[k].has_grad)
                fill(r->param[k].grad, t, k);
        }
        assert_ok(lt_optim_config_lr(&r->config, t, &step.lr));
        assert_ok(lt_optim_step(r->optim, &step));
    }
}

static void finish(replay *r)
{
    lt_optim_free(&r->optim);
    for (int k = 0; k < TENSORS; k++)
        lt_param_clear(&r->param[k]);
    lt_params_clear(&r->list);
    lt_optim_config_clear(&r->config);
    lt_device_close(&r->device);
}

/* Sum, sum of squares, first, last. */
static void summarise(const lt_tensor *tensor, double *out)
{
    double w[MOST];
    int64_t count = lt_tensor_count(tensor);
    get(tensor, w);
    out[0] = out[1] = 0;
    for (int64_t i = 0; i < count; i++) {
        out[0] += w[i];
        out[1] += w[i] * w[i];
    }
    out[2] = w[0];
    out[3] = w[count - 1];
}

static double error_of(const replay *r, int k, const double *want)
{
    double got[4], worst = 0;
    summarise(r->param[k].value, got);
    for (int i = 0; i < 4; i++) {
        double e = fabs(got[i] - want[i]) / (1 + fabs(want[i]));
        worst = e <= worst ? worst : e; /* keeps a NaN */
    }
    return worst;
}

static FILE *open_golden(void)
{
    char path[LINE];
    const char *root = getenv("LATHER_TEST_SOURCE");
    snprintf(path, sizeof path, "%s/tests/golden/optim_replay.txt", root ? root : ".");
    FILE *file = fopen(path, "r");
    if (!file)
        fail_msg("cannot open %s", path);
    return file;
}

/* Returns the largest allowed difference. In f64: 1e-9, or 10 times the effect of rounding. In f32
 * float_bound, but infinite where a configuration amplifies rounding (rank-deficient factors). */
static double bound_of(bool f64, double rounding, double float_bound)
{
    if (f64)
        return fmax(1e-9, 10 * rounding);
    return rounding <= 1e-13 ? float_bound : HUGE_VAL;
}

/* Runs every configuration of the file; returns their number, and how many differ too much. */
static int run_all(bool f64, double float_bound, int *wrong)
{
    char line[LINE];
    int configs = 0, k;
    double rounding, bound = 0, want[4];
    replay r = {0};
    FILE *file = open_golden();
    *wrong = 0;
    while (fgets(line, sizeof line, file)) {
        int json = 0;
        if (sscanf(line, "config %lf %n", &rounding, &json) == 1 && json) {
            bound = bound_of(f64, rounding, float_bound);
            finish(&r);
            start(&r, line + json, f64);
            run(&r);
            configs++;
            continue;
        }
        if (sscanf(line, "tensor %d %la %la %la %la", &k, &want[0], &want[1], &want[2], &want[3])
            != 5)
            continue;
        *wrong += !(error_of(&r, k, want) <= bound);
    }
    fclose(file);
    finish(&r);
    return configs;
}

static void float64_agrees_with_the_model(void **state)
{
    (void)state;
    int wrong;
    assert_int_equal(run_all(true, 0, &wrong), 183);
    assert_int_equal(wrong, 0);
}

static void float32_agrees_to_1e_4(void **state)
{
    (void)state;
    int wrong;
    run_all(false, 1e-4, &wrong);
    assert_int_equal(wrong, 0);
}

static void control_float32_is_not_float64(void **state)
{
    (void)state;
    int wrong;
    run_all(false, 1e-9, &wrong);
    assert_true(wrong > 0);
}

/* --- Rejected input --- */

typedef struct bad_row {
    const char *name, *json, *message;
} bad_row;

#define TEN     "aaaaaaaaaa"
#define LONGEST /* 159 bytes */ \
    TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN "aaaaaaaaa"

static const bad_row bad[] = {
    /* clang-format off */
    {"no JSON", "{", "unexpected end"},
    {"a list", "[]", "not an object"},
    {"no optimizer", "{\"lr\": 1}", "'optim' is missing"},
    {"no rate", "{\"optim\": \"sgd\"}", "'lr' is missing"},
    {"an unknown optimizer", "{\"optim\": \"shampo\", \"lr\": 1}", "nearest is 'shampoo'"},
    {"an unknown key", "{\"optim\": \"sgd\", \"lr\": 1, \"momentun\": 0.9}",
     "sgd has no key 'momentun'; the nearest is 'momentum'"},
    {"a key of another optimizer", "{\"optim\": \"sgd\", \"lr\": 1, \"beta1\": 0.9}",
     "no key 'beta1'"},
    {"an unknown grafting", "{\"optim\": \"shampoo\", \"lr\": 1, \"grafting\": \"adamm\"}",
     "grafting has no value 'adamm'; the nearest is 'adam'"},
    {"an unknown dtype", "{\"optim\": \"sgd\", \"lr\": 1, \"dtype\": \"float16\"}", "float"},
    {"a string for a number", "{\"optim\": \"sgd\", \"lr\": \"1\"}", "lr must be a number"},
    {"a number for a flag", "{\"optim\": \"sgd\", \"lr\": 1, \"nesterov\": 1}", "true or false"},
    {"a fraction for a count",
     "{\"optim\": \"shampoo\", \"lr\": 1, \"precondition_frequency\": 1.5}", "an integer"},
    {"a block of side 0", "{\"optim\": \"shampoo\", \"lr\": 1, \"max_preconditioner_dim\": 0}",
     "[1,"},
    {"a negative beta3", "{\"optim\": \"shampoo\", \"lr\": 1, \"beta3\": -0.5}", "below 0"},
    {"an order that cannot be",
     "{\"optim\": \"shampoo\", \"lr\": 1, \"inverse_exponent\": {\"7\": 1}}", "'7'"},
    {"a dimension that cannot be",
     "{\"optim\": \"shampoo\", \"lr\": 1, \"inverse_exponent\": {\"2\": {\"2\": 1}}}", "'2'"},
    {"a split that is no list", "{\"optim\": \"shampoo\", \"lr\": 1, \"split\": \"qkv\"}",
     "split must be a list of strings"},
    {"an optimizer that is no string", "{\"optim\": 3, \"lr\": 1}",
     "optimizer config: optim must be a string"},
    {"a list for the ignored dimensions",
     "{\"optim\": \"shampoo\", \"lr\": 1, \"ignored_basis_change_dims\": [1]}",
     "ignored_basis_change_dims must be an object: {order: [dimension, ...]}"},
    {"a dimensionality in another word",
     "{\"optim\": \"shampoo\", \"lr\": 1, \"target_dimensionality\": \"two\"}",
     "target_dimensionality must be an integer or Infinity"},
    {"a dimensionality with a fraction",
     "{\"optim\": \"shampoo\", \"lr\": 1, \"target_dimensionality\": 2.5}",
     "target_dimensionality must be an integer or Infinity"},
    {"a long pattern of a split",
     "{\"optim\": \"shampoo\", \"lr\": 1, \"split\": [\"a" LONGEST ":0:2\"]}",
     "split: pattern of 160 bytes exceeds the limit of 159"},
    {"a long pattern of names", "{\"optim\": \"shampoo\", \"lr\": 1, \"one_sided\": \"a" LONGEST "\"}",
     "one_sided: pattern of 160 bytes exceeds the limit of 159"},
    {"a split with a number", "{\"optim\": \"shampoo\", \"lr\": 1, \"split\": [3]}",
     "split must be a list of strings"},
    {"a split without parts", "{\"optim\": \"shampoo\", \"lr\": 1, \"split\": [\"w:0\"]}",
     "'w:0' is not REGEX:DIM:PARTS"},
    {"a split into one part", "{\"optim\": \"shampoo\", \"lr\": 1, \"split\": [\"w:0:1\"]}",
     "'w:0:1' is not REGEX:DIM:PARTS"},
    {"a split with an invalid expression",
     "{\"optim\": \"shampoo\", \"lr\": 1, \"split\": [\"w(:0:2\"]}", "invalid regular expression"},
    {"nine splits", "{\"optim\": \"shampoo\", \"lr\": 1, \"split\": [\"qkv\", \"qkv\", \"qkv\","
     " \"qkv\", \"w:0:2\"]}", "exceeds the limit of 8 rules"},
    {"a number for tables", "{\"optim\": \"shampoo\", \"lr\": 1, \"one_sided\": 1}",
     "one_sided must be a string or null"},
    {"a list for exponents", "{\"optim\": \"shampoo\", \"lr\": 1, \"inverse_exponent\": [1]}",
     "an object"},
    {"a frequency in another word",
     "{\"optim\": \"shampoo\", \"lr\": 1, \"precondition_frequency\": \"often\"}", "an integer"},
    {"a schedule that is no list", "{\"optim\": \"sgd\", \"lr\": 1, \"lr_schedule\": 1}",
     "a list"},
    {"a schedule with a string", "{\"optim\": \"sgd\", \"lr\": 1, \"lr_schedule\": [1, \"2\"]}",
     "a list"},
    {"a key that is gone", "{\"optim\": \"shampoo\", \"lr\": 1, \"precondition_budget\": 0.03}",
     "--precondition-budget is gone since 0.2: use --precondition-frequency"},
    {"a word that is gone",
     "{\"optim\": \"shampoo\", \"lr\": 1, \"precondition_frequency\": \"auto\"}",
     "--precondition-frequency auto is gone since 0.2"},
    {"a solver that is gone", "{\"optim\": \"shampoo\", \"lr\": 1, \"root_solver\": \"tracked\"}",
     "--root-solver tracked is gone since 0.2: use eigh, or qr"},
    {"an unknown solver", "{\"optim\": \"shampoo\", \"lr\": 1, \"root_solver\": \"newto\"}",
     "nearest is 'newton'"},
    {"a number for a list of dimensions",
     "{\"optim\": \"shampoo\", \"lr\": 1, \"ignored_basis_change_dims\": {\"2\": 0}}", "a list"},
    {"a dimension beyond the order",
     "{\"optim\": \"shampoo\", \"lr\": 1, \"ignored_basis_change_dims\": {\"2\": [2]}}", "[0,1]"},
    {"infinity where a number is wanted", "{\"optim\": \"shampoo\", \"lr\": 1, \"epsilon\": Infinity}",
     "epsilon must be a number"},
    {"infinitely many threads",
     "{\"optim\": \"shampoo\", \"lr\": 1, \"refresh_threads\": Infinity}", "an integer"},
    {"a key twice", "{\"optim\": \"sgd\", \"lr\": 1, \"lr\": 2}", "lr"},
    /* clang-format on */
};

static void is_refused(void **state)
{
    const bad_row *row = *state;
    lt_optim_config c;
    assert_true(lt_optim_config_parse(&c, row->json, strlen(row->json)) != LT_OK);
    if (!strstr(lt_error_message(), row->message))
        fail_msg("'%s' does not say '%s'", lt_error_message(), row->message);
}

static const bad_row out_of_range[] = {
    /* clang-format off */
    {"cautious decay of another kind", "{\"optim\": \"shampoo\", \"lr\": 1, \"weight_decay\": 1,"
     " \"weight_decay_type\": \"l2\", \"cautious_weight_decay\": true}",
     "cautious_weight_decay needs decay by lr alone, as with weight_decay_type decoupled"},
    {"cautious decay of two kinds", "{\"optim\": \"adamw\", \"lr\": 1, \"cautious_weight_decay\": true,"
     " \"iterate_averaging\": \"primal\", \"decay_of_y\": true}", "decay_of_y contradicts"},
    {"a split of another name",
     "{\"optim\": \"shampoo\", \"lr\": 1, \"split\": [\"in_proj:0:2\"]}",
     "split: no trained parameter matches 'in_proj'"},
    {"unequal parts", "{\"optim\": \"shampoo\", \"lr\": 1, \"split\": [\"w:0:3\"]}",
     "dimension 0 of w, [2,2], cannot be split into 3 equal parts"},
    {"parts along a dimension that is not there",
     "{\"optim\": \"shampoo\", \"lr\": 1, \"split\": [\"w:-3:2\"]}", "no dimension -3 in w"},
    {"a table of another name",
     "{\"optim\": \"shampoo\", \"lr\": 1, \"one_sided\": \"wte\"}",
     "one_sided: no trained parameter matches 'wte'"},
    {"a tolerance of 1", "{\"optim\": \"shampoo\", \"lr\": 1, \"solver_tolerance\": 1}", "[0,1)"},
    {"independent decay without a rate", "{\"optim\": \"shampoo\", \"lr\": 0,"
     " \"weight_decay_type\": \"independent\"}", "peak_lr 0 is not in (0,inf)"},
    {"start below frequency", "{\"optim\": \"shampoo\", \"lr\": 1, \"precondition_frequency\": 3,"
     " \"start_preconditioning_step\": 2}", "start_preconditioning_step 2 is not in [3,"},
    {"epsilon 0 without pseudo-inverse", "{\"optim\": \"shampoo\", \"lr\": 1, \"epsilon\": 0}",
     "epsilon"},
    {"a negative decay", "{\"optim\": \"adamw\", \"lr\": 1, \"weight_decay\": -1}", "weight_decay"},
    {"KL factors that run away",
     "{\"optim\": \"shampoo\", \"lr\": 1, \"preconditioner\": \"kl\", \"inverse_exponent\": {\"2\": 0.6}}",
     "kl with inverse_exponent 0.6 and 0.6 of order 2: above a product of 1/4"},
    {"a negative exponent", "{\"optim\": \"shampoo\", \"lr\": 1, \"inverse_exponent\": {\"2\": -1}}",
     "inverse_exponent -1"},
    /* clang-format on */
};

static void has_a_value_out_of_range(void **state)
{
    const bad_row *row = *state;
    fixture f;
    lt_optim_config c;
    fixture_open(&f, true);
    fixture_add(&f, "w", LT_SHAPE(2, 2));
    assert_ok(lt_optim_config_parse(&c, row->json, strlen(row->json)));
    assert_status(lt_optim_config_make(&f.optim, &c, &f.list), LT_E_ARG);
    assert_null(f.optim);
    if (!strstr(lt_error_message(), row->message))
        fail_msg("'%s' does not say '%s'", lt_error_message(), row->message);
    lt_optim_config_clear(&c);
    fixture_close(&f);
}

/* In JSON and C a config has a value for everything. */
static void minus_one_means_what_the_flag_means(void **state)
{
    (void)state;
    static const char *const json[] = {
        "{\"optim\": \"shampoo\", \"lr\": 1, \"beta3\": -1, \"grafting\": \"adam\", \"grafting_beta2\": -1,"
        " \"epsilon_rule\": \"pseudo_inverse\", \"epsilon\": 0, \"rank_rtol\": -1}",
        "{\"optim\": \"shampoo\", \"lr\": 1, \"beta3\": null, \"grafting\": \"adam\", \"grafting_beta2\": null,"
        " \"epsilon_rule\": \"pseudo_inverse\", \"epsilon\": 0, \"rank_rtol\": null}"};
    lt_shampoo_config made[2];
    for (int i = 0; i < 2; i++) {
        fixture f;
        lt_optim_config c;
        fixture_open(&f, true);
        fixture_add(&f, "w", LT_SHAPE(2, 2));
        assert_ok(lt_optim_config_parse(&c, json[i], strlen(json[i])));
        assert_ok(lt_optim_config_make(&f.optim, &c, &f.list));
        made[i] = *lt_shampoo_settings(f.optim);
        lt_optim_config_clear(&c);
        fixture_close(&f);
    }
    assert_near(made[0].beta3, made[1].beta3, 0);
    assert_near(made[0].grafting_beta2, made[1].grafting_beta2, 0);
    assert_near(made[0].rank_rtol, made[1].rank_rtol, 0);
}

static void without_factors_no_solver_is_refused(void **state)
{
    (void)state;
    static const char json[] =
        "{\"optim\": \"shampoo\", \"lr\": 1, \"preconditioner\": \"spectral\","
        " \"root_solver\": \"rational\", \"precondition_frequency\": 3,"
        " \"start_preconditioning_step\": 2}";
    fixture f;
    lt_optim_config c;
    fixture_open(&f, true);
    fixture_add(&f, "w", LT_SHAPE(2, 2));
    assert_ok(lt_optim_config_parse(&c, json, strlen(json)));
    assert_ok(lt_optim_config_make(&f.optim, &c, &f.list));
    lt_optim_config_clear(&c);
    fixture_close(&f);
}

static void a_schedule_that_is_too_short_is_an_error(void **state)
{
    (void)state;
    static const char json[] = "{\"optim\": \"sgd\", \"lr\": 1, \"lr_schedule\": [0.5, 0.25]}";
    lt_optim_config c;
    double lr;
    assert_ok(lt_optim_config_parse(&c, json, strlen(json)));
    assert_ok(lt_optim_config_lr(&c, 2, &lr));
    assert_near(lr, 0.25, 0);
    assert_status(lt_optim_config_lr(&c, 3, &lr), LT_E_ARG);
    lt_optim_config_clear(&c);
}

int main(void)
{
    enum { B = COUNT_OF(bad), O = COUNT_OF(out_of_range) };
    static const struct CMUnitTest single[] = {
        cmocka_unit_test(float64_agrees_with_the_model),
        cmocka_unit_test(float32_agrees_to_1e_4),
        cmocka_unit_test(control_float32_is_not_float64),
        cmocka_unit_test(without_factors_no_solver_is_refused),
        cmocka_unit_test(minus_one_means_what_the_flag_means),
        cmocka_unit_test(a_schedule_that_is_too_short_is_an_error),
    };
    struct CMUnitTest tests[B + O + COUNT_OF(single)];
    for (size_t i = 0; i < B; i++)
        tests[i] = row_test(bad[i].name, is_refused, &bad[i]);
    for (size_t i = 0; i < O; i++)
        tests[B + i] = row_test(out_of_range[i].name, has_a_value_out_of_range, &out_of_range[i]);
    for (size_t i = 0; i < COUNT_OF(single); i++)
        tests[B + O + i] = single[i];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
