/* Learning rate schedule from the options. */

#include "program.h"
#include "train/loop/option_rows.h"

#include "lather/ext/fail.h"

#include <stdlib.h>

#define OF schedule_options
/* clang-format off */
static const lt_option rows[] = {
{"Schedule", PICK("sched", sched, "constant|step|multistep|cosine|poly"), .value = "cosine", .common = true, .help = "decay of the learning rate, applied per update"},
{"Schedule", NUM("warmup-epochs", warmup_epochs, 0, 1e6), .value = "0", .common = true, .help = "epochs of linear warm-up, fractions included"},
{"Schedule", NUM("warmup-lr", warmup_lr, 0, 1e6), .value = "0", .help = "learning rate at the start of the warm-up"},
{"Schedule", NUM("min-lr", min_lr, 0, 1e6), .value = "0", .help = "final learning rate of cosine and poly"},
{"Schedule", NUM("step-epochs", step_epochs, 1e-6, 1e6), .value = "30", .help = "step: epochs between decays"},
{"Schedule", LIST("milestone", milestone), .meta = "EPOCH", .help = "multistep: epoch of a decay"},
{"Schedule", NUM("gamma", gamma, 1e-12, 1), .value = "0.1", .help = "step, multistep: decay factor"},
{"Schedule", NUM("power", power, 1e-6, 100), .value = "2", .help = "poly: exponent"},
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
    *out = (lt_schedule){
        .kind = (lt_schedule_kind)o->sched,
        .lr = lr,
        .min_lr = o->min_lr,
        .warmup_epochs = o->warmup_epochs,
        .warmup_lr = o->warmup_lr,
        .epochs = training->epochs > 0 || training->max_steps ? training->epochs : imagenet,
        .steps_per_epoch = per_epoch,
        .gamma = o->gamma,
        .step_epochs = o->step_epochs,
        .power = o->power,
    };
    LT_TRY(parse_milestones(&o->milestone, out));
    *total_steps = lt_schedule_steps(out, training->max_steps, offset);
    return lt_schedule_check(out);
}
