/* Learning-rate schedules, one row of a table each, with the values of torch.optim.lr_scheduler. Linear warm-up: Goyal et
 * al., "Accurate, Large Minibatch SGD", 2017, section 2.2, per update instead of per epoch. */

#include "lather/schedule.h"

#include "lather/ext/elementary.h"
#include "lather/ext/fail.h"

#include <math.h>
#include <stddef.h>

/* Tolerance in updates: a milestone of 2.4 epochs must not be an update late because its product is rounded. */
static const double tie = 1e-6;

/* Position of an update, in updates: since the start, at the end of the warm-up, at the end of the run. */
typedef struct position {
    double updates, warmup, end;
} position;

static double warmup_updates(const lt_schedule *s)
{
    return s->warmup_steps ? (double)s->warmup_steps
                           : s->warmup_epochs * (double)s->steps_per_epoch;
}

/* Returns 0 at `from`, 1 at the end of the run and later. */
static double progress_since(const position *at, double from)
{
    double p = (at->updates - from) / (at->end - from);
    return p < 1 ? p : 1;
}

static double progress(const position *at)
{
    return progress_since(at, at->warmup);
}

/* Falls from 1 to 0 by half a cosine. */
static double half_cosine(double p)
{
    return 0.5 * (1 + lt_f64_cos(M_PI * p));
}

static double constant(const lt_schedule *s, const position *at)
{
    (void)at;
    return s->lr;
}

static double step(const lt_schedule *s, const position *at)
{
    return s->lr
           * lt_f64_pow(s->gamma,
                        floor((at->updates + tie) / (s->step_epochs * (double)s->steps_per_epoch)));
}

static double multistep(const lt_schedule *s, const position *at)
{
    double lr = s->lr;
    for (int i = 0; i < s->milestones; i++)
        if (at->updates + tie >= s->milestone[i] * (double)s->steps_per_epoch)
            lr *= s->gamma;
    return lr;
}

/* Loshchilov & Hutter, "SGDR", ICLR 2017, equation 5, one period. */
static double cosine(const lt_schedule *s, const position *at)
{
    return s->min_lr + (s->lr - s->min_lr) * half_cosine(progress(at));
}

static double poly(const lt_schedule *s, const position *at)
{
    return s->min_lr + (s->lr - s->min_lr) * lt_f64_pow(1 - progress(at), s->power);
}

static double linear(const lt_schedule *s, const position *at)
{
    return s->min_lr + (s->lr - s->min_lr) * (1 - progress(at));
}

/* Hu et al., "MiniCPM", 2024, section 4; 1-sqrt: Haegele et al., "Scaling Laws and Compute-Optimal Training Beyond Fixed
 * Training Durations", NeurIPS 2024, equation 1. */
static double wsd(const lt_schedule *s, const position *at)
{
    const double begin = at->end * (1 - s->decay_ratio);
    const double p = at->updates > begin ? progress_since(at, begin) : 0;
    const double left = s->decay == LT_DECAY_LINEAR   ? 1 - p
                        : s->decay == LT_DECAY_COSINE ? half_cosine(p)
                                                      : 1 - sqrt(p);
    return s->min_lr + (s->lr - s->min_lr) * left;
}

/* Smith & Topin, "Super-Convergence", 2018, in the two phases of torch's OneCycleLR, whose last update has the last rate. */
static double one_cycle(const lt_schedule *s, const position *at)
{
    const double first = s->lr / s->div_factor, last = first / s->final_div_factor;
    const double peak = s->pct_start * at->end - 1;
    const position run = {at->updates, 0, at->end - 1};
    if (at->updates < peak)
        return s->lr + (first - s->lr) * half_cosine(at->updates / peak);
    return last + (s->lr - last) * half_cosine(progress_since(&run, peak));
}

/* Loshchilov & Hutter, "SGDR", ICLR 2017, equation 5; cycle_decay as timm's. */
static double cosine_restarts(const lt_schedule *s, const position *at)
{
    double length = s->cycle_epochs * (double)s->steps_per_epoch, lr = s->lr;
    double since = at->updates - at->warmup;
    while (since + tie >= length) {
        const double cycles = s->cycle_mul > 1 ? 1 : floor((since + tie) / length);
        since -= cycles * length;
        lr *= lt_f64_pow(s->cycle_decay, cycles);
        length *= s->cycle_mul;
    }
    lr = fmax(lr, s->min_lr);
    return s->min_lr + (lr - s->min_lr) * half_cosine(fmax(since, 0) / length);
}

/* torch's ReduceLROnPlateau */
static double plateau(const lt_schedule *s, const position *at)
{
    (void)at;
    return fmax(s->lr * lt_f64_pow(s->gamma, (double)s->reductions), s->min_lr);
}

/* Fields that a schedule reads. */
enum { READS_END = 1, READS_GAMMA = 2, HAS_WARMUP = 4 };

static const struct method {
    double (*lr)(const lt_schedule *s, const position *at);
    unsigned reads;
} table[] = {
    [LT_SCHEDULE_CONSTANT] = {constant, 0},
    [LT_SCHEDULE_STEP] = {step, READS_GAMMA},
    [LT_SCHEDULE_MULTISTEP] = {multistep, READS_GAMMA},
    [LT_SCHEDULE_COSINE] = {cosine, READS_END},
    [LT_SCHEDULE_POLY] = {poly, READS_END},
    [LT_SCHEDULE_LINEAR] = {linear, READS_END},
    [LT_SCHEDULE_WSD] = {wsd, READS_END},
    [LT_SCHEDULE_ONE_CYCLE] = {one_cycle, READS_END | HAS_WARMUP},
    [LT_SCHEDULE_COSINE_RESTARTS] = {cosine_restarts, 0},
    [LT_SCHEDULE_PLATEAU] = {plateau, READS_GAMMA},
};

double lt_schedule_lr(const lt_schedule *s, int64_t attempt)
{
    const position at = {(double)(attempt - 1), warmup_updates(s),
                         s->epochs * (double)s->steps_per_epoch};
    if (at.updates < at.warmup)
        return s->warmup_lr + (s->lr - s->warmup_lr) * (at.updates / at.warmup);
    return table[s->kind].lr(s, &at);
}

/* NaN fails every comparison, hence the form "not (x >= 0)". */
static lt_status check_numbers(const lt_schedule *s)
{
    if (!(s->lr >= 0 && isfinite(s->lr)))
        return lt_fail(LT_E_ARG, "schedule: lr %g is not a number >= 0", s->lr);
    if (!(s->min_lr >= 0 && s->min_lr <= s->lr))
        return lt_fail(LT_E_ARG, "schedule: min_lr %g is not in [0, lr = %g]", s->min_lr, s->lr);
    if (!(s->warmup_lr >= 0 && isfinite(s->warmup_lr)))
        return lt_fail(LT_E_ARG, "schedule: warmup_lr %g is not a number >= 0", s->warmup_lr);
    if (s->steps_per_epoch < 1)
        return lt_fail(LT_E_ARG, "schedule: steps_per_epoch is below 1");
    if (!(s->warmup_epochs >= 0 && isfinite(s->warmup_epochs)))
        return lt_fail(LT_E_ARG, "schedule: warmup_epochs %g is not a number >= 0",
                       s->warmup_epochs);
    if (s->warmup_steps < 0 || (s->warmup_steps && s->warmup_epochs > 0))
        return lt_fail(LT_E_ARG,
                       "schedule: warmup_steps %lld and warmup_epochs %g; set one of them",
                       (long long)s->warmup_steps, s->warmup_epochs);
    return LT_OK;
}

static lt_status check_milestones(const lt_schedule *s)
{
    if (s->milestones < 0 || s->milestones > LT_MAX_MILESTONES)
        return lt_fail(LT_E_ARG, "schedule: %d milestones, at most %d", s->milestones,
                       LT_MAX_MILESTONES);
    for (int i = 0; i < s->milestones; i++)
        if (!(s->milestone[i] > (i ? s->milestone[i - 1] : 0)))
            return lt_fail(LT_E_ARG, "schedule: milestone %g is not above the one before it",
                           s->milestone[i]);
    return LT_OK;
}

/* Checks the fields of the schedules whose end and warm-up have fractions of the run. */
static lt_status check_fractions(const lt_schedule *s)
{
    const double warmup = warmup_updates(s), end = s->epochs * (double)s->steps_per_epoch;
    if (s->kind == LT_SCHEDULE_WSD && !(s->decay_ratio > 0 && s->decay_ratio <= 1))
        return lt_fail(LT_E_ARG, "schedule: decay_ratio %g is not in (0,1]", s->decay_ratio);
    if (s->kind == LT_SCHEDULE_WSD && end * (1 - s->decay_ratio) + tie < warmup)
        return lt_fail(LT_E_ARG,
                       "schedule: a decay of %g of %g updates begins within the warm-up of %g",
                       s->decay_ratio, end, warmup);
    if (s->kind != LT_SCHEDULE_ONE_CYCLE)
        return LT_OK;
    if (!(s->pct_start >= 0 && s->pct_start <= 1))
        return lt_fail(LT_E_ARG, "schedule: pct_start %g is not in [0,1]", s->pct_start);
    if (!(s->div_factor >= 1 && s->final_div_factor >= 1))
        return lt_fail(LT_E_ARG,
                       "schedule: div_factor %g and final_div_factor %g are not both 1 or more",
                       s->div_factor, s->final_div_factor);
    return LT_OK;
}

static lt_status check_cycles(const lt_schedule *s)
{
    if (!(s->cycle_epochs * (double)s->steps_per_epoch >= 1))
        return lt_fail(LT_E_ARG, "schedule: a cycle of %g epochs is shorter than an update",
                       s->cycle_epochs);
    if (!(s->cycle_mul >= 1 && isfinite(s->cycle_mul)))
        return lt_fail(LT_E_ARG, "schedule: cycle_mul %g is not a number >= 1", s->cycle_mul);
    if (!(s->cycle_decay > 0 && s->cycle_decay <= 1))
        return lt_fail(LT_E_ARG, "schedule: cycle_decay %g is not in (0,1]", s->cycle_decay);
    return LT_OK;
}

/* Checks the fields that one schedule alone reads. */
static lt_status check_own(const lt_schedule *s)
{
    if (s->kind == LT_SCHEDULE_STEP && !(s->step_epochs > 0))
        return lt_fail(LT_E_ARG, "schedule: step_epochs %g is not above 0", s->step_epochs);
    if (s->kind == LT_SCHEDULE_POLY && !(s->power > 0))
        return lt_fail(LT_E_ARG, "schedule: power %g is not above 0", s->power);
    if (s->kind == LT_SCHEDULE_COSINE_RESTARTS)
        return check_cycles(s);
    return s->kind == LT_SCHEDULE_MULTISTEP ? check_milestones(s) : check_fractions(s);
}

lt_status lt_schedule_check(const lt_schedule *s)
{
    const size_t kinds = sizeof table / sizeof *table;
    LT_TRY(check_numbers(s));
    if ((size_t)s->kind >= kinds)
        return lt_fail(LT_E_ARG, "schedule: kind %d is not in 0..%zu", (int)s->kind, kinds - 1);
    const unsigned reads = table[s->kind].reads;
    const double warmup = warmup_updates(s) / (double)s->steps_per_epoch;
    if ((reads & READS_END) && !(s->epochs > warmup && isfinite(s->epochs)))
        return lt_fail(LT_E_ARG, "schedule: epochs %g is not above the warm-up's %g", s->epochs,
                       warmup);
    if ((reads & HAS_WARMUP) && warmup > 0)
        return lt_fail(LT_E_ARG,
                       "schedule: one cycle has its own warm-up, pct_start; set no other");
    if ((reads & READS_GAMMA) && !(s->gamma >= 0 && s->gamma <= 1))
        return lt_fail(LT_E_ARG, "schedule: gamma %g is not in [0,1]", s->gamma);
    return check_own(s);
}
