/* The schedule plateau: a hook that lowers the learning rate when a metric has not improved in the last evaluations, as
 * torch's ReduceLROnPlateau with its default threshold. */

#include "program.h"

#include <math.h>

static const double THRESHOLD = 1e-4; /* least improvement, as a fraction of the best value */

static lt_status restore(void *context, const lt_train_view *view, bool *stop)
{
    const plateau *p = context;
    (void)view;
    (void)stop;
    p->schedule->reductions = (int64_t)p->reductions;
    return LT_OK;
}

static bool is_better(const plateau *p, double value)
{
    if (isnan(p->best) || isnan(value))
        return !isnan(value);
    return p->higher_is_better ? value > p->best * (1 + THRESHOLD)
                               : value < p->best * (1 - THRESHOLD);
}

static lt_status count_evaluation(void *context, const lt_train_view *view, bool *stop)
{
    plateau *p = context;
    const double value = lt_train_view_metric(view, p->metric);
    (void)stop;
    if (is_better(p, value)) {
        p->best = value;
        p->count = 0;
        return LT_OK;
    }
    if (++p->count <= p->patience)
        return LT_OK;
    p->count = 0;
    p->schedule->reductions = (int64_t)++p->reductions;
    lt_train_note(view,
                  "%s: no improvement on %.6g in %.0f evaluations; the learning rate is now %g",
                  p->metric, p->best, p->patience + 1, lt_schedule_lr(p->schedule, view->step + 1));
    return LT_OK;
}

lt_status lt_plateau_open(plateau *p, const schedule_options *o,
                          const evaluation_options *evaluation, const lt_task_ops *task,
                          lt_schedule *schedule)
{
    *p = (plateau){.metric = o->plateau_metric,
                   .patience = (double)o->patience,
                   .schedule = schedule,
                   .best = (double)NAN};
    p->hooks = (lt_train_hooks){.name = "plateau", .context = p};
    if (o->sched != LT_SCHEDULE_PLATEAU || evaluation->eval)
        return LT_OK;
    LT_TRY(lt_check_run_metric("sched-kwargs metric", p->metric, evaluation, task,
                               &p->higher_is_better));
    p->number[0] = (lt_train_number){"best", &p->best};
    p->number[1] = (lt_train_number){"count", &p->count};
    p->number[2] = (lt_train_number){"reductions", &p->reductions};
    p->hooks.number = p->number;
    p->hooks.numbers = 3;
    p->hooks.before_run = restore;
    lt_call_with_metric(&p->hooks, p->metric, count_evaluation);
    return LT_OK;
}
