/** For writers of programs that train: what a command line needs to know of a kind of task. */
#ifndef LATHER_EXT_PROGRAM_H
#define LATHER_EXT_PROGRAM_H

#include "lather/checkpoint.h"
#include "lather/data.h"
#include "lather/detail/run.h"
#include "lather/ext/task.h"
#include "lather/trainer.h"

/** One start of a program: its options and all that they open. */
typedef struct lt_trainer lt_trainer;
typedef struct lt_trainer_program lt_trainer_program;

/** What one sample is, for the notes on costs. */
typedef struct lt_trainer_sample {
    int size, largest; /**< lt_model_spec.size of evaluations; the largest of training */
    double bytes;      /**< of a sample in a batch */
    char text[64];     /**< "image of 224 x 224" */
} lt_trainer_sample;

/** A command beside training: the first argument, its own options and their struct. */
typedef struct lt_trainer_command {
    const char *name;          /**< "predict" */
    const lt_program *program; /**< of its options; its name is made of the family's */
    size_t bytes;              /**< of the struct that the options fill */
    /** Its work; values: that struct; *code: the exit status if it succeeds, 0 before. */
    lt_status (*run)(lt_trainer *trainer, const void *values, int *code);
    /** Instead of all of these but the name: reads the whole command line by itself; returns the exit status. */
    int (*main)(int argc, char **argv, const lt_model_family *family, const lt_trainer_program *of);
    /** With main: a choice that training has as an option too, into an int; and whether a command line of
     *  training has it so that main() is called instead. NULL: none. */
    const lt_option *option;
    bool (*is_asked)(int argc, char *const *argv);
} lt_trainer_command;

/** `plan`, and --plan auto of training: which lt_classifier_main() and lt_language_main() have, and others list. */
LT_API_DATA const lt_trainer_command lt_plan_command;

enum { LT_TRAINER_METADATA = 40 };

/** A kind of task. `context` is a struct of context_bytes, zeroed, for the program's own; all entries are
 *  called by the main thread, in this order, and are optional unless they say otherwise. All texts stay valid. */
struct lt_trainer_program {
    const char *summary, *about,
        *packer;                       /**< of --help; of families that say nothing of their own */
    const char *usage;                 /**< what follows the name: "--data DIR [OPTION]..." */
    const char *data_meta, *data_help; /**< the row of --data */
    const char *data_missing;          /**< behind "--data: missing; " */
    const char *const *
        local; /**< names of own options that may differ from rank to rank; NULL ends; may be NULL */
    const char *channels_key,
        *size_key; /**< metadata that say lt_model_spec of weights; NULL: a task without */
    const char *classes_key; /**< Required */
    const lt_task_ops *task; /**< Required */
    size_t context_bytes;
    const lt_trainer_command *const *command;
    size_t commands;
    /** Rows of its own, into structs of context: data's, listed first, and the others. */
    void (*options)(void *context, lt_option_table *data, lt_option_table *own);
    /** Contradictions on the command line. Errors: LT_E_ARG. */
    lt_status (*check)(const void *context, const lt_trainer *trainer);
    /** Data to train on (not where lt_trainer_evaluates()) and to evaluate. Required. */
    lt_status (*open_data)(void *context, lt_trainer *trainer, lt_dataset **train,
                           lt_dataset **val);
    /** What all ranks must have alike, by lt_trainer_same_number(). Collective. */
    lt_status (*agree)(void *context, lt_trainer *trainer);
    /** What the model is made for: all but the seed. First with found NULL: a new model; then, where
     *  the run takes over the model of a file of weights, with what that was made for. of_weights:
     *  the file is --weights, else a checkpoint's. Required. Errors: LT_E_ARG, LT_E_SHAPE, LT_E_FORMAT. */
    lt_status (*spec)(void *context, lt_trainer *trainer, const lt_model_spec *found,
                      bool of_weights, lt_model_spec *out);
    /** The metadata of weights that a run writes; returns how many. Borrowed. */
    size_t (*metadata)(void *context, const lt_trainer *trainer,
                       lt_metadata out[LT_TRAINER_METADATA]);
    /** Whether the run may go on from a checkpoint whose weights are this file. Errors: LT_E_ARG. */
    lt_status (*check_metadata)(const void *context, const lt_trainer *trainer, const char *path);
    /** Fields of the task: transform, sizes, mix, repeats, max_bad, caches. The others are set. */
    void (*loader)(const void *context, const lt_trainer *trainer, bool train,
                   lt_loader_config *out);
    void (*sample)(const void *context, const lt_trainer *trainer, lt_trainer_sample *out);
    /** The context of the task. NULL: the program's. */
    void *(*task_context)(void *context, lt_trainer *trainer);
    /** Notes on what was chosen, before training; and on the input of weights that are used. */
    void (*note_choices)(const void *context, lt_trainer *trainer);
    void (*describe)(const void *context, lt_trainer *trainer);
    /** Value of the task's best metric at which training ends; 0: none. */
    double (*target)(const void *context);
    /** Further numbers of a step's record: returns how many, at most 4. */
    int (*step_values)(const void *context, const lt_trainer *trainer, lt_metric *out);
    void (*begin_epoch)(const void *context, lt_trainer *trainer);
    /** Before and behind --eval; *is_done: there is nothing to evaluate. Collective. */
    lt_status (*begin_evaluation)(void *context, lt_trainer *trainer, bool *is_done);
    lt_status (*end_evaluation)(void *context, lt_trainer *trainer, const lt_evaluation *found);
    /** The line of --eval on standard output; rank 0 alone. Required. */
    void (*report)(const void *context, const lt_evaluation *found);
    void (*close)(void *context);
};

/** The whole program, as lt_classifier_main(). Both tables are borrowed. */
LT_API int lt_trainer_main(int argc, char **argv, const lt_model_family *family,
                           const lt_trainer_program *program);

/** What is open so far; the rest is NULL or "". All borrowed. */
LT_API void *lt_trainer_context(const lt_trainer *trainer);
LT_API const lt_options *lt_trainer_options(const lt_trainer *trainer);
LT_API lt_device *lt_trainer_device(const lt_trainer *trainer);
LT_API lt_tape *lt_trainer_tape(const lt_trainer *trainer);
LT_API lt_module *lt_trainer_model(const lt_trainer *trainer);
LT_API const lt_model_spec *lt_trainer_spec(const lt_trainer *trainer);
LT_API const lt_model_facts *lt_trainer_facts(const lt_trainer *trainer);
LT_API const char *lt_trainer_data(const lt_trainer *trainer); /**< --data */
/** The file of weights to start from: the checkpoint's, else --weights. */
LT_API const char *lt_trainer_weights(const lt_trainer *trainer);
LT_API bool lt_trainer_evaluates(const lt_trainer *trainer); /**< --eval */
LT_API int lt_trainer_ranks(const lt_trainer *trainer);      /**< how many; 1 before they met */
LT_API lt_pass lt_trainer_pass(const lt_trainer *trainer, bool train);

/** Errors: LT_E_ARG, naming what and both values, if a rank has another one. Collective. */
LT_API LT_MUST_CHECK lt_status lt_trainer_same_number(lt_trainer *trainer, const char *what,
                                                      int64_t value);
/** For a command: opens a device (its threads: 0: all) and a tape, and makes the model that a file of
 *  weights belongs to, with these values. Errors: as lt_device_open(), lt_weights_load_model(). */
LT_API LT_MUST_CHECK lt_status lt_trainer_open_weights(lt_trainer *trainer, const char *path,
                                                       const char *device, int threads);
/** From here on a failure is no wrong command line: LT_E_ARG ends the program with 1, not 2. */
LT_API void lt_trainer_begin_work(lt_trainer *trainer);

#endif
