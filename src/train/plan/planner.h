/* `train_* plan`: predicts the cost of candidate runs and chooses one. ADR 0042.
 *
 * A *config* is a run as its command line defines it, on a number of ranks; a *candidate* is a config that plan
 * considers: one value of each --vary, on one number of ranks. A *pilot* is a short trial run of a candidate.
 * Candidates of one *convergence class* have the same optimizer and schedule flags, so that their loss falls equally
 * with steps. A *lossy* config drops or delays gradients between ranks: --compress, local steps, backup workers,
 * deadlines. */
#ifndef LT_TRAIN_PLAN_COMMAND_H
#define LT_TRAIN_PLAN_COMMAND_H

#include "train/program/trainer.h"

#include "lather/detail/fit.h"
#include "lather/detail/json.h"
#include "lather/detail/plan.h"

#include <math.h>
#include <sys/types.h>

/* --- options.c: the flags --- */

enum { PLAN_NAME = 32, PLAN_STATE = 96, PLAN_RANKS = 64, PLAN_TEXT = 512, PLAN_REASON = 1200 };
enum { PLAN_FLAGS = 22 };

typedef struct plan_options {
    lt_option_list goal, from, vary;
    const char *ranks, *link, *link_between, *step_profile, *json, *pilot_budget, *pilot_dir;
    int pilots;
    double price, memory, profile_seconds, slots;
    int64_t nodes, rows, global_batch, profile_ranks;
    bool simulate, extrapolate, one_machine;
    lt_option row[PLAN_FLAGS];
    char name[PLAN_FLAGS][PLAN_NAME];
} plan_options;
/* Returns the table of plan's flags; one that training has too, as an optimizer's --memory, is --plan-memory. */
lt_option_table lt_plan_option_table(plan_options *o, const lt_options *training);
/* Returns the name of plan's flag in that table. */
const char *lt_plan_flag_name(const plan_options *o, const char *name);
/* Returns true for a flag of plan that training does not have; takes_value: the next word is its value. */
bool lt_plan_is_own_flag(const plan_options *o, const char *name, size_t bytes, bool *takes_value);

enum { PILOTS_OFF, PILOTS_AUTO };
enum { PLAN_AXES = 16, PLAN_VALUES = 16 };

/* --goal: a value of a metric (loss=1.2, top1=75), a deadline, or both. */
typedef struct plan_goal {
    char metric[PLAN_NAME]; /* name of the metric; "": no metric */
    double value;
    bool lower;      /* lower values are better */
    bool percent;    /* the metric is a percentage: 100 - value falls to 0 */
    double deadline; /* deadline of the run in seconds; 0: none */
} plan_goal;

/* --vary FLAG=V,V,...: a training flag and its values, one per candidate. */
typedef struct plan_axis {
    char flag[PLAN_NAME];
    char value[PLAN_VALUES][PLAN_NAME];
    int values;
} plan_axis;

/* Parsed flags of plan. */
typedef struct plan_request {
    const plan_options *options;
    plan_goal goal;
    int ranks[PLAN_RANKS], rank_counts; /* numbers of ranks to consider, ascending */
    int per_node;
    lt_plan_machine machine; /* links and memory, without the nodes, which each candidate has */
    plan_axis axis[PLAN_AXES];
    int axes;
    double pilot_share; /* budget as a share of the cheapest run's rank-seconds; 0: no pilots */
} plan_request;
/* Parses the flags of plan. Errors: LT_E_ARG, naming the flag. */
lt_status lt_plan_parse_request(plan_request *r, const plan_options *o, int64_t ranks_per_node);

/* --- config.c: a run as its flags define it --- */

typedef struct plan_config {
    lt_plan_setup setup;
    char state[PLAN_STATE]; /* flags that compress the optimizer state; "": defaults */
    int64_t batch;          /* global batch: samples of an update on all ranks */
    double epochs;          /* --epochs; 0: not given */
    int64_t max_steps;      /* --max-steps; 0: not given */
    int64_t epoch_steps;    /* updates per epoch, as training counts them; candidates only */
    uint64_t convergence;   /* hash of the convergence class: all flags but ranks, batch and rate */
    uint64_t lossless;      /* the same hash without the flags of lossy communication */
    uint64_t samples;       /* hash of the flags of data and model */
    int amp;                /* precision of --amp: AMP_... */
    char device[PLAN_NAME];
    int threads;           /* --threads; 0: all */
    int real_threads;      /* threads in use; of a finished run as in its checkpoint, 0: unknown */
    bool is_lossless;      /* convergence depends on the global batch alone */
    char label[PLAN_TEXT]; /* name in the table: "shampoo f 50 b 1024, two-level" */
} plan_config;
/* Reads a parsed command line as a config on that many ranks. Errors: LT_E_ARG (a flag without a cost model). */
lt_status lt_plan_read_config(plan_config *c, const command_line *line, int ranks, int per_node);
/* Returns the steps after which refreshes of roots and local steps repeat: a mean over part of a period is biased. */
int64_t lt_plan_repeat_period(const lt_plan_setup *u);
/* Returns the updates of a run by --epochs and --max-steps; 0: neither is set. */
double lt_plan_steps_from_flags(const plan_config *c);
/* Checks the flags. Errors: LT_E_ARG: a flag needs another number of ranks. */
lt_status lt_plan_check_ranks(const plan_config *c, const arguments *a);
/* Compares two runs. Errors: LT_E_ARG unless both train the same model on
 * the same data; names the first flag that differs, and both values. */
lt_status lt_plan_check_same_samples(const lt_options *a, const lt_options *b, const char *run);

/* --- argv.c: command lines of candidates --- */

/* Words of a command line, NULL after the last; owned. */
typedef struct plan_argv {
    char **word;
    int count;
} plan_argv;
lt_status lt_plan_argv_add(plan_argv *w, const char *format, ...) LT_PRINTF(2, 3);
void lt_plan_argv_free(plan_argv *w);

typedef struct plan plan;
typedef struct plan_candidate plan_candidate;
/* Adds the words of argv that training takes: without flags of plan, run folders, and flags of --vary. */
lt_status lt_plan_training_argv(plan_argv *out, int argc, char *const *argv,
                                const plan_request *request, const lt_options *options);
/* Adds "--flag=value"; a switch as --flag or --no-flag. Errors: LT_E_ARG (a switch that is neither on nor off). */
lt_status lt_plan_argv_add_flag(plan_argv *w, const lt_options *options, const char *flag,
                                const char *value);
/* Adds the training flags with a candidate's values of --vary. */
lt_status lt_plan_candidate_argv(const plan *p, const int *choice, plan_argv *out);
/* Parses a candidate's flags, opens nothing. lt_trainer_close() in any case. */
lt_status lt_plan_parse_candidate(const plan *p, const int *choice, lt_trainer *out);
/* Adds the command line of a candidate: program and flags, after mpirun where it has several ranks. */
lt_status lt_plan_launch_argv(const plan *p, const plan_candidate *c, const char *program,
                              plan_argv *out);
/* Returns that command line as text for a shell, for lt_free(); NULL without memory. */
char *lt_plan_command_text(const plan *p, const plan_candidate *c);

/* --- contention.c: --profile-ranks, processes that train while this one measures --- */

typedef struct plan_barrier plan_barrier;
typedef struct plan_workers {
    pid_t *pid; /* processes that train; owned */
    int count;
    plan_barrier *barrier; /* shared memory, owned; NULL: no other process */
} plan_workers;
/* Callback of such a process: takes steps in sync with the others until it is killed;
 * writes a byte to the pipe `ready` once it is warm. Returns only on an error. */
typedef lt_status plan_worker_body(lt_trainer *t, const plan_workers *workers, int ready);
/* Forks, before this process has threads, and returns once all are warm. lt_plan_workers_stop() in any case. */
lt_status lt_plan_workers_start(plan_workers *w, const plan *p, plan_worker_body *body);
void lt_plan_workers_stop(plan_workers *w);
/* Turns the barrier of lt_plan_wait_at_barrier() on or off. Called by the measuring process. */
void lt_plan_workers_set_sync(const plan_workers *w, bool is_on);
/* Waits at the barrier until all processes are there. Errors: LT_E_COMM (a process has ended). */
lt_status lt_plan_wait_at_barrier(const plan_workers *w);

/* --- profile.c, profile_exchange.c, profile_file.c: the parts of a step, measured at one rank --- */

/* Costs of one optimizer, found by name, block and state. */
typedef struct plan_optimizer {
    char name[PLAN_NAME], state[PLAN_STATE];
    int64_t block;
    double update, refresh, state_bytes; /* costs of the optimizer, as in lt_plan_profile */
    lt_plan_block *blocks;               /* costs of Shampoo's blocks; owned */
    size_t block_count;
} plan_optimizer;

enum { PLAN_BATCHES = 3, PLAN_STEPS = 256, PLAN_UNITS = 16 };

typedef struct plan_profile {
    char program[64], model[LT_FACT_BYTES];
    uint64_t samples_hash;
    double samples; /* samples per epoch */
    lt_plan_profile base;
    lt_cost_bucket *bucket; /* owned; same as base.bucket */
    double batch[PLAN_BATCHES], seconds[PLAN_BATCHES];
    int batches;
    double step[PLAN_STEPS];
    plan_optimizer *optimizer; /* costs of each optimizer measured; owned */
    size_t optimizers;
    double unit[PLAN_UNITS];     /* core seconds per unit of each lt_cost_of_reducer() */
    double copy;                 /* core seconds per byte that a rank sends or receives */
    double ranks;                /* processes that trained at once while measuring; 0: unknown */
    double spent;                /* seconds spent on measuring */
    double paid;                 /* rank-seconds that this plan spent on measuring; 0: a file */
    const plan_workers *workers; /* processes of --profile-ranks; borrowed, while measuring */
} plan_profile;
void lt_plan_profile_clear(plan_profile *p);
/* Finds the measured costs of a config's optimizer; NULL if it was not measured. */
const plan_optimizer *lt_plan_find_optimizer(const plan_profile *p, const plan_config *c);
/* Returns base with an optimizer's costs; borrowed. */
lt_plan_profile lt_plan_profile_with_optimizer(const plan_profile *p, const plan_optimizer *o);
/* Measures t's optimizer, the first call its model too, by steps of about `seconds`. t: parsed, nothing opened. */
lt_status lt_plan_measure_step_parts(plan_profile *p, lt_trainer *t, double seconds);
/* Trains in the other processes of --profile-ranks, to load the machine, until killed. */
plan_worker_body lt_plan_worker_run;
/* Measures copy and the unit of a reducer (NULL: none), or of all, unless already known; about half a second each. */
lt_status lt_plan_measure_exchange(plan_profile *p, const lt_cost_row *reducer, bool all);
lt_status lt_plan_profile_save(const plan_profile *p, const char *path);
/* Reads a profile file. Errors: LT_E_IO, LT_E_FORMAT (names the key). */
lt_status lt_plan_profile_load(plan_profile *p, const char *path);
/* Checks the profile. Errors: LT_E_ARG: it is of another program, model or data. */
lt_status lt_plan_check_profile(const plan *p);

/* --- runs.c: run folders of --from and of pilots --- */

typedef struct plan_point {
    double step, value;
} plan_point;

/* A step predicted by the system model: all seconds; of these the exposed exchange; the loader's, a lower bound. */
typedef struct plan_modelled {
    double seconds, exchange, load;
} plan_modelled;

typedef struct plan_run {
    char name[PLAN_TEXT];
    plan_config config;
    double seconds;         /* mean seconds of a step; 0: not recorded */
    int64_t timed;          /* number of steps in that mean */
    double spread;          /* relative standard error of seconds */
    plan_modelled modelled; /* prediction by the system model; set by lt_plan_choose() */
    double noise_scale;     /* gradient noise scale in samples; 0: not recorded */
    double slowdown;        /* lt_plan_slowdown(), if it is a lossy pilot; 0: unknown */
    bool is_pilot;          /* the run is too short for a model of the loss */
    plan_point *point;      /* values of the goal's metric, or a pilot's training losses; owned */
    size_t points;
    lt_loss_model loss; /* model fitted to all runs of its class; valid if has_loss */
    bool has_loss;
    double reached; /* step at which the goal was reached; 0: it was not */
} plan_run;

typedef struct plan_runs {
    plan_run *run;
    size_t count;
    int most; /* most ranks of a run */
} plan_runs;
/* First steps of a run after its start, which are not timed. */
enum { PLAN_WARM_STEPS = 2 };
/* Reads run folders. Errors: LT_E_ARG (no run folder; another model or data: names both), LT_E_IO, LT_E_FORMAT. */
lt_status lt_plan_read_runs(plan_runs *out, const lt_option_list *folders, const command_line *like,
                            const plan_goal *goal, int per_node);
/* Appends a pilot, which moves the runs in memory. of_loss: keeps its points. Errors: as lt_plan_read_runs(). */
lt_status lt_plan_read_pilot(plan_runs *runs, const char *folder, const plan *p, bool of_loss);
/* Reads the losses of a run's steps, unsmoothed, as its points; owned by the caller. */
lt_status lt_plan_read_losses(plan_run *out, const char *folder);
void lt_plan_free_runs(plan_runs *runs);
/* Returns true for train_loss, which every run records with its steps. */
bool lt_plan_is_step_metric(const plan_goal *g);

/* --- step_time.c: seconds of a step --- */

/* Evidence of an estimate, the strongest first. */
typedef enum plan_basis {
    PLAN_MEASURED,
    PLAN_INTERPOLATED,
    PLAN_EXTRAPOLATED,
    PLAN_MODEL,
    PLAN_UNKNOWN
} plan_basis;

/* Largest factor of extrapolation: candidates beyond it are rejected without --extrapolate. */
enum { PLAN_BEYOND = 2 };

typedef struct plan_estimate {
    double value; /* the estimate; NaN: unknown */
    plan_basis basis;
    double beyond; /* factor between the value and the nearest that was measured; else 1 */
    double error;  /* relative error of a fitted model; NaN: unknown */
    double spread; /* relative standard error of a measured value */
    char why[240]; /* source of the value, or the reason why it is unknown */
} plan_estimate;
/* Makes an estimate with a formatted reason; beyond is 1, error unknown. */
plan_estimate lt_plan_make_estimate(double value, plan_basis basis, const char *why, ...)
    LT_PRINTF(3, 4);
/* Makes an estimate of unknown value, with the reason. */
#define LT_PLAN_UNKNOWN(...) \
    lt_plan_make_estimate((double)NAN, PLAN_UNKNOWN, "not enough measurements: " __VA_ARGS__)
/* Makes an estimate: interpolated or, with `at` outside of least to most, extrapolated. */
plan_estimate lt_plan_make_estimate_between(double value, double at, double least, double most,
                                            const char *why);
/* True if both differ in ranks alone; their communication may differ if one has a single rank, which has none. */
bool lt_plan_is_same_work(const plan_config *c, const plan_config *other);
bool lt_plan_is_timed(const plan_run *run, const plan_config *c);
/* Estimates the seconds of a step: the system model, corrected by runs. */
plan_estimate lt_plan_estimate_step(const plan_runs *runs, const plan_config *c,
                                    plan_modelled modelled);
/* Returns the rank-seconds of a candidate's step. */
double lt_plan_step_cost(const plan_candidate *c);
/* Returns seconds of a step by Ernest's model of runs that differ in ranks alone; NaN: too few runs. */
double lt_plan_ernest_seconds(const plan_runs *runs, const plan_config *c);

/* --- steps.c: steps to the goal --- */

/* Curve of steps by batch: steps(B) = least + samples / B = S_min (1 + phi / B), by runs that reached the goal. */
typedef struct plan_curve {
    double least, samples, least_batch, most_batch;
    char why[96];
} plan_curve;
/* Fits a convergence class: to runs of several batches, or to one run and a noise scale; false: neither exists. */
bool lt_plan_fit_batch_curve(plan_curve *out, const plan_runs *runs, const plan_config *c);
/* Returns true for a run that the curve goes through. */
bool lt_plan_is_on_batch_curve(const plan_run *run, const plan_config *c);
/* Estimates the steps to the goal's metric, by runs alone. */
plan_estimate lt_plan_estimate_steps(const plan_runs *runs, const plan_goal *goal,
                                     const plan_config *c);
/* Converts steps with one global batch to the config's batch, by a noise scale of its class where they differ. false:
 * no noise scale is known, or the config is lossy. */
bool lt_plan_convert_steps_to_batch(plan_estimate *out, const plan_runs *runs, const plan_config *c,
                                    double steps, double batch);
/* Counts the different numbers of ranks of the runs for which `is` returns true. */
int lt_plan_count_rank_counts(const plan_runs *runs, const plan_config *c,
                              bool (*is)(const plan_run *, const plan_config *));
/* Fits Hemingway's model to each class of runs with the same batch per rank. */
lt_status lt_plan_fit_loss_models(plan_runs *runs, const plan_goal *goal);
/* Returns the loss model of a config's class, for any number of ranks; borrowed; NULL if absent. */
const lt_loss_model *lt_plan_find_loss_model(const plan_runs *runs, const plan_config *c);
/* Converts a value of the goal's metric to a loss that falls towards 0: 100 - value unless lower is better. */
double lt_plan_as_loss(const plan_goal *goal, double value);

/* --- choose.c: candidates --- */

struct plan_candidate {
    plan_config config;
    int choice[PLAN_AXES]; /* index of the value of each --vary flag */
    lt_plan_cost cost;
    lt_cost_verdict verdict; /* verdict on tensor parallelism, a reducer; why "": neither */
    plan_estimate step, steps;
    double ernest;       /* seconds of a step by Ernest's model of runs alone; NaN: too few runs */
    double seconds;      /* seconds to the goal; NaN: unknown, ranked by epoch instead */
    double epoch;        /* seconds of an epoch */
    double price;        /* cost of the run at --price; NaN: not given */
    char why[PLAN_TEXT]; /* reason for its rejection; "": accepted */
    bool is_possible;    /* false: rejected before its cost was predicted */
    bool is_by_runs;     /* its optimizer is not in the profile: the cost is by Ernest's model */
    bool is_tried;       /* a pilot of it was started */
};

typedef struct plan_table {
    plan_candidate *item; /* all candidates: the accepted ones, the best first; then the rejected */
    size_t count, kept;   /* number of all candidates; of the accepted ones */
    bool is_known;        /* seconds to the goal are known; else the table is per epoch */
    double least_batch;   /* smallest global batch of a candidate */
    double least_steps;   /* steps by the flags of the candidate with least_batch */
} plan_table;

typedef struct plan_pilot {
    char folder[PLAN_TEXT], label[PLAN_TEXT];
    int ranks;
    int64_t steps;
    double predicted, measured; /* mean seconds of a step; measured is 0 if the pilot failed */
    double wall, spent;         /* seconds that the pilot took; rank-seconds */
    bool of_loss;               /* the pilot compares convergence classes; false: it times steps */
    double slowdown;            /* lt_plan_slowdown() of a lossy pilot; 0: unknown */
    char why[2 * PLAN_TEXT];    /* reason for its failure; "": none */
} plan_pilot;

enum { PLAN_PILOTS = 64 };
typedef struct plan_pilots {
    plan_pilot
        item[PLAN_PILOTS + 1]; /* 1 more: a lossy pilot may come with its lossless counterpart's */
    int count;
    bool racing;                 /* more pilots may follow: far extrapolations are not rejected */
    bool has_classes;            /* convergence classes are compared, at class_loss */
    double class_loss;           /* training loss to compare at: the goal's, or a predicted one */
    double class_steps;          /* the flags' steps, after which it is predicted; 0: the goal's */
    size_t class_run;            /* index of the run for which it was predicted */
    double run, spent;           /* rank-seconds: predicted for the chosen run; spent on pilots */
    char folder[PLAN_TEXT - 32]; /* parent of the pilots' run folders */
    char why[PLAN_TEXT];         /* reason why no more pilots are run */
} plan_pilots;

/* State of a plan. */
struct plan {
    const lt_model_family *family;
    const lt_trainer_program *program;
    lt_trainer *trainer; /* the start, with the flags of training and of plan */
    plan_options options;
    plan_request request;
    const char *path; /* path of the program, argv[0] */
    plan_argv argv;   /* training flags of the command line */
    plan_profile profile;
    plan_runs runs;
    plan_table table;
    plan_pilots pilots;
};
/* Advances choice to the next combination of --vary; false after the last one, which it resets. */
bool lt_plan_next_choice(const plan_request *r, int *choice);
/* Makes, estimates and ranks the candidates. Errors: LT_E_ARG (all were rejected: names the reasons). */
lt_status lt_plan_choose(plan *p);
/* Estimates and ranks the same candidates again, with the runs that exist now. */
lt_status lt_plan_rank_candidates(plan *p);
/* Formats a rejected candidate: "2: 4 ranks, batch 64, sgd, flat and others: takes 3 h, ...", 2 being how many have
 * this reason. Returns the bytes, or 0 if an earlier one has the same reason. */
int lt_plan_format_rejection(const plan_table *t, size_t i, char *text, size_t size);
/* Compares a mesh with data parallelism over the same ranks, by the elements that a rank receives for a layer of width
 * hidden in an update with `tokens` per replica. Errors: LT_E_ARG (no mesh, or a size below 1). */
lt_status lt_plan_mesh_verdict(lt_cost_verdict *out, const lt_mesh_config *mesh, double tokens,
                               double hidden);
/* Returns the quantity to minimise: seconds, with a deadline rank-seconds; per epoch where the steps are unknown. */
double lt_plan_objective(const plan *p, const plan_candidate *c);

/* --- convergence_trials.c: pilots that compare convergence classes --- */

/* Sums for a least-squares line of log loss over log step: loss = a step^-b. */
typedef struct lt_power_fit {
    double count, x, y, xx, xy;
} lt_power_fit;
/* Adds a point; ignores values without a logarithm. */
void lt_plan_add_power_law_point(lt_power_fit *fit, double step, double loss);
/* Returns the step at which the line has this loss; NaN: fewer than three points, or the loss does not fall. */
double lt_plan_power_law_steps(const lt_power_fit *fit, double loss);
/* Finds the pilot whose losses stand for a config's convergence class; NULL if absent. */
const plan_run *lt_plan_find_class_pilot(const plan_runs *runs, const plan_config *c);
/* Sets the training loss at which classes are compared: the goal's if the flags' own class is predicted to reach it
 * within its steps, else the one predicted at its end. false: neither is known. */
bool lt_plan_choose_class_loss(plan *p, const plan_config *own);
/* Estimates steps to the goal by the pilot of the class; false: absent, or its loss did not fall. */
bool lt_plan_estimate_class_steps(const plan *p, const plan_config *c, plan_estimate *out);

/* --- lossy_trials.c: pilots that compare lossy candidates with lossless ones --- */

/* Steps of a pilot that compares a lossy candidate with a lossless one, and the fewest that count. */
enum { PLAN_LOSSY_STEPS = 200, PLAN_LOSSY_MIN_STEPS = 100 };
/* Returns the cheapest lossless candidate with the same other flags and global batch; NULL if absent. */
const plan_candidate *lt_plan_find_lossless(const plan *p, const plan_config *c);
/* Returns the longest pilot of a lossless counterpart; NULL: none of PLAN_LOSSY_MIN_STEPS. */
const plan_run *lt_plan_find_lossless_pilot(const plan *p, const plan_config *c);
/* Returns true if the steps of a lossy candidate are unknown and a pilot next to a lossless one can estimate them. */
bool lt_plan_needs_lossy_pilot(const plan *p, const plan_candidate *c);
/* Returns true if the run of a lossy candidate is too long for the estimate of a pilot. */
bool lt_plan_is_beyond_pilots(const plan *p, const plan_candidate *c);
/* Returns the factor of steps that a lossy run needs more than a
 * lossless one, by their losses at equal steps; NaN: too few points. */
double lt_plan_slowdown(const plan_run *lossy, const plan_run *lossless);
/* Estimates steps by lossy pilots on any ranks and the steps of the lossless counterpart; false: either is unknown. */
bool lt_plan_estimate_lossy_steps(const plan *p, const plan_config *c, plan_estimate *out);

/* --- pilot.c: one pilot, its cost and budget --- */

/* Returns a lower bound of lt_plan_objective(); whether it is below the best candidate's upper bound. */
double lt_plan_objective_bound(const plan *p, const plan_candidate *c);
bool lt_plan_may_be_best(const plan *p, const plan_candidate *c);
/* Returns the rank-seconds of a candidate's run; 0: unknown. */
double lt_plan_run_cost(const plan_candidate *c);
/* Return the rank-seconds for pilots and profile; the rest of them. */
double lt_plan_budget(const plan *p);
double lt_plan_budget_left(const plan *p);
/* Returns the rank-seconds of a pilot; steps 0: enough to time a step. */
double lt_plan_pilot_cost(const plan *p, const plan_candidate *c, int64_t steps);
/* Seconds of a run before and after its steps: launch, loading, exit. */
double lt_plan_startup_seconds(const plan *p, int ranks);
/* Runs and reads a pilot, steps as above. of_loss: to compare classes. A pilot that fails is recorded, not an error. */
lt_status lt_plan_run_pilot(plan *p, plan_candidate *c, int64_t steps, bool of_loss);

/* --- pilots.c: all pilots of a plan --- */

/* Runs pilots and ranks again, until the best candidate leads by more than the uncertainty, or the budget is spent.
 * Errors: LT_E_ARG (the length of the run is unknown). */
lt_status lt_plan_run_all_pilots(plan *p);

/* --- print.c, json.c, plan.c --- */

void lt_plan_print(const plan *p, FILE *out);
lt_status lt_plan_write_json(const plan *p, const char *path);

/* Parses flags of training and of plan. */
lt_status lt_plan_parse(plan *p, const lt_program *program, int argc, char *const *argv);
/* Reads runs and profile, and chooses. */
lt_status lt_plan_run(plan *p, int argc, char *const *argv);
/* Prints the error of st, if any, frees the plan and its trainer, and returns the exit status. */
int lt_plan_finish(plan *p, const char *name, lt_status st);
/* The command `plan ...`; argv begins with that word. Returns the exit status. */
int lt_command_plan(int argc, char **argv, const lt_model_family *family,
                    const lt_trainer_program *program);

#endif
