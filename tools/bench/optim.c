/* bench optim: the median time of each optimizer's step on a network's real parameter list.
 *
 * Of Shampoo, steps between refreshes and one refresh of all roots are measured apart: a step costs
 * on average the first plus a share 1/frequency of the second, whatever the timing of refreshes. With the staggered
 * timing the refresh is what a round of steps has of it, behind the first one. Of factors that
 * see one gradient in some steps a step takes that share. */

#include "bench.h"
#include "models.h"

#include "lather/optim_config.h"
#include "lather/shampoo_report.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct settings {
    const char *arch, *device;
    int optim, factor_dtype, state_dtype, refresh;
    bool packed, tf32;
    int64_t threads, steps, warmup, block;
    bool json;
} settings;

#define AT(field) offsetof(settings, field)

static const lt_option table[] = {
    {.group = "Benchmark",
     .name = "arch",
     .type = LT_OPTION_STRING,
     .offset = AT(arch),
     .value = "resnet50",
     .help = "network whose parameters are updated"},
    {.group = "Benchmark",
     .name = "optim",
     .type = LT_OPTION_CHOICE,
     .offset = AT(optim),
     .choices = bench_all_optims,
     .help = "optimizer"},
    {.group = "Benchmark",
     .name = "steps",
     .type = LT_OPTION_INT,
     .offset = AT(steps),
     .value = "5",
     .min = 1,
     .max = 100000,
     .help = "measured steps"},
    {.group = "Benchmark",
     .name = "warmup",
     .type = LT_OPTION_INT,
     .offset = AT(warmup),
     .value = "1",
     .min = 0,
     .max = 1000,
     .help = "steps before those"},
    {.group = "Benchmark",
     .name = "max-preconditioner-dim",
     .type = LT_OPTION_INT,
     .offset = AT(block),
     .value = "1024",
     .min = 0,
     .max = 1000000,
     .help = "Shampoo's largest side of a block; 0: no limit"},
    {.group = "Benchmark",
     .name = "refresh",
     .type = LT_OPTION_CHOICE,
     .offset = AT(refresh),
     .choices = "reference|staggered",
     .help = "when Shampoo's roots are computed: all in one step, or in the steps of a round"},
    {.group = "Benchmark",
     .name = "factor-dtype",
     .type = LT_OPTION_CHOICE,
     .offset = AT(factor_dtype),
     .choices = "f32|bf16|int8|int4",
     .help = "what Shampoo's factors and roots are kept in"},
    {.group = "Benchmark",
     .name = "packed-factors",
     .type = LT_OPTION_BOOL,
     .offset = AT(packed),
     .help = "those in f32 as triangles"},
    {.group = "Benchmark",
     .name = "state-dtype",
     .type = LT_OPTION_CHOICE,
     .offset = AT(state_dtype),
     .choices = "f32|bf16|int8",
     .help = "what moments are kept in"},
    {.group = "Benchmark",
     .name = "tf32",
     .type = LT_OPTION_BOOL,
     .offset = AT(tf32),
     .help = "cuda: products of f32 matrices in that precision"},
    BENCH_MACHINE_OPTIONS(settings),
};

static const lt_program program = {
    .name = "bench optim",
    .summary = "time an optimizer's step",
    .usage = "[OPTION]...",
    .option = table,
    .count = sizeof table / sizeof *table,
};

/* One optimizer's figures; those of Shampoo alone are 0 for others. */
typedef struct result {
    double milliseconds;              /* of a step, with its share of a refresh */
    double plain, factor, apply;      /* of a step without */
    double refresh, share;            /* of a refresh, and 1/frequency of it */
    int64_t frequency, roots, solved; /* steps between refreshes; matrices; of them in double */
    int64_t root_steps;               /* that had any of these roots */
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

/* One step; waits for the device. */
static lt_status time_step(lt_optim *optim, int64_t attempt, double *seconds)
{
    lt_step step = {.lr = 1e-3, .attempt = attempt};
    lt_step_result done;
    double begin = bench_seconds();
    LT_TRY(lt_optim_step(optim, &step));
    LT_TRY(lt_optim_result(optim, &done));
    *seconds = bench_seconds() - begin;
    return LT_OK;
}

static void add_roots(const lt_optim *optim, result *out)
{
    const lt_shampoo_stats parts = lt_shampoo_statistics(optim);
    out->refresh += 1e3 * parts.root_seconds;
    out->roots += parts.roots;
    out->solved += parts.retries;
    out->root_steps += parts.roots > 0;
}

/* Steps measured in all, and their parts. */
typedef struct samples {
    double *total, *factor, *apply;
} samples;

static lt_status time_steps(lt_optim *optim, const settings *s, int64_t first, samples *out,
                            result *all)
{
    for (int64_t i = 0; i < s->warmup + s->steps; i++) {
        double seconds;
        LT_TRY(time_step(optim, first + i, &seconds));
        add_roots(optim, all);
        if (i < s->warmup)
            continue;
        lt_shampoo_stats parts = lt_shampoo_statistics(optim);
        out->total[i - s->warmup] = seconds - parts.root_seconds;
        out->factor[i - s->warmup] = parts.factor_seconds;
        out->apply[i - s->warmup] = parts.apply_seconds;
    }
    return LT_OK;
}

/* Steps between gradients that factors see, as the settings' defaults have it. */
static lt_status ask_factor_frequency(const lt_params *params, const settings *s,
                                      lt_shampoo_config c, int64_t *out)
{
    lt_optim *optim = NULL;
    c.factor_dtype = (lt_state_dtype)s->factor_dtype;
    c.packed_factors = s->packed;
    LT_TRY(lt_optim_shampoo(&optim, params, &c));
    *out = lt_shampoo_settings(optim)->factor_frequency;
    lt_optim_free(&optim);
    return LT_OK;
}

enum { REFERENCE, STAGGERED }; /* choices of --refresh */
enum { MORE = 2 };             /* steps of a round that are not measured, the last ones */

/* A refresh of all roots in the first step, by the reference timing none in those that are measured; factors see each
 * gradient. */
static lt_status make_shampoo(lt_optim **out, const lt_params *params, const settings *s,
                              lt_shampoo_config c)
{
    c.max_preconditioner_dim = s->block;
    c.refresh_timing = s->refresh == STAGGERED ? LT_REFRESH_STAGGERED : LT_REFRESH_REFERENCE;
    c.precondition_frequency = s->warmup + s->steps + MORE;
    c.start_preconditioning_step = c.precondition_frequency;
    c.factor_frequency = 1;
    c.factor_dtype = (lt_state_dtype)s->factor_dtype;
    c.packed_factors = s->packed;
    return lt_optim_shampoo(out, params, &c);
}

/* The step in which all roots are computed, whatever the timing; a round is counted apart. */
static lt_status time_refresh(lt_optim *optim, const settings *s, int64_t attempt, result *out)
{
    double seconds;
    LT_TRY(time_step(optim, attempt, &seconds));
    if (s->refresh == REFERENCE)
        add_roots(optim, out);
    return LT_OK;
}

/* On a device with a queue a batch of roots comes at the end of its share of the round. */
static lt_status end_round(lt_optim *optim, const settings *s, int64_t first, result *out)
{
    double seconds;
    for (int64_t i = 0; s->refresh == STAGGERED && i < MORE; i++) {
        LT_TRY(time_step(optim, first + i, &seconds));
        add_roots(optim, out);
    }
    return LT_OK;
}

static lt_status run(const lt_params *params, const settings *s, const char *name, samples *times,
                     result *out)
{
    lt_optim *optim = NULL;
    lt_shampoo_config c;
    bool shampoo = bench_shampoo_config(&c, name);
    int64_t first = shampoo ? s->warmup + s->steps + MORE : 0, seen = 1;
    lt_status st = shampoo ? ask_factor_frequency(params, s, c, &seen) : LT_OK;
    if (!st)
        st = shampoo ? make_shampoo(&optim, params, s, c) : lt_optim_open(&optim, name, params);
    if (!st)
        st = lt_optim_set_state_dtype(optim, (lt_state_dtype)s->state_dtype);
    if (!st && shampoo)
        st = time_refresh(optim, s, first, out);
    if (!st)
        st = time_steps(optim, s, first + 1, times, out);
    if (!st && shampoo)
        st = end_round(optim, s, first + 1 + s->warmup + s->steps, out);
    if (!st) {
        int count = (int)s->steps;
        out->plain = 1e3 * bench_median(times->total, count);
        out->factor = 1e3 * bench_median(times->factor, count) / (double)seen;
        out->plain -= out->factor * (double)(seen - 1);
        out->apply = 1e3 * bench_median(times->apply, count);
        out->frequency = shampoo ? c.precondition_frequency : 0;
        out->share = shampoo ? out->refresh / (double)c.precondition_frequency : 0;
        out->milliseconds = out->plain + out->share;
        out->state_bytes = lt_optim_state_bytes(optim);
    }
    lt_optim_free(&optim);
    return st;
}

static lt_status measure(const lt_params *params, const settings *s, const char *name, result *out)
{
    double *memory = calloc(3 * (size_t)s->steps, sizeof *memory);
    samples times = {memory, memory + s->steps, memory + 2 * s->steps};
    lt_status st = memory ? run(params, s, name, &times, out) : LT_E_NOMEM;
    free(memory);
    if (st)
        return st;
    fprintf(stderr, "%-18s %10.2f ms a step, %8.1f MiB of state", name, out->milliseconds,
            (double)out->state_bytes / 0x1p20);
    if (out->frequency)
        fprintf(stderr,
                "; without refresh %.2f (factors %.2f, direction and update %.2f), refresh of %d "
                "roots %.1f every %d",
                out->plain, out->factor, out->apply, (int)out->roots, out->refresh,
                (int)out->frequency);
    fputc('\n', stderr);
    return LT_OK;
}

static void print_result(const char *name, const result *r)
{
    printf("\"%s\": {\"milliseconds\": %.6g, \"state_bytes\": %zu", name, r->milliseconds,
           r->state_bytes);
    if (r->frequency)
        printf(", \"plain_milliseconds\": %.6g, \"factor_milliseconds\": %.6g, "
               "\"apply_milliseconds\": %.6g, \"refresh_milliseconds\": %.6g, "
               "\"refresh_share_milliseconds\": %.6g, \"precondition_frequency\": %d, "
               "\"roots\": %d, \"root_steps\": %d, \"retries\": %d",
               r->plain, r->factor, r->apply, r->refresh, r->share, (int)r->frequency,
               (int)r->roots, (int)r->root_steps, (int)r->solved);
    printf("}");
}

static lt_status measure_all(lt_device *device, const lt_params *params, const settings *s)
{
    int first = s->optim ? s->optim - 1 : 0, end = s->optim ? s->optim : bench_optim_count;
    result *r = calloc((size_t)bench_optim_count, sizeof *r);
    lt_status st = r ? fill_gradients(params) : LT_E_NOMEM;
    for (int i = first; i < end && !st; i++)
        st = measure(params, s, bench_optims[i], &r[i]);
    if (!st && s->json) {
        bench_header header = {"optim", lt_device_name(device), "f32", 0,
                               lt_device_threads(device)};
        bench_print_header(&header);
        printf(", \"arch\": \"%s\", \"steps\": %d, \"milliseconds\": %.6g, "
               "\"peak_memory_bytes\": %zu, \"optimizers\": {",
               s->arch, (int)s->steps, r[first].milliseconds, lt_device_memory(device).peak);
        for (int i = first; i < end; i++) {
            if (i > first)
                printf(", ");
            print_result(bench_optims[i], &r[i]);
        }
        printf("}}\n");
    }
    free(r);
    return st;
}

static lt_status measure_model(lt_device *device, const settings *s)
{
    lt_module *model = NULL;
    lt_params params = {0};
    const bench_model *kind = bench_model_of(s->arch);
    const bench_model_config config = {
        .arch = s->arch, .classes = kind->usual_classes, .size = 224};
    lt_status st = kind->make(&model, device, &config);
    if (!st)
        st = lt_module_params(model, &params);
    if (!st)
        st = measure_all(device, &params, s);
    lt_params_clear(&params);
    lt_module_free(&model);
    return st;
}

lt_status bench_optim(int argc, char *const *argv)
{
    settings s = {0};
    bool run;
    LT_TRY(bench_parse(&program, &s, argc, argv, &run));
    if (!run)
        return LT_OK;
    lt_device *device = NULL;
    const lt_device_config config = {.threads = (int)s.threads, .tf32 = s.tf32};
    lt_status st = lt_device_open(&device, s.device, &config);
    if (!st)
        st = measure_model(device, &s);
    lt_device_close(&device);
    return st;
}
