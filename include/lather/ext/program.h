/** For authors of training programs: the description of a kind of task for a command line. */
#ifndef LATHER_EXT_PROGRAM_H
#define LATHER_EXT_PROGRAM_H

#include "lather/checkpoint.h"
#include "lather/data.h"
#include "lather/detail/run.h"
#include "lather/ext/task.h"
#include "lather/trainer.h"

/** One start of a program: its options and the parts that they open. */
typedef struct lt_trainer lt_trainer;
typedef struct lt_trainer_program lt_trainer_program;

/** Description of one sample, for notes on costs. */
typedef struct lt_trainer_sample {
    int size, largest; /**< lt_model_spec.size of evaluations; the largest of training */
    double bytes;      /**< bytes of one sample in a batch */
    char text[64];     /**< description of the sample: "image of 224 x 224" */
} lt_trainer_sample;

/** A command other than training: the first argument, its options and their struct. */
typedef struct lt_trainer_command {
    const char *name;          /**< name of the command: "predict" */
    const lt_program *program; /**< options of the command; its name is derived from the family's */
    size_t bytes;              /**< size of the struct that the options fill */
    /** Runs the command; values: that struct; *code: the exit status on success, 0 before. */
    lt_status (*run)(lt_trainer *trainer, const void *values, int *code);
    /** Replaces all of these except the name: parses the whole command line; returns the exit status. */
    int (*main)(int argc, char **argv, const lt_model_family *family, const lt_trainer_program *of);
    /** With main: an option of training that selects the command, stored as an int; and a function that returns
     *  true if the command line has it, so that main() is called. NULL if absent. */
    const lt_option *option;
    bool (*is_asked)(int argc, char *const *argv);
} lt_trainer_command;

/** `plan`, and --plan auto of training, in lt_classifier_main() and lt_language_main(); other programs may list
 *  it. */
LT_API_DATA const lt_trainer_command lt_plan_command;

enum { LT_TRAINER_METADATA = 40 };

/** A kind of task. `context` is a zeroed struct of context_bytes for the program; all entries are called by the
 *  main thread, in this order, and are optional unless marked required. All texts must remain valid. */
struct lt_trainer_program {
    const char *summary, *about, *packer; /**< texts of --help, unless the family has its own */
    const char *usage; /**< arguments after the program's name: "--data DIR [OPTION]..." */
    const char *data_meta, *data_help; /**< placeholder and help text of --data */
    const char *data_missing;          /**< end of the message "--data: missing; " */
    /** names of options that may differ from rank to rank; ended by NULL; may be NULL */
    const char *const *local;
    /** keys of weight metadata with lt_model_spec's fields; NULL if the task has none */
    const char *channels_key, *size_key;
    const char *classes_key; /**< key of the number of classes in weight metadata. Required */
    const lt_task_ops *task; /**< objective and metrics. Required */
    size_t context_bytes;
    const lt_trainer_command *const *command;
    size_t commands;
    /** Returns option rows that fill structs of context: those of the data, listed first, and the others. */
    void (*options)(void *context, lt_option_table *data, lt_option_table *own);
    /** Checks for contradictions on the command line. Errors: LT_E_ARG. */
    lt_status (*check)(const void *context, const lt_trainer *trainer);
    /** Opens the data to train on (unless lt_trainer_evaluates()) and to evaluate. Required. */
    lt_status (*open_data)(void *context, lt_trainer *trainer, lt_dataset **train,
                           lt_dataset **val);
    /** Checks values that all ranks must share, by lt_trainer_same_number(). Collective. */
    lt_status (*agree)(void *context, lt_trainer *trainer);
    /** Sets the model's spec, except the seed. Called with found NULL for a new model, and again with the spec of
     *  a weight file if the run takes its model from one. of_weights: the file is --weights, otherwise a
     *  checkpoint's. Required. Errors: LT_E_ARG, LT_E_SHAPE, LT_E_FORMAT. */
    lt_status (*spec)(void *context, lt_trainer *trainer, const lt_model_spec *found,
                      bool of_weights, lt_model_spec *out);
    /** Fills the metadata of weights that a run writes; returns their number. Borrowed. */
    size_t (*metadata)(void *context, const lt_trainer *trainer,
                       lt_metadata out[LT_TRAINER_METADATA]);
    /** Checks that the run may resume from a checkpoint with these weights. Errors: LT_E_ARG. */
    lt_status (*check_metadata)(const void *context, const lt_trainer *trainer, const char *path);
    /** Sets the task's fields: transform, sizes, mix, repeats, max_bad, caches. The others are set. */
    void (*loader)(const void *context, const lt_trainer *trainer, bool train,
                   lt_loader_config *out);
    void (*sample)(const void *context, const lt_trainer *trainer, lt_trainer_sample *out);
    /** Returns the context of the task. NULL: the program's. */
    void *(*task_context)(void *context, lt_trainer *trainer);
    /** Shows notes: note_choices() on chosen settings, before training; describe() on the input of the weights
     *  used. */
    void (*note_choices)(const void *context, lt_trainer *trainer);
    void (*describe)(const void *context, lt_trainer *trainer);
    /** Returns the value of the task's best metric at which training ends; 0: none. */
    double (*target)(const void *context);
    /** Writes further values of a step's record; returns their number, at most 4. */
    int (*step_values)(const void *context, const lt_trainer *trainer, lt_metric *out);
    void (*begin_epoch)(const void *context, lt_trainer *trainer);
    /** Called before and after --eval; *is_done: no evaluation is needed. Collective. */
    lt_status (*begin_evaluation)(void *context, lt_trainer *trainer, bool *is_done);
    lt_status (*end_evaluation)(void *context, lt_trainer *trainer, const lt_evaluation *found);
    /** Prints the line of --eval on standard output, on rank 0 only. Required. */
    void (*report)(const void *context, const lt_evaluation *found);
    void (*close)(void *context);
};

/** Runs the whole program, like lt_classifier_main(). Both tables are borrowed. */
LT_API int lt_trainer_main(int argc, char **argv, const lt_model_family *family,
                           const lt_trainer_program *program);

/** Return the parts that are open; NULL or "" for others. All borrowed. */
LT_API void *lt_trainer_context(const lt_trainer *trainer);
LT_API const lt_options *lt_trainer_options(const lt_trainer *trainer);
LT_API lt_device *lt_trainer_device(const lt_trainer *trainer);
LT_API lt_tape *lt_trainer_tape(const lt_trainer *trainer);
LT_API lt_module *lt_trainer_model(const lt_trainer *trainer);
LT_API const lt_model_spec *lt_trainer_spec(const lt_trainer *trainer);
LT_API const lt_model_facts *lt_trainer_facts(const lt_trainer *trainer);
LT_API const char *lt_trainer_data(const lt_trainer *trainer); /**< Returns the value of --data. */
/** Returns the weights to start from: the checkpoint's, otherwise --weights. */
LT_API const char *lt_trainer_weights(const lt_trainer *trainer);
LT_API bool lt_trainer_evaluates(const lt_trainer *trainer); /**< Returns true with --eval. */
LT_API int
lt_trainer_ranks(const lt_trainer *trainer); /**< number of ranks; 1 before they are joined */
LT_API lt_pass lt_trainer_pass(const lt_trainer *trainer, bool train);

/** Fails with LT_E_ARG, naming `what` and both values, if a rank has another value. Collective. */
LT_API LT_MUST_CHECK lt_status lt_trainer_same_number(lt_trainer *trainer, const char *what,
                                                      int64_t value);
/** For a command: opens a device (0 threads: all) and a tape, and makes the model of a weight file, with its
 *  values. Errors: as lt_device_open(), lt_weights_load_model(). */
LT_API LT_MUST_CHECK lt_status lt_trainer_open_weights(lt_trainer *trainer, const char *path,
                                                       const char *device, int threads);
/** Marks the end of checks: from here on LT_E_ARG ends the program with status 1, not 2. */
LT_API void lt_trainer_end_checks(lt_trainer *trainer);

#endif
