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
    LT_SCHEDULE_POLY       /**< lr falls by (1 - progress)^power down to min_lr */
} lt_schedule_kind;

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
} lt_schedule;

/** Returns lr of update number attempt (1 is the first). The fields must satisfy lt_schedule_check(). */
LT_API double lt_schedule_lr(const lt_schedule *schedule, int64_t attempt);
/** Checks the fields. Errors: LT_E_ARG, naming the field. */
LT_API LT_MUST_CHECK lt_status lt_schedule_check(const lt_schedule *schedule);

#endif
