/* One start of a training program: its options and all that they open. */
#ifndef LT_TRAINER_TRAINER_H
#define LT_TRAINER_TRAINER_H

#include "arguments.h"
#include "train/checkpoint/watch.h"
#include "train/loop/loop.h"

#include "lather/detail/sharded_optim.h"

/* After-epoch hook: called after the record of each epoch is written, with its metrics. */
typedef struct lt_trainer_hook {
    lt_status (*end_epoch)(void *context, lt_trainer *t, const lt_metric *metric, size_t count);
    void *context;
} lt_trainer_hook;

/* parallel.c: what the ranks of a run share; zeroed: this is one rank alone. */
typedef struct trainer_shared {
    lt_sharded_optim
        *placed; /* maps whole parameters to those of a divided model; NULL: they are whole */
    lt_data_parallel *dp;      /* NULL: one rank, or an evaluation */
    lt_local_steps *local;     /* NULL: none */
    lt_stragglers *stragglers; /* NULL: ranks wait for each other */
    lt_share *share;           /* turns of the device; NULL: none */
    int workers;               /* loader threads of this rank; 0: as many as allowed */
} trainer_shared;

/* Zeroed parts are not there yet; lt_trainer_close() frees what is. */
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
    family_choice choice; /* of the model */
    lt_params params;
    lt_optim *optim;
    lt_schedule schedule;
    lt_tape *tape;
    lt_run *run;
    lt_task_labels labels; /* borrowed by run */

    const lt_trainer_hook *hook; /* NULL: none */
    int64_t total_steps;
    char weights[LT_WATCH_PATH + 32]; /* its model.safetensors, else --weights; "": neither */
    lt_run_lock *lock;                /* of --output; NULL: none */

    lt_watch *watch;    /* of --watch, on rank 0; NULL: none */
    lt_watched watched; /* the checkpoint that is evaluated */
    bool at_work;       /* everything is open: what fails from here on is no wrong command line */
};

/* main.c: of the process, by how its work ended. An LT_E_ARG before the first sample is a wrong command line: found
 * while reading it, in a value that only the library can check, or beside a checkpoint or data that it does not fit. */
enum { EXIT_DONE, EXIT_ERROR, EXIT_USAGE, EXIT_INTERRUPTED };

/* main.c: a start of the program before it opens anything: memory of its options, their table (more: NULL, or what a
 * command adds), the command line, what it must agree on. Errors: LT_E_ARG, LT_E_NOMEM, those of a config file. */
lt_status lt_trainer_start(lt_trainer *t, const lt_model_family *family,
                           const lt_trainer_program *program);
lt_status lt_trainer_open_options(lt_trainer *t, const arguments_more *more);
lt_status lt_trainer_parse(lt_trainer *t, int argc, char *const *argv);
lt_status lt_trainer_check(const lt_trainer *t);
/* main.c: trains as the command line says; the exit status. hook: borrowed; NULL: none. */
int lt_trainer_train_by(int argc, char *const *argv, const lt_model_family *family,
                        const lt_trainer_program *program, const lt_trainer_hook *hook);

/* parallel.c: several processes train one model. */
/* Joins the others that the launcher started; shares out the machine's threads. */
lt_status lt_trainer_open_ranks(lt_trainer *t);
/* Of --share-device; once nothing but the work itself is left to do, as the others wait for this job's turns. */
lt_status lt_trainer_open_share(lt_trainer *t);
/* Before the optimizer: gradients are averaged from now on. */
lt_status lt_trainer_open_parallel(lt_trainer *t);
/* Whether gradients are compressed in the epoch that begins. */
void lt_trainer_begin_compression(lt_trainer *t);
/* What the optimizer is made over, when what is frozen is known: params, or the whole parameters of a divided model. */
lt_status lt_trainer_make_optimizer(lt_trainer *t, const lt_params **params);
/* Behind the optimizer and its groups, before a checkpoint: each rank keeps a part of the state. */
lt_status lt_trainer_divide_optimizer(lt_trainer *t);
/* After the optimizer is freed; leaves the ranks. */
void lt_trainer_close_ranks(lt_trainer *t);

/* model.c */
lt_status lt_trainer_open_model(lt_trainer *t);

/* setup.c: opens everything that the arguments ask for, in this order. */
lt_status lt_trainer_open_device(lt_trainer *t);
lt_status lt_trainer_open_data(lt_trainer *t);
/* Of an epoch on each of so many copies of the model: whole updates, the rest is not seen. Errors: LT_E_ARG (there are none). */
lt_status lt_trainer_count_batches(int64_t *out, const lt_trainer *t, int64_t count, int copies);
lt_status lt_trainer_open_training(lt_trainer *t);
void lt_trainer_close(lt_trainer *t);

/* work.c: to the end, a target, a limit or a signal. */
lt_status lt_trainer_train(lt_trainer *t);
lt_status lt_trainer_open_step(lt_trainer *t);
/* What --resume asks for, if there is one: state, model, optimizer, averages. */
lt_status lt_trainer_load_checkpoint(lt_trainer *t);
lt_status lt_trainer_evaluate(lt_trainer *t, lt_evaluation *out);
lt_task lt_trainer_task(lt_trainer *t);
/* The loader's fields that the program has. */
lt_loader_config lt_trainer_loader(const lt_trainer *t, bool train);
/* That of this rank's samples to train on; the data are open. */
lt_loader_config lt_trainer_training_loader(const lt_trainer *t);

/* watch.c: --watch RUN. */
/* Finds the run's first checkpoint to evaluate, whose weights are the model's; *over: it has none any more, or a signal
 * came. Collective, as the other. */
lt_status lt_trainer_open_watch(lt_trainer *t, bool *over);
/* Evaluates that and those that come, to the end of the run or a signal. */
lt_status lt_trainer_watch(lt_trainer *t);

/* memory.c: of --recompute auto, off where that fits into memory on every rank, else cheap; of a run that goes on what
 * it had before, RECOMPUTE_AUTO: not known. Says it, and writes it into the options. Collective. */
lt_status lt_trainer_choose_recompute(lt_trainer *t, int before);
/* whether a step will fit; parameters, FLOPs, memory. Errors: LT_E_NOMEM. */
lt_status lt_trainer_check_memory(const lt_trainer *t);
lt_status lt_trainer_summary(lt_trainer *t);
/* What the network costs, and the bytes that a sample of a batch takes in a step; of a model that is open. */
lt_status lt_trainer_count_cost(const lt_trainer *t, lt_model_cost *out, double *sample_bytes);
/* Bytes that this process can still get; 0: not known. */
double lt_trainer_free_memory(void);

/* state_memory.c: the optimizer of the flags over these parameters, its state as small as --state-memory says. */
lt_status lt_trainer_open_optimizer(lt_trainer *t, const lt_params *params);

#endif
