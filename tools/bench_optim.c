/* bench optim: the median time of each optimizer's step on a network's real parameter list. */

#include "bench.h"
#include "resnet.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct settings {
    const char *arch, *device;
    int optim;
    int64_t threads, steps, warmup;
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
     .choices = "all|sgd|adagrad|adam|adamw|shampoo",
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
    BENCH_MACHINE_OPTIONS(settings),
};

static const lt_program program = {
    .name = "bench optim",
    .summary = "time an optimizer's step",
    .usage = "[OPTION]...",
    .option = table,
    .count = sizeof table / sizeof *table,
};

static const char *const names[] = {"sgd", "adagrad", "adam", "adamw", "shampoo"};
enum { OPTIMIZERS = sizeof names / sizeof *names };

/* One optimizer's figures. */
typedef struct result {
    double milliseconds;
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

static lt_status time_steps(lt_optim *optim, const settings *s, double *seconds)
{
    for (int64_t i = 0; i < s->warmup + s->steps; i++) {
        lt_step step = {.lr = 1e-3, .attempt = i + 1};
        lt_step_result done;
        double begin = bench_seconds();
        LT_TRY(lt_optim_step(optim, &step));
        LT_TRY(lt_optim_result(optim, &done)); /* waits for the device */
        if (i >= s->warmup)
            seconds[i - s->warmup] = bench_seconds() - begin;
    }
    return LT_OK;
}

static lt_status measure(const lt_params *params, const settings *s, const char *name, result *out)
{
    lt_optim *optim = NULL;
    double *seconds = malloc((size_t)s->steps * sizeof *seconds);
    lt_status st = seconds ? bench_make_optim(&optim, name, params) : LT_E_NOMEM;
    if (!st)
        st = time_steps(optim, s, seconds);
    if (!st) {
        *out = (result){1e3 * bench_median(seconds, (int)s->steps), lt_optim_state_bytes(optim)};
        fprintf(stderr, "%-8s %10.2f ms a step, %8.1f MiB of state\n", name, out->milliseconds,
                (double)out->state_bytes / 0x1p20);
    }
    lt_optim_free(&optim);
    free(seconds);
    return st;
}

static lt_status measure_all(lt_device *device, const lt_params *params, const settings *s)
{
    result r[OPTIMIZERS] = {{0}};
    int first = s->optim ? s->optim - 1 : 0, end = s->optim ? s->optim : OPTIMIZERS;
    LT_TRY(fill_gradients(params));
    for (int i = first; i < end; i++)
        LT_TRY(measure(params, s, names[i], &r[i]));
    if (!s->json)
        return LT_OK;
    bench_header header = {"optim", lt_device_name(device), "f32", 0, lt_device_threads(device)};
    bench_print_header(&header);
    printf(", \"arch\": \"%s\", \"steps\": %d, \"milliseconds\": %.6g, \"peak_memory_bytes\": %zu, "
           "\"optimizers\": {",
           s->arch, (int)s->steps, r[first].milliseconds, lt_device_memory(device).peak);
    for (int i = first; i < end; i++)
        printf("%s\"%s\": {\"milliseconds\": %.6g, \"state_bytes\": %zu}", i > first ? ", " : "",
               names[i], r[i].milliseconds, r[i].state_bytes);
    printf("}}\n");
    return LT_OK;
}

lt_status bench_optim(int argc, char *const *argv)
{
    settings s = {0};
    bool run;
    LT_TRY(bench_parse(&program, &s, argc, argv, &run));
    if (!run)
        return LT_OK;
    lt_device *device = NULL;
    lt_module *model = NULL;
    lt_params params = {0};
    lt_device_config config = {.threads = (int)s.threads};
    lt_resnet_config shape = {.arch = s.arch, .classes = 1000};
    lt_status st = lt_device_open(&device, s.device, &config);
    if (!st)
        st = lt_resnet_new(&model, device, &shape);
    if (!st)
        st = lt_module_params(model, &params);
    if (!st)
        st = measure_all(device, &params, &s);
    lt_params_clear(&params);
    lt_module_free(&model);
    lt_device_close(&device);
    return st;
}
