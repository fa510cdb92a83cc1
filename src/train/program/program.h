/* Parts of a training program that its options ask for, besides step, loop, state and input. */
#ifndef LT_TRAIN_PROGRAM_H
#define LT_TRAIN_PROGRAM_H

#include "family.h"
#include "options.h"
#include "train/loop/state.h"

#include "lather/detail/run.h"
#include "lather/detail/run_folder.h"
#include "lather/schedule.h"

/* --- signals.c --- */

/* From here on SIGINT, SIGTERM, SIGHUP and SIGUSR1 ask the run to stop; whether one did. A second SIGINT or SIGTERM
 * ends the process at once. */
void lt_signals_install(void);
int lt_signals_seen(void);
/* From here on a file that grows too large is EFBIG and a pipe without a reader EPIPE. */
void lt_signals_as_errors(void);
/* Flushes standard output: the exit status, code unless that failed. */
int lt_signals_flush(const char *program, int code);

/* --- recipe.c --- */

/* lt_options_parse(), with the settings of --recipe NAME, of a folder of recipes, and of --watch RUN, below all that the command line and
 * --config say. A run's config then has the settings, not the name. Errors: those, and LT_E_ARG (no such recipe; one
 * in a config file). */
lt_status lt_recipe_parse(lt_options *options, const char *folder, int argc, char *const *argv);
/* Settings of the run in a folder, below what the command line says; it may still begin for so many seconds (NULL: 0).
 * Errors: LT_E_ARG (no such folder, or it holds no run), as lt_options_load(). */
lt_status lt_watch_settings(lt_options *options, const char *folder, const char *seconds);
/* `reproduce ...`: becomes tools/reproduce. Returns only where that fails: the exit status. */
int lt_command_reproduce(char **argv, const char *program);

/* --- folder.c: the run folder before the run --- */

/* Locks --output and finds what --resume asks for; a run in the folder is refused without that or --overwrite.
 * Collective. */
lt_status lt_folder_open(const output_options *o, lt_ranks *ranks, lt_train_state *state,
                         lt_run_lock **lock);
/* Into text: the options that config.yaml of the checkpoint's run has otherwise; before: the program's, for its. */
void lt_folder_compare_options(const family_choice *choice, const lt_options *now,
                               lt_options *before, const lt_train_state *state, char *text,
                               size_t size);
/* With --overwrite, and where a run has weights but no checkpoint to go on from: it goes to OUTPUT/old-N, whose name
 * goes into to; "": nothing did. */
lt_status lt_folder_set_aside(const output_options *o, const lt_train_state *state, char *to,
                              size_t size);
/* A resumed run's product that an earlier start wrote goes to STEM.old-N.SUFFIX. */
lt_status lt_folder_keep_file(const lt_train_state *state, const char *path);

/* --- param_groups.c --- */

typedef struct group_options {
    lt_option_list freeze, param_group;
    bool freeze_bn;
} group_options;
lt_option_table lt_group_options(group_options *o);

/* --freeze: what matches the patterns is not trained; with norms (--freeze-bn) batch norms of it keep their
 * statistics too. Before the optimizer is made. Errors: LT_E_ARG. */
lt_status lt_params_freeze(const lt_params *params, const lt_option_list *patterns, bool norms);
/* --param-group: numbers of their own for what matches; lr: that of the others. Errors: LT_E_ARG. */
lt_status lt_param_groups_apply(const lt_params *params, lt_optim *optim, double lr,
                                const lt_option_list *groups);

/* --- schedule.c --- */

typedef struct schedule_options {
    int sched;
    double warmup_epochs, warmup_lr, min_lr, step_epochs, gamma, power;
    lt_option_list milestone;
} schedule_options;
lt_option_table lt_schedule_options(schedule_options *o);

/* Steps of a run, at most max_steps if that is not 0; a schedule without epochs gets those that max_steps take.
 * offset: lt_train_state's: steps that the run takes beyond epochs * steps_per_epoch. */
int64_t lt_schedule_steps(lt_schedule *schedule, int64_t max_steps, int64_t offset);
/* The schedule with this learning rate, and where the run ends, of so many steps an epoch. Errors: LT_E_ARG. */
lt_status lt_schedule_open(lt_schedule *out, int64_t *total_steps, const schedule_options *o,
                           const training_options *training, double lr, int64_t per_epoch,
                           int64_t offset);

/* --- shampoo_report.c --- */

/* Shampoo's blocks, what they keep and cost, and whose they are: one line or, if verbose, a table, and the table to
 * the run folder's blocks.txt. Errors: LT_E_IO, LT_E_NOMEM. */
lt_status lt_blocks_report(const lt_optim *optim, lt_run *run, int rank, bool is_verbose);
/* What the last step did, for its record; NaN if it does not apply. */
enum { SHAMPOO_VALUES = 10 };
void lt_shampoo_values(const lt_optim *optim, bool is_divided, lt_metric out[SHAMPOO_VALUES]);

#endif
