/* Flags of iterate averaging. */

#include "arguments.h"
#include "base/options/options.h"
#include "train/loop/option_rows.h"

#include "lather/ext/fail.h"

#include <math.h>
#include <string.h>

#define OF lt_averaging_config
/* clang-format off */
static const lt_option rows[] = {
{"Optimizer", PICK("iterate-averaging", kind, "off|schedule-free|primal"), .common = true, .help = "take gradients at one sequence of weights, evaluate and save a mean of iterates; schedule-free: of all, with --sched constant; primal: an exponential one; with either, momentum and beta1 are best 0"},
{"Optimizer", NUM("train-interp-coeff", train_interp_coeff, 1e-6, 1), .value = "0.8", .through = "opt-kwargs", .help = "how much of the mean is in the weights at which gradients are taken; the rest is the last iterate"},
{"Optimizer", NUM("eval-interp-coeff", eval_interp_coeff, 0, 1), .below = true, .value = "0.9", .through = "opt-kwargs", .help = "primal: how much of the last mean is in the mean"},
{"Optimizer", NUM("eval-coeff-lr-power", eval_coeff_lr_power, 0, 100), .value = "2", .through = "opt-kwargs", .help = "schedule-free: an iterate's weight is this power of its learning rate, so that those of a warm-up count less"},
{"Optimizer", BOOL("decay-of-y", decay_of_y), .through = "opt-kwargs", .help = "adamw, sgd without momentum: weight decay is of the weights at which gradients are taken, as in schedulefree's optimizers, not of the last iterate"},
};
/* clang-format on */
OPTION_TABLE(lt_averaging_options, lt_averaging_config, rows)

/* The mean takes the place of a falling rate. */
lt_status lt_averaging_resolve(const lt_averaging_config *c, lt_options *options)
{
    if (c->kind != LT_AVERAGING_SCHEDULE_FREE || lt_options_is_set(options, "sched"))
        return LT_OK;
    lt_option_row *row = lt_options_find(options, "sched", strlen("sched"));
    LT_ASSERT(row);
    return lt_options_assign(row, "constant", LT_OPTION_FROM_TABLE);
}

/* A config file has all flags: another value than the default's counts. */
static lt_status check_read(const lt_averaging_config *c)
{
    const lt_averaging_config usual = LT_AVERAGING_DEFAULTS;
    const struct {
        const char *flag, *needs;
        bool given, is_read;
    } flags[] = {
        {"train-interp-coeff", "", fabs(c->train_interp_coeff - usual.train_interp_coeff) > 0,
         c->kind != LT_AVERAGING_OFF},
        {"eval-interp-coeff", " primal", fabs(c->eval_interp_coeff - usual.eval_interp_coeff) > 0,
         c->kind == LT_AVERAGING_PRIMAL},
        {"eval-coeff-lr-power", " schedule-free",
         fabs(c->eval_coeff_lr_power - usual.eval_coeff_lr_power) > 0,
         c->kind == LT_AVERAGING_SCHEDULE_FREE},
        {"decay-of-y", "", c->decay_of_y, c->kind != LT_AVERAGING_OFF},
    };
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (flags[i].given && !flags[i].is_read)
            return lt_fail(LT_E_ARG, "--%s: needs --iterate-averaging%s", flags[i].flag,
                           flags[i].needs);
    return LT_OK;
}

static lt_status check_update_bn(const arguments *a)
{
    const int64_t batches = a->evaluation.update_bn;
    if (batches > 0 && !a->averaging.kind)
        return lt_fail(LT_E_ARG, "--update-bn %lld: needs --iterate-averaging", (long long)batches);
    if (batches > 0 && a->training.ema_decay > 0)
        return lt_fail(LT_E_ARG,
                       "--update-bn %lld and --ema-decay %g contradict each other: the moving "
                       "average has statistics of its own",
                       (long long)batches, a->training.ema_decay);
    return LT_OK;
}

lt_status lt_averaging_check(const arguments *a, const lt_options *options)
{
    const lt_averaging_config *c = &a->averaging;
    LT_TRY(check_read(c));
    LT_TRY(check_update_bn(a));
    if (c->kind == LT_AVERAGING_SCHEDULE_FREE && a->schedule.sched != LT_SCHEDULE_CONSTANT)
        return lt_fail(LT_E_ARG,
                       "--sched %s and --iterate-averaging schedule-free contradict each other: "
                       "the mean takes the place of a falling rate; --sched constant, with a "
                       "warm-up if need be, or --iterate-averaging primal",
                       lt_options_choice(options, "sched"));
    const struct {
        bool given;
        const char *flag, *why;
    } others[] = {
        {a->ranks.local_steps, "local-steps", "groups of ranks average one sequence of weights"},
        {a->ranks.shard_params, "shard-params", "each rank has the mean of all weights"},
    };
    for (size_t i = 0; i < sizeof others / sizeof *others && c->kind; i++)
        if (others[i].given)
            return lt_fail(LT_E_ARG, "--%s and --iterate-averaging %s contradict each other: %s",
                           others[i].flag, lt_options_choice(options, "iterate-averaging"),
                           others[i].why);
    return LT_OK;
}
