/* Checks both sides of each limit of every program's options. */

#include "option_limits.h"

#include <stdio.h>

int main_resnet50(int argc, char **argv);
int main_vit(int argc, char **argv);
int main_gpt(int argc, char **argv);
lt_status __real_lt_options_compose(lt_options **out, const lt_program *program,
                                    const lt_option_table *table, size_t count);
lt_status __wrap_lt_options_compose(lt_options **out, const lt_program *program,
                                    const lt_option_table *table, size_t count);

static int limits, programs;

/* Replaces lt_options_compose(), by the linker's --wrap. */
lt_status __wrap_lt_options_compose(lt_options **out, const lt_program *program,
                                    const lt_option_table *table, size_t count)
{
    const lt_status st = __real_lt_options_compose(out, program, table, count);
    for (size_t i = 0; !st && i < (*out)->count; i++)
        limits += check_limits((*out)->row[i].option);
    programs++;
    return st;
}

typedef struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *word; /* command, or NULL to train */
    int least;        /* minimum number of limits */
} command;

static const command commands[] = {
    {"train_resnet50", main_resnet50, NULL, 150},
    {"train_resnet50 predict", main_resnet50, "predict", 4},
    {"train_resnet50 export", main_resnet50, "export", 4},
    {"train_resnet50 plan", main_resnet50, "plan", 10},
    {"train_vit", main_vit, NULL, 150},
    {"train_gpt", main_gpt, NULL, 150},
    {"train_gpt sample", main_gpt, "sample", 4},
};

static void check(void **state)
{
    const command *c = *state;
    char name[64], word[32], version[] = "--version", *argv[4] = {name};
    int argc = 1;
    snprintf(name, sizeof name, "%s", c->name);
    snprintf(word, sizeof word, "%s", c->word ? c->word : "");
    if (c->word)
        argv[argc++] = word;
    argv[argc++] = version;
    limits = programs = 0;
    assert_int_equal(c->run(argc, argv), 0);
    assert_true(programs > 0);
    if (limits < c->least)
        fail_msg("%d limits, not %d or more", limits, c->least);
}

static void an_option_that_accepts_an_invalid_value_is_detected(void **state)
{
    (void)state;
    lt_option option = {.name = "n", .type = LT_OPTION_INT, .min = 1, .max = 9};
    assert_int_equal(lt_options_check_value(&option, "9"), LT_OK);
    option.below = true;
    assert_int_equal(lt_options_check_value(&option, "9"), LT_E_ARG);
}

int main(void)
{
    struct CMUnitTest tests[COUNT_OF(commands) + 1];
    for (size_t i = 0; i < COUNT_OF(commands); i++)
        tests[i] = (struct CMUnitTest){.name = commands[i].name,
                                       .test_func = check,
                                       .initial_state = (void *)(uintptr_t)&commands[i]};
    tests[COUNT_OF(commands)] =
        (struct CMUnitTest)cmocka_unit_test(an_option_that_accepts_an_invalid_value_is_detected);
    return cmocka_run_group_tests_name("limits", tests, NULL, NULL);
}
