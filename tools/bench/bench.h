/* The benchmarks behind `bench`, and what they share. */
#ifndef BENCH_H
#define BENCH_H

#include "lather/ext/fail.h"
#include "lather/optim.h"
#include "lather/options.h"
#include "lather/shampoo.h"

/* Fields that every benchmark's JSON object starts with. */
typedef struct bench_header {
    const char *benchmark, *device, *dtype;
    int batch_size, threads;
} bench_header;

/* Rows that every benchmark's table ends with; its settings have device, threads and json. */
/* clang-format off */
#define BENCH_MACHINE_OPTIONS(settings)                                                            \
    {.group = "Machine", .name = "device", .type = LT_OPTION_STRING,                               \
     .offset = offsetof(settings, device), .value = "cpu", .help = "ref, cpu, cuda"},              \
    {.group = "Machine", .name = "threads", .alias = 't', .type = LT_OPTION_INT,                   \
     .offset = offsetof(settings, threads), .value = "0", .min = 0, .max = 1024,                   \
     .help = "compute threads; 0: as many as allowed"},                                            \
    {.group = "Output", .name = "json", .type = LT_OPTION_BOOL,                                    \
     .offset = offsetof(settings, json), .help = "print one JSON object on stdout"}
/* clang-format on */

typedef lt_status bench_fn(int argc, char *const *argv);
bench_fn bench_attention, bench_ceilings, bench_eval, bench_linear, bench_train, bench_overlap,
    bench_exchange, bench_links, bench_loader, bench_optim, bench_ops, bench_regimes, bench_roots,
    bench_stragglers;

/* Reads a benchmark's options. *run false: --help or the like was answered. */
lt_status bench_parse(const lt_program *program, void *values, int argc, char *const *argv,
                      bool *run);

/* Seconds on a clock that only goes forward. */
double bench_seconds(void);
/* Of processors, by all threads of this process. */
double bench_core_seconds(void);
/* Sorts values; the median of an even count is the mean of the middle two. */
double bench_median(double *values, int count);

/* A number of /proc/self/status in bytes: "VmHWM", "VmRSS"; 0 if there is none. */
int64_t bench_process_bytes(const char *field);

/* "{" and the header's fields, to be followed by ", ..." and "}". */
void bench_print_header(const bench_header *header);

/* The optimizers that have a name, as lt_optim_open() takes them, and as choices of an option: there
 * once bench_parse() was called, and with "all|" in front. */
enum { BENCH_OPTIMS = 64 };
extern const char *bench_optims[BENCH_OPTIMS];
extern int bench_optim_count;
extern char bench_all_optims[];
#define BENCH_OPTIM_CHOICES (bench_all_optims + 4)

/* Whether the name is one of Shampoo's, and the config of its preset. */
bool bench_shampoo_config(lt_shampoo_config *out, const char *name);

/* The sides of a Shampoo's factors and how many there are of each: "2048x7,1152x4"; else "". */
lt_status bench_factor_sides(lt_optim *optim, char *out, size_t size);

/* Fills a tensor with numbers in [-bound, bound), or pixels, or labels below classes. */
lt_status bench_fill_random(lt_tensor *tensor, double bound, uint64_t seed);

#endif
