/* Flags of `plan`, and their parsers: goal, ranks, machine, and the training flags that candidates vary. */

#include "base/options/options.h"

#include "planner.h"
#include "train/loop/option_rows.h"

#include "lather/ext/fail.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OF plan_options
/* clang-format off */
static const lt_option rows[PLAN_FLAGS] = {
{"Plan", LIST("goal", goal), .meta = "NAME=VALUE", .once = true, .help = "target of the run: top1=75, loss=1.2 (any metric of evaluations, or train_loss), deadline=6h (s, m, h, d); a metric, a deadline, or both"},
{"Plan", TEXT("ranks", ranks), .meta = "A..B|N,N,...", .once = true, .help = "numbers of ranks to choose from; A..B: A, its doubles, and B [1, or with --nodes all of them]"},
{"Plan", LIST("vary", vary), .meta = "FLAG=V,V,...", .once = true, .help = "values of a training flag to choose from, as optim=sgd,shampoo or allreduce=flat,two-level"},
{"Plan", INT("global-batch", global_batch, 0, MANY), .value = "0", .once = true, .help = "samples per update on all ranks together; candidates with another batch are rejected; 0: any"},
{"Plan", LIST("from", from), .meta = "RUN", .once = true, .help = "fit the models to the metrics of this run folder; several: RUN,RUN,... or RUN RUN ..."},
{"Plan", NUM("price", price, 0, 1e9), .value = "0", .once = true, .help = "price of one rank for one hour"},
{"Plan", BOOL("simulate", simulate), .once = true, .help = "plan for other machines than this one, described by --nodes, --ranks-per-node, --link, --link-between and --memory"},
{"Plan", INT("nodes", nodes, 0, 1e6), .value = "0", .once = true, .help = "number of machines; 0: as many as the ranks need"},
{"Plan", TEXT("link", link), .meta = "LAT_US,GBIT|FILE", .once = true, .help = "link between two ranks of a machine; FILE: of `bench links --json`, which has both links and the CPU time of messages [1,100]"},
{"Plan", TEXT("link-between", link_between), .meta = "LAT_US,GBIT", .once = true, .help = "network card of a machine, shared by its ranks [50,10]"},
{"Plan", NUM("memory", memory, 0, 1e9), .value = "0", .once = true, .help = "GiB per rank; 0: the free memory of this machine, with --simulate no limit"},
{"Plan", NUM("slots", slots, 0, 1e6), .value = "0", .once = true, .help = "ranks of a machine that compute at full speed at once, more share its cores; below 1 if several nodes are namespaces of one machine; 0: all"},
{"Plan", BOOL("one-machine", one_machine), .once = true, .help = "all nodes are this machine and share its --slots: namespaces, or ranks with --ranks-per-node and a modelled link"},
{"Plan", TEXT("step-profile", step_profile), .meta = "FILE", .once = true, .help = "profile of a step's parts at one rank: read if the file exists, else measured and written"},
{"Plan", NUM("profile-seconds", profile_seconds, 0.01, 1e6), .value = "20", .once = true, .help = "approximate seconds of measuring a profile"},
{"Plan", INT("profile-ranks", profile_ranks, 1, 1024), .value = "1", .once = true, .help = "processes that train on the machine while one is measured, as ranks share its memory and caches"},
{"Plan", INT("rows", rows, 1, 100000), .value = "20", .once = true, .help = "rows of the printed table"},
{"Plan", BOOL("extrapolate", extrapolate), .once = true, .help = "accept candidates with more than twice the ranks, batch or steps of the runs, or less than half"},
{"Plan", PICK("pilots", pilots, "off|auto"), .once = true, .help = "auto: make short trial runs of the candidates that may be the best, here, as the printed command would start them, until one leads by more than the uncertainty"},
{"Plan", TEXT("pilot-budget", pilot_budget), .meta = "P%", .value = "5%", .once = true, .help = "budget of pilots and profile, in percent of the rank-seconds of the cheapest run that may yet be chosen"},
{"Plan", TEXT("pilot-dir", pilot_dir), .meta = "DIR", .once = true, .help = "keep the run folders of pilots in DIR, for --from; default: only logs of failed ones are kept"},
{"Plan", TEXT("json", json), .meta = "FILE|-", .once = true, .help = "write the plan as JSON, which lather-report turns into a page; -: to standard output, in place of the table"},
};
/* clang-format on */

lt_option_table lt_plan_option_table(plan_options *o, const lt_options *training)
{
    for (int i = 0; i < PLAN_FLAGS; i++) {
        const char *name = rows[i].name;
        const bool taken = lt_options_find(training, name, strlen(name));
        snprintf(o->name[i], PLAN_NAME, "%s%s", taken ? "plan-" : "", name);
        o->row[i] = rows[i];
        o->row[i].name = o->name[i];
    }
    return (lt_option_table){o->row, PLAN_FLAGS, o};
}

const char *lt_plan_flag_name(const plan_options *o, const char *name)
{
    int i = 0;
    while (strcmp(rows[i].name, name) != 0)
        i++;
    return o->name[i];
}

bool lt_plan_is_own_flag(const plan_options *o, const char *name, size_t bytes, bool *takes_value)
{
    for (int i = 0; i < PLAN_FLAGS; i++)
        if (lt_options_is_named(o->name[i], name, bytes)) {
            *takes_value = rows[i].type != LT_OPTION_BOOL;
            return true;
        }
    return false;
}

/* --- Goal --- */

/* Parses "6h" or "90" as seconds; negative: invalid. */
static double parse_duration(const char *text)
{
    static const char units[] = "smhd";
    static const double seconds[] = {1, 60, 3600, 86400};
    char *end;
    const double value = strtod(text, &end);
    const char *unit = *end ? strchr(units, *end) : units;
    if (end == text || !isfinite(value) || value <= 0 || !unit || (*end && end[1]))
        return -1;
    return value * seconds[unit - units];
}

static lt_status parse_goal_deadline(plan_goal *g, const char *text, const char *value)
{
    if (g->deadline > 0)
        return lt_fail(LT_E_ARG, "--goal %s: a second deadline", text);
    g->deadline = parse_duration(value);
    return g->deadline > 0
               ? LT_OK
               : lt_fail(LT_E_ARG, "--goal %s: want a time as 90s, 30m, 6h or 2d", text);
}

static lt_status fail_invalid_goal(const char *text)
{
    return lt_fail(LT_E_ARG,
                   "--goal %s: want METRIC=NUMBER, as loss=1.2 or top1=75, or deadline=TIME", text);
}

static lt_status parse_goal_metric(plan_goal *g, const char *text, const char *equals)
{
    char *end;
    const size_t bytes = (size_t)(equals - text);
    if (*g->metric)
        return lt_fail(LT_E_ARG, "--goal %s: the goal is %s=%g already", text, g->metric, g->value);
    g->value = strtod(equals + 1, &end);
    if (!bytes || bytes >= sizeof g->metric || end == equals + 1 || *end || !isfinite(g->value))
        return fail_invalid_goal(text);
    snprintf(g->metric, sizeof g->metric, "%.*s", (int)bytes, text);
    return LT_OK;
}

static lt_status read_goal(plan_goal *g, const lt_option_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        const char *text = list->item[i], *equals = strchr(text, '=');
        if (!equals)
            return fail_invalid_goal(text);
        if (!strncmp(text, "deadline=", strlen("deadline=")))
            LT_TRY(parse_goal_deadline(g, text, equals + 1));
        else
            LT_TRY(parse_goal_metric(g, text, equals));
    }
    return list->count ? LT_OK
                       : lt_fail(LT_E_ARG, "--goal: missing; loss=1.2, top1=75 or deadline=6h");
}

/* --- Ranks --- */

enum { MOST_RANKS = 1 << 20 };

static lt_status add_rank_count(plan_request *r, long ranks)
{
    if (r->rank_counts && ranks <= r->ranks[r->rank_counts - 1])
        return lt_fail(LT_E_ARG, "--ranks %s: %ld after %d: want ascending numbers",
                       r->options->ranks, ranks, r->ranks[r->rank_counts - 1]);
    if (r->rank_counts == PLAN_RANKS)
        return lt_fail(LT_E_ARG, "--ranks %s: more than %d numbers", r->options->ranks, PLAN_RANKS);
    r->ranks[r->rank_counts++] = (int)ranks;
    return LT_OK;
}

static lt_status fail_invalid_ranks(const char *text)
{
    return lt_fail(LT_E_ARG, "--ranks %s: want A..B or N,N,..., from 1 to %d", text, MOST_RANKS);
}

/* Parses a number from 1 to MOST_RANKS; 0: invalid. *end: the text after it. */
static long parse_rank_count(const char *text, char **end)
{
    if (*text < '0' || *text > '9')
        return 0;
    const long value = strtol(text, end, 10);
    return value < 1 || value > MOST_RANKS ? 0 : value;
}

static lt_status read_ranks(plan_request *r, const char *text)
{
    char *end;
    for (const char *at = text;; at = end + 1) {
        const long first = parse_rank_count(at, &end);
        if (!first)
            return fail_invalid_ranks(text);
        LT_TRY(add_rank_count(r, first));
        if (!strncmp(end, "..", 2)) {
            const long last = parse_rank_count(end + 2, &end);
            if (last < first || *end)
                return fail_invalid_ranks(text);
            for (long ranks = 2 * first; ranks < last; ranks *= 2)
                LT_TRY(add_rank_count(r, ranks));
            return last > first ? add_rank_count(r, last) : LT_OK;
        }
        if (!*end)
            return LT_OK;
        if (*end != ',')
            return fail_invalid_ranks(text);
    }
}

/* Errors: LT_E_ARG: more ranks than the machines have. */
static lt_status check_ranks_fit_nodes(const plan_request *r)
{
    const int64_t nodes = r->options->nodes;
    const int most = r->ranks[r->rank_counts - 1];
    if (nodes && most > nodes * r->per_node)
        return lt_fail(LT_E_ARG, "--ranks %d: --nodes %lld of --ranks-per-node %d have %lld", most,
                       (long long)nodes, r->per_node, (long long)(nodes * r->per_node));
    return LT_OK;
}

/* --- Links --- */

static lt_status parse_link_flag(lt_cost_link *out, const char *flag, const char *text)
{
    char *end, *rest;
    const double us = strtod(text, &end);
    const double gbit = *end == ',' ? strtod(end + 1, &rest) : 0;
    if (end == text || *end != ',' || *rest || !(us >= 0) || !(gbit > 0) || !isfinite(us + gbit))
        return lt_fail(LT_E_ARG, "--%s %s: want LATENCY_US,GBIT, as 50,10", flag, text);
    *out = (lt_cost_link){.latency = 1e-6 * us, .bandwidth = gbit * 1e9 / 8};
    return LT_OK;
}

static lt_status read_json_link(const lt_json_value *root, const char *name, lt_cost_link *out)
{
    const lt_json_value *link = lt_json_member(root, name);
    double us, gbit, gather = 0;
    if (!link || link->type == LT_JSON_NULL) /* the file was measured on one machine */
        return LT_OK;
    LT_TRY(lt_json_number(link, "latency_us", &us));
    LT_TRY(lt_json_number(link, "gbit", &gbit));
    if (lt_json_member(link, "gather_gbit"))
        LT_TRY(lt_json_number(link, "gather_gbit", &gather));
    *out = (lt_cost_link){
        .latency = 1e-6 * us, .bandwidth = gbit * 1e9 / 8, .gather = gather * 1e9 / 8};
    return us >= 0 && gbit > 0 && gather >= 0
               ? LT_OK
               : lt_fail(LT_E_FORMAT,
                         "%s: latency_us %g, gbit %g, gather_gbit %g: want numbers above 0", name,
                         us, gbit, gather);
}

/* Reads the CPU time of messages, in microseconds, if the link has it. */
static lt_status read_core_seconds(const lt_json_value *root, const char *name, const char *key,
                                   double *seconds)
{
    const lt_json_value *link = lt_json_member(root, name);
    double us = 0;
    if (!link || !lt_json_member(link, key))
        return LT_OK;
    LT_TRY(lt_json_number(link, key, &us));
    *seconds = 1e-6 * us;
    return us >= 0 && isfinite(us)
               ? LT_OK
               : lt_fail(LT_E_FORMAT, "%s: %s is %g, want 0 or more", name, key, us);
}

static lt_status read_json_links(lt_cost_cluster *c, const lt_json_value *root)
{
    enum { MIB = 1 << 20 };
    LT_TRY(read_json_link(root, "within", &c->within));
    LT_TRY(read_json_link(root, "between", &c->between));
    LT_TRY(read_core_seconds(root, "within", "core_us", &c->wake));
    LT_TRY(read_core_seconds(root, "between", "core_us", &c->wake));
    LT_TRY(read_core_seconds(root, "within", "core_us_mib", &c->carry));
    c->carry /= MIB;
    return LT_OK;
}

/* Reads both links from a file of `bench links --json`. */
static lt_status load_links(lt_cost_cluster *c, const char *path)
{
    lt_json *json;
    lt_status st = lt_json_load(&json, path);
    if (st)
        return lt_fail(st == LT_E_IO ? LT_E_ARG : st,
                       "--link %s: neither LATENCY_US,GBIT nor a file of bench links --json: %s",
                       path, lt_error_message());
    st = read_json_links(c, lt_json_root(json));
    lt_json_free(&json);
    return st ? lt_fail(st, "--link %s: %s", path, lt_error_message()) : LT_OK;
}

static lt_status read_machine(plan_request *r)
{
    const plan_options *o = r->options;
    lt_cost_cluster *c = &r->machine.cluster;
    LT_TRY(parse_link_flag(&c->within, "link", "1,100"));
    LT_TRY(parse_link_flag(&c->between, "link-between", "50,10"));
    if (o->link && strchr(o->link, ','))
        LT_TRY(parse_link_flag(&c->within, "link", o->link));
    else if (o->link)
        LT_TRY(load_links(c, o->link));
    if (o->link_between)
        LT_TRY(parse_link_flag(&c->between, "link-between", o->link_between));
    r->machine.slots = o->slots;
    r->machine.memory = o->memory > 0 ? o->memory * 0x1p30
                        : o->simulate ? 0
                                      : lt_trainer_available_memory() / r->per_node;
    return LT_OK;
}

/* --- Axes --- */

/* Training flags that --vary accepts: those with a cost model. */
static const char axes[] =
    "batch-size, grad-accum, optim, precondition-frequency, max-preconditioner-dim, allreduce, "
    "compress, local-steps, shard-optimizer, shard-gradients, num-trainers-per-group, "
    "grad-comm-dtype, tensor-parallel, backup-workers, drop-compute, state-dtype, state-memory, "
    "factor-dtype, packed-factors";

static bool can_vary_flag(const char *flag)
{
    for (const char *at = axes; *at; at += strspn(at, ", ")) {
        const size_t bytes = strcspn(at, ",");
        if (strlen(flag) == bytes && !strncmp(at, flag, bytes))
            return true;
        at += bytes;
    }
    return false;
}

static lt_status parse_vary_flag(plan_axis *axis, const char *text)
{
    const char *at = strchr(text, '=');
    if (!at || at == text || (size_t)(at - text) >= sizeof axis->flag)
        return lt_fail(LT_E_ARG, "--vary %s: want FLAG=VALUE,VALUE,...", text);
    snprintf(axis->flag, sizeof axis->flag, "%.*s", (int)(at - text), text);
    if (!can_vary_flag(axis->flag))
        return lt_fail(LT_E_ARG, "--vary %s: not one of %s", text, axes);
    do {
        const char *value = ++at;
        at += strcspn(at, ",");
        if (at == value || at - value >= PLAN_NAME || axis->values == PLAN_VALUES)
            return lt_fail(LT_E_ARG, "--vary %s: want 1 to %d values of at most %d bytes", text,
                           PLAN_VALUES, PLAN_NAME - 1);
        snprintf(axis->value[axis->values++], PLAN_NAME, "%.*s", (int)(at - value), value);
    } while (*at == ',');
    return LT_OK;
}

static lt_status parse_all_vary_flags(plan_request *r)
{
    const lt_option_list *list = &r->options->vary;
    for (size_t i = 0; i < list->count; i++) {
        if (r->axes == PLAN_AXES)
            return lt_fail(LT_E_ARG, "--vary: more than %d flags", PLAN_AXES);
        plan_axis *axis = &r->axis[r->axes++];
        LT_TRY(parse_vary_flag(axis, list->item[i]));
        for (int k = 0; k + 1 < r->axes; k++)
            if (!strcmp(r->axis[k].flag, axis->flag))
                return lt_fail(LT_E_ARG, "--vary %s: %s is varied already", list->item[i],
                               axis->flag);
    }
    return LT_OK;
}

/* Parses --pilot-budget: "5%" or "5". */
static lt_status parse_pilot_budget(plan_request *r)
{
    const plan_options *o = r->options;
    char *end;
    const double percent = strtod(o->pilot_budget, &end);
    if (end == o->pilot_budget || (*end && strcmp(end, "%") != 0) || !(percent > 0)
        || percent > 100)
        return lt_fail(LT_E_ARG, "--pilot-budget %s: want percent, above 0 and at most 100",
                       o->pilot_budget);
    if (o->pilots == PILOTS_OFF)
        return LT_OK;
    if (o->simulate)
        return lt_fail(LT_E_ARG,
                       "--pilots: cannot run with --simulate, which plans for other machines");
    r->pilot_share = percent / 100;
    return LT_OK;
}

lt_status lt_plan_parse_request(plan_request *r, const plan_options *o, int64_t ranks_per_node)
{
    char all[PLAN_NAME];
    *r = (plan_request){.options = o, .per_node = ranks_per_node ? (int)ranks_per_node : 1};
    LT_TRY(read_goal(&r->goal, &o->goal));
    snprintf(all, sizeof all, "1..%lld", (long long)(o->nodes ? o->nodes * r->per_node : 1));
    LT_TRY(read_ranks(r, o->ranks ? o->ranks : all));
    LT_TRY(check_ranks_fit_nodes(r));
    LT_TRY(read_machine(r));
    LT_TRY(parse_pilot_budget(r));
    return parse_all_vary_flags(r);
}
