/* `train_* plan`: what a run costs on so many ranks, and which set-up to run. A *setting* is a start of the program as
 * its flags say it; a *candidate* is one on so many ranks. ADR 0042. */
#ifndef LT_TRAIN_PLAN_COMMAND_H
#define LT_TRAIN_PLAN_COMMAND_H

#include "train/program/trainer.h"

#include "lather/detail/fit.h"
#include "lather/detail/json.h"
#include "lather/detail/plan.h"

#include <sys/types.h>

/* --- options.c: the flags --- */

typedef struct plan_options {
    lt_option_list goal, from, vary;
    const char *ranks, *link, *link_between, *step_profile, *json, *pilot_budget, *pilot_dir;
    int pilots;
    double price, memory, profile_seconds, slots;
    int64_t nodes, rows, global_batch, profile_ranks;
    bool simulate, extrapolate, one_machine;
} plan_options;
lt_option_table lt_plan_options(plan_options *o);
/* Whether a flag of this name is plan's alone; takes_value: whether a word follows it. */
bool lt_plan_is_own_flag(const char *name, size_t bytes, bool *takes_value);

enum { PILOTS_OFF, PILOTS_AUTO };
enum { PLAN_NAME = 32, PLAN_STATE = 96, PLAN_RANKS = 64, PLAN_TEXT = 512, PLAN_REASON = 1200 };
enum { PLAN_AXES = 16, PLAN_VALUES = 16 };

/* --goal: a metric's value (loss=1.2, top1=75), a deadline, or both. */
typedef struct plan_goal {
    char metric[PLAN_NAME]; /* "": none */
    double value;
    bool lower;      /* is better */
    bool percent;    /* of the metric: 100 - value falls to 0 */
    double deadline; /* seconds; 0: none */
} plan_goal;

/* --vary FLAG=V,V,...: values that candidates have of a flag of training. */
typedef struct plan_axis {
    char flag[PLAN_NAME];
    char value[PLAN_VALUES][PLAN_NAME];
    int values;
} plan_axis;

/* What the flags of plan say. */
typedef struct plan_request {
    const plan_options *options;
    plan_goal goal;
    int ranks[PLAN_RANKS], rank_counts; /* ascending */
    int per_node;
    lt_plan_machine machine; /* nodes: of each candidate */
    plan_axis axis[PLAN_AXES];
    int axes;
    double pilot_share; /* of the cheapest run's rank-seconds; 0: no pilots */
} plan_request;
/* Errors: LT_E_ARG, naming the flag. */
lt_status lt_plan_request(plan_request *r, const plan_options *o, const lt_trainer *t);

/* --- setting.c: the configuration that a start of the program would have --- */

typedef struct plan_setting {
    lt_plan_setup setup;
    int64_t block;          /* Shampoo's, which its costs belong to; 0: none */
    char state[PLAN_STATE]; /* flags that keep the optimizer's state in fewer bytes; "": as usual */
    int64_t batch;          /* of all ranks, in an update */
    double epochs;          /* 0: not said */
    int64_t max_steps;      /* 0: not said */
    int64_t epoch_steps;    /* of a candidate: updates of an epoch, as training counts them */
    uint64_t converge;      /* hash of what convergence depends on but ranks and batch */
    uint64_t lossless;      /* of converge without what loses or delays gradients between ranks */
    uint64_t samples;       /* hash of data and model */
    int amp;                /* AMP_... */
    char device[PLAN_NAME];
    int threads,
        real_threads; /* as the flag says, 0: all; what that is: of a run as its checkpoint says, 0: nothing does */
    bool is_exact;         /* steps depend on the batch of all ranks alone, not on their number */
    char label[PLAN_TEXT]; /* "shampoo f 50 b 1024, two-level" */
} plan_setting;
/* Of the options of t, on so many ranks. Errors: LT_E_ARG (what it costs is not known). */
lt_status lt_plan_setting(plan_setting *s, const lt_trainer *t, int ranks, int per_node);
/* Steps after which roots and local steps begin again: a mean over a part of them has too many of either, or too few. */
int64_t lt_plan_period(const lt_plan_setup *u);
/* Whether flags want another number of ranks than this. Errors: LT_E_ARG. */
lt_status lt_plan_check_ranks(const plan_setting *s, const lt_trainer *t);
/* Two starts train the same model on the same data, else LT_E_ARG names the first flag that differs, and both values. */
lt_status lt_plan_same_samples(const lt_options *a, const lt_options *b, const char *run);

/* Words of a command line; owned. */
typedef struct plan_words {
    char **word;
    int count, capacity;
} plan_words;
lt_status lt_plan_add_word(plan_words *w, const char *format, ...) LT_PRINTF(2, 3);
void lt_plan_free_words(plan_words *w);
/* argv without plan's own flags and words, and without the flags of axes. */
lt_status lt_plan_training_words(plan_words *out, int argc, char *const *argv,
                                 const plan_request *request, const lt_options *options);

/* --- profile.c, profile_exchange.c, profile_file.c: what was measured at one rank --- */

/* Of one optimizer; block: its settings' largest side; state: as of a setting. */
typedef struct plan_optimizer {
    char name[PLAN_NAME], state[PLAN_STATE];
    int64_t block;
    double update, refresh, state_bytes;
    double *block_update, *block_refresh;
    int64_t *block_elements;
    size_t blocks;
} plan_optimizer;

enum { PLAN_OPTIMIZERS = 32, PLAN_BATCHES = 3, PLAN_STEPS = 256, PLAN_UNITS = 16 };

typedef struct plan_crowd plan_crowd; /* crowd.c */

typedef struct plan_profile {
    char program[64], model[LT_FACT_BYTES];
    uint64_t samples_hash;
    double samples; /* of an epoch */
    lt_plan_profile base;
    lt_cost_bucket *bucket; /* owned; of base */
    double batch[PLAN_BATCHES], seconds[PLAN_BATCHES];
    int batches;
    double step[PLAN_STEPS];
    plan_optimizer optimizer[PLAN_OPTIMIZERS];
    int optimizers;
    double unit[PLAN_UNITS]; /* core seconds, as in lt_cost_cluster, of lt_cost_of_reducer() */
    double copy;             /* core seconds of a byte that a rank sends or receives */
    double ranks;            /* that were at work on the machine; 0: not said */
    double spent;            /* seconds that it took */
    double paid;             /* rank-seconds, of this plan: 0 where it was read */
    const plan_crowd *crowd; /* borrowed, while it is measured */
} plan_profile;
void lt_plan_profile_clear(plan_profile *p);
const plan_optimizer *lt_plan_find_optimizer(const plan_profile *p, const plan_setting *s);
/* base with the numbers of an optimizer; borrowed. */
lt_plan_profile lt_plan_profile_of(const plan_profile *p, const plan_optimizer *o);
/* Runs steps of t's model, data and flags here, for about so many seconds, and adds its optimizer. t: parsed, nothing
 * opened. The first call measures the model too. */
lt_status lt_plan_measure(plan_profile *p, lt_trainer *t, double seconds);
/* Opens t as lt_plan_measure() does and takes its steps, in step with the crowd, until it is killed; a byte to the pipe
 * `ready` when it has begun. Returns errors alone. */
lt_status lt_plan_keep_busy(lt_trainer *t, const plan_crowd *crowd, int ready);
/* copy, and the unit of a reducer (NULL: none), or of all, as far as they are 0; about half a second each. */
lt_status lt_plan_measure_exchange(plan_profile *p, const lt_cost_row *reducer, bool all);
lt_status lt_plan_profile_save(const plan_profile *p, const char *path);
/* Errors: LT_E_IO, LT_E_FORMAT (names the key). */
lt_status lt_plan_profile_load(plan_profile *p, const char *path);

/* --- runs.c: --from --- */

typedef struct plan plan;

typedef struct plan_point {
    double step, value;
} plan_point;

/* Seconds of a step by the system model, of those the exchange that is not behind backward, and the loader's, below which
 * the rest cannot be. */
typedef struct plan_modelled {
    double seconds, exchange, load;
} plan_modelled;

typedef struct plan_run {
    char name[PLAN_TEXT];
    plan_setting setting;
    double seconds;         /* mean of a step; 0: not recorded */
    int64_t timed;          /* steps that it is of */
    double spread;          /* relative standard error of seconds */
    plan_modelled modelled; /* lt_plan_choose() */
    double noise_scale;     /* samples; 0: not recorded */
    double slowdown;        /* of a pilot: lt_plan_slowdown(); 0: not known */
    bool is_pilot;          /* too short for a model of the loss; points: of a course alone */
    plan_point *point;      /* of the goal's metric, of a course its training loss; owned */
    size_t points;
    lt_loss_model loss; /* of all runs like it; has_loss: they fit one */
    bool has_loss;
    double reached; /* step at which the goal was reached; 0: it was not */
} plan_run;

typedef struct plan_runs {
    plan_run *run;
    size_t count;
    int most; /* ranks */
} plan_runs;
/* Steps in front of those that are timed. */
enum { PLAN_WARM_STEPS = 2 };
/* Errors: LT_E_ARG (a folder is no run; another model or data: names both), LT_E_IO, LT_E_FORMAT. */
lt_status lt_plan_read_runs(plan_runs *out, const lt_option_list *folders, const lt_trainer *like,
                            const plan_goal *goal, int per_node);
/* One more, a pilot; runs are moved. of_loss: with its points. Errors: the same. */
lt_status lt_plan_read_pilot(plan_runs *runs, const char *folder, const plan *p, bool of_loss);
/* The losses of a run's steps as its points, each by itself; owned by the caller. */
lt_status lt_plan_read_losses(plan_run *out, const char *folder);
void lt_plan_free_runs(plan_runs *runs);
/* Whether the metric is the steps' own loss, which every run records. */
bool lt_plan_is_of_steps(const plan_goal *g);

/* --- steps.c: how many steps the goal takes --- */

typedef enum plan_trust {
    PLAN_MEASURED,
    PLAN_INTERPOLATED,
    PLAN_EXTRAPOLATED,
    PLAN_MODEL,
    PLAN_UNKNOWN
} plan_trust;

/* A candidate this many times beyond what runs measured falls, unless --extrapolate takes it. */
enum { PLAN_BEYOND = 2 };

typedef struct plan_estimate {
    double value; /* NaN: unknown */
    plan_trust trust;
    double beyond; /* extrapolated, or model scaled to runs: times the largest measured; else 1 */
    double error;  /* relative, of a fitted model; NaN: not known */
    double spread; /* measured: relative standard error */
    char why[240]; /* of unknown; else what it rests on */
} plan_estimate;
/* steps(B) = least + samples / B = S_min (1 + phi / B), of runs that reached the goal with these batches. */
typedef struct plan_curve {
    double least, samples, least_batch, most_batch;
    char why[96];
} plan_curve;
/* Of the setting's course: fitted to runs of several batches, or by one of them and a noise scale; false: neither. */
bool lt_plan_find_curve(plan_curve *out, const plan_runs *runs, const plan_setting *s);
/* Whether a run is one of its points. */
bool lt_plan_is_on_curve(const plan_run *run, const plan_setting *s);
/* Steps to the goal's metric. */
plan_estimate lt_plan_steps(const plan_runs *runs, const plan_goal *goal, const plan_setting *s);
/* Steps that a goal takes with `batch` samples of all ranks, as those of the setting's batch: the noise scale of runs with this
 * course says it, where they differ. false: nothing does, or the setting loses what it does not cover. */
bool lt_plan_steps_of_batch(plan_estimate *out, const plan_runs *runs, const plan_setting *s,
                            double steps, double batch);
/* Different numbers of ranks of the runs of which `is` holds. */
int lt_plan_count_ranks(const plan_runs *runs, const plan_setting *s,
                        bool (*is)(const plan_run *, const plan_setting *));
/* Hemingway's model of the runs that converge alike, for each run. */
void lt_plan_fit_runs(plan_runs *runs, const plan_goal *goal);
/* That of a setting, whose ranks it need not have seen; borrowed, NULL: there is none. */
const lt_loss_model *lt_plan_find_loss(const plan_runs *runs, const plan_setting *s);
/* A value of the goal's metric as something that falls to 0. */
double lt_plan_as_loss(const plan_goal *goal, double value);

/* --- seconds.c: how long a step is --- */

bool lt_plan_is_same_number(double a, double b);
/* Whether ranks (or a batch) lie between what was measured, or how far beyond. */
plan_estimate lt_plan_between(double value, double at, double least, double most, const char *why);
/* Whether two settings differ in ranks alone, or in an exchange that one of them has no use for. */
bool lt_plan_is_same_work(const plan_setting *s, const plan_setting *other);
/* Whether a run says what a step of this work takes. */
bool lt_plan_is_timed(const plan_run *run, const plan_setting *s);
/* Seconds of a step: the system model, corrected by the runs there are. */
plan_estimate lt_plan_seconds(const plan_runs *runs, const plan_setting *s, plan_modelled modelled);
/* What Ernest's model, fitted to the runs that differ in ranks alone, says of a step; NaN: too few runs. */
double lt_plan_ernest(const plan_runs *runs, const plan_setting *s);

/* --- choose.c: candidates --- */

typedef struct plan_candidate {
    plan_setting setting;
    int choice[PLAN_AXES]; /* of each axis */
    lt_plan_cost cost;
    lt_cost_verdict verdict; /* of a divided model or top-k; why "": there is none */
    plan_estimate step, steps;
    double ernest;  /* a step by Ernest's model of runs alone; NaN: too few runs */
    double seconds; /* to the goal; NaN: not known, then of an epoch */
    double epoch;
    double price;        /* NaN: no --price */
    char why[PLAN_TEXT]; /* it was dropped; "": it was not */
    bool is_possible;    /* it was not, or only by what is predicted */
    bool is_by_runs;     /* the profile does not have its optimizer: its cost is Ernest's */
    bool is_tried;       /* a pilot of it was started */
} plan_candidate;

typedef struct plan_table {
    plan_candidate *item; /* kept first, the best first; then the dropped */
    size_t count, kept;
    bool is_known;      /* seconds to the goal; else the table is of epochs */
    double least_batch; /* of all ranks, of any candidate */
    double least_steps; /* that the flags give this one; 0: they say nothing */
} plan_table;

/* A short run that plan made. */
typedef struct plan_pilot {
    char folder[PLAN_TEXT], label[PLAN_TEXT];
    int ranks;
    int64_t steps;
    double predicted, measured; /* seconds of a step; measured 0: it failed */
    double wall, spent;         /* seconds, rank-seconds */
    bool of_loss;               /* of its course; else of its step */
    double slowdown;            /* as of its run; 0: not known */
    char why[2 * PLAN_TEXT];    /* it failed; "": it did not */
} plan_pilot;

enum { PLAN_PILOTS = 64 };
typedef struct plan_pilots {
    plan_pilot item[PLAN_PILOTS];
    int count;
    bool racing;                 /* more may come: candidates far from what was measured are kept */
    bool has_courses;            /* a pilot of each says how many steps it takes to */
    double course_loss;          /* this training loss: the goal's, or predicted of */
    double course_steps;         /* so many steps, which the flags give (0: it is the goal's), */
    size_t course_run;           /* of this pilot among runs */
    double run, spent;           /* rank-seconds of the predicted run, of all pilots */
    char folder[PLAN_TEXT - 32]; /* of them */
    char why[PLAN_TEXT];         /* that there are no more */
} plan_pilots;

/* A plan at work. */
struct plan {
    const lt_model_family *family;
    const lt_trainer_program *program;
    lt_trainer *trainer; /* with plan's own flags */
    plan_options options;
    plan_request request;
    const char *path; /* of the program, as it was called */
    plan_words words; /* of training */
    plan_profile profile;
    plan_runs runs;
    plan_table table;
    plan_pilots pilots;
};
/* Counts choice up; false behind the last one, which is as zeros again. */
bool lt_plan_advance(const plan_request *r, int *choice);
/* Whether a profile that was read is of this program's model and data. Errors: LT_E_ARG. */
lt_status lt_plan_check_profile(const plan *p);
/* Errors: LT_E_ARG (no candidate is left: why each fell). */
lt_status lt_plan_choose(plan *p);
/* Once more, of the same candidates, by the runs that there are now. */
lt_status lt_plan_rank(plan *p);
/* "2: 4 ranks, batch 64, sgd, flat and others: takes 3 h, ...", of a candidate that was dropped, how often its reason was given.
 * Returns the bytes; 0: an earlier one has the same reason. */
int lt_plan_reason(const plan_table *t, size_t i, char *text, size_t size);

/* --- crowd.c: --profile-ranks --- */

/* Processes that take steps as the first candidate does. */
typedef struct plan_meeting plan_meeting;
struct plan_crowd {
    pid_t *pid; /* owned */
    int count;
    plan_meeting *meeting; /* owned; memory of all; NULL: of one rank */
};
/* Body of each process: works in step with the others until it is killed, and writes a byte to the pipe `ready` when it has begun. Returns only on an error. */
typedef lt_status plan_crowd_work(lt_trainer *t, const plan_crowd *crowd, int ready);
/* Before this process has threads. All are at work when it returns. lt_plan_crowd_end() in any case. */
lt_status lt_plan_crowd_begin(plan_crowd *c, const plan *p, plan_crowd_work *work);
void lt_plan_crowd_end(plan_crowd *c);
/* From now on, or no longer, each lt_plan_crowd_meet() waits until all processes are at theirs. Of the one that measures. */
void lt_plan_crowd_in_step(const plan_crowd *c, bool is_on);
/* Errors: LT_E_COMM (one of the processes has ended). */
lt_status lt_plan_crowd_meet(const plan_crowd *c);

/* What the goal minimises: seconds, with a deadline rank-seconds; of an epoch where steps are not known. */
double lt_plan_key(const plan *p, const plan_candidate *c);
/* Updates that --epochs and --max-steps of a setting give; 0: they say nothing. */
double lt_plan_flag_steps(const plan_setting *s);

/* --- pilot.c: a short run of a candidate --- */

/* What the goal minimises, at the least; whether that is below the best one's largest. */
double lt_plan_least_key(const plan *p, const plan_candidate *c);
bool lt_plan_may_be_best(const plan *p, const plan_candidate *c);
/* Rank-seconds of a candidate's run; 0: not known. */
double lt_plan_run_cost(const plan_candidate *c);
/* Rank-seconds of the whole choice, profile included; what is left of them. */
double lt_plan_budget(const plan *p);
double lt_plan_budget_left(const plan *p);
/* Rank-seconds of a pilot of so many steps, or of as many as a step's seconds want: 0. */
double lt_plan_pilot_cost(const plan *p, const plan_candidate *c, int64_t steps);
/* Seconds of a start without its steps. */
double lt_plan_start_seconds(const plan *p, int ranks);
/* So many steps of a candidate, 0 as above. of_loss: of its course. One that fails is no error. */
lt_status lt_plan_run_pilot(plan *p, plan_candidate *c, int64_t steps, bool of_loss);

/* --- pilots.c --- */

/* Behind lt_plan_choose(): runs, and chooses again, until the best one leads by more than what is not known, or
 * the budget is spent. A pilot that fails is no error. Errors: LT_E_ARG (how long the run is is not known). */
lt_status lt_plan_make_pilots(plan *p);

/* --- courses.c: pilots of what makes the loss fall --- */

/* Least squares of log loss by log step. */
typedef struct lt_power_fit {
    double count, x, y, xx, xy;
} lt_power_fit;
/* loss = a step^-b by least squares of its logarithm. Points that have none are left out. */
void lt_plan_power_add(lt_power_fit *fit, double step, double loss);
/* NaN: of fewer than three points, or it does not fall. */
double lt_plan_power_steps(const lt_power_fit *fit, double loss);
/* The pilot of a setting's course; NULL: none. */
const plan_run *lt_plan_find_course(const plan_runs *runs, const plan_setting *s);
/* The training loss at which courses are compared, own being the flags': the goal's, where that course is predicted to have it
 * before its end; else that of its end. false: there is neither. */
bool lt_plan_find_course_loss(plan *p, const plan_setting *own);
/* By the pilot of the setting's course; false: there is none, or its loss did not fall. */
bool lt_plan_steps_of_course(const plan *p, const plan_setting *s, plan_estimate *out);

/* --- arms.c: pilots of what loses or delays gradients --- */

/* The cheapest candidate that loses nothing and is otherwise the same, with the same batch of all ranks; NULL: none. */
const plan_candidate *lt_plan_find_lossless(const plan *p, const plan_setting *s);
/* Its steps are not known better than by a model, and a pilot beside one of the course that loses nothing says them. */
bool lt_plan_is_arm(const plan *p, const plan_candidate *c);
/* An arm of a run so much longer than a pilot that what one says would not be believed: none is made. */
bool lt_plan_is_out_of_reach(const plan *p, const plan_candidate *c);
/* Steps of an arm by those of the course that loses nothing, from their losses at equal steps; NaN: too few points. */
double lt_plan_slowdown(const plan_run *arm, const plan_run *exact);
/* By pilots of the set-up, on these or other ranks, and the steps of the course that loses nothing; false: neither. */
bool lt_plan_steps_of_arm(const plan *p, const plan_setting *s, plan_estimate *out);
/* Steps of its pilot. */
enum { PLAN_ARM_STEPS = 200, PLAN_ARM_LEAST = 100 };
/* The longest pilot of what loses nothing, as runs may have had other rates; NULL: there is none that is long enough. */
const plan_run *lt_plan_find_lossless_pilot(const plan *p, const plan_setting *s);

/* --- words.c: command lines --- */

/* "--flag=value", as the table of options knows it. Errors: LT_E_ARG (a switch that is neither on nor off). */
lt_status lt_plan_add_flag(plan_words *w, const lt_options *options, const char *flag,
                           const char *value);
/* The words of training with a candidate's choice of --vary. */
lt_status lt_plan_candidate_words(const plan *p, const int *choice, plan_words *out);
/* A start of the program with the candidate's words, parsed. lt_trainer_close() in any case. */
lt_status lt_plan_start(const plan *p, const int *choice, lt_trainer *out);
/* The words that start a candidate: program, behind mpirun where there are several ranks. */
lt_status lt_plan_start_words(const plan *p, const plan_candidate *c, const char *program,
                              plan_words *out);
/* The command that runs a candidate, into text of size bytes. Returns text. */
const char *lt_plan_command_text(const plan *p, const plan_candidate *c, char *text, size_t size);

/* --- print.c, json.c --- */

void lt_plan_print(const plan *p, FILE *out);
lt_status lt_plan_write_json(const plan *p, const char *path);

/* --- plan.c --- */

/* Flags of training and those of plan, as a program of this name and text. */
lt_status lt_plan_parse(plan *p, const lt_program *program, int argc, char *const *argv);
/* To the end of the choice. Errors: LT_E_ARG, ... */
lt_status lt_plan_work(plan *p, int argc, char *const *argv);
/* With the trainer. */
void lt_plan_close(plan *p);
/* `plan ...`, argv from that word on: the exit status. */
int lt_command_plan(int argc, char **argv, const lt_model_family *family,
                    const lt_trainer_program *program);

#endif
