/* Options of a training program in the order of --help, and checks for contradictions between them. Most rows are
 * next to the code that reads them. */

#include "arguments.h"

#include "base/alloc.h"
#include "base/options/options.h"
#include "train/loop/mesh.h"
#include "train/loop/option_rows.h"
#include "train/loop/state.h"

#include "lather/ext/fail.h"
#include "lather/ext/optim_family.h"
#include "lather/schedule.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define OF arguments
/* clang-format off */
static const lt_option model_rows[] = {
{"Model", TEXT("weights", weights), .meta = "FILE", .common = true, .also = "initial-checkpoint", .help = "safetensors file to start from or to evaluate"},
{"Model", BOOL("reset-head", reset_head), .applies = "--weights", .help = "a new last layer"},
};
/* clang-format on */

static const char description[] =
    " Defaults that depend on the optimizer are shown as OPTIMIZER=NUMBER. Further programs: "
    "lather-report RUN draws curves, lather-inspect lists weights and runs, %s, "
    "lather-bench measures speed, lather-reproduce is the command reproduce.\n\n"
    "Exit status: 0 done, 1 an error, 2 a wrong command line, 3 interrupted after a checkpoint.\n\n"
    "SIGINT (Ctrl-C), SIGTERM, SIGHUP and SIGUSR1 end a run after the current step, with a checkpoint; a second "
    "SIGINT or SIGTERM ends it immediately. SIGUSR2 ends it after the current epoch.";

/* Fills rows whose help names the samples. */
static void fill_samples(program_text *t, const char *unit)
{
    snprintf(t->shuffle_help, sizeof t->shuffle_help,
             "visit the %s in a new random order each epoch", unit);
    t->loader[0] = (lt_option){"Data",
                               INT("workers", loader.workers, 0, 1024),
                               .common = true,
                               .alias = 'j',
                               .value = "0",
                               .also = "num-workers",
                               .help = "threads that read and decode; 0: one per core"};
    t->loader[1] = (lt_option){"Data", BOOL("shuffle", loader.shuffle), .value = "true",
                               .help = t->shuffle_help};
    snprintf(t->batch_help, sizeof t->batch_help, "%s per rank and micro-batch", unit);
    t->batch = (lt_option){"Training",   INT("batch-size", batch_size, 1, 1000000),
                           .alias = 'b', .value = "32",
                           .also = "bs", .help = t->batch_help};
    snprintf(t->eval_batch_help, sizeof t->eval_batch_help,
             "%s per evaluation batch; 0: the batch size", unit);
    t->eval_batch = (lt_option){"Evaluation", INT("eval-batch-size", eval_batch_size, 0, 1000000),
                                .value = "0", .help = t->eval_batch_help};
}

static void fill_text(program_text *t, const lt_model_family *f, const lt_trainer_program *p)
{
    int at;
    t->program = (lt_program){
        .name = f->program,
        .summary = f->summary ? f->summary : p->summary,
        .usage = p->usage,
        .description = t->description,
        .selector = "optim",
    };
    snprintf(t->description, sizeof t->description, "%s", f->about ? f->about : p->about);
    at = (int)strlen(t->description);
    snprintf(t->description + at, sizeof t->description - (size_t)at, description, p->packer);
    snprintf(t->recipe_help, sizeof t->recipe_help,
             "settings of a known run%s%s; all other flags and --config override them",
             f->recipe_names ? ": " : "", f->recipe_names ? f->recipe_names : "");
    t->recipe = (lt_option){"Training", TEXT("recipe", recipe), .meta = "NAME|FILE",
                            .help = t->recipe_help};
    t->data = (lt_option){"Data", TEXT("data", data), .meta = p->data_meta, .help = p->data_help};
    fill_samples(t, p->task->unit);
}

/* Returns the row of a command that training's options may select. */
static lt_option_table command_option_table(arguments *a, const lt_trainer_program *p)
{
    for (size_t i = 0; i < p->commands; i++)
        if (p->command[i]->option)
            return (lt_option_table){p->command[i]->option, 1, &a->other};
    return (lt_option_table){0};
}

lt_status lt_command_line_open(command_line *line, const lt_model_family *family,
                               const lt_trainer_program *program)
{
    line->program = program;
    line->choice.family = family;
    line->choice.program = program;
    line->context = lt_alloc(1, program->context_bytes);
    return line->context ? lt_family_open(&line->choice, family) : LT_E_NOMEM;
}

lt_status lt_command_line_open_options(command_line *line, const arguments_more *more)
{
    const lt_model_family *family = line->choice.family;
    const lt_trainer_program *program = line->program;
    arguments *a = &line->args;
    lt_option_table data = {0}, own = {0};
    fill_text(&a->text, family, program);
    if (more) {
        a->text.program = *more->program;
        a->text.program.selector = "optim";
    }
    if (program->options)
        program->options(line->context, &data, &own);
    LT_TRY(lt_optim_flags_open(&a->optim));
    const lt_option_table tables[] = {
        more ? more->table : (lt_option_table){0},
        {&a->text.data, 1, a},
        data,
        {a->text.loader, 2, a},
        lt_loader_option_table(&a->loader),
        {family->option, family->options, line->choice.config},
        own,
        {model_rows, sizeof model_rows / sizeof *model_rows, a},
        {&a->text.recipe, 1, a},
        {&a->text.batch, 1, a},
        lt_training_option_table(&a->training),
        command_option_table(a, program),
        lt_optim_flags_table(&a->optim, LT_OPTIM_FLAGS_COMMON),
        lt_averaging_option_table(&a->averaging),
        lt_cautious_option_table(&a->cautious),
        lt_group_option_table(&a->groups),
        lt_schedule_option_table(&a->schedule),
        lt_optim_flags_table(&a->optim, LT_OPTIM_FLAGS_OWN),
        lt_evaluation_option_table(&a->evaluation),
        {&a->text.eval_batch, 1, a},
        lt_output_option_table(&a->output),
        lt_ranks_dist_option(&a->ranks),
        lt_ranks_option_table(&a->ranks),
        lt_machine_option_table(&a->machine),
        lt_plugin_option_table(&a->plugins),
    };
    return lt_options_compose(&line->options, &a->text.program, tables,
                              sizeof tables / sizeof *tables);
}

void lt_command_line_close(command_line *line)
{
    lt_family_close(&line->choice);
    lt_options_free(&line->options);
    lt_optim_flags_close(&line->args.optim);
    lt_free(line->context);
    line->context = NULL;
}

/* Sets a constant schedule for schedule-free averaging, which replaces learning rate decay. */
static lt_status default_to_constant_schedule(const lt_averaging_config *c, lt_options *options)
{
    if (c->kind != LT_AVERAGING_SCHEDULE_FREE || lt_options_is_set(options, "sched"))
        return LT_OK;
    lt_option_row *row = lt_options_find(options, "sched", strlen("sched"));
    LT_ASSERT(row);
    LT_TRY(lt_options_assign(row, "constant", LT_OPTION_FROM_TABLE));
    return lt_options_check_needs(options); /* a constant schedule reads less */
}

lt_status lt_command_line_parse(command_line *line, int argc, char *const *argv)
{
    LT_TRY(lt_recipe_parse_command_line(line->options, line->choice.family->recipes, argc, argv));
    LT_TRY(lt_optim_flags_resolve(&line->args.optim, line->options));
    return default_to_constant_schedule(&line->args.averaging, line->options);
}

/* --- Contradictions. A config file has all flags: another value than the default's counts as given. --- */

/* An option; given: it is set. why: reason of the conflict. */
typedef struct conflict {
    bool given;
    const char *flag, *why;
} conflict;
#define COUNT(list) (sizeof(list) / sizeof *(list))

/* Fails with LT_E_ARG for the first option that is given. */
static lt_status reject_together_with(const char *other, const conflict *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (list[i].given)
            return lt_fail(LT_E_ARG, "--%s and --%s contradict each other: %s", list[i].flag, other,
                           list[i].why);
    return LT_OK;
}

static bool is_switched_on(const char *text)
{
    return text && strcmp(text, "off") != 0;
}

static lt_status check_output(const arguments *a)
{
    if (a->evaluation.watch && (a->output.output || a->weights))
        return lt_fail(LT_E_ARG,
                       "--watch and --%s contradict each other: both come from the run's folder",
                       a->output.output ? "output" : "weights");
    if (a->output.output && strlen(a->output.output) > OUTPUT_BYTES)
        return lt_fail(LT_E_ARG, "--output: a path of %zu bytes; at most %d are possible",
                       strlen(a->output.output), OUTPUT_BYTES);
    return LT_OK;
}

static lt_status check_optim_stats(const arguments *a, const lt_options *options)
{
    const conflict list[] = {
        {lt_mesh_flag_is_on(&a->ranks), "tensor-parallel", "ranks have shards of a parameter"}};
    if (!a->output.optim_stats && lt_options_is_typed(options, "optim-stats"))
        return lt_fail(LT_E_ARG, "--optim-stats 0: must be at least 1; leave it out for no "
                                 "measurement");
    return a->output.optim_stats ? reject_together_with("optim-stats", list, COUNT(list)) : LT_OK;
}

/* Rejects options that need a sharded optimizer state. */
static lt_status check_needs_sharded_state(const arguments *a, const lt_options *options)
{
    const ranks_options *r = &a->ranks;
    const conflict list[] = {
        {r->comm_dtype != COMM_F32, "comm-dtype", NULL},
        {r->communicate_params, "communicate-params", NULL},
        {lt_ranks_has_groups(r), "num-trainers-per-group", NULL},
        {lt_ranks_has_custom_balance(r), "balance", NULL},
        {r->shard_gradients, "shard-gradients", NULL},
    };
    if (a->optim.family->divided || r->shard_optimizer || r->shard_params || lt_mesh_flag_is_on(r))
        return LT_OK;
    for (size_t i = 0; i < COUNT(list); i++)
        if (list[i].given)
            return lt_fail(LT_E_ARG, "--%s: needs --shard-optimizer with --optim %s", list[i].flag,
                           lt_options_choice(options, "optim"));
    return LT_OK;
}

static lt_status check_compression(const ranks_options *o)
{
    const int64_t from = o->compress_warmup_epochs, to = o->compress_until;
    return is_switched_on(o->compress) && to && to <= from ? lt_fail(
               LT_E_ARG,
               "--compress-until %lld leaves no epoch after --compress-warmup-epochs %lld",
               (long long)to, (long long)from)
                                                           : LT_OK;
}

static lt_status check_sharding(const ranks_options *o)
{
    lt_balance kind;
    lt_balance_polynomial p;
    int ranks;
    LT_TRY(lt_ranks_parse_groups(o, &ranks));
    return lt_ranks_parse_balance(o, &kind, &p);
}

static lt_status check_local(const ranks_options *o)
{
    const conflict list[] = {
        {is_switched_on(o->compress), "compress",
         "gradients within a node are not compressed; use --outer-compress"},
        {o->allreduce == ALLREDUCE_TWO_LEVEL, "allreduce two-level",
         "gradients are only averaged within a node"},
    };
    return o->local_steps ? reject_together_with("local-steps", list, COUNT(list)) : LT_OK;
}

/* Rejects options that sharded parameters exclude: they are gathered uncompressed, by all ranks, in eager mode. */
static lt_status check_shard_params(const arguments *a, const lt_options *options)
{
    const ranks_options *r = &a->ranks;
    const conflict list[] = {
        {r->local_steps, "local-steps", "each group holds a whole model"},
        {is_switched_on(r->compress), "compress", "its residuals belong to whole gradients"},
        {r->allreduce == ALLREDUCE_TWO_LEVEL, "allreduce two-level",
         "gradients are reduce-scattered over all ranks"},
        {lt_ranks_has_groups(r), "num-trainers-per-group", "parameters are sharded over all ranks"},
        {r->comm_dtype != COMM_F32, "comm-dtype", "weights are gathered uncompressed"},
        {lt_ranks_has_custom_balance(r), "balance", "it already spreads memory evenly"},
        {a->machine.graph && lt_options_is_typed(options, "graph"), "graph",
         "its steps are not captured"},
    };
    return r->shard_params ? reject_together_with("shard-params", list, COUNT(list)) : LT_OK;
}

/* Rejects options that reduce-scattered gradients exclude. */
static lt_status check_shard_gradients(const ranks_options *r)
{
    const conflict list[] = {
        {r->allreduce == ALLREDUCE_TWO_LEVEL, "allreduce two-level",
         "gradients are reduce-scattered over all ranks"},
        {is_switched_on(r->compress), "compress", "its residuals belong to whole gradients"},
        {lt_ranks_has_groups(r), "num-trainers-per-group", "gradients are sharded over all ranks"},
    };
    return r->shard_gradients ? reject_together_with("shard-gradients", list, COUNT(list)) : LT_OK;
}

/* Rejects options whose sums MPI does not add. */
static lt_status check_sums(const ranks_options *r)
{
    const conflict list[] = {
        {r->allreduce == ALLREDUCE_TWO_LEVEL, "allreduce two-level", "MPI adds over all ranks"},
        {r->grad_comm_dtype != COMM_F32, "grad-comm-dtype", "MPI adds f32 and f64 only"},
        {is_switched_on(r->compress), "compress", "gradients are not summed"},
        {r->local_steps, "local-steps", "gradients are summed within nodes"},
        {r->shard_gradients, "shard-gradients", "gradients are reduce-scattered"},
        {lt_mesh_flag_is_on(r), "tensor-parallel", "sums are over groups of ranks"},
    };
    return r->sums == SUMS_ENGINE ? reject_together_with("sums engine", list, COUNT(list)) : LT_OK;
}

/* Rejects options that need the gradient of every rank or micro-batch. */
static lt_status check_stragglers(const arguments *a)
{
    const ranks_options *o = &a->ranks;
    lt_straggler_config c;
    bool on;
    LT_TRY(lt_ranks_parse_stragglers(o, &c, &on));
    const bool backs_up = c.backup_workers > 0;
    const conflict list[] = {
        {backs_up && c.drop_compute, "drop-compute",
         "one drops whole ranks, the other single micro-batches"},
        {o->sync_bn, "sync-bn", "it needs all ranks in each layer"},
        {is_switched_on(o->compress), "compress", "residuals of unused gradients would be lost"},
        {o->local_steps, "local-steps", "ranks of a node average each gradient"},
        {o->shard_gradients, "shard-gradients", "gradients are reduce-scattered over all ranks"},
        {o->shard_params, "shard-params", "each layer needs the weights of all ranks"},
        {o->tensor_parallel && strcmp(o->tensor_parallel, "1") != 0, "tensor-parallel",
         "the ranks of a replica compute together"},
        {backs_up && o->allreduce == ALLREDUCE_TWO_LEVEL, "allreduce two-level",
         "a node would wait for its ranks"},
        {backs_up && o->comm_model, "comm-model", "it delays whole collectives only"},
        {backs_up && !strncmp(a->machine.device, "cuda", 4), "device cuda",
         "captured steps and NCCL collectives cannot be abandoned; use --drop-compute"},
        {c.drop_compute && o->grad_comm_dtype != COMM_F32, "grad-comm-dtype",
         "the count of micro-batches is sent with f32 gradients"},
    };
    return on ? reject_together_with(backs_up ? "backup-workers" : "drop-compute", list,
                                     COUNT(list))
              : LT_OK;
}

/* Rejects options that leave no complete gradients to compare. */
static lt_status check_noise(const arguments *a)
{
    const ranks_options *o = &a->ranks;
    const conflict list[] = {
        {o->local_steps, "local-steps", "groups of ranks have other weights"},
        {is_switched_on(o->compress), "compress",
         "it averages residuals with the batch's gradient"},
        {lt_mesh_flag_is_on(o), "tensor-parallel", "ranks have shards of a gradient"},
    };
    return a->training.gradient_noise ? reject_together_with("gradient-noise", list, COUNT(list))
                                      : LT_OK;
}

static lt_status check_averaging(const arguments *a, const lt_options *options)
{
    const lt_averaging_config *c = &a->averaging;
    const bool updates_bn = a->evaluation.update_bn > 0;
    const conflict ema = {updates_bn && a->training.ema_decay > 0, "update-bn",
                          "the EMA has its own statistics"};
    const conflict list[] = {
        {a->ranks.local_steps, "local-steps", "groups of ranks have different weights"},
        {a->ranks.shard_params, "shard-params", "each rank holds the average of all weights"},
    };
    LT_TRY(reject_together_with("ema-decay", &ema, 1));
    if (c->kind == LT_AVERAGING_SCHEDULE_FREE && a->schedule.sched != LT_SCHEDULE_CONSTANT)
        return lt_fail(LT_E_ARG,
                       "--sched %s and --iterate-averaging schedule-free contradict each other: "
                       "averaging replaces learning rate decay; use --sched constant, with a "
                       "warm-up if needed, or --iterate-averaging primal",
                       lt_options_choice(options, "sched"));
    return c->kind ? reject_together_with("iterate-averaging", list, COUNT(list)) : LT_OK;
}

static lt_status check_cautious(const arguments *a)
{
    const lt_cautious_config *c = &a->cautious;
    const conflict list[] = {
        {a->ranks.shard_gradients, "shard-gradients", "each rank needs whole gradients"},
        {a->ranks.shard_params, "shard-params", "each rank needs whole parameters"},
        {lt_mesh_flag_is_on(&a->ranks), "tensor-parallel", "each rank needs whole parameters"},
    };
    const conflict decay_of_y = {a->averaging.decay_of_y, "decay-of-y", "it decays z"};
    const conflict decay = {c->hyperball && c->decay, "cautious-weight-decay",
                            "weights of constant norm do not decay"};
    if (!c->mask && !c->decay && !c->hyperball)
        return LT_OK;
    const char *flag = c->hyperball ? "hyperball"
                       : c->mask    ? "cautious-mask"
                                    : "cautious-weight-decay";
    LT_TRY(reject_together_with(flag, &decay, 1));
    LT_TRY(reject_together_with(flag, &decay_of_y, 1));
    return reject_together_with(flag, list, COUNT(list));
}

static lt_status check_mode_conflicts(const arguments *a, const lt_options *options)
{
    const output_options *o = &a->output;
    const bool goes_on = o->resume && !strcmp(o->resume, "auto");
    const bool grid = lt_mesh_flag_is_on(&a->ranks) && strchr(a->ranks.tensor_parallel, 'x');
    const bool half = a->training.amp == AMP_BF16 || a->training.amp == AMP_F16;
    if (o->resume && !goes_on && lt_options_is_typed(options, "weights"))
        return lt_fail(LT_E_ARG,
                       "--resume PATH and --weights contradict each other: the checkpoint "
                       "contains the weights");
    if (o->overwrite && goes_on)
        return lt_fail(LT_E_ARG, "--overwrite and --resume auto contradict each other");
    if (a->loader.overfit_batches && lt_options_is_set(options, "limit-train-batches"))
        return lt_fail(LT_E_ARG, "--overfit-batches and --limit-train-batches contradict each "
                                 "other");
    if (grid && half)
        return lt_fail(LT_E_ARG,
                       "--amp %s and --tensor-parallel %s contradict each other: partial sums on a "
                       "grid need f32",
                       lt_options_choice(options, "amp"), a->ranks.tensor_parallel);
    if (a->training.amp == AMP_F16 && !strncmp(a->machine.device, "cpu", 3))
        return lt_fail(LT_E_UNSUPPORTED,
                       "--amp f16: needs --device cuda; use --amp bf16 on the CPU");
    return LT_OK;
}

lt_status lt_command_line_check(const command_line *line)
{
    const arguments *a = &line->args;
    const lt_options *options = line->options;
    double link[2];
    if (!a->data)
        return lt_fail(LT_E_ARG, "--data: missing; %s", line->program->data_missing);
    LT_TRY(check_output(a));
    LT_TRY(check_optim_stats(a, options));
    LT_TRY(check_needs_sharded_state(a, options));
    LT_TRY(check_shard_params(a, options));
    LT_TRY(check_shard_gradients(&a->ranks));
    LT_TRY(check_sums(&a->ranks));
    LT_TRY(check_compression(&a->ranks));
    LT_TRY(check_sharding(&a->ranks));
    LT_TRY(lt_ranks_parse_comm_model(&a->ranks, link));
    LT_TRY(check_local(&a->ranks));
    LT_TRY(check_stragglers(a));
    LT_TRY(check_noise(a));
    LT_TRY(check_averaging(a, options));
    LT_TRY(check_cautious(a));
    LT_TRY(lt_mesh_flag_check(&a->ranks, options));
    LT_TRY(check_mode_conflicts(a, options));
    if (a->training.reproducible)
        LT_TRY(lt_reproducible_check(options));
    LT_TRY(lt_schedule_check_flags(&a->schedule));
    if (a->training.epochs > 0 && a->schedule.form.warmup_epochs > a->training.epochs)
        return lt_fail(LT_E_ARG, "--warmup-epochs %g: longer than --epochs %g",
                       a->schedule.form.warmup_epochs, a->training.epochs);
    return LT_OK;
}
