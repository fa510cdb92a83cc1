/* One start of a training program: the parts that a program's functions, its commands and the planner may use. */
#ifndef LT_TRAINER_TRAINER_H
#define LT_TRAINER_TRAINER_H

#include "arguments.h"
#include "train/checkpoint/watch.h"
#include "train/loop/loop.h"

/* model.c: the network on its device. */
typedef struct trainer_model {
    lt_device *device;
    lt_module *network;
    lt_params params;
    lt_tape *tape;
    lt_module *
        base; /* with --mup, until the optimizer is made: the network at the base width; else NULL */
    lt_params base_params;
    family_choice base_choice; /* its options */
    /* weights to start from: the checkpoint's model.safetensors, otherwise --weights; "" if neither */
    char weights[LT_WATCH_PATH + 32];
} trainer_model;

/* output.c: the records of a run. */
typedef struct trainer_output {
    lt_run *run;
    lt_task_labels labels; /* labels of metrics; borrowed by run */
    lt_run_lock *lock;     /* lock of --output; NULL without it */
} trainer_output;

/* Parts are zeroed until they are opened. */
struct lt_trainer {
    command_line line;
    lt_ranks ranks;
    trainer_model model;
    lt_train_input input;
    lt_train_state state;
    lt_optim *optim; /* the optimizer; NULL in an evaluation */
    trainer_output output;
    bool at_work; /* everything is open: a later failure is not a wrong command line */
};

/* Exit statuses of the process. An LT_E_ARG before the first sample is a wrong command line: found while reading
 * it, in a value that only the library can check, or in a conflict with a checkpoint or the data. */
enum { EXIT_DONE, EXIT_ERROR, EXIT_USAGE, EXIT_INTERRUPTED };

/* --- trainer.c: the command line of a start --- */
/* Opens and parses the command line; more: as in lt_command_line_open_options(). */
lt_status lt_trainer_parse(lt_trainer *t, const lt_model_family *family,
                           const lt_trainer_program *program, const arguments_more *more, int argc,
                           char *const *argv);
/* Checks a parsed command line. Errors: LT_E_ARG. */
lt_status lt_trainer_check(const lt_trainer *t);
int lt_trainer_exit_status(const lt_trainer *t, lt_status st);

/* --- training.c: a run and its end --- */
/* Frees the parts of a trainer and leaves the ranks. */
void lt_trainer_close(lt_trainer *t);
/* Trains by the command line; returns the exit status. hooks: called first; borrowed; may be NULL. */
int lt_trainer_train_by(int argc, char *const *argv, const lt_model_family *family,
                        const lt_trainer_program *program, const lt_train_hooks *hooks);

/* --- model.c: the device and the network --- */
/* Opens the device and joins the ranks. */
lt_status lt_trainer_open_device(lt_trainer *t);
lt_status lt_trainer_open_model(lt_trainer *t);
void lt_trainer_close_model(trainer_model *model);
/* Returns true if the parameters include running statistics of batch norm. */
bool lt_trainer_has_bn_statistics(const lt_params *params);

/* --- mup.c: --mup BASE_WIDTH --- */
/* Copies the options of the base, before a checkpoint changes those of the run. Errors: LT_E_ARG. */
lt_status lt_trainer_choose_base(lt_trainer *t);
/* Makes the network at the base width, when that of the run is chosen but not made; lt_trainer_scale_values() scales
 * the initial values by it. Errors: LT_E_ARG. */
lt_status lt_trainer_open_base(lt_trainer *t);
lt_status lt_trainer_scale_values(lt_trainer *t);
/* Scales learning rates and weight decay, after --param-group, and closes the base. No effect without --mup. */
lt_status lt_trainer_scale_by_base(lt_trainer *t);
void lt_trainer_close_base(trainer_model *m);

/* --- parallel.c: the ranks --- */
/* Joins the ranks that the launcher started, and divides the machine's threads among them; *workers: loader threads
 * of this rank, 0: as many as allowed. */
lt_status lt_trainer_open_ranks(lt_ranks *ranks, int *workers, lt_device *device,
                                const command_line *line);
/* Notes flags that differ from their defaults and have no effect on one rank; --shard-gradients and --shard-params have:
 * they change the order in which the gradient's norm is summed. */
void lt_trainer_log_unused_flags(lt_run *run, const ranks_options *options, int ranks);

/* --- data.c: the data, loaders and evaluations --- */
lt_status lt_trainer_open_data(lt_trainer *t);
/* Counts the batches of an epoch on each of `copies` replicas; a remainder smaller than an update is skipped.
 * Errors: LT_E_ARG (no update fits). */
lt_status lt_trainer_count_batches(int64_t *out, const command_line *line, int64_t count,
                                   int copies);
lt_task lt_trainer_task(lt_trainer *t);
/* Returns the loader fields that the program sets. */
lt_loader_config lt_trainer_loader_config(const lt_trainer *t, bool train);
/* Returns the loader configuration of this rank's training samples; the data must be open. */
lt_loader_config lt_trainer_train_loader_config(const lt_trainer *t);
/* Returns true if --update-bn applies, and then fills its configuration; dp: NULL for one rank. */
bool lt_trainer_update_bn_config(const lt_trainer *t, lt_data_parallel *dp, lt_update_bn *out);
/* Returns the parts of an evaluation; share may be NULL. */
lt_evaluator lt_trainer_evaluator(lt_trainer *t, lt_share *share);

/* watch.c: --watch RUN. */
typedef struct trainer_watching {
    lt_watch *watch;  /* watcher of the run's checkpoints on rank 0; else NULL */
    lt_watched found; /* the checkpoint to evaluate now */
} trainer_watching;
/* Finds the run's first checkpoint to evaluate and sets the weights to it; *over: the run ended without another
 * one, or a signal came. Both are collective. */
lt_status lt_trainer_open_watch(trainer_watching *w, lt_trainer *t, bool *over);
/* Evaluates this checkpoint and later ones, to the end of the run or a signal. */
lt_status lt_trainer_watch(trainer_watching *w, lt_trainer *t, lt_share *share);

/* --- output.c: the records of a run and notes --- */
/* Chooses --recompute auto, for a resumed run as that run did. Collective. */
lt_status lt_trainer_settle_recompute(lt_trainer *t);
/* Opens the records of --output, also as loop->run. */
lt_status lt_trainer_open_run(lt_trainer *t, lt_train_loop *loop);
/* Appends to the message of a failed load, LT_E_FORMAT, the options that differ from the resumed run's. Returns st. */
lt_status lt_trainer_explain_failed_load(const lt_trainer *t, lt_status st);
/* Notes evaluations on part of the data or on the training data, flags without effect, and runs that save nothing. */
void lt_trainer_note_limits(const lt_trainer *t);
/* Starts the trace of --profile. */
lt_status lt_trainer_start_profile(const lt_trainer *t);

/* --- memory.c: the memory and cost of a step --- */
/* Chooses --recompute auto: off if its memory is free on every rank, otherwise cheap; a resumed run repeats its
 * choice in `before` (RECOMPUTE_AUTO: unknown). Logs the choice and sets the option. Collective. */
lt_status lt_trainer_choose_recompute(lt_trainer *t, int before);
/* Checks whether a step fits into memory. Errors: LT_E_NOMEM. lt_trainer_summary() shows parameters, FLOPs and
 * memory. */
lt_status lt_trainer_check_memory(const lt_trainer *t);
lt_status lt_trainer_summary(lt_trainer *t, int64_t total_steps);
/* Counts the network's cost, and the bytes that a sample of a batch takes in a step. The model must be open. */
lt_status lt_trainer_count_cost(const lt_trainer *t, lt_model_cost *out, double *sample_bytes);
/* Returns the bytes that this process can still get; 0 if unknown. */
double lt_trainer_available_memory(void);

/* state_memory.c: makes the optimizer of the flags over these parameters, with its state reduced by
 * --state-memory. */
lt_status lt_trainer_open_optimizer(lt_optim **optim, arguments *args, const lt_params *params,
                                    int rank);

#endif
