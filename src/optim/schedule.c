/* Learning-rate schedules. Cosine: Loshchilov & Hutter, "SGDR", ICLR 2017, equation 5, one period. Linear warm-up:
 * Goyal et al., "Accurate, Large Minibatch SGD", 2017, section 2.2, per update instead of per epoch. */

#include "lather/schedule.h"

#include "lather/ext/fail.h"

#include <math.h>
#include <stdbool.h>

/* Tolerance in updates: a milestone of 2.4 epochs must not be an update late because its product is rounded. */
static const double tie = 1e-6;

static double multistep(const lt_schedule *s, double updates)
{
    double lr = s->lr;
    for (int i = 0; i < s->milestones; i++)
        if (updates + tie >= s->milestone[i] * (double)s->steps_per_epoch)
            lr *= s->gamma;
    return lr;
}

/* Returns 0 at the end of warm-up, 1 at the end of the run and later. */
static double progress(const lt_schedule *s, double updates, double warmup)
{
    double length = s->epochs * (double)s->steps_per_epoch - warmup;
    double p = (updates - warmup) / length;
    return p < 1 ? p : 1;
}

double lt_schedule_lr(const lt_schedule *s, int64_t attempt)
{
    double updates = (double)(attempt - 1);
    double warmup = s->warmup_epochs * (double)s->steps_per_epoch;
    double range = s->lr - s->min_lr;
    if (updates < warmup)
        return s->warmup_lr + (s->lr - s->warmup_lr) * (updates / warmup);

    switch (s->kind) {
    case LT_SCHEDULE_STEP:
        return s->lr
               * pow(s->gamma,
                     floor((updates + tie) / (s->step_epochs * (double)s->steps_per_epoch)));
    case LT_SCHEDULE_MULTISTEP:
        return multistep(s, updates);
    case LT_SCHEDULE_COSINE:
        return s->min_lr + range * 0.5 * (1 + cos(M_PI * progress(s, updates, warmup)));
    case LT_SCHEDULE_POLY:
        return s->min_lr + range * pow(1 - progress(s, updates, warmup), s->power);
    case LT_SCHEDULE_CONSTANT:
        break;
    }
    return s->lr;
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

lt_status lt_schedule_check(const lt_schedule *s)
{
    LT_TRY(check_numbers(s));
    bool decays = s->kind == LT_SCHEDULE_COSINE || s->kind == LT_SCHEDULE_POLY;
    bool steps = s->kind == LT_SCHEDULE_STEP || s->kind == LT_SCHEDULE_MULTISTEP;
    if (decays && !(s->epochs > s->warmup_epochs && isfinite(s->epochs)))
        return lt_fail(LT_E_ARG, "schedule: epochs %g is not above warmup_epochs %g", s->epochs,
                       s->warmup_epochs);
    if (steps && !(s->gamma >= 0 && s->gamma <= 1))
        return lt_fail(LT_E_ARG, "schedule: gamma %g is not in [0,1]", s->gamma);
    if (s->kind == LT_SCHEDULE_STEP && !(s->step_epochs > 0))
        return lt_fail(LT_E_ARG, "schedule: step_epochs %g is not above 0", s->step_epochs);
    if (s->kind == LT_SCHEDULE_POLY && !(s->power > 0))
        return lt_fail(LT_E_ARG, "schedule: power %g is not above 0", s->power);
    return s->kind == LT_SCHEDULE_MULTISTEP ? check_milestones(s) : LT_OK;
}
