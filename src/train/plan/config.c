/* What a start of the program would do, read off its flags: those of a candidate, or of a run that is done. */

#include "base/hash.h"
#include "planner.h"
#include "train/loop/mesh.h"

#include "lather/device.h"
#include "lather/ext/fail.h"
#include "lather/ext/optim_family.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- What flags mean --- */

static bool is_one_of(const char *name, const char *const *list)
{
    for (; *list; list++)
        if (!strcmp(*list, name))
            return true;
    return false;
}

/* Flags that change neither data nor model: where they lie, how fast they are read. */
static bool is_of_samples(const lt_option *o)
{
    static const char *const not [] = {
        "workers",           "cache-ram",          "max-bad-images", "max-image-pixels",
        "max-image-seconds", "limit-eval-batches", "note",           NULL};
    return (!strcmp(o->group, "Data") || !strcmp(o->group, "Model")) && !is_one_of(o->name, not );
}

/* Flags that change how the loss falls with steps, besides ranks, batch and learning rate, which a user
 * moves together. Gradients that are sent in 16 bits are taken to be as good as in 32. */
static bool is_of_convergence(const lt_option *o)
{
    static const char *const others[] = {"Plan",       "Data",   "Model",   "General",
                                         "Evaluation", "Output", "Machine", NULL};
    static const char *const not [] = {"recipe",
                                       "batch-size",
                                       "grad-accum",
                                       "epochs",
                                       "max-steps",
                                       "seed",
                                       "recompute",
                                       "on-nan",
                                       "deterministic",
                                       "lr",
                                       "peak-lr",
                                       "warmup-epochs",
                                       "warmup-lr",
                                       "refresh-threads",
                                       "gradient-noise",
                                       "packed-factors",
                                       NULL};
    static const char *const ranks[] = {
        "sync-bn",      "compress", "compress-warmup-epochs", "compress-until", "comm-dtype",
        "local-steps",  "outer-lr", "outer-momentum",         "outer-compress", "backup-workers",
        "drop-compute", NULL};
    if (is_one_of(o->group, others) || is_one_of(o->name, not ))
        return false;
    return strcmp(o->group, "Ranks") ? true : is_one_of(o->name, ranks);
}

/* What a course has in common with the one that exchanges all of its gradients in each step. */
static bool is_of_lossless(const lt_option *o)
{
    return is_of_convergence(o) && (strcmp(o->group, "Ranks") != 0 || !strcmp(o->name, "sync-bn"));
}

static uint64_t hash_options(const lt_options *options, bool (*is)(const lt_option *o))
{
    char text[1024];
    uint64_t sum = LT_FNV1A_BEGIN;
    const lt_option *o;
    for (size_t i = 0; (o = lt_options_at(options, i)); i++) {
        if (!is(o) || !lt_options_applies(options, o->name))
            continue;
        lt_options_text(options, o->name, text, sizeof text);
        sum = lt_fnv1a(sum, o->name, strlen(o->name) + 1);
        sum = lt_fnv1a(sum, text, strlen(text) + 1);
    }
    return sum;
}

/* Two paths of one folder are the same data. */
static bool is_same_text(const char *name, const char *a, const char *b)
{
    char first[PATH_MAX], second[PATH_MAX];
    if (!strcmp(a, b))
        return true;
    return !strcmp(name, "data") && realpath(a, first) && realpath(b, second)
           && !strcmp(first, second);
}

lt_status lt_plan_same_samples(const lt_options *a, const lt_options *b, const char *run)
{
    char now[1024], then[1024];
    const lt_option *o;
    for (size_t i = 0; (o = lt_options_at(b, i)); i++) {
        if (!is_of_samples(o))
            continue;
        lt_options_text(a, o->name, now, sizeof now);
        lt_options_text(b, o->name, then, sizeof then);
        if (!is_same_text(o->name, now, then))
            return lt_fail(LT_E_ARG,
                           "--from %s: a run of other data or another model: --%s is '%s' there, "
                           "'%s' here",
                           run, o->name, then, now);
    }
    return LT_OK;
}

/* --- The exchange --- */

static bool is_on(const char *text)
{
    return text && strcmp(text, "off") != 0;
}

static bool is_two_level(const ranks_options *o, const lt_plan_setup *u, int nodes)
{
    if (o->allreduce != ALLREDUCE_AUTO)
        return o->allreduce == ALLREDUCE_TWO_LEVEL;
    return nodes > 1 && u->ranks_per_node > 1 && !lt_mesh_flag_is_on(o) && !o->backup_workers;
}

/* The scheme that the flags ask for, on nodes of per_node ranks. */
static lt_status read_exchange(plan_setting *s, const arguments *a, int nodes)
{
    const ranks_options *o = &a->ranks;
    lt_plan_setup *u = &s->setup;
    lt_cost_plan *p = &u->exchange;
    const bool is_two = is_two_level(o, u, nodes);
    *p = (lt_cost_plan){.scheme = is_two ? LT_COST_TWO_LEVEL : LT_COST_FLAT,
                        .element_bytes = o->grad_comm_dtype == COMM_F32 ? 4 : 2,
                        .every = 1};
    u->shard_optimizer =
        u->ranks > 1 && (a->optim.family->divided || o->shard_optimizer || o->shard_params);
    p->divided = u->shard_optimizer;
    if (o->shard_gradients)
        p->scheme = LT_COST_SHARD_GRADIENTS;
    if (is_on(o->compress))
        LT_TRY(lt_cost_read_reducer(p, o->compress));
    if (o->local_steps && u->ranks > 1) {
        p->scheme = LT_COST_LOCAL_STEPS;
        p->every = (int)o->local_steps;
    }
    if (o->shard_params)
        return lt_fail(LT_E_ARG, "--shard-params: what it costs is not known to plan");
    return LT_OK;
}

int64_t lt_plan_period(const lt_plan_setup *u)
{
    const int64_t every = u->exchange.every > 1 ? u->exchange.every : 1;
    const int64_t roots = u->frequency > 1 ? u->frequency : 1;
    int64_t period = roots;
    while (period % every)
        period += roots;
    return period;
}

double lt_plan_flag_steps(const plan_setting *s)
{
    lt_schedule schedule = {.epochs = s->epochs, .steps_per_epoch = s->epoch_steps};
    return (double)lt_schedule_steps(&schedule, s->max_steps, 0);
}

/* --- The whole --- */

static int add_label(plan_setting *s, int at, const char *format, ...) LT_PRINTF(3, 4);
static int add_label(plan_setting *s, int at, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int more = vsnprintf(s->label + at, sizeof s->label - (size_t)at, format, args);
    va_end(args);
    return at + more < (int)sizeof s->label ? at + more : (int)sizeof s->label - 1;
}

static void write_label(plan_setting *s, const arguments *a)
{
    const lt_plan_setup *u = &s->setup;
    int at = add_label(s, 0, "%s", u->optim);
    if (u->frequency)
        at = add_label(s, at, " f %d b %d", u->frequency, u->block);
    at = add_label(s, at, ", %s", lt_cost_row_of(&u->exchange)->name);
    if (u->exchange.scheme == LT_COST_REDUCER)
        at = add_label(s, at, " %g", u->exchange.number);
    if (u->exchange.scheme == LT_COST_LOCAL_STEPS)
        at = add_label(s, at, " %d", u->exchange.every);
    if (u->exchange.element_bytes == 2)
        at = add_label(s, at, " 16 bit");
    if (lt_mesh_flag_is_on(&a->ranks))
        at = add_label(s, at, ", tensor %s", a->ranks.tensor_parallel);
    if (*s->state)
        at = add_label(s, at, ", %s", s->state);
    if (u->shard_optimizer)
        at = add_label(s, at, ", divided state");
    if (u->backup_workers)
        at = add_label(s, at, ", backup %d", u->backup_workers);
    if (u->deadline > 0)
        (void)add_label(s, at, ", deadline %g s", u->deadline);
}

/* Whether a setting's steps depend on ranks only by the batch of all of them. */
static bool is_exact(const lt_plan_setup *u)
{
    const lt_cost_scheme c = u->exchange.scheme;
    return c != LT_COST_REDUCER && c != LT_COST_LOCAL_STEPS && !u->backup_workers
           && !(u->deadline > 0);
}

/* What is not as usual. */
static void read_state(plan_setting *s, const lt_trainer *t)
{
    static const struct {
        const char *flag, *usual;
    } flags[] = {{"state-dtype", "f32"},
                 {"state-memory", "any"},
                 {"factor-dtype", "f32"},
                 {"packed-factors", "false"}};
    char text[PLAN_NAME];
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        if (!lt_options_applies(t->options, flags[i].flag)
            || !strcmp(lt_options_text(t->options, flags[i].flag, text, sizeof text),
                       flags[i].usual))
            continue;
        const size_t at = strlen(s->state);
        snprintf(s->state + at, sizeof s->state - at, "%s%s %s", at ? ", " : "", flags[i].flag,
                 text);
    }
}

static lt_status read_shampoo(plan_setting *s, const lt_trainer *t)
{
    const lt_optim_flags *f = &t->args.optim;
    int64_t frequency = 0, block = 0;
    if (lt_options_applies(t->options, "precondition-frequency")) {
        char text[64];
        frequency = strtoll(
            lt_options_text(t->options, "precondition-frequency", text, sizeof text), NULL, 10);
        block = strtoll(lt_options_text(t->options, "max-preconditioner-dim", text, sizeof text),
                        NULL, 10);
    }
    s->setup.optim = f->family->name;
    s->setup.frequency = (int)frequency;
    s->setup.block = (int)block;
    s->block = block;
    return LT_OK;
}

lt_status lt_plan_setting(plan_setting *s, const lt_trainer *t, int ranks, int per_node)
{
    const arguments *a = &t->args;
    lt_straggler_config stragglers;
    bool on;
    const int nodes = ranks > per_node ? ranks / per_node : 1;
    *s = (plan_setting){.epochs = a->training.epochs, .max_steps = a->training.max_steps};
    lt_plan_setup *u = &s->setup;
    u->ranks = ranks;
    u->ranks_per_node = ranks < per_node ? ranks : per_node;
    u->batch_size = a->batch_size;
    u->grad_accum = a->training.grad_accum;
    LT_TRY(read_shampoo(s, t));
    read_state(s, t);
    LT_TRY(read_exchange(s, a, nodes));
    LT_TRY(lt_mesh_flag_parse(&a->ranks, &u->mesh));
    LT_TRY(lt_ranks_stragglers(&a->ranks, &stragglers, &on));
    if (stragglers.drop_compute && !(stragglers.deadline > 0))
        return lt_fail(LT_E_ARG, "--drop-compute auto: its deadline is known in the run alone; a "
                                 "number of seconds can be planned with");
    u->backup_workers = stragglers.backup_workers;
    u->deadline = stragglers.drop_compute ? stragglers.deadline : 0;
    const int copies = ranks / (u->mesh.depth * u->mesh.rows * u->mesh.columns);
    u->mesh.data = copies;
    if (copies == ranks)
        u->mesh = (lt_mesh_config){0};
    s->batch = u->batch_size * u->grad_accum * (copies - u->backup_workers);
    s->converge = hash_options(t->options, is_of_convergence);
    s->lossless = hash_options(t->options, is_of_lossless);
    s->samples = hash_options(t->options, is_of_samples);
    s->amp = t->args.training.amp;
    snprintf(s->device, sizeof s->device, "%s", a->machine.device);
    const int share =
        lt_cpu_threads() / u->ranks_per_node; /* ranks of a machine share its processors */
    s->threads = (int)a->machine.threads;
    s->real_threads = s->threads ? s->threads : share > 1 ? share : 1;
    s->is_exact = is_exact(u);
    write_label(s, a);
    return LT_OK;
}

lt_status lt_plan_check_ranks(const plan_setting *s, const lt_trainer *t)
{
    const lt_plan_setup *u = &s->setup;
    const arguments *a = &t->args;
    const int nodes = u->ranks / u->ranks_per_node;
    const lt_mesh_config *m = &u->mesh;
    const int copy = m->rows ? m->depth * m->rows * m->columns : 1;
    if (u->ranks % copy)
        return lt_fail(LT_E_ARG, "--tensor-parallel %s: %d ranks are no multiple of %d",
                       a->ranks.tensor_parallel, u->ranks, copy);
    if (u->backup_workers >= u->ranks && u->backup_workers)
        return lt_fail(LT_E_ARG, "--backup-workers %d: there are %d ranks", u->backup_workers,
                       u->ranks);
    if (u->exchange.scheme == LT_COST_TWO_LEVEL && (nodes < 2 || u->ranks_per_node < 2))
        return lt_fail(LT_E_ARG, "--allreduce two-level: %d machines of %d ranks have one level",
                       nodes, u->ranks_per_node);
    if (a->ranks.local_steps && nodes < 2)
        return lt_fail(LT_E_ARG, "--local-steps %lld: groups are machines, and there is %d",
                       (long long)a->ranks.local_steps, nodes);
    if (u->ranks > u->ranks_per_node && u->ranks % u->ranks_per_node)
        return lt_fail(LT_E_ARG, "%d ranks are no whole machines of %d", u->ranks,
                       u->ranks_per_node);
    return LT_OK;
}
