/* The optimizer and the schedule that the arguments describe. */

#include "train/trainer/session.h"

#include "lather/ext/fail.h"
#include "lather/shampoo_report.h"

#include <math.h>
#include <stdlib.h>

lt_status session_open_optimizer(session *s)
{
    return lt_optim_flags_make(&s->optim, &s->args.optim, &s->params);
}

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

lt_status session_open_schedule(session *s)
{
    const arguments *a = &s->args;
    int64_t per_epoch = s->input.batches_per_epoch / a->grad_accum;
    double epochs = choose_epochs(a, per_epoch);
    s->schedule = (lt_schedule){
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
    LT_TRY(parse_milestones(&a->milestone, &s->schedule));
    s->total_steps = (int64_t)(epochs * (double)per_epoch + 0.5);
    if (a->max_steps && a->max_steps < s->total_steps)
        s->total_steps = a->max_steps;
    return lt_schedule_check(&s->schedule);
}

void session_shampoo_values(const session *s, lt_metric out[SHAMPOO_VALUES])
{
    const double unknown = (double)NAN;
    const lt_shampoo_config *shampoo = lt_shampoo_settings(s->optim);
    const bool async = shampoo && shampoo->refresh_timing == LT_REFRESH_ASYNC;
    const lt_shampoo_stats got = lt_shampoo_statistics(s->optim);
    const lt_metric value[SHAMPOO_VALUES] = {
        {"shampoo_factor_seconds", got.factor_seconds},
        {"shampoo_root_seconds", got.root_seconds},
        {"shampoo_apply_seconds", got.apply_seconds},
        {"shampoo_roots", (double)got.roots},
        {"shampoo_root_retries", (double)got.retries},
        {"shampoo_root_failures", (double)got.failures},
        {"shampoo_root_age", (double)got.root_age},
        {"shampoo_gather_seconds", s->ranks.comm ? got.gather_seconds : unknown},
        {"shampoo_wait_seconds", async ? got.wait_seconds : unknown},
        {"shampoo_worker_seconds", async ? got.worker_seconds : unknown},
    };
    for (int i = 0; i < SHAMPOO_VALUES; i++)
        out[i] = (lt_metric){value[i].name, shampoo ? value[i].value : unknown};
}
