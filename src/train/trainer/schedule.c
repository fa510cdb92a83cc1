/* The schedule that the options describe. */

#include "train/trainer/program.h"

#include "lather/ext/fail.h"

#include <stdlib.h>

static lt_status parse_milestones(const lt_option_list *list, lt_schedule *schedule)
{
    if (list->count > LT_MAX_MILESTONES)
        return lt_fail(LT_E_ARG, "--milestone: given %zu times, at most %d", list->count,
                       LT_MAX_MILESTONES);
    for (size_t i = 0; i < list->count; i++) {
        char *end;
        schedule->milestone[i] = strtod(list->item[i], &end);
        if (*end || end == list->item[i])
            return lt_fail(LT_E_ARG, "--milestone: '%s' is no number", list->item[i]);
    }
    schedule->milestones = (int)list->count;
    return LT_OK;
}

int64_t lt_schedule_steps(lt_schedule *s, int64_t max_steps)
{
    if (s->epochs <= 0)
        s->epochs = (double)max_steps / (double)s->steps_per_epoch;
    const int64_t steps = (int64_t)(s->epochs * (double)s->steps_per_epoch + 0.5);
    return max_steps && max_steps < steps ? max_steps : steps;
}

lt_status lt_schedule_open(lt_schedule *out, int64_t *total_steps, const arguments *a,
                           int64_t per_epoch)
{
    const double imagenet = 90;
    *out = (lt_schedule){
        .kind = (lt_schedule_kind)a->sched,
        .lr = a->optim.lr,
        .min_lr = a->min_lr,
        .warmup_epochs = a->warmup_epochs,
        .warmup_lr = a->warmup_lr,
        .epochs = a->epochs > 0 || a->max_steps ? a->epochs : imagenet,
        .steps_per_epoch = per_epoch,
        .gamma = a->gamma,
        .step_epochs = a->step_epochs,
        .power = a->power,
    };
    LT_TRY(parse_milestones(&a->milestone, out));
    *total_steps = lt_schedule_steps(out, a->max_steps);
    return lt_schedule_check(out);
}
