/* Parts of a training program for its options, in addition to step, loop, state and input. */
#ifndef LT_TRAIN_PROGRAM_H
#define LT_TRAIN_PROGRAM_H

#include "family.h"
#include "options.h"
#include "train/loop/hooks.h"
#include "train/loop/state.h"

#include "lather/detail/run.h"
#include "lather/detail/run_folder.h"
#include "lather/schedule.h"

/* --- signals.c: signals that end a run --- */

/* lt_signals_install() makes SIGINT, SIGTERM, SIGHUP and SIGUSR1 ask the run to stop; lt_signals_seen(), the `stop` of
 * steps and evaluations, returns true if one did. A second SIGINT or SIGTERM ends the process immediately. SIGUSR2 asks
 * the run to stop after its epoch; lt_signals_seen_for_epoch() returns true if it did. */
void lt_signals_install(void);
bool lt_signals_seen(void *context);
bool lt_signals_seen_for_epoch(void);
/* Makes a file that grows too large fail with EFBIG and a pipe without a reader with EPIPE. */
void lt_signals_as_errors(void);
/* Flushes standard output. Returns the exit status: code, unless flushing failed. */
int lt_signals_flush(const char *program, int code);

/* --- recipe.c: settings from --recipe and --watch --- */

/* Parses the command line as lt_options_parse(). Settings of --recipe NAME, from a folder of recipes, and of
 * --watch RUN have lower priority than --config and flags. The run's config then holds the settings, not the name.
 * Errors: those of lt_options_parse(), and LT_E_ARG (unknown recipe; a recipe in a config file). */
lt_status lt_recipe_parse_command_line(lt_options *options, const char *folder, int argc,
                                       char *const *argv);
/* Finds the file of --recipe NAME|FILE in a folder of recipes (NULL: none). Errors: LT_E_ARG (unknown recipe). */
lt_status lt_recipe_find(char *path, size_t size, const char *folder, const char *name);
/* `reproduce ...`: executes tools/reproduce. Returns the exit status only if that fails. */
int lt_command_reproduce(char **argv, const char *program);

/* --- plugins.c: --plugin and --allow-plugin --- */

typedef struct plugin_options {
    lt_option_list plugin;
    bool allow_plugin;
} plugin_options;
lt_option_table lt_plugin_option_table(plugin_options *o);

/* Loads the plugins of a command line; if it names none, those of its --recipe and --config files, which --allow-plugin
 * permits. recipes: the family's folder. Call before options are composed. Errors: those of lt_plugin_load(); LT_E_ARG
 * (a plugin in a file without --allow-plugin, with file and line). */
lt_status lt_plugins_load(int argc, char *const *argv, const char *program, const char *recipes);
/* Appends to the message of a failed start with --resume the plugins that its checkpoint had. Returns st. */
lt_status lt_plugins_advise_resume(lt_status st, int argc, char *const *argv);

/* --- reproducible.c: --reproducible --- */

/* Rejects options that --reproducible excludes, and plugins that do not declare themselves reproducible. Errors:
 * LT_E_ARG, with the reason. */
lt_status lt_reproducible_check(const lt_options *options);
lt_status lt_reproducible_check_plugins(void);

/* --- folder.c: the run folder before the run --- */

/* Sets state->folder to the newest checkpoint of a run folder, or to "" if it has no checkpoint. */
lt_status lt_folder_find_newest(lt_train_state *state, const char *folder);
/* Locks --output and finds the checkpoint of --resume; rejects a run in the folder without --resume or
 * --overwrite. Collective. */
lt_status lt_folder_lock_and_find(const output_options *o, lt_ranks *ranks, lt_train_state *state,
                                  lt_run_lock **lock);
/* Lists of options that differ from the resumed run's, "beta2 0.999 -> 0.9, ...". */
typedef struct changed_options {
    char in_state[1024]; /* those on which checkpointed state depends */
    char others[1024];
} changed_options;
/* Lists the options that differ from config.yaml of the checkpoint's run. before: an instance of the program's options
 * to load that file into. */
void lt_folder_compare_options(const family_choice *choice, const lt_options *now,
                               lt_options *before, const lt_train_state *state,
                               changed_options *out);
/* Renames the run in --output to OUTPUT/old-N if --overwrite is set, or if it has no checkpoint to resume from.
 * `to` gets the new name; "" if nothing was renamed. */
lt_status lt_folder_rename_old_run(const output_options *o, const lt_train_state *state, char *to,
                                   size_t size);
/* Renames a file that an earlier start of a resumed run wrote to STEM.old-N.SUFFIX. */
lt_status lt_folder_rename_old_file(const lt_train_state *state, const char *path);

/* --- early_stop.c: --early-stop METRIC:PATIENCE[:MIN_DELTA], --sched plateau --- */

typedef struct early_stop {
    char metric[LT_CHECKPOINT_NAME];
    bool higher_is_better;
    int64_t patience;
    double min_delta;
    double best, count;    /* best value, NaN before the first; evaluations since then */
    lt_schedule *schedule; /* --sched plateau: lower its rate; NULL: end the run */
    double reductions;     /* reductions of the rate so far */
    char name[3][LT_CHECKPOINT_NAME];
    lt_train_number number[3];
    lt_train_hooks hooks; /* refers to this struct, which must not move */
} early_stop;

/* Parses --early-stop; hooks have no function if it is absent or "off". Errors: LT_E_ARG (also: the run does not
 * evaluate the metric). */
lt_status lt_early_stop_open(early_stop *e, const evaluation_options *o, const lt_task_ops *task);
/* Checks that a run with a target for its evaluations has any. Errors: LT_E_ARG, naming the target's flag. */
lt_status lt_check_target(const char *flag, double target, const evaluation_options *o);

/* --- param_groups.c: --param-group, --layer-decay and --freeze --- */

typedef struct group_options {
    lt_option_list freeze, param_group;
    bool freeze_bn;
    double layer_decay;
    int64_t mup; /* base width; 0: off */
} group_options;
lt_option_table lt_group_option_table(group_options *o);

/* --freeze: freezes parameters that match the patterns; norms (--freeze-bn): batch norms among them keep their
 * statistics. Call before the optimizer is made. Errors: LT_E_ARG. */
lt_status lt_params_freeze(const lt_params *params, const lt_option_list *patterns, bool norms);
/* --layer-decay and --param-group: sets learning rate and weight decay of parameters; lr: that of the others. Errors:
 * LT_E_ARG. */
lt_status lt_param_groups_apply(const lt_params *params, lt_optim *optim, double lr,
                                const group_options *o);

/* --- schedule.c: the learning rate of each step --- */

typedef struct schedule_options {
    int sched;
    lt_schedule form; /* without lr, epochs and steps per epoch */
    int64_t patience;
    const char *plateau_metric;
    lt_option_list milestone;
} schedule_options;
lt_option_table lt_schedule_option_table(schedule_options *o);

/* Rejects a warm-up of epochs and steps, and a multistep schedule without milestones. Errors: LT_E_ARG. */
lt_status lt_schedule_check_flags(const schedule_options *o);
/* Opens the hook of --sched plateau, which counts the schedule's reductions (early_stop.c); hooks have no function with
 * another --sched. Errors: LT_E_ARG (the run does not evaluate the metric). */
lt_status lt_plateau_open(early_stop *e, const schedule_options *o,
                          const evaluation_options *evaluation, const lt_task_ops *task,
                          lt_schedule *schedule);
/* Returns the steps of a run, at most max_steps if not 0; sets the epochs of a schedule without any. offset:
 * lt_train_state.offset, steps in addition to epochs * steps_per_epoch. */
int64_t lt_schedule_steps(lt_schedule *schedule, int64_t max_steps, int64_t offset);
/* Makes the schedule with this learning rate, and the number of steps of the run, at per_epoch steps per epoch.
 * Errors: LT_E_ARG. */
lt_status lt_schedule_open(lt_schedule *out, int64_t *total_steps, const schedule_options *o,
                           const training_options *training, double lr, int64_t per_epoch,
                           int64_t offset);

/* --- shampoo_report.c: rules of parameters, Shampoo's blocks and statistics --- */

/* For an optimizer with several rules, shows Shampoo's blocks, their state, cost and owners, and the rules of parameters,
 * one line each or, if verbose, with tables; writes the tables to the run folder's blocks.txt. Errors: LT_E_IO,
 * LT_E_NOMEM. */
lt_status lt_rules_report(const lt_optim *optim, lt_run *run, int rank, bool is_verbose);
/* Returns Shampoo's statistics of the last step for its record; NaN where they do not apply. */
enum { SHAMPOO_VALUES = 10 };
void lt_shampoo_step_metrics(const lt_optim *optim, bool is_divided, lt_metric out[SHAMPOO_VALUES]);

#endif
