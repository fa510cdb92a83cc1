/* bench: benchmarks of the library on this machine. `bench train --help` and so on list their options. */

#include "bench.h"

#include "lather/plugin.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const bench_command *const commands[] = {
    &bench_train,      &bench_eval,  &bench_regimes,     &bench_overlap, &bench_exchange,
    &bench_stragglers, &bench_links, &bench_collectives, &bench_loader,  &bench_optim,
    &bench_attention,  &bench_ops,   &bench_ceilings,    &bench_roots,   &bench_service,
};
enum { COMMANDS = sizeof commands / sizeof(commands[0]) };

/* --- Measuring --- */

static double read_clock(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double bench_seconds(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

double bench_core_seconds(void)
{
    return read_clock(CLOCK_PROCESS_CPUTIME_ID);
}

int bench_ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, bench_ascending);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

lt_status bench_rounds(const bench_common *c, bench_round_fn *fn, void *context, int columns,
                       double *median)
{
    const size_t steps = (size_t)c->steps, width = (size_t)columns;
    double *found = calloc((steps + 1) * width, sizeof *found);
    double *column = calloc(steps, sizeof *column);
    lt_status st = found && column ? LT_OK : lt_fail(LT_E_NOMEM, "bench: no memory for the times");
    for (int64_t i = -c->warmup; i < c->steps && !st; i++) /* warm-up: a row that is ignored */
        st = fn(context, i, found + (i < 0 ? steps : (size_t)i) * width);
    for (size_t k = 0; k < width && !st; k++) {
        for (size_t i = 0; i < steps; i++)
            column[i] = found[i * width + k];
        median[k] = bench_median(column, (int)steps);
    }
    free(found);
    free(column);
    return st;
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

/* A linear congruential generator (Knuth's MMIX multiplier), chosen for speed. */
double bench_uniform(uint64_t *state)
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
        double u = bench_uniform(&seed);
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

lt_status bench_random(lt_tensor **out, lt_device *device, lt_dtype dtype, lt_shape shape,
                       lt_memory_format format, uint64_t seed)
{
    lt_tensor *values = NULL;
    LT_TRY(lt_tensor_new_as(&values, device, LT_F32, shape, format));
    lt_status st = bench_fill_random(values, 1, seed);
    if (!st)
        st = lt_tensor_new_like(out, values, dtype);
    if (!st)
        st = lt_tensor_copy(*out, values);
    lt_tensor_free(&values);
    return st;
}

/* --- Output --- */

static bool json;  /* wanted */
static bool comma; /* before the next value */

void bench_print_open(const char *key, char bracket)
{
    if (json && key)
        printf("%s\"%s\": %c", comma ? ", " : "", key, bracket);
    else if (json)
        printf("%s%c", comma ? ", " : "", bracket);
    comma = false;
}

void bench_print_close(char bracket)
{
    if (json)
        putchar(bracket);
    comma = true;
}

/* The quoted format has the conversions of `format`, which the compiler checks. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
static void print_fields(const char *format, va_list values) LT_PRINTF(1, 0);
static void print_fields(const char *format, va_list values)
{
    char quoted[1024], *to = quoted;
    for (const char *at = format; json && *at && to < quoted + sizeof quoted;) {
        const int key = (int)strcspn(at, " ");
        const char *value = at + key + 1;
        const int length = (int)strcspn(value, " ");
        const char *quote = value[length - 1] == 's' ? "\"" : "";
        to += snprintf(to, (size_t)(quoted + sizeof quoted - to), "%s\"%.*s\": %s%.*s%s",
                       comma ? ", " : "", key, at, quote, length, value, quote);
        at = value + length + (value[length] == ' ');
        comma = true;
    }
    if (json)
        vprintf(quoted, values);
}
#pragma GCC diagnostic pop

void bench_print_fields(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    print_fields(format, values);
    va_end(values);
}

void bench_print_number(const char *key, double value)
{
    if (json)
        printf("%s\"%s\": %.9g", comma ? ", " : "", key, value);
    comma = true;
}

void bench_print_row(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    bench_print_open(NULL, '{');
    print_fields(format, values);
    bench_print_close('}');
    va_end(values);
}

const char *const bench_amp_names[] = {"f32", "bf16", "f16", "tf32"};
const lt_dtype bench_amp_dtypes[] = {LT_F32, LT_BF16, LT_F16, LT_F32};

void bench_print_header(const char *benchmark, const char *device, const char *dtype, int64_t batch,
                        int threads)
{
    bench_print_open(NULL, '{');
    bench_print_fields("benchmark %s version %s device %s dtype %s batch_size %d threads %d",
                       benchmark, lt_version(), device, dtype, (int)batch, threads);
}

void bench_print_head(const char *benchmark, const lt_device *device, const char *dtype,
                      int64_t batch)
{
    bench_print_header(benchmark, lt_device_name(device), dtype, batch, lt_device_threads(device));
}

/* --- Options --- */

typedef bench_common settings;
/* clang-format off */
static const lt_option of_machine[] = {
    {"Machine", TEXT("device", device), .value = "cpu", .help = "ref, cpu, cuda"},
    {"Machine", INT("threads", threads, 0, 1024), .alias = 't', .value = "0", .help = "threads that compute, or decode images; 0: as many as allowed"},
};
static const lt_option of_output[] = {
    {"Output", FLAG("json", json), .help = "print one JSON object on stdout"},
};
static const lt_option of_model[] = {
    {"Benchmark", TEXT("arch", model.arch), .value = "resnet50", .help = "resnet18, 34, 50, 101, 152; vit_ti_16, s_16, b_16, ...; gpt2, gpt2-medium, ..."},
    {"Benchmark", INT("batch-size", model.batch, 1, 65536), .alias = 'b', .value = "32", .help = "samples of a batch"},
    {"Benchmark", INT("image-size", model.size, 1, 4096), .value = "224", .help = "side of the images in pixels"},
    {"Benchmark", PICK("stem", model.stem, "imagenet|small"), .help = "stem of residual networks; small: a 3x3 convolution without pooling"},
    {"Benchmark", INT("seq-len", model.length, 1, 1000000), .value = "256", .help = "tokens per sequence of gpt2"},
    {"Benchmark", INT("num-classes", model.classes, 0, 1000000), .value = "0", .help = "classes, or ids of gpt2; 0: 1000, 50257"},
};
static const lt_option of_ranks[] = {
    {"Ranks", INT("ranks", ranks, 2, BENCH_MAX_RANKS), .value = "2", .help = "number of ranks, which are threads; under mpirun ranks are its processes"},
    {"Ranks", TEXT("comm-model", link), .meta = "US,GBIT", .help = "the link: latency in microseconds and rate in Gbit/s; default: the real one"},
    {"Ranks", INT("ranks-per-node", ranks_per_node, 0, 1000000), .value = "0", .help = "consecutive ranks that form a node; 0: ranks with the same boot id and host name"},
};
/* clang-format on */

lt_status bench_read_list(const char *option, const char *text, double *out, int most, int *count)
{
    char *end;
    *count = 0;
    for (const char *at = text;; at = end + 1) {
        const double value = strtod(at, &end);
        if (end == at || (*end && *end != ','))
            return lt_fail(LT_E_ARG, "--%s: got '%s', want a list such as 1,10,100", option, text);
        if (*count == most)
            return lt_fail(LT_E_ARG, "--%s: more than %d values", option, most);
        out[(*count)++] = value;
        if (!*end)
            return LT_OK;
    }
}

/* Fills the settings. */
static lt_status parse(lt_options **options, const lt_program *program, const bench_command *b,
                       int argc, char *const *argv)
{
    bench_common *c = b->settings;
    lt_option_table table[5] = {{b->option, b->count, c}};
    size_t count = 1;
    if (b->kind == BENCH_NETWORK)
        table[count++] = (lt_option_table){of_model, sizeof of_model / sizeof *of_model, c};
    if (b->kind == BENCH_RANKS)
        table[count++] = (lt_option_table){of_ranks, sizeof of_ranks / sizeof *of_ranks, c};
    if (b->kind != BENCH_NO_DEVICE)
        table[count++] = (lt_option_table){of_machine, sizeof of_machine / sizeof *of_machine, c};
    table[count++] = (lt_option_table){of_output, 1, c};
    LT_TRY(lt_options_compose(options, program, table, count));
    LT_TRY(lt_options_parse(*options, argc, argv));
    json = c->json;
    return lt_options_print_request(*options, stdout);
}

static lt_status run(const bench_command *b)
{
    bench_common *c = b->settings;
    if (b->kind == BENCH_NO_DEVICE)
        return b->run(NULL, NULL);
    if (b->kind == BENCH_RANKS)
        return bench_play(c, b->run);
    const lt_device_config config = {.threads = (int)c->threads,
                                     .tf32 = c->tf32,
                                     .deterministic = c->deterministic,
                                     .fused = (lt_fused)c->fused};
    lt_device *device = NULL;
    c->began = bench_seconds();
    LT_TRY(lt_device_open(&device, c->device, &config));
    const lt_status st = b->run(device, NULL);
    lt_device_close(&device);
    return st;
}

/* Exit status: 0; 1: failed; 2: wrong command line. */
static int run_command(const bench_command *b, int argc, char *const *argv)
{
    char name[32];
    const lt_program program = {.name = name, .summary = b->summary, .usage = "[OPTION]..."};
    lt_options *options = NULL;
    snprintf(name, sizeof name, "bench %s", b->name);
    lt_status st = parse(&options, &program, b, argc, argv);
    const bool is_understood = !st;
    if (!st && lt_options_requested(options) == LT_OPTIONS_RUN)
        st = run(b);
    if (json && comma) /* it began the object */
        printf("}\n");
    if (st)
        fprintf(stderr, "bench %s: %s\n", b->name, lt_error_message());
    lt_options_free(&options);
    return !st ? 0 : is_understood && st != LT_E_ARG ? 1 : 2;
}

static int usage(FILE *out)
{
    fprintf(out, "usage: bench COMMAND [OPTION]...\n\n");
    for (size_t i = 0; i < COMMANDS; i++)
        fprintf(out, "  %-10s %s\n", commands[i]->name, commands[i]->summary);
    fprintf(out, "\n`bench COMMAND --help` lists its options. With --json stdout is one object.\n");
    return out == stdout ? 0 : 2;
}

static int print_version(void)
{
    const char *line;
    for (int i = 0; (line = lt_build_info(i)); i++)
        printf("%s\n", line);
    return 0;
}

int main(int argc, char **argv)
{
    lt_threads_set_passive_wait(argv);
    if (lt_plugin_load_arguments(argc, argv, "bench")) {
        fprintf(stderr, "bench: %s\n", lt_error_message());
        return 2;
    }
    bench_list_optims();
    if (argc < 2)
        return usage(stderr);
    if (!strcmp(argv[1], "--help"))
        return usage(stdout);
    if (!strcmp(argv[1], "--version"))
        return print_version();
    for (size_t i = 0; i < COMMANDS; i++)
        if (!strcmp(argv[1], commands[i]->name))
            return run_command(commands[i], argc - 1, argv + 1);
    fprintf(stderr, "bench: no benchmark '%s'\n", argv[1]);
    return usage(stderr);
}
