/* Learning rate schedule from the options. */

#include "program.h"
#include "train/loop/option_rows.h"

#include "lather/ext/fail.h"

#include <stdlib.h>

#define OF schedule_options
/* clang-format off */
static const lt_option rows[] = {
{"Schedule", PICK("sched", sched, "constant|step|multistep|cosine|poly|linear|wsd|onecycle|cosine-restarts|plateau"), .value = "cosine", .common = true, .also = "lr-scheduler", .help = "decay of the learning rate, applied per update; wsd: warmup-stable-decay"},
{"Schedule", NUM("warmup-epochs", form.warmup_epochs, 0, 1e6), .value = "0", .common = true, .help = "epochs of linear warm-up, fractions included"},
{"Schedule", INT("warmup-steps", form.warmup_steps, 0, MANY), .value = "0", .help = "updates of linear warm-up, instead of --warmup-epochs"},
{"Schedule", NUM("warmup-lr", form.warmup_lr, 0, 1e6), .value = "0", .applies = "--warmup-epochs --warmup-steps", .help = "learning rate at the start of the warm-up"},
{"Schedule", NUM("min-lr", form.min_lr, 0, 1e6), .value = "0", .applies = "--sched=cosine|poly|linear|wsd|cosine-restarts|plateau", .help = "final learning rate; of cosine-restarts and plateau the lowest"},
{"Schedule", NUM("step-epochs", form.step_epochs, 1e-6, 1e6), .value = "30", .also = "decay-epochs", .applies = "--sched=step", .help = "epochs between decays"},
{"Schedule", LIST("milestone", milestone), .meta = "EPOCH", .applies = "--sched=multistep", .help = "epoch of a decay"},
{"Schedule", NUM("gamma", form.gamma, 1e-12, 1), .value = "0.1", .also = "decay-rate", .applies = "--sched=step|multistep|plateau", .help = "decay factor"},
{"Schedule", NUM("power", form.power, 1e-6, 100), .value = "2", .applies = "--sched=poly", .help = "exponent"},
{"Schedule", PAIR("sched-kwargs"), .help = "set an option of wsd, onecycle, cosine-restarts or plateau"},
{"Schedule", NUM("decay-ratio", form.decay_ratio, 1e-6, 1), .value = "0.1", .through = "sched-kwargs", .applies = "--sched=wsd", .help = "fraction of the run in the final decay"},
{"Schedule", PICK("decay-type", form.decay, "linear|cosine|1-sqrt"), .through = "sched-kwargs", .applies = "--sched=wsd", .help = "form of the final decay"},
{"Schedule", NUM("pct-start", form.pct_start, 0, 1), .value = "0.3", .through = "sched-kwargs", .applies = "--sched=onecycle", .help = "fraction of the run in which the learning rate rises"},
{"Schedule", NUM("div-factor", form.div_factor, 1, 1e15), .value = "25", .through = "sched-kwargs", .applies = "--sched=onecycle", .help = "highest learning rate over the first"},
{"Schedule", NUM("final-div-factor", form.final_div_factor, 1, 1e15), .value = "10000", .through = "sched-kwargs", .applies = "--sched=onecycle", .help = "first learning rate over the last"},
{"Schedule", NUM("cycle-epochs", form.cycle_epochs, 1e-6, 1e6), .value = "10", .through = "sched-kwargs", .applies = "--sched=cosine-restarts", .help = "epochs of the first cycle"},
{"Schedule", NUM("cycle-mul", form.cycle_mul, 1, 1000), .value = "1", .through = "sched-kwargs", .applies = "--sched=cosine-restarts", .help = "length of a cycle over that of the one before"},
{"Schedule", NUM("cycle-decay", form.cycle_decay, 1e-12, 1), .value = "1", .through = "sched-kwargs", .applies = "--sched=cosine-restarts", .help = "highest learning rate of a cycle over that of the one before"},
{"Schedule", TEXT("metric", plateau_metric), .value = "val_loss", .through = "sched-kwargs", .meta = "METRIC", .applies = "--sched=plateau", .help = "metric, as in metrics.jsonl"},
{"Schedule", INT("patience", patience, 0, MANY), .value = "10", .through = "sched-kwargs", .applies = "--sched=plateau", .help = "evaluations (of train_*: epochs) without an improvement by 0.01 % before one more decays the learning rate"},
};
/* clang-format on */
OPTION_TABLE(lt_schedule_option_table, schedule_options, rows)

static lt_status parse_milestones(const lt_option_list *list, lt_schedule *schedule)
{
    if (list->count > LT_MAX_MILESTONES)
        return lt_fail(LT_E_ARG, "--milestone: given %zu times, at most %d", list->count,
                       LT_MAX_MILESTONES);
    for (size_t i = 0; i < list->count; i++) {
        char *end;
        schedule->milestone[i] = strtod(list->item[i], &end);
        if (*end || end == list->item[i])
            return lt_fail(LT_E_ARG, "--milestone: '%s' is not a number", list->item[i]);
    }
    schedule->milestones = (int)list->count;
    return LT_OK;
}

lt_status lt_schedule_check_flags(const schedule_options *o)
{
    if (o->form.warmup_steps && o->form.warmup_epochs > 0)
        return lt_fail(
            LT_E_ARG,
            "--warmup-steps %lld and --warmup-epochs %g contradict each other: choose one",
            (long long)o->form.warmup_steps, o->form.warmup_epochs);
    if (o->sched == LT_SCHEDULE_MULTISTEP && !o->milestone.count)
        return lt_fail(LT_E_ARG, "--sched multistep: needs --milestone");
    return LT_OK;
}

int64_t lt_schedule_steps(lt_schedule *s, int64_t max_steps, int64_t offset)
{
    if (s->epochs <= 0)
        s->epochs = (double)(max_steps - offset) / (double)s->steps_per_epoch;
    const int64_t steps = (int64_t)(s->epochs * (double)s->steps_per_epoch + 0.5) + offset;
    return max_steps && max_steps < steps ? max_steps : steps;
}

lt_status lt_schedule_open(lt_schedule *out, int64_t *total_steps, const schedule_options *o,
                           const training_options *training, double lr, int64_t per_epoch,
                           int64_t offset)
{
    const double imagenet = 90;
    *out = o->form;
    out->kind = (lt_schedule_kind)o->sched;
    out->lr = lr;
    out->epochs = training->epochs > 0 || training->max_steps ? training->epochs : imagenet;
    out->steps_per_epoch = per_epoch;
    LT_TRY(parse_milestones(&o->milestone, out));
    *total_steps = lt_schedule_steps(out, training->max_steps, offset);
    if (o->form.warmup_steps > *total_steps)
        return lt_fail(LT_E_ARG, "--warmup-steps %lld: longer than the run of %lld steps",
                       (long long)o->form.warmup_steps, (long long)*total_steps);
    return lt_schedule_check(out);
}
