/* The options of a training program: the groups that stand beside their readers, in the order of --help, and what
 * they must agree on. */

#include "arguments.h"

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
{"Model", TEXT("weights", weights), .meta = "FILE", .common = true, .help = "safetensors file to start from or to evaluate"},
{"Model", BOOL("reset-head", reset_head), .help = "with --weights: a new last layer"},
};
/* clang-format on */

static const char description[] =
    " Numbers that differ from optimizer to optimizer are shown as OPTIMIZER=NUMBER. Beside it: "
    "lather-report RUN draws curves, lather-inspect lists weights and runs, %s, "
    "lather-bench measures, lather-reproduce is the command reproduce.\n\n"
    "Exit status: 0 done, 1 an error, 2 a wrong command line, 3 interrupted after a checkpoint.\n\n"
    "SIGINT (Ctrl-C), SIGTERM, SIGHUP and SIGUSR1 end a run after its step, with a checkpoint; a second "
    "SIGINT or SIGTERM ends it at once.";

/* Rows whose help speaks of samples. */
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

lt_status lt_arguments_open(lt_options **out, arguments *a, const arguments_of *of)
{
    return lt_arguments_open_more(out, a, of, NULL);
}

/* That of the command which training's options may ask for. */
static lt_option_table command_option(arguments *a, const lt_trainer_program *p)
{
    for (size_t i = 0; i < p->commands; i++)
        if (p->command[i]->option)
            return (lt_option_table){p->command[i]->option, 1, &a->other};
    return (lt_option_table){0};
}

lt_status lt_arguments_open_more(lt_options **out, arguments *a, const arguments_of *of,
                                 const arguments_more *more)
{
    lt_option_table data = {0}, own = {0};
    fill_text(&a->text, of->family, of->program);
    if (more) {
        a->text.program = *more->program;
        a->text.program.selector = "optim";
    }
    if (of->program->options)
        of->program->options(of->context, &data, &own);
    LT_TRY(lt_optim_flags_open(&a->optim));
    const lt_option_table tables[] = {
        more ? more->table : (lt_option_table){0},
        {&a->text.data, 1, a},
        data,
        {a->text.loader, 2, a},
        lt_loader_options(&a->loader),
        {of->family->option, of->family->options, of->config},
        own,
        {model_rows, sizeof model_rows / sizeof *model_rows, a},
        {&a->text.recipe, 1, a},
        {&a->text.batch, 1, a},
        lt_training_options(&a->training),
        command_option(a, of->program),
        lt_optim_flags_table(&a->optim, LT_OPTIM_FLAGS_COMMON),
        lt_averaging_options(&a->averaging),
        lt_group_options(&a->groups),
        lt_schedule_options(&a->schedule),
        lt_optim_flags_table(&a->optim, LT_OPTIM_FLAGS_OWN),
        lt_evaluation_options(&a->evaluation),
        {&a->text.eval_batch, 1, a},
        lt_output_options(&a->output),
        lt_ranks_options_dist(&a->ranks),
        lt_ranks_options(&a->ranks),
        lt_machine_options(&a->machine),
    };
    lt_status st =
        lt_options_compose(out, &a->text.program, tables, sizeof tables / sizeof *tables);
    if (st)
        lt_optim_flags_close(&a->optim);
    return st;
}

void lt_arguments_close(lt_options **options, arguments *a)
{
    lt_options_free(options);
    lt_optim_flags_close(&a->optim);
}

/* Options that make no sense alone. */
static lt_status check_needs(const arguments *a)
{
    const struct {
        bool given, there;
        const char *flag, *needs;
    } rules[] = {
        {a->evaluation.eval, a->weights || a->evaluation.watch, "eval", "weights or --watch"},
        {a->schedule.sched == LT_SCHEDULE_MULTISTEP, a->schedule.milestone.count > 0,
         "sched multistep", "milestone"},
        {a->groups.freeze_bn, a->groups.freeze.count > 0, "freeze-bn", "freeze"},
        {a->reset_head, a->weights != NULL, "reset-head", "weights"},
        {a->output.resume != NULL, a->output.output != NULL, "resume", "output"},
        {a->output.checkpoint_every > 0, a->output.output != NULL, "checkpoint-every", "output"},
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].given && !rules[i].there)
            return lt_fail(LT_E_ARG, "--%s: needs --%s", rules[i].flag, rules[i].needs);
    return LT_OK;
}

static lt_status check_output(const arguments *a)
{
    if (a->evaluation.watch && (a->output.output || a->weights))
        return lt_fail(LT_E_ARG,
                       "--watch and --%s contradict each other: the run's folder has both",
                       a->output.output ? "output" : "weights");
    if (a->output.output && strlen(a->output.output) > OUTPUT_BYTES)
        return lt_fail(LT_E_ARG, "--output: a path of %zu bytes, at most %d are taken",
                       strlen(a->output.output), OUTPUT_BYTES);
    return LT_OK;
}

/* What only a divided state reads. */
static lt_status check_divided(const arguments *a, const lt_options *options)
{
    const struct {
        const char *flag;
        bool given; /* a config file has all flags: another value than the default's */
    } rows[] = {{"comm-dtype", a->ranks.comm_dtype != COMM_F32},
                {"communicate-params", a->ranks.communicate_params},
                {"num-trainers-per-group", a->ranks.num_trainers_per_group != 0},
                {"balance", lt_ranks_has_balance(&a->ranks)},
                {"shard-gradients", a->ranks.shard_gradients}};
    if (a->optim.family->divided || a->ranks.shard_optimizer || a->ranks.shard_params
        || lt_mesh_flag_is_on(&a->ranks))
        return LT_OK;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].given)
            return lt_fail(LT_E_ARG, "--%s: needs --shard-optimizer with --optim %s", rows[i].flag,
                           lt_options_choice(options, "optim"));
    return LT_OK;
}

/* A config file has all flags: another value than the default's counts. */
static lt_status check_compression(const ranks_options *o)
{
    const int64_t from = o->compress_warmup_epochs, to = o->compress_until;
    if (!o->compress || !strcmp(o->compress, "off")) {
        if (from || to)
            return lt_fail(LT_E_ARG, "--%s: needs --compress",
                           from ? "compress-warmup-epochs" : "compress-until");
        return LT_OK;
    }
    if (to && to <= from)
        return lt_fail(LT_E_ARG,
                       "--compress-until %lld leaves no epoch behind --compress-warmup-epochs %lld",
                       (long long)to, (long long)from);
    return LT_OK;
}

static lt_status check_balance(const ranks_options *o)
{
    lt_balance kind;
    lt_balance_polynomial p;
    return lt_ranks_balance(o, &kind, &p);
}

/* What only local steps read; a config file has all flags. */
static lt_status check_local(const ranks_options *o)
{
    const struct {
        const char *flag;
        bool given;
    } rows[] = {{"outer-lr", fabs(o->outer_lr - 0.7) > 0},
                {"outer-momentum", o->outer_momentum >= 0},
                {"outer-compress", o->outer_compress && strcmp(o->outer_compress, "off") != 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows && !o->local_steps; i++)
        if (rows[i].given)
            return lt_fail(LT_E_ARG, "--%s: needs --local-steps", rows[i].flag);
    if (o->local_steps && o->compress && strcmp(o->compress, "off") != 0)
        return lt_fail(LT_E_ARG,
                       "--compress %s and --local-steps %lld contradict each other: within a node "
                       "gradients are dense; --outer-compress is of what nodes send",
                       o->compress, (long long)o->local_steps);
    if (o->local_steps && o->allreduce == ALLREDUCE_TWO_LEVEL)
        return lt_fail(LT_E_ARG,
                       "--allreduce two-level and --local-steps %lld contradict each other: "
                       "gradients stay within a node",
                       (long long)o->local_steps);
    return LT_OK;
}

/* Divided parameters are gathered as they are, by all ranks, eagerly. */
static lt_status check_sharded(const arguments *a, const lt_options *options)
{
    const ranks_options *r = &a->ranks;
    const bool compressed = r->compress && strcmp(r->compress, "off") != 0;
    const struct {
        bool given;
        const char *flag, *why;
    } rows[] = {
        {r->local_steps, "local-steps", "groups of nodes hold whole models"},
        {compressed, "compress", "what is left over belongs to whole gradients"},
        {r->allreduce == ALLREDUCE_TWO_LEVEL, "allreduce two-level",
         "parts of gradients go to their ranks at once"},
        {r->num_trainers_per_group, "num-trainers-per-group", "it divides over all ranks"},
        {r->comm_dtype != COMM_F32, "comm-dtype", "weights are gathered as they are"},
        {lt_ranks_has_balance(r), "balance", "memory is what it spreads evenly"},
        {a->machine.graph && lt_options_is_typed(options, "graph"), "graph",
         "its steps are not captured"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows && r->shard_params; i++)
        if (rows[i].given)
            return lt_fail(LT_E_ARG, "--%s and --shard-params contradict each other: %s",
                           rows[i].flag, rows[i].why);
    return LT_OK;
}

/* Gradients of which each rank gets its parts only take one way. */
static lt_status check_scattered(const ranks_options *r)
{
    if (!r->shard_gradients)
        return LT_OK;
    if (r->allreduce == ALLREDUCE_TWO_LEVEL)
        return lt_fail(LT_E_ARG,
                       "--shard-gradients and --allreduce two-level contradict each other: "
                       "parts of gradients go to their ranks at once");
    if (r->compress && strcmp(r->compress, "off") != 0)
        return lt_fail(LT_E_ARG, "--shard-gradients and --compress %s contradict each other",
                       r->compress);
    if (r->num_trainers_per_group)
        return lt_fail(
            LT_E_ARG,
            "--shard-gradients divides over all ranks, --num-trainers-per-group %lld over "
            "groups of them",
            (long long)r->num_trainers_per_group);
    return LT_OK;
}

/* What needs the gradient of every rank, or of every micro-batch. A config file has all flags. */
static lt_status check_stragglers(const arguments *a)
{
    const ranks_options *o = &a->ranks;
    lt_straggler_config c;
    bool on;
    LT_TRY(lt_ranks_stragglers(o, &c, &on));
    if (c.contributors && !c.backup_workers)
        return lt_fail(LT_E_ARG, "--contributors %s: needs --backup-workers", c.contributors);
    const bool compresses = o->compress && strcmp(o->compress, "off") != 0;
    const bool backs_up = c.backup_workers > 0;
    const struct {
        bool given;
        const char *flag, *why;
    } rows[] = {
        {backs_up && c.drop_compute, "drop-compute",
         "one leaves out whole ranks, the other parts of any"},
        {o->sync_bn, "sync-bn", "it needs all ranks in each layer"},
        {compresses, "compress", "what was left out of a gradient that is not used would be lost"},
        {o->local_steps, "local-steps", "ranks of a node average each gradient"},
        {o->shard_gradients, "shard-gradients", "parts of gradients go to their ranks at once"},
        {o->shard_params, "shard-params", "each layer needs the weights of all ranks"},
        {o->tensor_parallel && strcmp(o->tensor_parallel, "1") != 0, "tensor-parallel",
         "ranks of a copy of the model compute together"},
        {backs_up && o->allreduce == ALLREDUCE_TWO_LEVEL, "allreduce two-level",
         "a node would wait for its ranks"},
        {backs_up && o->comm_model, "comm-model", "only whole collectives are held back"},
        {backs_up && !strncmp(a->machine.device, "cuda", 4), "device cuda",
         "captured steps and NCCL cannot be given up; --drop-compute can"},
        {c.drop_compute && o->grad_comm_dtype != COMM_F32, "grad-comm-dtype",
         "the count of micro-batches goes with gradients of f32"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows && on; i++)
        if (rows[i].given)
            return lt_fail(LT_E_ARG, "--%s and --%s contradict each other: %s",
                           backs_up ? "backup-workers" : "drop-compute", rows[i].flag, rows[i].why);
    return LT_OK;
}

/* What leaves no whole gradients to compare. A config file has all flags. */
static lt_status check_noise(const arguments *a)
{
    const ranks_options *o = &a->ranks;
    const struct {
        bool given;
        const char *flag, *why;
    } rows[] = {
        {o->local_steps, "local-steps", "groups of ranks have other weights"},
        {o->compress && strcmp(o->compress, "off") != 0, "compress",
         "what it averages is not the gradient of the batch alone"},
        {lt_mesh_flag_is_on(o), "tensor-parallel", "ranks have parts of a gradient"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows && a->training.gradient_noise; i++)
        if (rows[i].given)
            return lt_fail(LT_E_ARG, "--gradient-noise and --%s contradict each other: %s",
                           rows[i].flag, rows[i].why);
    return LT_OK;
}

static lt_status check_modes(const arguments *a, const lt_options *options)
{
    LT_TRY(check_needs(a));
    LT_TRY(check_output(a));
    LT_TRY(check_divided(a, options));
    LT_TRY(check_sharded(a, options));
    LT_TRY(check_scattered(&a->ranks));
    LT_TRY(check_compression(&a->ranks));
    LT_TRY(check_balance(&a->ranks));
    LT_TRY(check_local(&a->ranks));
    LT_TRY(check_stragglers(a));
    LT_TRY(check_noise(a));
    LT_TRY(lt_averaging_check(a, options));
    LT_TRY(lt_mesh_flag_check(&a->ranks, options));
    if (a->output.resume && strcmp(a->output.resume, "auto") != 0
        && lt_options_is_typed(options, "weights"))
        return lt_fail(LT_E_ARG, "--resume PATH and --weights contradict each other: a checkpoint "
                                 "has weights of its own");
    if (a->output.overwrite && a->output.resume && !strcmp(a->output.resume, "auto"))
        return lt_fail(LT_E_ARG, "--overwrite and --resume auto contradict each other");
    if (a->loader.overfit_batches && lt_options_is_set(options, "limit-train-batches"))
        return lt_fail(LT_E_ARG, "--overfit-batches and --limit-train-batches contradict each "
                                 "other");
    if (lt_mesh_flag_is_on(&a->ranks) && strchr(a->ranks.tensor_parallel, 'x')
        && (a->training.amp == AMP_BF16 || a->training.amp == AMP_F16))
        return lt_fail(LT_E_ARG,
                       "--amp %s and --tensor-parallel %s contradict each other: partial sums on a "
                       "grid are f32",
                       lt_options_choice(options, "amp"), a->ranks.tensor_parallel);
    if (a->training.amp == AMP_F16 && !strncmp(a->machine.device, "cpu", 3))
        return lt_fail(LT_E_UNSUPPORTED, "--amp f16: needs --device cuda; the CPU has bf16");
    return LT_OK;
}

lt_status lt_arguments_check(const arguments *a, const lt_trainer_program *program,
                             const lt_options *options)
{
    if (!a->data)
        return lt_fail(LT_E_ARG, "--data: missing; %s", program->data_missing);
    LT_TRY(check_modes(a, options));
    if (a->training.epochs > 0 && a->schedule.warmup_epochs > a->training.epochs)
        return lt_fail(LT_E_ARG, "--warmup-epochs %g: longer than --epochs %g",
                       a->schedule.warmup_epochs, a->training.epochs);
    return LT_OK;
}
