/* LT_SHAMPOO_DEFAULTS must equal the configuration of train_resnet50 --optim shampoo; a command line reports missing memory. */

#include "base/alloc.h"
#include "near.h"
#include "train/classify/classifier.h"

#include "lather/ext/optim_family.h"
#include "lather/shampoo.h"

#include <string.h>

static const lt_model_family family = {.program = "train"};

static lt_shampoo_config of_command_line(const char *flag)
{
    command_line line = {0};
    char *argv[] = {(char[]){"train_resnet50"}, (char[]){"--optim=shampoo"}, (char[64]){0}};
    snprintf(argv[2], 64, "%s", flag);
    assert_ok(lt_command_line_open(&line, &family, &lt_classifier_program));
    assert_ok(lt_command_line_open_options(&line, NULL));
    assert_ok(lt_options_parse(line.options, 3, argv));
    assert_ok(lt_optim_flags_resolve(&line.args.optim, line.options));
    const lt_shampoo_config c = *(const lt_shampoo_config *)line.args.optim.settings;
    lt_command_line_close(&line);
    return c;
}

static bool differs(const lt_optim_field *f, const char *a, const char *b)
{
    static const size_t bytes[] = {
        [LT_FIELD_REAL] = sizeof(double),   [LT_FIELD_COUNT] = sizeof(int64_t),
        [LT_FIELD_LIMIT] = sizeof(int64_t), [LT_FIELD_SMALL] = sizeof(int),
        [LT_FIELD_FLAG] = sizeof(bool),     [LT_FIELD_CHOICE] = sizeof(int),
        [LT_FIELD_SCOPE] = sizeof(int)};
    char x[256] = "", y[256] = "";
    if (f->type != LT_FIELD_LIST)
        return memcmp(a + f->offset, b + f->offset, bytes[f->type]) != 0;
    if (f->write) {
        f->write(a, x, sizeof x);
        f->write(b, y, sizeof y);
    }
    return strcmp(x, y) != 0;
}

/* Returns the name of the first field that differs, or NULL. */
static const char *difference(const lt_shampoo_config *a, const lt_shampoo_config *b)
{
    const lt_optim_family *shampoo = lt_optim_family_named("shampoo");
    for (size_t i = 0; i < shampoo->fields; i++)
        if (differs(&shampoo->field[i], (const char *)a, (const char *)b))
            return shampoo->field[i].name;
    return NULL;
}

static void defaults_equal_the_command_lines(void **state)
{
    (void)state;
    const lt_shampoo_config here = LT_SHAMPOO_DEFAULTS;
    lt_shampoo_config there = of_command_line("--no-eval"), preset;
    const char *field = difference(&here, &there);
    if (field)
        fail_msg("%s: LT_SHAMPOO_DEFAULTS and the command line differ", field);
    assert_ok(lt_shampoo_preset("recommended", &preset));
    assert_null(difference(&here, &preset));
}

static void a_different_setting_is_detected(void **state)
{
    (void)state;
    const lt_shampoo_config here = LT_SHAMPOO_DEFAULTS;
    lt_shampoo_config there = of_command_line("--norm-weight-decay");
    assert_string_equal(difference(&here, &there), "norm_weight_decay");
    there = of_command_line("--inverse-exponent=0.5");
    assert_string_equal(difference(&here, &there), "inverse_exponent");
}

static void options_without_memory_are_an_error(void **state)
{
    (void)state;
    int failures = 0;
    for (lt_status st = LT_E_NOMEM; st; failures += st != LT_OK) {
        command_line line = {0};
        lt_alloc_fail_at(failures + 1);
        st = lt_command_line_open(&line, &family, &lt_classifier_program);
        lt_alloc_fail_at(0);
        assert_true(!st || st == LT_E_NOMEM);
        lt_command_line_close(&line);
    }
    assert_int_equal(failures, 2); /* the program's options, the family's */
}

int main(void)
{
    const struct CMUnitTest rows[] = {
        cmocka_unit_test(options_without_memory_are_an_error),
        cmocka_unit_test(defaults_equal_the_command_lines),
        cmocka_unit_test(a_different_setting_is_detected),
    };
    return cmocka_run_group_tests_name("defaults", rows, NULL, NULL);
}
