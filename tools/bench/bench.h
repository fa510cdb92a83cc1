/* Shared declarations of the benchmarks of bench: options, ranks, rounds, models, optimizers, output. */
#ifndef BENCH_H
#define BENCH_H

#include "lather/comm.h"
#include "lather/ext/fail.h"
#include "lather/ext/task.h"
#include "lather/module.h"
#include "lather/optim.h"
#include "lather/options.h"
#include "lather/shampoo.h"

#include <stddef.h>

/* Model and batch of a benchmark of a network. */
typedef struct bench_model_config {
    const char *arch;
    int64_t batch, classes;
    int64_t size;   /* side of the images, in pixels */
    int64_t length; /* tokens of a sequence */
    int stem;       /* stem of residual networks: 0 ImageNet's, 1 small */
} bench_model_config;

/* First member of a benchmark's settings, which are static in its file: `common`. A member without an option is 0. */
typedef struct bench_common {
    const char *device, *link; /* link: value of --comm-model, or NULL */
    int64_t threads;           /* threads per rank; 0: its share of the machine's cores */
    int64_t steps, warmup, ranks, ranks_per_node;
    int amp, fused; /* indices of choices */
    bool json, tf32, deterministic;
    bench_model_config model;
    lt_option_list plugin;
    double began; /* bench_seconds() before the device was opened */
} bench_common;

/* Members of a row of options, after its group; `settings` is the type that the row's field is in. */
#define AT(field)           .offset = offsetof(settings, field)
#define INT(n, field, a, b) .name = (n), .type = LT_OPTION_INT, AT(field), .min = (a), .max = (b)
#define REAL(n, field, a, b) \
    .name = (n), .type = LT_OPTION_DOUBLE, AT(field), .min = (a), .max = (b)
#define TEXT(n, field)       .name = (n), .type = LT_OPTION_STRING, AT(field)
#define PICK(n, field, list) .name = (n), .type = LT_OPTION_CHOICE, AT(field), .choices = (list)
#define FLAG(n, field)       .name = (n), .type = LT_OPTION_BOOL, AT(field)
#define PLUGIN                                                                      \
    .name = "plugin", .type = LT_OPTION_LIST, AT(common.plugin), .meta = "FILE.so", \
    .help = "load a shared object that adds optimizers or data sets"
#define STEPS  INT("steps", common.steps, 1, 100000)
#define WARMUP INT("warmup", common.warmup, 0, 1000)

/* Work of one rank. comm: NULL except for BENCH_RANKS; device: NULL for BENCH_NO_DEVICE. */
typedef lt_status bench_run_fn(lt_device *device, lt_comm *comm);

typedef enum bench_kind {
    BENCH_NO_DEVICE,
    BENCH_DEVICE,  /* on one device */
    BENCH_NETWORK, /* on one device, with the options of a model and a batch */
    BENCH_RANKS    /* on every rank, with the options of ranks */
} bench_kind;

typedef struct bench_command {
    const char *name, *summary;
    bench_kind kind;
    const lt_option *option;
    size_t count;           /* rows of options */
    bench_common *settings; /* starts with these */
    bench_run_fn *run;
} bench_command;

/* Defines bench_NAME, whose work is run_NAME(), with the options of a table that fills s. */
#define BENCH_COMMAND(id, which, table, text)                                   \
    const bench_command bench_##id = {.name = #id,                              \
                                      .summary = (text),                        \
                                      .kind = (which),                          \
                                      .option = (table),                        \
                                      .count = sizeof(table) / sizeof *(table), \
                                      .settings = &s.common,                    \
                                      .run = run_##id}

extern const bench_command bench_attention, bench_ceilings, bench_collectives, bench_eval,
    bench_exchange, bench_links, bench_loader, bench_ops, bench_optim, bench_overlap, bench_regimes,
    bench_roots, bench_service, bench_stragglers, bench_train;

/* Reads "1,10,100" as the value of an option. Errors: LT_E_ARG (no list of numbers, or of more than most). */
lt_status bench_read_list(const char *option, const char *text, double *out, int most, int *count);

/* --- Ranks: threads of this process, or the processes of a launcher --- */

enum { BENCH_MAX_RANKS = 128 };

/* Calls run on every rank; the failure of one ends all. */
lt_status bench_play(const bench_common *c, bench_run_fn *run);

/* --- Measuring --- */

/* Returns seconds of a monotonic clock. */
double bench_seconds(void);
/* Returns the processor seconds of all threads of this process. */
double bench_core_seconds(void);
/* Orders two doubles for qsort(). */
int bench_ascending(const void *a, const void *b);
/* Sorts values and returns their median, for an even count the mean of the middle two. */
double bench_median(double *values, int count);

/* Runs every contestant once, so that a busy machine slows all of them equally, and fills the
 * columns of found. round: number of the round; negative during warm-up. */
typedef lt_status bench_round_fn(void *context, int64_t round, double *found);

/* Runs warmup + steps rounds; median[column] is over the measured rounds. */
lt_status bench_rounds(const bench_common *c, bench_round_fn *fn, void *context, int columns,
                       double *median);

/* Returns a size from /proc/self/status ("VmHWM", "VmRSS") in bytes, or 0 if the field is absent. */
int64_t bench_process_bytes(const char *field);

/* Returns the next number in [0, 1) of a pseudorandom sequence. */
double bench_uniform(uint64_t *state);
/* Fills a tensor with numbers in [-bound, bound), or pixels, or labels below classes. */
lt_status bench_fill_random(lt_tensor *tensor, double bound, uint64_t seed);
/* Creates a tensor of such numbers in dtype and the memory format. The caller owns *out. */
lt_status bench_random(lt_tensor **out, lt_device *device, lt_dtype dtype, lt_shape shape,
                       lt_memory_format format, uint64_t seed);

/* --- Models, each with a synthetic batch and a loss --- */

/* A kind of model, and the name of its samples. */
typedef struct bench_model {
    const char *prefix;  /* prefix of arch names */
    const char *samples; /* "images" */
    int64_t usual_classes;
    lt_status (*make)(lt_module **out, lt_device *device, const bench_model_config *c);
    /* Fills inputs and labels with tensors that the caller owns. */
    lt_status (*batch)(lt_batch *out, lt_device *device, const bench_model_config *c);
    /* Computes the loss of a batch as the trainer does, without accuracies. */
    void (*loss)(lt_module *model, lt_tape *tape, const lt_batch *batch, lt_task_output *out);
} bench_model;

/* A model with its parameters and a batch. Members are zero until they are opened. */
typedef struct bench_network {
    const bench_model *kind;
    lt_module *model;
    lt_params params;
    lt_batch batch;
} bench_network;

/* Opens c.arch; c.classes 0: the usual number; c.batch 0: without a batch. Close it after a failure too. */
lt_status bench_network_open(bench_network *n, lt_device *device, bench_model_config c);
void bench_network_close(bench_network *n);

/* --- Optimizers by name --- */

/* Names that lt_optim_open() accepts, and the same as choices of an option after "all|"; both are
 * filled by bench_list_optims(). */
enum { BENCH_OPTIMS = 64 };
extern const char *bench_optims[BENCH_OPTIMS];
extern char bench_all_optims[];
#define BENCH_OPTIM_CHOICES (bench_all_optims + 4)
void bench_list_optims(void);

/* Returns true if the name is one of Shampoo's presets; out: its config. */
bool bench_shampoo_config(lt_shampoo_config *out, const char *name);

/* Writes the sides of a Shampoo's factors with their counts, the largest first, as `bench roots --sizes`
 * and `peer.py eigh` read them: "2048x7,1152x4"; "" for another optimizer. */
lt_status bench_factor_sides(lt_optim *optim, char *out, size_t size);

/* --- The JSON object, on stdout: without --json these print nothing --- */

/* Prints "{" and the first fields; the object is closed at the end. */
void bench_print_header(const char *benchmark, const char *device, const char *dtype, int64_t batch,
                        int threads);
/* As above, with name and threads of a device. */
void bench_print_head(const char *benchmark, const lt_device *device, const char *dtype,
                      int64_t batch);
/* Prints fields: "arch %s steps %d" makes `"arch": "...", "steps": ...`. */
void bench_print_fields(const char *format, ...) LT_PRINTF(1, 2);
/* Prints a field whose key is not known at compile time. */
void bench_print_number(const char *key, double value);
/* Prints an object with such fields, an element of an array. */
void bench_print_row(const char *format, ...) LT_PRINTF(1, 2);
/* Begins an object '{' or an array '['; key: NULL in an array. */
void bench_print_open(const char *key, char bracket);
void bench_print_close(char bracket);

/* "f32", "bf16", "f16", "tf32": by choice of --amp, and the dtype of activations. */
extern const char *const bench_amp_names[];
extern const lt_dtype bench_amp_dtypes[];

#endif
