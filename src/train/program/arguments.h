/* The command line of a training program: a struct for each group of options. */
#ifndef LT_TRAINER_ARGUMENTS_H
#define LT_TRAINER_ARGUMENTS_H

#include "program.h"
#include "train/loop/ranks.h"

#include "lather/detail/optim_flags.h"
#include "lather/ext/program.h"

/* Texts of --help that depend on the family, the task and its samples. */
typedef struct program_text {
    lt_program program;
    lt_option data, loader[2], recipe, batch, eval_batch; /* rows whose help depends on these */
    char description[1024], recipe_help[256], shuffle_help[128], batch_help[128],
        eval_batch_help[128];
} program_text;

typedef struct arguments {
    program_text text;
    const char *data, *recipe, *weights;
    bool reset_head;
    int64_t batch_size, eval_batch_size; /* samples of a batch */
    loader_options loader;
    training_options training;
    lt_optim_flags optim;
    lt_averaging_config averaging;
    lt_cautious_config cautious;
    group_options groups;
    schedule_options schedule;
    evaluation_options evaluation;
    output_options output;
    ranks_options ranks;
    machine_options machine;
    plugin_options plugins;
    int other; /* value of another command's option; read by its is_asked() */
} arguments;

/* Options and --help text that a command adds to the flags of training. */
typedef struct arguments_more {
    const lt_program *program; /* the command's name, summary, usage and description */
    lt_option_table table;
} arguments_more;

/* A parsed command line: the options of program and family, and their values. */
typedef struct command_line {
    const lt_trainer_program *program;
    void *context; /* the program's context; owned */
    lt_options *options;
    arguments args;
    family_choice choice; /* the family's options, and the model that they choose */
} command_line;

/* Allocates the memory of the values. Close it whatever it returns. Errors: LT_E_NOMEM. */
lt_status lt_command_line_open(command_line *line, const lt_model_family *family,
                               const lt_trainer_program *program);
void lt_command_line_close(command_line *line);
/* Makes the program's options and those of more (may be NULL); the selector is "optim". Errors: as
 * lt_options_compose(). */
lt_status lt_command_line_open_options(command_line *line, const arguments_more *more);
/* Parses argv, its recipe and config files; sets dependent defaults. Errors: LT_E_ARG, those of a config file. */
lt_status lt_command_line_parse(command_line *line, int argc, char *const *argv);
/* Checks for contradictions between options of a command line. */
lt_status lt_command_line_check(const command_line *line);

#endif
