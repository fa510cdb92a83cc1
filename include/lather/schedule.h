/** Learning-rate schedules: pure functions of the update number. */
#ifndef LATHER_SCHEDULE_H
#define LATHER_SCHEDULE_H

#include "lather/status.h"

#include <stdint.h>

typedef enum lt_schedule_kind {
    LT_SCHEDULE_CONSTANT,
    LT_SCHEDULE_STEP,      /**< lr is multiplied by gamma every step_epochs */
    LT_SCHEDULE_MULTISTEP, /**< lr is multiplied by gamma at each of milestones */
    LT_SCHEDULE_COSINE,    /**< lr falls by half a cosine down to min_lr */
    LT_SCHEDULE_POLY,      /**< lr falls by (1 - progress)^power down to min_lr */
    LT_SCHEDULE_LINEAR,    /**< lr falls linearly down to min_lr */
    LT_SCHEDULE_WSD, /**< lr until the last decay_ratio of the run, in which it falls to min_lr */
    LT_SCHEDULE_ONE_CYCLE, /**< from lr / div_factor up to lr at pct_start of the run, then down */
    LT_SCHEDULE_COSINE_RESTARTS, /**< cosines down to min_lr, each cycle_mul times as long as the last */
    LT_SCHEDULE_PLATEAU          /**< lr * gamma^reductions, at least min_lr */
} lt_schedule_kind;

/** Form of the decay of LT_SCHEDULE_WSD. */
typedef enum lt_schedule_decay {
    LT_DECAY_LINEAR,
    LT_DECAY_COSINE,
    LT_DECAY_SQRT /**< 1 - sqrt(progress) */
} lt_schedule_decay;

enum { LT_MAX_MILESTONES = 8 };

typedef struct lt_schedule {
    lt_schedule_kind kind;
    double lr, min_lr;
    double warmup_epochs;    /**< linear warm-up within epochs; fractions count updates */
    double warmup_lr;        /**< learning rate of the first update */
    double epochs;           /**< epochs of the whole run, > warmup_epochs */
    int64_t steps_per_epoch; /**< updates per epoch */
    double gamma, step_epochs, power;
    double milestone[LT_MAX_MILESTONES]; /**< MULTISTEP: epochs at which lr falls, ascending */
    int milestones;
    int64_t warmup_steps; /**< updates of the warm-up, instead of warmup_epochs; 0: those */
    double decay_ratio;   /**< WSD: fraction of the run that decays, in (0,1] */
    lt_schedule_decay decay;
    /** ONE_CYCLE: fraction of the run that rises; lr / first rate; first / last rate, both at least 1 */
    double pct_start, div_factor, final_div_factor;
    /** COSINE_RESTARTS: epochs of the first cycle; factors of length (at least 1) and lr per cycle */
    double cycle_epochs, cycle_mul, cycle_decay;
    int64_t reductions; /**< PLATEAU: reductions so far, which the caller counts */
} lt_schedule;

/** Returns lr of update number attempt (1 is the first). The fields must satisfy lt_schedule_check(). */
LT_API double lt_schedule_lr(const lt_schedule *schedule, int64_t attempt);
/** Checks the fields. Errors: LT_E_ARG, naming the field. */
LT_API LT_MUST_CHECK lt_status lt_schedule_check(const lt_schedule *schedule);

#endif
