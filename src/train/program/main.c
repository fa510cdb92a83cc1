/* lt_trainer_main(): chooses between training and the program's other commands. */

#include "auto_lr.h"
#include "base/alloc.h"

#include "lather/ext/fail.h"

#include <stdio.h>
#include <string.h>

enum { NAME_TEXT = 256 };

static lt_status run_command(lt_trainer *t, const lt_trainer_command *c, void *values, int argc,
                             char *const *argv, int *code)
{
    if (lt_options_parse(t->line.options, argc, argv))
        return LT_E_ARG; /* includes unreadable config files */
    if (lt_options_requested(t->line.options) != LT_OPTIONS_RUN)
        return lt_options_print_request(t->line.options, stdout);
    return c->run(t, values, code);
}

/* Makes a command's options. One that reads weights also has the family's, which a file may leave open. */
static lt_status open_options(lt_trainer *t, const lt_program *program, void *values)
{
    const lt_model_family *f = t->line.choice.family;
    const lt_option_table table[] = {{program->option, program->count, values},
                                     lt_plugin_option_table(&t->line.args.plugins),
                                     {f->option, f->options, t->line.choice.config},
                                     lt_reproducible_option_table(&t->line.args.training)};
    bool reads = false;
    for (size_t i = 0; i < program->count; i++)
        reads = reads || !strcmp(program->option[i].name, "weights");
    LT_TRY(lt_options_compose(&t->line.options, program, table, reads ? 4 : 2));
    t->line.choice.options = reads ? t->line.options : NULL;
    return LT_OK;
}

static int run_other_command(int argc, char *const *argv, const lt_model_family *family,
                             const lt_trainer_program *of, const lt_trainer_command *c)
{
    lt_trainer t = {.ranks = LT_RANKS_ALONE};
    char name[NAME_TEXT];
    int code = EXIT_DONE;
    void *values = lt_alloc(1, c->bytes);
    lt_program program = *c->program;
    program.lists_all = true;
    program.name = name;
    snprintf(name, sizeof name, "%s %s", family->program, c->name);
    lt_status st = values ? lt_command_line_open(&t.line, family, of) : LT_E_NOMEM;
    if (!st)
        st = open_options(&t, &program, values);
    if (!st)
        st = run_command(&t, c, values, argc, argv, &code);
    if (st)
        fprintf(stderr, "%s: %s\n", name, lt_error_message());
    if (st || !code)
        code = lt_trainer_exit_status(&t, st);
    lt_trainer_close(&t);
    lt_free(values);
    return code;
}

/* Finds a command by its name, otherwise by an option of training; NULL: training. */
static const lt_trainer_command *find_command(int argc, char *const *argv,
                                              const lt_trainer_program *program)
{
    for (size_t i = 0; i < program->commands && argc > 1; i++)
        if (!strcmp(argv[1], program->command[i]->name))
            return program->command[i];
    for (size_t i = 0; i < program->commands; i++)
        if (program->command[i]->is_asked && program->command[i]->is_asked(argc, argv))
            return program->command[i];
    return NULL;
}

int lt_trainer_main(int argc, char **argv, const lt_model_family *family,
                    const lt_trainer_program *program)
{
    static char eval[] = "--eval";
    lt_threads_set_passive_wait(argv);
    if (argc > 1 && !strcmp(argv[1], "evaluate"))
        argv[1] = eval;
    if (argc > 1 && !strcmp(argv[1], "reproduce"))
        return lt_command_reproduce(argv, family->program); /* with the default signal handlers */
    lt_signals_as_errors();
    lt_status st = lt_plugins_load(argc, argv, family->program, family->recipes);
    if (st) {
        fprintf(stderr, "%s: %s\n", family->program, lt_error_message());
        return st == LT_E_ARG ? EXIT_USAGE : EXIT_ERROR;
    }
    const lt_trainer_command *c = find_command(argc, argv, program);
    const int code = !c && lt_auto_lr_is_asked(argc, argv)
                         ? lt_auto_lr_main(argc, argv, family, program)
                     : !c      ? lt_trainer_train_by(argc, argv, family, program, NULL)
                     : c->main ? c->main(argc, argv, family, program)
                               : run_other_command(argc - 1, argv + 1, family, program, c);
    return lt_signals_flush(family->program, code);
}
