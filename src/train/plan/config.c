/* Reads a config from the flags of a command line, of a candidate or of a finished run. */

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

/* --- Classes of flags --- */

/* Searches a list with a space before and after each word. */
static bool is_word_in_list(const char *list, const char *word)
{
    const size_t bytes = strlen(word);
    for (const char *at = list; bytes && (at = strstr(at, word)); at += bytes)
        if (at > list && at[-1] == ' ' && at[bytes] == ' ')
            return true;
    return false;
}

/* Returns true for flags of data and model, except those of speed and limits. */
static bool is_data_or_model_flag(const lt_option *o)
{
    return is_word_in_list(" Data Model ", o->group)
           && !is_word_in_list(
               " workers cache-ram max-bad-images max-image-pixels max-image-seconds "
               "limit-eval-batches note ",
               o->name);
}

/* True for flags that change how loss falls with steps, except ranks, batch and learning rate, which scale together.
 * Gradients sent in 16 bits are taken to be as good as in 32. */
static bool affects_convergence(const lt_option *o)
{
    if (is_word_in_list(" Plan Data Model General Evaluation Output Machine ", o->group)
        || is_word_in_list(
            " recipe batch-size grad-accum epochs max-steps seed recompute on-nan "
            "deterministic reproducible lr peak-lr warmup-epochs warmup-lr refresh-threads gradient-noise "
            "packed-factors ",
            o->name))
        return false;
    return strcmp(o->group, "Ranks") != 0
           || is_word_in_list(" sync-bn compress compress-warmup-epochs compress-until comm-dtype "
                              "local-steps outer-lr outer-momentum outer-compress backup-workers "
                              "drop-compute ",
                              o->name);
}

/* Returns true for flags that change convergence even if communication is lossless. */
static bool affects_lossless_convergence(const lt_option *o)
{
    return affects_convergence(o)
           && (strcmp(o->group, "Ranks") != 0 || !strcmp(o->name, "sync-bn"));
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

/* Compares two values of the flag `name`; of --data, different paths of one folder are equal. */
static bool is_same_flag_value(const char *name, const char *a, const char *b)
{
    char first[PATH_MAX], second[PATH_MAX];
    if (!strcmp(a, b))
        return true;
    return !strcmp(name, "data") && realpath(a, first) && realpath(b, second)
           && !strcmp(first, second);
}

lt_status lt_plan_check_same_samples(const lt_options *a, const lt_options *b, const char *run)
{
    char now[1024], then[1024];
    const lt_option *o;
    for (size_t i = 0; (o = lt_options_at(b, i)); i++) {
        if (!is_data_or_model_flag(o))
            continue;
        lt_options_text(a, o->name, now, sizeof now);
        lt_options_text(b, o->name, then, sizeof then);
        if (!is_same_flag_value(o->name, now, then))
            return lt_fail(LT_E_ARG,
                           "--from %s: a run of other data or another model: --%s is '%s' there, "
                           "'%s' here",
                           run, o->name, then, now);
    }
    return LT_OK;
}

/* --- The exchange --- */

static bool is_two_level_allreduce(const ranks_options *o, const lt_plan_setup *u, int nodes)
{
    if (o->allreduce != ALLREDUCE_AUTO || o->sums == SUMS_ENGINE)
        return o->allreduce == ALLREDUCE_TWO_LEVEL;
    return nodes > 1 && u->ranks_per_node > 1 && !lt_mesh_flag_is_on(o) && !o->backup_workers;
}

/* Returns how a run gathers updates: as lt_trainer_shard_optim() chooses. */
static lt_cost_gather gather_of(const arguments *a, const lt_plan_setup *u, int nodes)
{
    const ranks_options *o = &a->ranks;
    int group = 0;
    const bool one_level = nodes < 2 || lt_mesh_flag_is_on(o),
               fits = !lt_ranks_parse_groups(o, &group),
               two = u->ranks_per_node > 1 && !o->shard_gradients && o->allreduce != ALLREDUCE_FLAT;
    if (one_level || !fits)
        return LT_COST_GATHER_FLAT;
    if (group == GROUPS_AUTO ? two : group == u->ranks_per_node)
        return LT_COST_GATHER_IN_NODE;
    return two && strncmp(a->machine.device, "cuda", 4) != 0 ? LT_COST_GATHER_TWO_LEVELS
                                                             : LT_COST_GATHER_FLAT;
}

static lt_status read_communication_flags(plan_config *c, const arguments *a, int nodes)
{
    const ranks_options *o = &a->ranks;
    lt_plan_setup *u = &c->setup;
    lt_cost_plan *p = &u->exchange;
    const bool is_two = is_two_level_allreduce(o, u, nodes);
    *p = (lt_cost_plan){.scheme = is_two ? LT_COST_TWO_LEVEL : LT_COST_FLAT,
                        .element_bytes = o->grad_comm_dtype == COMM_F32 ? 4 : 2,
                        .every = 1};
    u->shard_optimizer =
        u->ranks > 1 && (a->optim.family->divided || o->shard_optimizer || o->shard_params);
    p->sharded = u->shard_optimizer;
    p->gather = p->sharded ? gather_of(a, u, nodes) : LT_COST_GATHER_FLAT;
    if (o->shard_gradients)
        p->scheme = LT_COST_SHARD_GRADIENTS;
    if (o->compress && strcmp(o->compress, "off") != 0)
        LT_TRY(lt_cost_read_reducer(p, o->compress));
    if (o->local_steps && u->ranks > 1) {
        p->scheme = LT_COST_LOCAL_STEPS;
        p->every = (int)o->local_steps;
    }
    if (o->shard_params)
        return lt_fail(LT_E_ARG, "--shard-params: plan has no cost model of it");
    return LT_OK;
}

int64_t lt_plan_repeat_period(const lt_plan_setup *u)
{
    const int64_t every = u->exchange.every > 1 ? u->exchange.every : 1;
    const int64_t roots = u->frequency > 1 ? u->frequency : 1;
    int64_t period = roots;
    while (period % every)
        period += roots;
    return period;
}

double lt_plan_steps_from_flags(const plan_config *c)
{
    lt_schedule schedule = {.epochs = c->epochs, .steps_per_epoch = c->epoch_steps};
    return (double)lt_schedule_steps(&schedule, c->max_steps, 0);
}

/* --- The label --- */

static void add_label(plan_config *c, const char *format, ...) LT_PRINTF(2, 3);
static void add_label(plan_config *c, const char *format, ...)
{
    const size_t at = strlen(c->label);
    va_list args;
    va_start(args, format);
    vsnprintf(c->label + at, sizeof c->label - at, format, args);
    va_end(args);
}

static void write_label(plan_config *c, const arguments *a)
{
    const lt_plan_setup *u = &c->setup;
    add_label(c, "%s", u->optim);
    if (u->frequency)
        add_label(c, " f %d b %d", u->frequency, u->block);
    add_label(c, ", %s", lt_cost_row_of(&u->exchange)->name);
    if (u->exchange.scheme == LT_COST_REDUCER)
        add_label(c, " %g", u->exchange.number);
    if (u->exchange.scheme == LT_COST_LOCAL_STEPS)
        add_label(c, " %d", u->exchange.every);
    if (u->exchange.element_bytes == 2)
        add_label(c, " 16 bit");
    if (lt_mesh_flag_is_on(&a->ranks))
        add_label(c, ", tensor %s", a->ranks.tensor_parallel);
    if (*c->state)
        add_label(c, ", %s", c->state);
    if (u->shard_optimizer)
        add_label(c, ", sharded state%s",
                  u->exchange.gather == LT_COST_GATHER_IN_NODE ? " of a node" : "");
    if (u->backup_workers)
        add_label(c, ", backup %d", u->backup_workers);
    if (u->deadline > 0)
        add_label(c, ", deadline %g s", u->deadline);
}

/* --- The whole --- */

/* Returns true if convergence depends on the global batch alone, not on the number of ranks. */
static bool is_lossless(const lt_plan_setup *u)
{
    const lt_cost_scheme s = u->exchange.scheme;
    return s != LT_COST_REDUCER && s != LT_COST_LOCAL_STEPS && !u->backup_workers
           && !(u->deadline > 0);
}

/* Lists the flags of state compression that differ from their defaults. */
static void read_state_compression(plan_config *c, const lt_options *options)
{
    static const char *const flags[][2] = {{"state-dtype", "f32"},
                                           {"state-memory", "any"},
                                           {"factor-dtype", "f32"},
                                           {"packed-factors", "false"}};
    char text[PLAN_NAME];
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        if (!lt_options_applies(options, flags[i][0])
            || !strcmp(lt_options_text(options, flags[i][0], text, sizeof text), flags[i][1]))
            continue;
        const size_t at = strlen(c->state);
        snprintf(c->state + at, sizeof c->state - at, "%s%s %s", at ? ", " : "", flags[i][0], text);
    }
}

static int read_integer_flag(const lt_options *options, const char *flag)
{
    char text[64];
    return lt_options_applies(options, flag)
               ? (int)strtol(lt_options_text(options, flag, text, sizeof text), NULL, 10)
               : 0;
}

lt_status lt_plan_read_config(plan_config *c, const command_line *line, int ranks, int per_node)
{
    const lt_options *options = line->options;
    const arguments *a = &line->args;
    lt_straggler_config stragglers;
    bool on;
    const int nodes = ranks > per_node ? ranks / per_node : 1;
    *c = (plan_config){.epochs = a->training.epochs, .max_steps = a->training.max_steps};
    lt_plan_setup *u = &c->setup;
    u->ranks = ranks;
    u->ranks_per_node = ranks < per_node ? ranks : per_node;
    u->batch_size = a->batch_size;
    u->grad_accum = a->training.grad_accum;
    u->optim = a->optim.family->name;
    u->frequency = read_integer_flag(options, "precondition-frequency");
    u->block = u->frequency ? read_integer_flag(options, "max-preconditioner-dim") : 0;
    read_state_compression(c, options);
    LT_TRY(read_communication_flags(c, a, nodes));
    LT_TRY(lt_mesh_flag_parse(&a->ranks, &u->mesh));
    LT_TRY(lt_ranks_parse_stragglers(&a->ranks, &stragglers, &on));
    if (stragglers.drop_compute && !(stragglers.deadline > 0))
        return lt_fail(LT_E_ARG, "--drop-compute auto: the deadline is only known during the run; "
                                 "plan needs a number of seconds");
    u->backup_workers = stragglers.backup_workers;
    u->deadline = stragglers.drop_compute ? stragglers.deadline : 0;
    const int replicas = ranks / (u->mesh.depth * u->mesh.rows * u->mesh.columns);
    u->mesh.data = replicas;
    if (replicas == ranks)
        u->mesh = (lt_mesh_config){0};
    c->batch = u->batch_size * u->grad_accum * (replicas - u->backup_workers);
    c->convergence = hash_options(options, affects_convergence);
    c->lossless = hash_options(options, affects_lossless_convergence);
    c->samples = hash_options(options, is_data_or_model_flag);
    c->amp = a->training.amp;
    snprintf(c->device, sizeof c->device, "%s", a->machine.device);
    const int share = lt_cpu_threads() / u->ranks_per_node;
    c->threads = (int)a->machine.threads;
    c->real_threads = c->threads ? c->threads : share > 1 ? share : 1;
    c->is_lossless = is_lossless(u);
    write_label(c, a);
    return LT_OK;
}

static lt_status check_groups(const lt_plan_setup *u, const ranks_options *o)
{
    int n;
    LT_TRY(lt_ranks_parse_groups(o, &n));
    return u->ranks == 1 || n <= 0 || n == u->ranks || n == u->ranks_per_node
               ? LT_OK
               : lt_fail(LT_E_ARG,
                         "--num-trainers-per-group %d: plan knows groups of all %d ranks and of a "
                         "machine's %d",
                         n, u->ranks, u->ranks_per_node);
}

lt_status lt_plan_check_ranks(const plan_config *c, const arguments *a)
{
    const lt_plan_setup *u = &c->setup;
    const int nodes = u->ranks / u->ranks_per_node;
    const lt_mesh_config *m = &u->mesh;
    const int replica = m->rows ? m->depth * m->rows * m->columns : 1;
    if (u->ranks % replica)
        return lt_fail(LT_E_ARG, "--tensor-parallel %s: %d ranks are not a multiple of %d",
                       a->ranks.tensor_parallel, u->ranks, replica);
    if (u->backup_workers >= u->ranks && u->backup_workers)
        return lt_fail(LT_E_ARG, "--backup-workers %d: there are %d ranks", u->backup_workers,
                       u->ranks);
    if (u->exchange.scheme == LT_COST_TWO_LEVEL && (nodes < 2 || u->ranks_per_node < 2))
        return lt_fail(LT_E_ARG, "--allreduce two-level: %d machines of %d ranks have one level",
                       nodes, u->ranks_per_node);
    LT_TRY(check_groups(u, &a->ranks));
    if (a->ranks.local_steps && nodes < 2)
        return lt_fail(LT_E_ARG, "--local-steps %lld: needs several machines, has %d",
                       (long long)a->ranks.local_steps, nodes);
    if (u->ranks > u->ranks_per_node && u->ranks % u->ranks_per_node)
        return lt_fail(LT_E_ARG, "%d ranks do not fill machines of %d", u->ranks,
                       u->ranks_per_node);
    return LT_OK;
}
