/* bench optim: the median time of each optimizer's step on a network's real parameter list.
 *
 * For Shampoo, steps between refreshes and one refresh of all roots are measured separately: a step costs
 * on average the first plus a share 1/frequency of the second, whatever the timing of refreshes. With the staggered
 * timing the refresh is the sum over a round of steps, after the first round. Factors that are updated by only some
 * gradients add their share of that time to each step. */

#include "bench.h"

#include "lather/detail/shampoo_report.h"
#include "lather/optim_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct settings {
    bench_common common;
    const char *arch;
    int optim, factor_dtype, state_dtype, refresh; /* indices of choices */
    bool packed;
    int64_t block;
    lt_option_list json; /* --settings */
} settings;
static settings s;

/* clang-format off */
static const lt_option table[] = {
    {"Benchmark", TEXT("arch", arch), .value = "resnet50", .help = "network whose parameters are updated"},
    {"Benchmark", PICK("optim", optim, bench_all_optims), .help = "optimizer"},
    {"Benchmark", .name = "settings", .type = LT_OPTION_LIST, AT(json), .meta = "JSON", .help = "instead of --optim: optimizers of these settings, as optim_replay reads them, steps alternating; median processor time of each, and its ratio to the first"},
    {"Benchmark", PLUGIN},
    {"Benchmark", STEPS, .value = "5", .help = "measured steps"},
    {"Benchmark", WARMUP, .value = "1", .help = "steps before those"},
    {"Benchmark", INT("max-preconditioner-dim", block, 0, 1000000), .value = "1024", .help = "Shampoo's largest side of a block; 0: no limit"},
    {"Benchmark", PICK("refresh", refresh, "reference|staggered"), .help = "computation of Shampoo's roots: all in one step, or spread over the steps of a round"},
    {"Benchmark", PICK("factor-dtype", factor_dtype, "f32|bf16|int8|int4"), .help = "dtype of Shampoo's factors and roots"},
    {"Benchmark", FLAG("packed-factors", packed), .help = "store f32 factors as triangles"},
    {"Benchmark", PICK("state-dtype", state_dtype, "f32|bf16|int8"), .help = "dtype of moments"},
    {"Benchmark", FLAG("tf32", common.tf32), .help = "cuda: compute products of f32 matrices in TF32"},
};
/* clang-format on */

/* --- Optimizers by name --- */

const char *bench_optims[BENCH_OPTIMS];
static int optims;
char bench_all_optims[BENCH_OPTIMS * 64] = "all";

void bench_list_optims(void)
{
    static char name[BENCH_OPTIMS][64];
    size_t used = strlen(bench_all_optims);
    while (optims < BENCH_OPTIMS
           && lt_optim_name_at((size_t)optims, name[optims], sizeof name[optims])) {
        used += (size_t)snprintf(bench_all_optims + used, sizeof bench_all_optims - used, "|%s",
                                 name[optims]);
        bench_optims[optims] = name[optims];
        optims++;
    }
}

bool bench_shampoo_config(lt_shampoo_config *out, const char *name)
{
    static const char prefix[] = "shampoo-";
    const char *preset = !strcmp(name, "shampoo")                 ? "recommended"
                         : !strncmp(name, prefix, strlen(prefix)) ? name + strlen(prefix)
                                                                  : name;
    return lt_shampoo_preset(preset, out) == LT_OK;
}

enum { MOST_FACTORS = 1 << 14 };

typedef struct tally {
    double side[MOST_FACTORS];
    int count;
} tally;

static lt_status add_factor(void *context, const lt_state_entry *entry)
{
    tally *t = context;
    if (strncmp(entry->name, "factor.", 7) != 0 || entry->extent.ndim != 2)
        return LT_OK;
    if (t->count == MOST_FACTORS)
        return lt_fail(LT_E_UNSUPPORTED, "bench: more than %d factors", MOST_FACTORS);
    t->side[t->count++] = (double)entry->extent.dim[0];
    return LT_OK;
}

static lt_status pass_over(void *context, const char *name, int64_t *value)
{
    (void)context, (void)name, (void)value;
    return LT_OK;
}

lt_status bench_factor_sides(lt_optim *optim, char *out, size_t size)
{
    static tally t;
    lt_state_visitor visitor = {.entry = add_factor, .number = pass_over, .context = &t};
    size_t used = 0;
    *out = 0;
    LT_TRY(lt_optim_visit(optim, &visitor));
    qsort(t.side, (size_t)t.count, sizeof *t.side, bench_ascending);
    for (int end = t.count, i; end > 0 && used < size; end = i) {
        for (i = end - 1; i > 0 && t.side[i - 1] == t.side[end - 1];)
            i--;
        used += (size_t)snprintf(out + used, size - used, "%s%.0fx%d", used ? "," : "",
                                 t.side[end - 1], end - i);
    }
    return LT_OK;
}

/* --- Steps --- */

/* One optimizer's figures; those of Shampoo alone are 0 for others. */
typedef struct result {
    double milliseconds;              /* per step, with its share of a refresh */
    double plain, factor, apply;      /* milliseconds per step without a refresh, and parts of it */
    double refresh, share;            /* milliseconds per refresh, and 1/frequency of them */
    int64_t frequency, roots, solved; /* steps between refreshes; matrices; solved in double */
    int64_t root_steps;               /* steps in which roots were computed */
    size_t state_bytes;
} result;

static lt_status fill_gradients(const lt_params *params)
{
    for (size_t i = 0; i < params->count; i++) {
        lt_param *p = params->item[i];
        if (!lt_param_is_trained(p))
            continue;
        LT_TRY(bench_fill_random(p->grad, 1e-2, i + 1));
        p->has_grad = true;
    }
    return LT_OK;
}

/* An optimizer whose steps are timed. */
typedef struct stepped {
    lt_optim *optim;
    int64_t attempt;
    result *all;
} stepped;

static void add_roots(const lt_optim *optim, result *out)
{
    const lt_shampoo_stats parts = lt_shampoo_statistics(optim);
    out->refresh += 1e3 * parts.root_seconds;
    out->roots += parts.roots;
    out->solved += parts.retries;
    out->root_steps += parts.roots > 0;
}

/* Runs one step and waits for the device. */
static lt_status time_step(stepped *o, double *seconds)
{
    const lt_step step = {.lr = 1e-3, .attempt = o->attempt++};
    lt_step_result done;
    const double begin = bench_seconds();
    LT_TRY(lt_optim_step(o->optim, &step));
    LT_TRY(lt_optim_result(o->optim, &done));
    *seconds = bench_seconds() - begin;
    return LT_OK;
}

enum { TOTAL, FACTOR, APPLY, COLUMNS };

static lt_status next_step(void *context, int64_t round, double *found)
{
    stepped *o = context;
    (void)round;
    LT_TRY(time_step(o, &found[TOTAL]));
    add_roots(o->optim, o->all);
    const lt_shampoo_stats parts = lt_shampoo_statistics(o->optim);
    found[TOTAL] -= parts.root_seconds;
    found[FACTOR] = parts.factor_seconds;
    found[APPLY] = parts.apply_seconds;
    return LT_OK;
}

/* Reads the settings' default of factor_frequency: steps per gradient that updates the factors. */
static lt_status ask_factor_frequency(const lt_params *params, lt_shampoo_config c, int64_t *out)
{
    lt_optim *optim = NULL;
    c.factor_dtype = (lt_state_dtype)s.factor_dtype;
    c.packed_factors = s.packed;
    LT_TRY(lt_optim_shampoo(&optim, params, &c));
    *out = lt_shampoo_settings(optim)->factor_frequency;
    lt_optim_free(&optim);
    return LT_OK;
}

enum { REFERENCE, STAGGERED }; /* choices of --refresh */
enum { MORE = 2 };             /* last steps of a round, which are not measured */

/* Opens a Shampoo that refreshes all roots in the first step and, with the reference timing, none in the measured ones;
 * every gradient updates the factors. */
static lt_status make_shampoo(lt_optim **out, const lt_params *params, lt_shampoo_config c)
{
    c.max_preconditioner_dim = s.block;
    c.refresh_timing = s.refresh == STAGGERED ? LT_REFRESH_STAGGERED : LT_REFRESH_REFERENCE;
    c.precondition_frequency = s.common.warmup + s.common.steps + MORE;
    c.start_preconditioning_step = c.precondition_frequency;
    c.factor_frequency = 1;
    c.factor_dtype = (lt_state_dtype)s.factor_dtype;
    c.packed_factors = s.packed;
    return lt_optim_shampoo(out, params, &c);
}

/* Runs a step that computes all roots with either timing, then the measured steps, then the rest of the round: on a device
 * with a queue a batch of roots completes at the end of its part of the round. Roots are counted in the first step for the
 * reference timing, in the round after it for the staggered one. */
static lt_status time_steps(stepped *o, bool shampoo, double *median)
{
    double ignored;
    if (shampoo)
        LT_TRY(time_step(o, &ignored));
    if (shampoo && s.refresh == REFERENCE)
        add_roots(o->optim, o->all);
    LT_TRY(bench_rounds(&s.common, next_step, o, COLUMNS, median));
    for (int64_t i = 0; shampoo && s.refresh == STAGGERED && i < MORE; i++) {
        LT_TRY(time_step(o, &ignored));
        add_roots(o->optim, o->all);
    }
    return LT_OK;
}

static lt_status run(const lt_params *params, const char *name, result *out)
{
    lt_shampoo_config c;
    const bool shampoo = bench_shampoo_config(&c, name);
    const int64_t every = s.common.warmup + s.common.steps + MORE;
    stepped o = {.attempt = shampoo ? every : 1, .all = out};
    double median[COLUMNS];
    int64_t seen = 1;
    lt_status st = shampoo ? ask_factor_frequency(params, c, &seen) : LT_OK;
    if (!st)
        st = shampoo ? make_shampoo(&o.optim, params, c) : lt_optim_open(&o.optim, name, params);
    if (!st)
        st = lt_optim_set_state_dtype(o.optim, (lt_state_dtype)s.state_dtype);
    if (!st)
        st = time_steps(&o, shampoo, median);
    if (!st) {
        out->factor = 1e3 * median[FACTOR] / (double)seen;
        out->plain = 1e3 * median[TOTAL] - out->factor * (double)(seen - 1);
        out->apply = 1e3 * median[APPLY];
        out->frequency = shampoo ? c.precondition_frequency : 0; /* the preset's */
        out->share = shampoo ? out->refresh / (double)c.precondition_frequency : 0;
        out->milliseconds = out->plain + out->share;
        out->state_bytes = lt_optim_state_bytes(o.optim);
    }
    lt_optim_free(&o.optim);
    return st;
}

static void print_result(const char *name, const result *r)
{
    fprintf(stderr, "%-18s %10.2f ms a step, %8.1f MiB of state", name, r->milliseconds,
            (double)r->state_bytes / 0x1p20);
    if (r->frequency)
        fprintf(stderr,
                "; without refresh %.2f (factors %.2f, direction and update %.2f), refresh of %d "
                "roots %.1f every %d",
                r->plain, r->factor, r->apply, (int)r->roots, r->refresh, (int)r->frequency);
    fputc('\n', stderr);
    bench_print_open(name, '{');
    bench_print_fields("milliseconds %g state_bytes %zu", r->milliseconds, r->state_bytes);
    if (r->frequency)
        bench_print_fields("plain_milliseconds %g factor_milliseconds %g apply_milliseconds %g "
                           "refresh_milliseconds %g refresh_share_milliseconds %g "
                           "precondition_frequency %d roots %d root_steps %d retries %d",
                           r->plain, r->factor, r->apply, r->refresh, r->share, (int)r->frequency,
                           (int)r->roots, (int)r->root_steps, (int)r->solved);
    bench_print_close('}');
}

/* *milliseconds: of the first optimizer */
static lt_status measure_all(const lt_params *params, double *milliseconds)
{
    const int first = s.optim ? s.optim - 1 : 0, end = s.optim ? s.optim : optims;
    for (int i = first; i < end; i++) {
        result r = {0};
        LT_TRY(run(params, bench_optims[i], &r));
        print_result(bench_optims[i], &r);
        *milliseconds = i == first ? r.milliseconds : *milliseconds;
    }
    return LT_OK;
}

/* --- Optimizers by settings --- */

enum { MOST_SETTINGS = 8 };

/* Makes a step of each. */
static lt_status step_each(void *context, int64_t round, double *found)
{
    stepped *o = context;
    (void)round;
    for (size_t i = 0; i < s.json.count; i++) {
        double ignored;
        const double begin = bench_core_seconds();
        LT_TRY(time_step(&o[i], &ignored));
        found[i] = bench_core_seconds() - begin;
    }
    return LT_OK;
}

static lt_status make_by_settings(lt_optim **out, const lt_params *params, const char *json)
{
    lt_optim_config c;
    LT_TRY(lt_optim_config_parse(&c, json, strlen(json)));
    lt_status st = lt_optim_config_make(out, &c, params);
    lt_optim_config_clear(&c);
    return st;
}

static lt_status measure_settings(const lt_params *params)
{
    stepped o[MOST_SETTINGS] = {{0}};
    double median[MOST_SETTINGS];
    char key[24];
    lt_status st = s.json.count <= MOST_SETTINGS
                       ? LT_OK
                       : lt_fail(LT_E_ARG, "--settings: given %zu times, at most %d", s.json.count,
                                 MOST_SETTINGS);
    for (size_t i = 0; i < s.json.count && !st; i++) {
        o[i].attempt = 1;
        st = make_by_settings(&o[i].optim, params, s.json.item[i]);
    }
    if (!st)
        st = bench_rounds(&s.common, step_each, o, (int)s.json.count, median);
    for (size_t i = 0; i < s.json.count; i++) {
        if (!st) {
            fprintf(stderr, "%10.1f ms of a processor a step, %6.2f of the first: %s\n",
                    1e3 * median[i], median[i] / median[0], s.json.item[i]);
            snprintf(key, sizeof key, "%zu", i);
            bench_print_open(key, '{');
            bench_print_fields("core_milliseconds %g of_first %g", 1e3 * median[i],
                               median[i] / median[0]);
            bench_print_close('}');
        }
        lt_optim_free(&o[i].optim);
    }
    return st;
}

static lt_status run_optim(lt_device *device, lt_comm *comm)
{
    bench_network n = {0};
    double milliseconds = 0;
    (void)comm;
    bench_print_head("optim", device, "f32", 0);
    bench_print_open("optimizers", '{');
    lt_status st =
        bench_network_open(&n, device, (bench_model_config){.arch = s.arch, .size = 224});
    if (!st)
        st = fill_gradients(&n.params);
    if (!st)
        st = s.json.count ? measure_settings(&n.params) : measure_all(&n.params, &milliseconds);
    bench_network_close(&n);
    bench_print_close('}');
    bench_print_fields("arch %s steps %d milliseconds %g peak_memory_bytes %zu", s.arch,
                       (int)s.common.steps, milliseconds, lt_device_memory(device).peak);
    return st;
}

BENCH_COMMAND(optim, BENCH_DEVICE, table, "time an optimizer's step on a network's parameters");
