/* Options that need a value of another one: which settings are rejected, from the command line and from files. */

#include "base/encoding/yaml.h"
#include "temp.h"

#include "lather/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct values {
    double rate;
    int64_t workers;
    bool nesterov;
    int optim;
    const char *data;
    lt_option_list freeze;
} values;

#define FIELD(name) offsetof(values, name)

/* Settings of --rate, which needs `needs`. text: a config file, or NULL. */
static const struct {
    const char *needs, *line, *text, *message;
} rows[] = {
    {"--freeze", "--rate 0.25", NULL, "--rate: needs --freeze"},
    {"--freeze", "--rate 0.25 --freeze fc", NULL, NULL},
    {"--freeze", "--rate 0.5", NULL, NULL}, /* the default may be "off" */
    {"--freeze --data", "--rate 0.25", NULL, "--rate: needs --freeze or --data"},
    {"--freeze --data", "--rate 0.25 --data x", NULL, NULL},
    {"--workers", "--rate 0.25 --workers 2", NULL, "--rate: needs --workers"},
    {"--workers", "--rate 0.25 --workers 3", NULL, NULL},
    {"--nesterov", "--rate 0.25 --no-nesterov", NULL, NULL},
    {"--optim=sgd|adam", "--rate 0.25", NULL, "--rate: needs --optim sgd or adam, but it is lion"},
    {"--optim=sgd", "--rate 0.5", NULL, "--rate: needs --optim sgd, but it is lion"},
    {"--optim=sgd|adam", "--rate 0.25 --optim adam", NULL, NULL},
    {"--optim=sgd", "", "rate: 0.25\n", "--rate: needs --optim sgd, but it is lion"},
    {"--optim=sgd", "", "rate: 0.5\n", NULL}, /* config.yaml has all settings */
    {"--optim=sgd", "--optim adam", "rate: 0.25\noptim: sgd\n", NULL},
    {"--optim=sgd", "--rate 0.25", "optim: adam\n", "--rate: needs --optim sgd, but it is adam"},
};

/* Parses words, after a config file. */
static lt_status parse(lt_options *o, const char *line, const char *text)
{
    enum { WORDS = 8 };
    char path[] = "/tmp/lather-options-XXXXXX", words[128];
    char *argv[WORDS] = {(char[]){"prog"}, (char[]){"--config"}, path};
    int argc = text ? 3 : 1;
    if (text) {
        const int file = mkstemp(path);
        assert_true(file >= 0);
        assert_int_equal(write(file, text, strlen(text)), strlen(text));
        close(file);
    }
    snprintf(words, sizeof words, "%s", line);
    for (char *rest = words, *word; argc < WORDS && (word = strtok_r(rest, " ", &rest));)
        argv[argc++] = word;
    const lt_status st = lt_options_parse(o, argc, argv);
    if (text)
        unlink(path);
    return st;
}

static void settings_that_others_leave_unread_are_rejected(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const lt_option table[] = {
            {"Data", "data", 0, LT_OPTION_STRING, FIELD(data), .help = ""},
            {"Data", "workers", 0, LT_OPTION_INT, FIELD(workers), "2", 0, 9, .help = ""},
            {"Optimizer", "rate", 0, LT_OPTION_DOUBLE, FIELD(rate), "0.5", .help = "",
             .applies = rows[i].needs},
            {"Optimizer", "nesterov", 0, LT_OPTION_BOOL, FIELD(nesterov), "true", .help = ""},
            {"Optimizer", "optim", 0, LT_OPTION_CHOICE, FIELD(optim), "lion",
             .choices = "sgd|adam|lion", .help = ""},
            {"Optimizer", "freeze", 0, LT_OPTION_LIST, FIELD(freeze), .help = ""},
        };
        const lt_program program = {.name = "prog", .option = table, .count = COUNT_OF(table)};
        values v = {0};
        lt_options *o = NULL;
        assert_ok(lt_options_new(&o, &program, &v));
        const lt_status st = parse(o, rows[i].line, rows[i].text);
        if (st != (rows[i].message ? LT_E_ARG : LT_OK)
            || (st && strcmp(lt_error_message(), rows[i].message) != 0))
            fail_msg("needs %s, '%s', config '%s': %s", rows[i].needs, rows[i].line,
                     rows[i].text ? rows[i].text : "", st ? lt_error_message() : "accepted");
        lt_options_free(&o);
    }
}

static lt_status accept(void *context, const char *key, const char *value, int line)
{
    (void)context, (void)key, (void)value, (void)line;
    return LT_OK;
}

static void keys_of_a_config_are_words_and_at_most_1024(void **state)
{
    enum { KEYS = 1025, BYTES = 10 };
    char text[KEYS * BYTES + 1] = "", folder[TEMP_PATH], path[TEMP_PATH];
    (void)state;
    for (int i = 0; i < KEYS; i++)
        snprintf(text + (size_t)i * BYTES, BYTES + 1, "k%05u: 1\n", (unsigned)i % 10000U);
    temp_make(folder);
    temp_write(temp_path(path, folder, "x.yaml"), text, (size_t)(KEYS - 1) * BYTES);
    const lt_status st = lt_yaml_read(path, accept, NULL);
    if (st == LT_E_UNSUPPORTED) /* a build without libyaml */
        skip();
    assert_ok(st);
    temp_write(path, text, (size_t)KEYS * BYTES);
    assert_fails(lt_yaml_read(path, accept, NULL), LT_E_FORMAT, "x.yaml: more than 1024 keys");
    temp_write(path, "a: 1\n[b, c]: 3\n", 15);
    assert_fails(lt_yaml_read(path, accept, NULL), LT_E_FORMAT, "x.yaml: line 2: expected a key");
    temp_remove(folder);
}

static void a_selector_is_one_of_the_options(void **state)
{
    const lt_option table[] = {{"Data", "data", 0, LT_OPTION_STRING, FIELD(data), .help = ""}};
    const lt_program program = {
        .name = "prog", .option = table, .count = COUNT_OF(table), .selector = "optim"};
    values v = {0};
    lt_options *o = NULL;
    (void)state;
    assert_fails(lt_options_new(&o, &program, &v), LT_E_ARG, "there is no selector --optim");
    assert_null(o);
}

static void a_full_device_is_an_error(void **state)
{
    const lt_option table[] = {{"Data", "data", 0, LT_OPTION_STRING, FIELD(data), "x", .help = ""}};
    const lt_program program = {.name = "prog", .option = table, .count = COUNT_OF(table)};
    values v = {0};
    lt_options *o = NULL;
    FILE *full = fopen("/dev/full", "w");
    (void)state;
    assert_non_null(full);
    assert_ok(lt_options_new(&o, &program, &v));
    assert_fails(lt_options_write_config(o, full), LT_E_IO,
                 "cannot write the output: No space left on device");
    fclose(full);
    lt_options_free(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_of_a_config_are_words_and_at_most_1024),
        cmocka_unit_test(a_full_device_is_an_error),
        cmocka_unit_test(a_selector_is_one_of_the_options),
        cmocka_unit_test(settings_that_others_leave_unread_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
