/* --lr auto: trials with the run's own settings choose its learning rate, before its first step. From the preset's
 * rate on, each trial doubles or halves it, until the loss is lowest between two others; a parabola through the three
 * gives the rate. A trial is the first fifth of the run, with its schedule: the best rate of a short run that is
 * annealed to its end is too high for a longer one. The rate becomes an ordinary flag, so that config.yaml stores it,
 * and a resume repeats it. */

#include "auto_lr.h"

#include "base/alloc.h"
#include "base/options/options.h"

#include "lather/ext/comm.h"
#include "lather/ext/elementary.h"
#include "lather/ext/fail.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    LEAST_STEPS = 20,
    MOST_STEPS = 2000,
    SHARE = 5,
    RANGE = 6,
    TRIALS = 2 * RANGE + 1,
    MORE_WORDS = 6
};

typedef struct search {
    const lt_model_family *family;
    const lt_trainer_program *program;
    char **word; /* command line without --lr and --output; owned, the words are borrowed */
    int count;
    bool evaluates;      /* a trial's schedule needs evaluations */
    char *no_target;     /* word that turns the run's target off; NULL if it has none */
    int64_t steps;       /* length of a trial */
    double base;         /* rate of the preset */
    double loss[TRIALS]; /* by exponent of 2, from -RANGE */
    int trials;
    /* the running trial */
    double sum;
    int64_t losses;
    int code; /* exit status of a trial that failed */
} search;

/* --- The command line --- */

static const char *const lr_names[] = {"lr", "learning-rate", NULL};
static const char *const output_names[] = {"output",           "output-dir", "o",       "resume",
                                           "checkpoint-every", "hash-every", "profile", NULL};
static const char *const record_names[] = {"optim-stats", "optim-stats-params", "data-changed",
                                           NULL}; /* need the output */

/* Returns true if word i is one of these flags. *words: 2 if its value is the next word, otherwise 1. */
static bool is_flag(const char *const *names, char *const *argv, int i, int *words)
{
    const char *name = argv[i] + strspn(argv[i], "-");
    const bool is_short = name == argv[i] + 1 && *name; /* -o VALUE or -oVALUE */
    const size_t bytes = is_short ? 1 : strcspn(name, "=");
    *words = name[bytes] || !argv[i + 1] ? 1 : 2;
    for (; name != argv[i] && *names; names++)
        if (lt_options_is_named(*names, name, bytes))
            return true;
    return false;
}

/* Returns the index of the flag if the last --lr is auto, otherwise 0. */
static int find_auto(int argc, char *const *argv)
{
    int found = 0, words;
    for (int i = 1; i < argc && argv[i] && strcmp(argv[i], "--") != 0; i++)
        if (is_flag(lr_names, argv, i, &words)) {
            const char *value = words == 2 ? argv[i + 1] : strchr(argv[i], '=');
            found = value && !strcmp(value + (words == 1), "auto") ? i : 0;
        }
    return found;
}

bool lt_auto_lr_is_asked(int argc, char *const *argv)
{
    return find_auto(argc, argv) > 0;
}

/* Copies argv without these flags. Returns true if it has any. */
static bool drop_flags(search *s, const char *const *names, int argc, char *const *argv)
{
    bool drops = false;
    s->count = 0;
    for (int i = 0, words; i < argc; i++)
        if (i && is_flag(names, argv, i, &words)) {
            drops = true;
            i += words - 1;
        } else {
            s->word[s->count++] = argv[i];
        }
    s->word[s->count] = NULL;
    return drops;
}

/* Finds the rate of the run that --resume continues; 0 if absent. */
static lt_status read_resumed_rate(const search *s, const output_options *o, double *rate)
{
    char path[4096 + 16], text[48];
    command_line then = {0};
    snprintf(path, sizeof path, "%.4095s/config.yaml", o->output ? o->output : "");
    if (!o->resume || !o->output || access(path, F_OK))
        return LT_OK;
    lt_status st = lt_command_line_open(&then, s->family, s->program);
    if (!st)
        st = lt_command_line_open_options(&then, NULL);
    if (!st)
        st = lt_options_load(then.options, path);
    *rate = st ? 0 : strtod(lt_options_text(then.options, "lr", text, sizeof text), NULL);
    lt_command_line_close(&then);
    return st;
}

static char *find_target(const lt_options *options)
{
    static char top1[] = "--target-top1=0", perplexity[] = "--target-perplexity=0";
    return lt_options_find(options, "target-top1", strlen("target-top1"))               ? top1
           : lt_options_find(options, "target-perplexity", strlen("target-perplexity")) ? perplexity
                                                                                        : NULL;
}

/* Reads the flags except --lr: the preset's rate is the first to try. */
static lt_status read_flags(search *s, lt_trainer *t, double *rate)
{
    const arguments *a = &t->line.args;
    LT_TRY(lt_trainer_parse(t, s->family, s->program, NULL, s->count, s->word));
    s->base = a->optim.lr;
    s->evaluates = a->schedule.sched == LT_SCHEDULE_PLATEAU;
    s->no_target = find_target(t->line.options);
    const bool writes = drop_flags(s, output_names, s->count, s->word);
    (void)drop_flags(s, record_names, s->count, s->word);
    if (a->output.output && !writes)
        return lt_fail(LT_E_ARG, "--lr auto: give --output as a flag, not in a config file");
    if (strcmp(lt_comm_launched_kind(), "self") != 0)
        return lt_fail(LT_E_ARG, "--lr auto: tries rates on one rank; run it there and give all "
                                 "ranks the rate that it prints");
    if (a->output.output && !a->output.resume && !a->output.overwrite
        && lt_run_is_used(a->output.output))
        *rate = s->base; /* training rejects the folder */
    return *rate > 0 ? LT_OK : read_resumed_rate(s, &a->output, rate);
}

/* --- Trials --- */

static lt_status read_length(void *context, const lt_train_view *view, bool *stop)
{
    search *s = context;
    const int64_t share = view->total_steps / SHARE;
    s->steps = share < LEAST_STEPS ? LEAST_STEPS : share > MOST_STEPS ? MOST_STEPS : share;
    if (s->steps > view->total_steps)
        s->steps = view->total_steps;
    *stop = false;
    return LT_OK;
}

/* Sums the losses of a trial's second half. */
static lt_status add_loss(void *context, const lt_train_view *view, bool *stop)
{
    search *s = context;
    const double loss = lt_train_view_metric(view, "loss");
    *stop = !isfinite(loss) || view->step >= s->steps;
    if (!isfinite(loss) || 2 * view->step > s->steps) {
        s->sum += loss;
        s->losses++;
    }
    return LT_OK;
}

static double rate_of(const search *s, double exponent)
{
    return s->base * lt_f64_pow(2, exponent);
}

/* Measures the loss at the preset's rate times 2^exponent. A run that diverges has an infinite loss. */
static lt_status try_rate(search *s, int exponent)
{
    static char eval[] = "--eval-every=-1", progress[] = "--progress=off", nan[] = "--on-nan=skip",
                stop[] = "--early-stop=off";
    const lt_train_hooks hooks = {
        .name = "lr_auto", .context = s, .before_run = read_length, .after_step = add_loss};
    char lr[48];
    char *more[MORE_WORDS] = {progress, nan, stop, lr};
    int mores = 4;
    double *loss = &s->loss[exponent + RANGE];
    snprintf(lr, sizeof lr, "--lr=%.17g", rate_of(s, exponent));
    if (!s->evaluates)
        more[mores++] = eval;
    if (s->no_target)
        more[mores++] = s->no_target;
    memcpy(s->word + s->count, more, (size_t)mores * sizeof *more);
    s->word[s->count + mores] = NULL;
    s->sum = 0;
    s->losses = 0;
    s->trials++;
    s->code = lt_trainer_train_by(s->count + mores, s->word, s->family, s->program, &hooks);
    if (s->code || lt_signals_seen(NULL))
        return LT_E_CANCELLED;
    *loss = s->losses && isfinite(s->sum) ? s->sum / (double)s->losses : HUGE_VAL;
    fprintf(stderr, "%s: --lr auto: loss %.4f in steps %lld to %lld at %.4g\n", s->family->program,
            *loss, (long long)s->steps / 2 + 1, (long long)s->steps, rate_of(s, exponent));
    return LT_OK;
}

/* Returns the exponent at the lowest point of the parabola through the best loss and the adjacent ones. */
static double interpolate(const search *s, int best)
{
    const double *y = &s->loss[best + RANGE];
    if (best == -RANGE || best == RANGE || !isfinite(y[-1]) || !isfinite(y[1]))
        return best;
    const double curvature = y[-1] - 2 * y[0] + y[1];
    return curvature > 0 ? best + (y[-1] - y[1]) / (2 * curvature) : best;
}

static lt_status find_rate(search *s, double *rate)
{
    int best = 0;
    LT_TRY(try_rate(s, 0));
    for (int direction = -1; direction <= 1 && !best; direction += 2)
        for (int next = best + direction; next >= -RANGE && next <= RANGE; next += direction) {
            LT_TRY(try_rate(s, next));
            const double lowest = s->loss[best + RANGE];
            if (isfinite(lowest) && !(s->loss[next + RANGE] < lowest))
                break;
            best = next;
        }
    if (!isfinite(s->loss[best + RANGE]))
        return lt_fail(LT_E_ARG, "--lr auto: the loss is not finite at any of %d rates", s->trials);
    *rate = rate_of(s, interpolate(s, best));
    return LT_OK;
}

/* --- The run --- */

static lt_status choose(search *s, int argc, char *const *argv, double *rate)
{
    lt_trainer *t;
    LT_TRY(LT_ALLOC(&s->word, argc + MORE_WORDS + 1));
    lt_status st = LT_ALLOC(&t, 1);
    if (!st) {
        (void)drop_flags(s, lr_names, argc, argv);
        st = read_flags(s, t, rate);
        lt_trainer_close(t);
    }
    lt_free(t);
    return st || *rate > 0 ? st : find_rate(s, rate);
}

int lt_auto_lr_main(int argc, char **argv, const lt_model_family *family,
                    const lt_trainer_program *program)
{
    search s = {.family = family, .program = program};
    double rate = 0, trials;
    char text[48];
    const lt_status st = choose(&s, argc, argv, &rate);
    lt_free(s.word);
    if (st) {
        if (!s.code && st != LT_E_CANCELLED) /* otherwise the trial has printed its error */
            fprintf(stderr, "%s: %s\n", family->program, lt_error_message());
        return s.code                  ? s.code
               : lt_signals_seen(NULL) ? EXIT_INTERRUPTED
               : st == LT_E_ARG        ? EXIT_USAGE
                                       : EXIT_ERROR;
    }
    const int at = find_auto(argc, argv);
    snprintf(text, sizeof text, "--lr=%.4g", rate);
    rate = strtod(text + strlen("--lr="), NULL);
    argv[at] = text;
    if (at + 1 < argc && !strcmp(argv[at + 1], "auto"))
        argv[at + 1] = text; /* twice the same flag */
    trials = s.trials;
    const lt_train_number number[] = {{"lr", &rate}, {"trials", &trials}};
    const lt_train_hooks record = {.name = "lr_auto", .number = number, .numbers = 2};
    if (s.trials)
        fprintf(stderr, "%s: --lr auto: %.4g, by %d trials\n", family->program, rate, s.trials);
    return lt_trainer_train_by(argc, argv, family, program, &record);
}
