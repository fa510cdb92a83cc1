/* The registry of optimizers: a custom optimizer is found by its name, in JSON and by flags; contradictory
 * rows are rejected. */

#include "base/alloc.h"
#include "fixture.h"
#include "optim/registry/registry.h"

#include "lather/detail/optim_flags.h"
#include "lather/ext/vec.h"
#include "lather/optim_config.h"

#include <math.h>
#include <string.h>

/* --- A custom optimizer: lr times a moving average of the gradient --- */

typedef struct config {
    double memory;
    int64_t every;
    bool fast;
    int mode;
} config;

static lt_status update(lt_optim *self, lt_slot *slot, const lt_scalars *s)
{
    (void)self;
    LT_TRY(lt_vec_lerp(slot->state[0], slot->grad, 0.5, s));
    return lt_vec_add_lr(slot->param->value, -slot->lr_scale, slot->state[0], s);
}

static lt_status step(lt_optim *self, const lt_scalars *s)
{
    return lt_optim_for_each_slot(self, update, s);
}

static const lt_optim_ops ops = {
    .name = "average", .bytes = sizeof(lt_optim), .slot_state = {"m"}, .step = step};

static const lt_optim_family average;
static config made; /* config of the last optimizer made */

static lt_status make(lt_optim **out, const lt_params *params, const void *settings, double lr)
{
    (void)lr;
    made = *(const config *)settings;
    LT_TRY(lt_optim_check(&average, settings));
    return lt_optim_new(out, &ops, params, 0, LT_DECAY_ALL);
}

static const config defaults = {.memory = 0.5, .every = 1};

static bool is_fast(const void *settings)
{
    return ((const config *)settings)->fast;
}

#define MEMORY                                                                     \
    {                                                                              \
        "memory", LT_FIELD_REAL, offsetof(config, memory), 0, 1, true, .help = "m" \
    }
#define EVERY                                                                       \
    {                                                                               \
        "every", LT_FIELD_COUNT, offsetof(config, every), 1, 100,                   \
            .is_read = is_fast, .needs = "--fast", .neutral = 1, .help = "updates", \
            .also = "every-so-many"                                                 \
    }
static const lt_optim_field fields[] = {
    MEMORY,
    {"fast", LT_FIELD_FLAG, offsetof(config, fast), .help = "faster"},
    EVERY,
    {"mode", LT_FIELD_CHOICE, offsetof(config, mode), .choices = "plain|strict", .help = "how"},
};
static const lt_optim_preset usual = {NULL, 0.25, &defaults},
                             bad_preset = {NULL, 1, &(config){.memory = 1, .every = 1}};

#define ROW(rows)                                                        \
    .group = "Average", .config_bytes = sizeof(config), .field = (rows), \
    .fields = sizeof(rows) / sizeof *(rows), .preset = &usual, .presets = 1, .make = make
static const lt_optim_family average = {.name = "average", ROW(fields)};

static int register_average(void **state)
{
    (void)state;
    return lt_optim_register(&average);
}

/* --- Lookup --- */

static void its_name_opens_it(void **state)
{
    (void)state;
    const double one[2] = {1, 1};
    double w[2] = {0, 0};
    fixture f;
    fixture_open(&f, true);
    lt_param *p = fixture_add(&f, "w", LT_SHAPE(2));
    put(p->value, w);
    put_grad(p, one);
    assert_ok(lt_optim_open(&f.optim, "average", &f.list));
    assert_string_equal(lt_optim_name(f.optim), "average");
    assert_near(made.memory, 0.5, 0);
    fixture_step(&f, 1);
    get(p->value, w);
    assert_near(w[0], -0.5, 1e-15);
    fixture_close(&f);
}

static void json_sets_its_fields(void **state)
{
    (void)state;
    static const char json[] =
        "{\"optim\": \"average\", \"lr\": 1, \"memory\": 0.75, \"fast\": true, "
        "\"every\": 7, \"mode\": \"strict\"}";
    lt_optim_config c;
    assert_ok(lt_optim_config_parse(&c, json, strlen(json)));
    const config *got = c.settings;
    assert_near(got->memory, 0.75, 0);
    assert_true(got->fast);
    assert_int_equal(got->every, 7);
    assert_int_equal(got->mode, 1);
    lt_optim_config_clear(&c);
}

typedef struct command {
    lt_optim_flags flags;
    lt_options *options;
} command;

/* args: flags between spaces; NULL: the defaults alone. */
static lt_status parse(command *c, const char *optim, const char *args)
{
    static const lt_program program = {.name = "mine", .selector = "optim"};
    char name[64], flags[256], *rest = NULL;
    char *argv[8] = {(char[]){"mine"}, name};
    int count = 2;
    snprintf(name, sizeof name, "--optim=%s", optim);
    snprintf(flags, sizeof flags, "%s", args ? args : "");
    for (char *flag = strtok_r(flags, " ", &rest); flag; flag = strtok_r(NULL, " ", &rest)) {
        assert_in_range(count, 2, 7);
        argv[count++] = flag;
    }
    *c = (command){0};
    assert_ok(lt_optim_flags_open(&c->flags));
    const lt_option_table tables[] = {lt_optim_flags_table(&c->flags, LT_OPTIM_FLAGS_COMMON),
                                      lt_optim_flags_table(&c->flags, LT_OPTIM_FLAGS_OWN)};
    assert_ok(lt_options_compose(&c->options, &program, tables, 2));
    LT_TRY(lt_options_parse(c->options, count, argv));
    return lt_optim_flags_resolve(&c->flags, c->options);
}

static void close_command(command *c)
{
    lt_options_free(&c->options);
    lt_optim_flags_close(&c->flags);
}

static void flags_set_its_fields(void **state)
{
    (void)state;
    command c;
    assert_ok(parse(&c, "average", NULL));
    assert_ptr_equal(c.flags.family, &average);
    assert_near(c.flags.lr, 0.25, 0);
    assert_near(((config *)c.flags.settings)->memory, 0.5, 0);
    close_command(&c);
    assert_ok(parse(&c, "average", "--mode=strict"));
    assert_int_equal(((config *)c.flags.settings)->mode, 1);
    close_command(&c);
    assert_ok(parse(&c, "shampoo", NULL)); /* choices that are not read have their first value */
    assert_int_equal(((lt_shampoo_config *)c.flags.settings)->spectral_scale, LT_SPECTRAL_NONE);
    close_command(&c);
}

/* Flags that are read without factors, and values that change nothing: config.yaml has one for every flag. */
static void flags_of_directions_without_factors(void **state)
{
    (void)state;
    command c;
    assert_ok(parse(&c, "shampoo", "--preconditioner=spectral --precondition-frequency=20"));
    assert_int_equal(((lt_shampoo_config *)c.flags.settings)->precondition_frequency, 20);
    close_command(&c);
    assert_ok(parse(&c, "shampoo", "--preconditioner=spectral --start-preconditioning-step=5"));
    assert_int_equal(((lt_shampoo_config *)c.flags.settings)->start_preconditioning_step, 5);
    close_command(&c);
    assert_ok(parse(&c, "shampoo",
                    "--preconditioner=sign --root-solver=eigh --opt-kwargs=epsilon-rule=relative "
                    "--factor-dtype=f32 --refresh=staggered --diagonal-vectors"));
    close_command(&c);
    assert_ok(parse(&c, "shampoo", "--preconditioner=sign --preset=paper"));
    close_command(&c);
}

/* --print-config of --inverse-exponent. A second call, as plan makes with other settings, leaves nothing of
 * the first, and does not take the shown value for a flag. */
static void a_preset_shows_its_list(void **state)
{
    (void)state;
    static const struct {
        const char *args, *shown;
    } rows[] = {
        {"--preset=transformer", "2:0.5,0.5"},
        {"--preset=transformer --inverse-exponent=2:0.25,0.25", "2:0.25,0.25"},
        {"--preset=transformer --inverse-exponent=1:0.4 --inverse-exponent=3:1,0,1",
         "1:0.4 3:1,0,1"},
        {"--preset=transformer --preconditioner=sign", ""},
        {"--preset=recommended", ""},
    };
    char text[64];
    command c;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        assert_ok(parse(&c, "shampoo", rows[i].args));
        assert_string_equal(lt_options_text(c.options, "inverse-exponent", text, sizeof text),
                            rows[i].shown);
        close_command(&c);
    }
    assert_ok(parse(&c, "shampoo", "--preset=transformer"));
    assert_ok(lt_optim_flags_resolve(&c.flags, c.options));
    assert_string_equal(lt_options_text(c.options, "inverse-exponent", text, sizeof text),
                        "2:0.5,0.5");
    assert_ok(
        lt_options_parse(c.options, 2, (char *[]){(char[]){"mine"}, (char[]){"--preset=paper"}}));
    assert_ok(lt_optim_flags_resolve(&c.flags, c.options));
    assert_string_equal(lt_options_text(c.options, "inverse-exponent", text, sizeof text), "");
    assert_false(((lt_shampoo_config *)c.flags.settings)->inverse_exponent.set[2][0]);
    close_command(&c);
}

typedef struct refusal {
    const char *name, *optim, *flag, *message;
} refusal;

static const refusal refusals[] = {
    {"dimensions without an order", "shampoo", "--opt-kwargs=ignored-basis-change-dims=2",
     "--ignored-basis-change-dims: '2' is not ORDER:DIM,..."},
    {"an order without dimensions", "shampoo", "--opt-kwargs=ignored-basis-change-dims=2:",
     "--ignored-basis-change-dims: '2:' is not ORDER:DIM,..."},
    {"two coefficients", "muon", "--opt-kwargs=newton-schulz-coefficients=3,-3.2",
     "--newton-schulz-coefficients: '3,-3.2' is not A,B,C"},
    {"one that is outside in every family", "adam", "--beta1=1", "--beta1: 1 is not in [0, 1)"},
    {"one that is inside", "shampoo", "--opt-kwargs=dampening=1.5",
     "--dampening: 1.5 is not in [0, 1]"},
    {"a value out of range", "average", "--every=101", "--every: 101 is not in 1..100"},
    {"a choice that does not count", "shampoo", "--opt-kwargs=spectral-scale=original",
     "--spectral-scale: needs --preconditioner spectral or --orthogonalize"},
    {"a setting that does not count", "average", "--every-so-many=5", "--every: needs --fast"},
    {"a setting by a flag that does not exist", "shampoo", "--rank-rtol=0.5",
     "--rank-rtol has no flag: use --opt-kwargs rank-rtol=VALUE"},
    {"a setting switched off by a flag that does not exist", "lamb", "--no-bias-correction",
     "--bias-correction has no flag: use --opt-kwargs bias-correction=VALUE"},
    {"an unknown setting", "shampoo", "--opt-kwargs=lr=0.5",
     "--opt-kwargs: unknown setting 'lr'; --help opt-kwargs lists them"},
    {"a setting without a value", "shampoo", "--opt-kwargs=rank-rtol",
     "--opt-kwargs: 'rank-rtol': want NAME=VALUE"},
    {"a setting that another optimizer has", "sgd", "--opt-kwargs=rank_rtol=0.5",
     "--rank-rtol: --optim sgd does not read it"},
    {"another optimizer's", "sgd", "--memory=0.5", "does not read it (read by: average)"},
    {"a shared one that it lacks", "average", "--momentum=0.5", "does not read it (read by: sgd"},
    {"a name among those that are known", "averag", NULL,
     "valid: sgd|adagrad|adam|adamw|shampoo|soap|muon|lars|lamb|lion|adafactor|prodigy|average"},
};

static void flag_is_refused(void **state)
{
    const refusal *row = *state;
    command c;
    assert_status(parse(&c, row->optim, row->flag), LT_E_ARG);
    if (!strstr(lt_error_message(), row->message))
        fail_msg("'%s' does not say '%s'", lt_error_message(), row->message);
    close_command(&c);
}

/* Flags that need factors, and the name in the message. */
static const struct {
    const char *name, *flag;
} of_factors[] = {
    {"--factor-dtype", "--factor-dtype=int8"},
    {"--packed-factors", "--packed-factors"},
    {"--factor-frequency", "--factor-frequency=5"},
    {"--precondition-frequency", "--precondition-frequency=20"},
    {"--start-preconditioning-step", "--start-preconditioning-step=20"},
    {"--refresh", "--refresh=async"},
    {"--epsilon-rule", "--opt-kwargs=epsilon-rule=before"},
    {"--epsilon", "--epsilon=1e-3"},
    {"--beta2", "--beta2=0.9"},
    {"--root-solver", "--root-solver=newton"},
    {"--trace-scaling", "--opt-kwargs=trace-scaling=0.5"},
    {"--inverse-exponent", "--inverse-exponent=0.5"},
    {"--diagonal", "--diagonal=w"},
    {"--diagonal-vectors", "--no-diagonal-vectors"},
    {"--drop-weighting", "--opt-kwargs=drop-weighting=true"},
    {"--tolerated-failures", "--opt-kwargs=tolerated-failures=5"},
    {"--shampoo-on-failure", "--opt-kwargs=shampoo-on-failure=abort"},
};

static void without_factors_their_flags_are_refused(void **state)
{
    (void)state;
    static const char *const kinds[] = {"spectral", "sign"};
    char args[160], message[96];
    command c;
    for (size_t i = 0; i < 2 * COUNT_OF(of_factors); i++) {
        snprintf(args, sizeof args, "--preconditioner=%s --grafting=none %s", kinds[i % 2],
                 of_factors[i / 2].flag);
        snprintf(message, sizeof message, "%s: needs a --preconditioner with factors",
                 of_factors[i / 2].name);
        assert_status(parse(&c, "shampoo", args), LT_E_ARG);
        if (!strstr(lt_error_message(), message))
            fail_msg("%s: '%s' does not say '%s'", args, lt_error_message(), message);
        close_command(&c);
    }
}

static void names_have_the_presets_too(void **state)
{
    (void)state;
    static const char *const names[] = {"sgd",
                                        "adagrad",
                                        "adam",
                                        "adamw",
                                        "shampoo",
                                        "shampoo-paper",
                                        "shampoo-reference",
                                        "shampoo-transformer",
                                        "soap",
                                        "muon",
                                        "lars",
                                        "lamb",
                                        "lion",
                                        "adafactor",
                                        "prodigy",
                                        "average"};
    char text[64];
    for (size_t i = 0; i < COUNT_OF(names); i++)
        assert_string_equal(lt_optim_name_at(i, text, sizeof text), names[i]);
    assert_null(lt_optim_name_at(COUNT_OF(names), text, sizeof text));
    fixture f;
    fixture_open(&f, true);
    fixture_add(&f, "w", LT_SHAPE(2));
    assert_status(lt_optim_open(&f.optim, "averege", &f.list), LT_E_ARG);
    assert_non_null(strstr(lt_error_message(), "'averege'; the nearest is 'average'"));
    assert_ok(lt_optim_open(&f.optim, "shampoo-paper", &f.list));
    fixture_close(&f);
}

/* --- Rejected rows --- */

#define AT(field) .offset = offsetof(config, field)
static const lt_optim_field twice[] = {MEMORY, EVERY, MEMORY};
static const lt_optim_field outside[] = {{"far", LT_FIELD_REAL, .offset = sizeof(config)}};
static const lt_optim_field no_choices[] = {{"mode", LT_FIELD_CHOICE, AT(mode)}};
static const lt_optim_field no_set[] = {{"list", LT_FIELD_LIST, .offset = 0}};
static const lt_optim_field upper[] = {{"Memory", LT_FIELD_REAL, AT(memory), .high = 1}};
static const lt_optim_field wide[] = {{"mode", LT_FIELD_SMALL, AT(mode), .high = 1e12}};
static const lt_optim_field other[] = {{"nesterov", LT_FIELD_COUNT, AT(every), .high = 9}};
static const lt_optim_field choices[] = {
    {"grafting", LT_FIELD_CHOICE, offsetof(config, mode), .choices = "none|all"}};

typedef struct bad_family {
    const char *name;
    lt_optim_family family;
    const char *message;
} bad_family;

static const bad_family bad[] = {
    {"a name that is taken",
     {.name = "sgd", ROW(fields)},
     "optimizer sgd: the name is already registered"},
    {"a second registration",
     {.name = "average", ROW(fields)},
     "optimizer average: the name is already"},
    {"a default out of range",
     {"high", NULL, sizeof(config), fields, 1, &bad_preset, 1, NULL, &defaults, false, make},
     "high: memory 1 is not in [0,1) (in the defaults"},
    {"a field twice",
     {.name = "double", ROW(twice)},
     "optimizer double: field memory: listed twice"},
    {"a field outside of the struct", {.name = "far", ROW(outside)}, "field far: outside of"},
    {"a choice without choices",
     {.name = "none", ROW(no_choices)},
     "field mode: choices are required"},
    {"a list that nothing sets",
     {.name = "list", ROW(no_set)},
     "field list: a list needs set and read"},
    {"a range that is not an int's",
     {.name = "wide", ROW(wide)},
     "field mode: range exceeds that of int"},
    {"capitals", {.name = "upper", ROW(upper)}, "invalid name 'Memory'"},
    {"another type than others have",
     {.name = "type", ROW(other)},
     "field nesterov: type or choices differ from those of sgd"},
    {"other choices than others have",
     {.name = "graft", ROW(choices)},
     "field grafting: type or choices differ from those of shampoo"},
    {"no presets",
     {.name = "bare", .config_bytes = 1, .make = make},
     "optimizer bare: a row needs"},
};

static void family_is_refused(void **state)
{
    const bad_family *row = *state;
    assert_status(lt_optim_register(&row->family), LT_E_ARG);
    if (!strstr(lt_error_message(), row->message))
        fail_msg("'%s' does not say '%s'", lt_error_message(), row->message);
    assert_true(!strcmp(row->family.name, "sgd") || !strcmp(row->family.name, "average")
                || !lt_optim_family_named(row->family.name));
}

/* The built-in rows pass the checks of registered ones. */
static void the_rows_of_the_library_are_good(void **state)
{
    (void)state;
    const lt_optim_family *known[LT_MAX_OPTIM_FAMILIES], *f;
    for (size_t i = 0; (f = lt_optim_family_at(i)); i++) {
        assert_ok(lt_optim_check_family(f, known, i));
        known[i] = f;
        if (!strcmp(f->name, "shampoo") || !strcmp(f->name, "soap") || !strcmp(f->name, "muon"))
            assert_true(f->divided); /* their work is too much for each rank */
    }
}

static void rows_survive_the_lack_of_memory(void **state)
{
    (void)state;
    lt_optim_flags flags = {0};
    lt_status st = LT_E_NOMEM;
    for (int64_t n = 1; st == LT_E_NOMEM; n++) {
        lt_alloc_fail_at(n);
        st = lt_optim_flags_open(&flags);
    }
    lt_alloc_fail_at(0);
    assert_ok(st);
    lt_optim_flags_close(&flags);
}

/* Runs last: no further row fits. */
static void as_many_as_fit_are_registered(void **state)
{
    (void)state;
    static char name[LT_MAX_OPTIM_FAMILIES][16];
    static lt_optim_family more[LT_MAX_OPTIM_FAMILIES];
    size_t count = 0, i = 0;
    while (lt_optim_family_at(count))
        count++;
    for (; count + i < LT_MAX_OPTIM_FAMILIES; i++) {
        snprintf(name[i], sizeof name[i], "more-%zu", i);
        more[i] = (lt_optim_family){.name = name[i], ROW(fields)};
        assert_ok(lt_optim_register(&more[i]));
    }
    const lt_optim_family last = {.name = "last", ROW(fields)};
    assert_fails(lt_optim_register(&last), LT_E_NOMEM,
                 "optimizer last: at most 64 optimizers can be registered");
    assert_null(lt_optim_family_named("last"));
}

int main(void)
{
    enum { B = COUNT_OF(bad), R = COUNT_OF(refusals) };
    static const struct CMUnitTest single[] = {
        cmocka_unit_test(its_name_opens_it),
        cmocka_unit_test(json_sets_its_fields),
        cmocka_unit_test(flags_set_its_fields),
        cmocka_unit_test(flags_of_directions_without_factors),
        cmocka_unit_test(a_preset_shows_its_list),
        cmocka_unit_test(without_factors_their_flags_are_refused),
        cmocka_unit_test(names_have_the_presets_too),
        cmocka_unit_test(the_rows_of_the_library_are_good),
        cmocka_unit_test(rows_survive_the_lack_of_memory),
    };
    struct CMUnitTest tests[B + R + COUNT_OF(single) + 1];
    size_t n = 0;
    for (size_t i = 0; i < COUNT_OF(single); i++)
        tests[n++] = single[i];
    for (size_t i = 0; i < R; i++)
        tests[n++] = row_test(refusals[i].name, flag_is_refused, &refusals[i]);
    for (size_t i = 0; i < B; i++)
        tests[n++] = row_test(bad[i].name, family_is_refused, &bad[i]);
    tests[n] = (struct CMUnitTest)cmocka_unit_test(as_many_as_fit_are_registered);
    return cmocka_run_group_tests(tests, register_average, NULL);
}
