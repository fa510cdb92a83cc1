/* bench: how fast the library is on this machine. `bench train --help` and so on for options. */

#include "bench.h"

#include "lather/optim_config.h"
#include "lather/shampoo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const struct {
    const char *name;
    bench_fn *run;
    const char *help;
} commands[] = {
    {"train", bench_train, "a training step on synthetic data"},
    {"eval", bench_eval, "a forward pass that evaluates, on synthetic data"},
    {"regimes", bench_regimes,
     "which exchange of gradients is the fastest, by links and ranks: simulated"},
    {"overlap", bench_overlap, "several ranks: gradients in flight while backward goes on"},
    {"exchange", bench_exchange, "the mean of gradients over ranks, by each of several reducers"},
    {"stragglers", bench_stragglers, "steps that do not wait for slow ranks, which sleep"},
    {"links", bench_links, "latency and bandwidth inside a node and between two"},
    {"loader", bench_loader, "reading, decoding and transforming images"},
    {"optim", bench_optim, "an optimizer's step on a network's parameters"},
    {"attention", bench_attention, "attention of one size, forward and backward"},
    {"linear", bench_linear, "matrix products of transformers, forward and backward"},
    {"ops", bench_ops, "single operations, forward and backward"},
    {"ceilings", bench_ceilings, "copies and matrix products: what the device can reach"},
    {"roots", bench_roots, "Shampoo's inverse roots, against LAPACK"},
};

double bench_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double bench_core_seconds(void)
{
    struct timespec spent;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent);
    return (double)spent.tv_sec + 1e-9 * (double)spent.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, ascending);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

int64_t bench_process_bytes(const char *field)
{
    char line[256];
    long long kib = 0;
    size_t length = strlen(field);
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, field, length) && line[length] == ':')
            kib = strtoll(line + length + 1, NULL, 10);
    if (file)
        fclose(file);
    return (int64_t)kib * 1024;
}

void bench_print_header(const bench_header *h)
{
    printf("{\"benchmark\": \"%s\", \"version\": \"%s\", \"device\": \"%s\", \"dtype\": \"%s\", "
           "\"batch_size\": %d, \"threads\": %d",
           h->benchmark, lt_version(), h->device, h->dtype, h->batch_size, h->threads);
}

/* Strings in a command's settings are these options'. */
static lt_options *options;
static bool is_understood; /* the command line */

const char *bench_optims[BENCH_OPTIMS];
int bench_optim_count;
char bench_all_optims[BENCH_OPTIMS * 64] = "all";

static void list_optims(void)
{
    static char name[BENCH_OPTIMS][64];
    size_t used = strlen(bench_all_optims);
    for (int i = 0; i < BENCH_OPTIMS && lt_optim_name_at((size_t)i, name[i], sizeof name[i]); i++) {
        bench_optims[bench_optim_count++] = name[i];
        used += (size_t)snprintf(bench_all_optims + used, sizeof bench_all_optims - used, "|%s",
                                 name[i]);
    }
}

lt_status bench_parse(const lt_program *program, void *values, int argc, char *const *argv,
                      bool *run)
{
    list_optims();
    lt_status st = lt_options_new(&options, program, values);
    if (!st)
        st = lt_options_parse(options, argc, argv);
    is_understood = !st;
    if (!st)
        st = lt_options_answer(options, stdout);
    *run = !st && lt_options_asked(options) == LT_OPTIONS_RUN;
    return st;
}

bool bench_shampoo_config(lt_shampoo_config *out, const char *name)
{
    static const char prefix[] = "shampoo-";
    const char *preset = !strcmp(name, "shampoo")                 ? "recommended"
                         : !strncmp(name, prefix, strlen(prefix)) ? name + strlen(prefix)
                                                                  : name;
    return lt_shampoo_preset(preset, out) == LT_OK;
}

/* A linear congruential sequence (Knuth's MMIX multiplier): fast, and speed is all that counts. */
static double next_uniform(uint64_t *state)
{
    *state = *state * 6364136223846793005U + 1442695040888963407U;
    return (double)(*state >> 11) * 0x1p-53;
}

lt_status bench_fill_random(lt_tensor *tensor, double bound, uint64_t seed)
{
    int64_t count = lt_tensor_count(tensor);
    size_t bytes = lt_tensor_bytes(tensor);
    unsigned char *host = malloc(bytes);
    if (!host)
        return LT_E_NOMEM;
    for (int64_t i = 0; i < count; i++) {
        double u = next_uniform(&seed);
        if (lt_tensor_dtype(tensor) == LT_U8)
            host[i] = (unsigned char)(u * bound);
        else if (lt_tensor_dtype(tensor) == LT_I32)
            ((int32_t *)(void *)host)[i] = (int32_t)(u * bound);
        else
            ((float *)(void *)host)[i] = (float)((2 * u - 1) * bound);
    }
    lt_status st = lt_tensor_write(tensor, host, bytes);
    free(host);
    return st;
}

static int usage(FILE *out)
{
    fprintf(out, "usage: bench COMMAND [OPTION]...\n\n");
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        fprintf(out, "  %-8s %s\n", commands[i].name, commands[i].help);
    fprintf(out, "\n`bench COMMAND --help` lists its options. With --json stdout is one object.\n");
    return out == stdout ? 0 : 2;
}

int main(int argc, char **argv)
{
    lt_threads_sleep_soon(argv);
    if (argc < 2)
        return usage(stderr);
    if (!strcmp(argv[1], "--help"))
        return usage(stdout);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (strcmp(argv[1], commands[i].name) != 0)
            continue;
        lt_status st = commands[i].run(argc - 1, argv + 1);
        lt_options_free(&options);
        if (!st)
            return 0;
        fprintf(stderr, "bench %s: %s\n", argv[1], lt_error_message());
        return is_understood && st != LT_E_ARG ? 1 : 2;
    }
    fprintf(stderr, "bench: no benchmark '%s'\n", argv[1]);
    return usage(stderr);
}
