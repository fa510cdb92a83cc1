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
    int64_t batch_size, eval_batch_size; /* samples */
    loader_options loader;
    training_options training;
    lt_optim_flags optim;
    lt_averaging_config averaging;
    group_options groups;
    schedule_options schedule;
    evaluation_options evaluation;
    output_options output;
    ranks_options ranks;
    machine_options machine;
    int other; /* value of a command's option; read by its is_asked() */
} arguments;

/* Source of the options: the family's are stored in config, the program's in context. */
typedef struct arguments_of {
    const lt_model_family *family;
    const lt_trainer_program *program;
    void *config, *context;
} arguments_of;

/* Options and --help text that a command adds to the flags of training. */
typedef struct arguments_more {
    const lt_program *program; /* name, summary, usage, description */
    lt_option_table table;
} arguments_more;
/* Makes the program's options, stored in args, config and context, and those of more (may be NULL); the selector
 * is "optim". Errors: as lt_options_compose(). */
lt_status lt_arguments_open(lt_options **out, arguments *args, const arguments_of *of,
                            const arguments_more *more);
void lt_arguments_close(lt_options **options, arguments *args);

/* Sets a constant schedule for schedule-free averaging, unless another one is set. Call after
 * lt_optim_flags_resolve(). */
lt_status lt_averaging_resolve(const lt_averaging_config *c, lt_options *options);

/* Checks for contradictions between options. */
lt_status lt_arguments_check(const arguments *args, const lt_trainer_program *program,
                             const lt_options *options);

#endif
