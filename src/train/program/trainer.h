/* One start of a training program: its options and the parts that they open. */
#ifndef LT_TRAINER_TRAINER_H
#define LT_TRAINER_TRAINER_H

#include "arguments.h"
#include "train/checkpoint/watch.h"
#include "train/loop/loop.h"

#include "lather/detail/sharded_optim.h"

/* Called after the record of each epoch is written, with its metrics. */
typedef struct lt_trainer_hook {
    lt_status (*end_epoch)(void *context, lt_trainer *t, const lt_metric *metric, size_t count);
    void *context;
} lt_trainer_hook;

/* parallel.c: objects that the ranks of a run share; zeroed for a single rank. */
typedef struct trainer_shared {
    /* maps whole parameters to the shards of a model; NULL: they are whole */
    lt_sharded_optim *placed;
    lt_data_parallel *dp;      /* NULL: one rank, or an evaluation */
    lt_local_steps *local;     /* NULL without local steps */
    lt_stragglers *stragglers; /* NULL: ranks wait for each other */
    lt_share *share;           /* time slices of the device; NULL: not shared */
    int workers;               /* loader threads of this rank; 0: as many as allowed */
} trainer_shared;

/* Parts are zeroed until they are opened; lt_trainer_close() frees them. */
struct lt_trainer {
    const lt_trainer_program *program;
    void *context; /* the program's; owned */
    lt_options *options;
    arguments args;

    lt_ranks ranks;
    trainer_shared shared;
    lt_train_input input;
    lt_train_state state;
    lt_train_step *step; /* NULL in an evaluation */
    lt_device *device;
    lt_module *model;
    family_choice choice; /* the model */
    lt_params params;
    lt_optim *optim;
    lt_schedule schedule;
    lt_tape *tape;
    lt_run *run;
    lt_task_labels labels; /* borrowed by run */

    const lt_trainer_hook *hook; /* NULL if absent */
    int64_t total_steps;
    char weights[LT_WATCH_PATH
                 + 32]; /* the checkpoint's model.safetensors, otherwise --weights; "" if neither */
    lt_run_lock *lock;  /* lock of --output; NULL without it */

    lt_watch *watch;    /* watch of --watch, on rank 0; NULL without it */
    lt_watched watched; /* the checkpoint to evaluate */
    bool at_work;       /* everything is open: a later failure is not a wrong command line */
};

/* Exit statuses of the process. An LT_E_ARG before the first sample is a wrong command line: found while reading
 * it, in a value that only the library can check, or in a conflict with a checkpoint or the data. */
enum { EXIT_DONE, EXIT_ERROR, EXIT_USAGE, EXIT_INTERRUPTED };

/* main.c: the steps of a start before anything is opened: memory of the options, their table (more: added by a
 * command; may be NULL), the command line, checks of it. Errors: LT_E_ARG, LT_E_NOMEM, those of a config file. */
lt_status lt_trainer_start(lt_trainer *t, const lt_model_family *family,
                           const lt_trainer_program *program);
lt_status lt_trainer_open_options(lt_trainer *t, const arguments_more *more);
lt_status lt_trainer_parse(lt_trainer *t, int argc, char *const *argv);
lt_status lt_trainer_check(const lt_trainer *t);
/* main.c: trains by the command line; returns the exit status. hook: borrowed; may be NULL. */
int lt_trainer_train_by(int argc, char *const *argv, const lt_model_family *family,
                        const lt_trainer_program *program, const lt_trainer_hook *hook);

/* parallel.c: several processes that train one model. */
/* Joins the ranks that the launcher started, and divides the machine's threads among them. */
lt_status lt_trainer_open_ranks(lt_trainer *t);
/* Opens the time-sharing of --share-device. Call last, as the other jobs wait for this job's time slices from then
 * on. */
lt_status lt_trainer_open_share(lt_trainer *t);
/* Starts averaging gradients. Call before the optimizer is made. */
lt_status lt_trainer_open_parallel(lt_trainer *t);
/* Notes flags that differ from their defaults and have no effect on one rank; --shard-gradients and --shard-params have:
 * they change the order in which the gradient's norm is summed. */
void lt_trainer_note_alone(const lt_trainer *t);
/* Turns compression of gradients on or off for the beginning epoch. */
void lt_trainer_begin_compression(lt_trainer *t);
/* Makes the optimizer, over params, or over the whole parameters of a sharded model. Call after freezing. */
lt_status lt_trainer_make_optimizer(lt_trainer *t, const lt_params **params);
/* Shards the optimizer's state. Call after the optimizer and its groups are made, before a checkpoint is loaded. */
lt_status lt_trainer_divide_optimizer(lt_trainer *t);
/* Frees the shared objects and leaves the ranks. Call after the optimizer is freed. */
void lt_trainer_close_ranks(lt_trainer *t);

/* model.c */
lt_status lt_trainer_open_model(lt_trainer *t);

/* setup.c: opens the parts that the arguments request, in this order. */
lt_status lt_trainer_open_device(lt_trainer *t);
lt_status lt_trainer_open_data(lt_trainer *t);
/* Counts the batches of an epoch on each of `copies` replicas; a remainder smaller than an update is skipped.
 * Errors: LT_E_ARG (no update fits). */
lt_status lt_trainer_count_batches(int64_t *out, const lt_trainer *t, int64_t count, int copies);
lt_status lt_trainer_open_training(lt_trainer *t);
void lt_trainer_close(lt_trainer *t);

/* work.c: trains to the end, a target, a limit or a signal. */
lt_status lt_trainer_train(lt_trainer *t);
lt_status lt_trainer_open_step(lt_trainer *t);
/* Loads state, model, optimizer and averages from the checkpoint of --resume, if there is one. */
lt_status lt_trainer_load_checkpoint(lt_trainer *t);
lt_status lt_trainer_evaluate(lt_trainer *t, lt_evaluation *out);
lt_task lt_trainer_task(lt_trainer *t);
/* Returns the loader fields that the program sets. */
lt_loader_config lt_trainer_loader(const lt_trainer *t, bool train);
/* Returns the loader configuration of this rank's training samples; the data must be open. */
lt_loader_config lt_trainer_training_loader(const lt_trainer *t);

/* watch.c: --watch RUN. */
/* Finds the run's first checkpoint to evaluate and sets the weights to it; *over: the run ended without another
 * one, or a signal came. Both are collective. */
lt_status lt_trainer_open_watch(lt_trainer *t, bool *over);
/* Evaluates this checkpoint and later ones, to the end of the run or a signal. */
lt_status lt_trainer_watch(lt_trainer *t);

/* memory.c. Chooses --recompute auto: off if its memory is free on every rank, otherwise cheap; a resumed run
 * repeats its choice in `before` (RECOMPUTE_AUTO: unknown). Logs the choice and sets the option. Collective. */
lt_status lt_trainer_choose_recompute(lt_trainer *t, int before);
/* Checks whether a step fits into memory. Errors: LT_E_NOMEM. lt_trainer_summary() shows parameters, FLOPs and
 * memory. */
lt_status lt_trainer_check_memory(const lt_trainer *t);
lt_status lt_trainer_summary(lt_trainer *t);
/* Counts the network's cost, and the bytes that a sample of a batch takes in a step. The model must be open. */
lt_status lt_trainer_count_cost(const lt_trainer *t, lt_model_cost *out, double *sample_bytes);
/* Returns the bytes that this process can still get; 0 if unknown. */
double lt_trainer_free_memory(void);

/* state_memory.c: makes the optimizer of the flags over these parameters, with its state reduced by
 * --state-memory. */
lt_status lt_trainer_open_optimizer(lt_trainer *t, const lt_params *params);

#endif
