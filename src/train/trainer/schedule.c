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

static double choose_epochs(const arguments *a, int64_t per_epoch)
{
    const double imagenet = 90;
    if (a->epochs > 0)
        return a->epochs;
    return a->max_steps ? (double)a->max_steps / (double)per_epoch : imagenet;
}

lt_status lt_schedule_open(lt_schedule *out, int64_t *total_steps, const arguments *a,
                           int64_t per_epoch)
{
    double epochs = choose_epochs(a, per_epoch);
    *out = (lt_schedule){
        .kind = (lt_schedule_kind)a->sched,
        .lr = a->optim.lr,
        .min_lr = a->min_lr,
        .warmup_epochs = a->warmup_epochs,
        .warmup_lr = a->warmup_lr,
        .epochs = epochs,
        .steps_per_epoch = per_epoch,
        .gamma = a->gamma,
        .step_epochs = a->step_epochs,
        .power = a->power,
    };
    LT_TRY(parse_milestones(&a->milestone, out));
    *total_steps = (int64_t)(epochs * (double)per_epoch + 0.5);
    if (a->max_steps && a->max_steps < *total_steps)
        *total_steps = a->max_steps;
    return lt_schedule_check(out);
}
