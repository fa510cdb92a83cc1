/* bench train and bench eval: the median time of a training step, and of an evaluation's forward pass, on
 * synthetic data. */

#include "bench.h"

#include "lather/detail/memory_use.h"
#include "lather/detail/readback.h"
#include "lather/optim_config.h"
#include "lather/train_step.h"

#include <stdio.h>
#include <string.h>

typedef struct settings {
    bench_common common;
    int optim, recompute; /* indices of choices; these and the following: train only */
    int64_t frequency, block;
    bool graph, memory;
} settings;
static settings s;

enum { OFF, BF16, F16, TF32 };

/* clang-format off */
static const lt_option train_options[] = {
    {"Benchmark", PICK("amp", common.amp, "off|bf16|f16|tf32"), .help = "dtype of activations; off is f32, tf32 is off with --tf32"},
    {"Benchmark", FLAG("tf32", common.tf32), .help = "cuda: compute products of f32 numbers in TF32, Shampoo's too"},
    {"Benchmark", PICK("optim", optim, BENCH_OPTIM_CHOICES), .help = "optimizer"},
    {"Benchmark", PLUGIN},
    {"Benchmark", PICK("recompute", recompute, "off|cheap"), .value = "cheap", .help = "outputs that backward recomputes instead of keeping"},
    {"Benchmark", PICK("fused", common.fused, "auto|on|off"), .help = "cuda, cpu: batch norm's sums in the kernels of convolutions"},
    {"Benchmark", STEPS, .value = "5", .help = "measured steps"},
    {"Benchmark", WARMUP, .value = "2", .help = "steps before those"},
    {"Benchmark", INT("precondition-frequency", frequency, 0, 1e9), .value = "0", .help = "Shampoo: steps between new roots; 0: the preset's"},
    {"Benchmark", INT("max-preconditioner-dim", block, 0, 1e9), .value = "0", .help = "Shampoo: largest side of a block; 0: the preset's"},
    {"Benchmark", FLAG("graph", graph), .value = "true", .help = "cuda: record the work of a step once and replay it"},
    {"Benchmark", FLAG("deterministic", common.deterministic), .help = "make runs bitwise identical"},
    {"Output", FLAG("memory", memory), .help = "print on stderr which operations held the memory of tensors at its peak"},
};
static const lt_option eval_options[] = {
    {"Benchmark", PICK("amp", common.amp, "off|bf16|f16"), .help = "dtype of activations; off is f32"},
    {"Benchmark", PICK("fused", common.fused, "auto|on|off"), .help = "cpu: batch norms in the convolutions before them"},
    {"Benchmark", STEPS, .value = "10", .help = "measured passes"},
    {"Benchmark", WARMUP, .value = "3", .help = "passes before those"},
};
/* clang-format on */

/* The model and its batch, which is the same in each step. Members are zero until they are opened. */
typedef struct network {
    bench_network of;
    lt_device *device;
    lt_tape *tape;
    lt_pass pass;
    double loss;
    int64_t before; /* resident bytes of the process, before the first step */
} network;

static void close_network(network *n)
{
    lt_tape_free(&n->tape);
    bench_network_close(&n->of);
}

static lt_status open_network(network *n, lt_device *device, lt_pass pass)
{
    *n = (network){.device = device, .pass = pass};
    n->pass.dtype = bench_amp_dtypes[s.common.amp];
    LT_TRY(bench_network_open(&n->of, device, s.common.model));
    LT_TRY(lt_tape_new(&n->tape, device));
    n->before = bench_process_bytes("VmRSS");
    return LT_OK;
}

/* Returns the peak of host memory beyond that before the first step; for a device with separate memory, all
 * that the allocator reserved. */
static int64_t peak_bytes(const network *n)
{
    const bool is_device = !strncmp(lt_device_name(n->device), "cuda", 4);
    return is_device ? (int64_t)lt_device_memory(n->device).reserved
                     : bench_process_bytes("VmHWM") - n->before;
}

/* Prints the first fields of both JSON objects; seconds: the median. */
static void print_network(const char *name, const network *n, double seconds)
{
    char rate[32];
    bench_print_head(name, n->device, bench_amp_names[s.common.amp], s.common.model.batch);
    snprintf(rate, sizeof rate, "%s_per_second", n->of.kind->samples);
    bench_print_number(rate, (double)s.common.model.batch / seconds);
    bench_print_fields(
        "arch %s steps %d milliseconds %g peak_memory_bytes %lld tensor_peak_bytes %zu "
        "loss %g",
        s.common.model.arch, (int)s.common.steps, 1e3 * seconds, (long long)peak_bytes(n),
        lt_device_memory(n->device).peak, n->loss);
}

/* --- Evaluation --- */

static lt_status run_pass(void *context, int64_t round, double *found)
{
    network *n = context;
    lt_task_output out = {0};
    (void)round;
    const double begin = bench_seconds();
    lt_tape_reset(n->tape, n->pass);
    n->of.kind->loss(n->of.model, n->tape, &n->of.batch, &out);
    LT_TRY(lt_tape_status(n->tape));
    LT_TRY(lt_tensor_item(out.loss, &n->loss)); /* waits for a device with a queue */
    *found = bench_seconds() - begin;
    return LT_OK;
}

static lt_status evaluate(network *n)
{
    double seconds;
    LT_TRY(bench_rounds(&s.common, run_pass, n, 1, &seconds));
    fprintf(stderr, "%s %s batch %d, %d threads: %.1f ms a pass, %.2f %s/s, peak %.0f MiB\n",
            s.common.model.arch, bench_amp_names[s.common.amp], (int)s.common.model.batch,
            lt_device_threads(n->device), 1e3 * seconds, (double)s.common.model.batch / seconds,
            n->of.kind->samples, (double)peak_bytes(n) / 0x1p20);
    print_network("eval", n, seconds);
    return LT_OK;
}

static lt_status run_eval(lt_device *device, lt_comm *comm)
{
    network n;
    (void)comm;
    lt_status st = open_network(&n, device, LT_PASS_EVAL);
    if (!st)
        st = evaluate(&n);
    close_network(&n);
    return st;
}

BENCH_COMMAND(eval, BENCH_NETWORK, eval_options,
              "time a forward pass that evaluates, on synthetic data");

/* --- Training --- */

/* State of a training benchmark. */
typedef struct training {
    network net;
    lt_optim *optim;
    lt_train_step *step;
    lt_train_result result[2];  /* steps use them alternately: one may be in flight */
    int64_t begun, done, steps; /* numbers of steps; steps: measured ones */
    int64_t first_roots; /* step of Shampoo's first roots with --precondition-frequency, else 0 */
    int64_t moved;       /* lt_memory_traffic() in the measured steps */
    double first, last, sum; /* end times of the first and last step; sum of measured seconds */
} training;

static lt_status make_optim(training *t)
{
    lt_shampoo_config c;
    if (bench_shampoo_config(&c, bench_optims[s.optim])) {
        c.precondition_frequency = s.frequency ? s.frequency : c.precondition_frequency;
        c.max_preconditioner_dim = s.block ? s.block : c.max_preconditioner_dim;
        if (s.frequency) /* no earlier start is allowed; all measured steps come after it */
            t->first_roots = c.start_preconditioning_step = s.frequency;
        LT_TRY(lt_optim_shampoo(&t->optim, &t->net.of.params, &c));
    } else {
        LT_TRY(lt_optim_open(&t->optim, bench_optims[s.optim], &t->net.of.params));
    }
    return s.common.amp == F16 ? lt_optim_scale_loss(t->optim, NULL) : LT_OK;
}

static lt_status forward(void *context, lt_tape *tape, const lt_batch *batch, lt_tensor *counts,
                         lt_task_output *out)
{
    const network *n = context;
    (void)counts;
    n->of.kind->loss(n->of.model, tape, batch, out);
    return LT_OK;
}

static const lt_task_ops task = {.name = "bench", .unit = "samples", .forward = forward};

static lt_status next_batch(void *context, lt_batch *batch)
{
    const network *n = context;
    *batch = n->of.batch;
    return LT_OK;
}

static lt_status open_training(training *t, lt_device *device)
{
    network *n = &t->net;
    LT_TRY(open_network(n, device, LT_PASS_TRAIN));
    LT_TRY(make_optim(t));
    lt_train_step_config c = {.device = device,
                              .tape = n->tape,
                              .params = &t->net.of.params,
                              .optim = t->optim,
                              .task = {&task, n},
                              .pass = n->pass,
                              .graph = s.graph,
                              .next = next_batch,
                              .next_context = n};
    c.pass.recompute = s.recompute ? LT_RECOMPUTE_CHEAP : LT_RECOMPUTE_OFF;
    LT_TRY(lt_train_step_new(&t->step, &c));
    n->before = bench_process_bytes("VmRSS");
    t->last = bench_seconds();
    return LT_OK;
}

static void close_training(training *t)
{
    lt_train_step_free(&t->step);
    lt_tape_free(&t->net.tape);
    lt_optim_free(&t->optim);
    close_network(&t->net);
}

static lt_status begin_step(training *t)
{
    const lt_step numbers = {.lr = 0.01, .attempt = ++t->begun};
    return lt_train_step_begin(t->step, &numbers, &t->result[t->begun % 2]);
}

/* Runs a step as the training loop does: on a device with a queue it waits for a step after the next one is queued, if the
 * optimizer allows that. A step's time is that since the end of the previous one, which includes the queueing of one step.
 * So one more step than measured may be queued. */
static lt_status next_step(void *context, int64_t round, double *found)
{
    training *t = context;
    const bool queues = lt_device_has_queue(t->net.device);
    if (!round)
        t->moved = -lt_memory_traffic();
    if (t->begun == t->done)
        LT_TRY(begin_step(t));
    if (queues && t->begun == t->done + 1 && t->result[t->begun % 2].may_run_ahead)
        LT_TRY(begin_step(t));
    lt_train_result *result = &t->result[++t->done % 2];
    LT_TRY(lt_train_step_finish(t->step, result));
    const double now = bench_seconds();
    if (t->done == 1)
        t->first = now;
    if (round + 1 == t->steps)
        t->moved += lt_memory_traffic();
    *found = now - t->last;
    t->sum += round < 0 ? 0 : *found;
    t->net.loss = result->sums.loss;
    t->last = now;
    return LT_OK;
}

/* Prints the memory of tensors at the peak, by operation. */
static void print_memory(const lt_device *device)
{
    enum { MOST = 96 };
    lt_memory_use use[MOST];
    const int count = lt_device_memory_by_op(device, use, MOST);
    fprintf(stderr, "%-20s %-10s %10s of tensors at the peak\n", "operation", "when", "MB");
    for (int i = 0; i < count && i < MOST; i++)
        fprintf(stderr, "%-20s %-10s %10.1f\n", use[i].name ? use[i].name : "parameters, state",
                use[i].name ? use[i].when : "", 1e-6 * (double)use[i].bytes);
    fprintf(stderr, "%-20s %-10s %10.1f\n", "all", "",
            1e-6 * (double)lt_device_memory(device).peak);
}

static void print_json(const training *t, double seconds, double mean)
{
    char sides[4096];
    print_network("train", &t->net, seconds);
    if (!bench_factor_sides(t->optim, sides, sizeof sides))
        bench_print_fields("factor_sides %s", sides);
    bench_print_fields("optim %s mean_milliseconds %g replayed_steps %lld cold_start_seconds %g "
                       "moved_bytes_per_sample %g",
                       bench_optims[s.optim], 1e3 * mean,
                       (long long)lt_train_step_graphs(t->step).replays, t->first - s.common.began,
                       (double)t->moved / (double)(s.common.steps * s.common.model.batch));
}

/* Measures the steps; the mean includes Shampoo's refreshes. */
static lt_status train(training *t)
{
    enum { AFTER_ROOTS = 4 };
    bench_common c = s.common;
    double seconds;
    if (t->first_roots && t->first_roots + AFTER_ROOTS > c.warmup)
        c.warmup = t->first_roots + AFTER_ROOTS;
    t->steps = c.steps;
    LT_TRY(bench_rounds(&c, next_step, t, 1, &seconds));
    LT_TRY(lt_device_sync(t->net.device));
    const double mean = t->sum / (double)c.steps, rate = (double)c.model.batch / seconds;
    fprintf(stderr,
            "%s %s batch %d, %d threads, %s: %.1f ms a step (mean %.1f), %.2f %s/s, peak %.0f "
            "MiB\n",
            c.model.arch, bench_amp_names[c.amp], (int)c.model.batch,
            lt_device_threads(t->net.device), bench_optims[s.optim], 1e3 * seconds, 1e3 * mean,
            rate, t->net.of.kind->samples, (double)peak_bytes(&t->net) / 0x1p20);
    if (s.memory)
        print_memory(t->net.device);
    if (s.memory && t->moved)
        fprintf(stderr, "%.1f MB read and written for a sample\n",
                1e-6 * (double)t->moved / (double)(c.steps * c.model.batch));
    print_json(t, seconds, mean);
    return LT_OK;
}

static lt_status run_train(lt_device *device, lt_comm *comm)
{
    training t = {.begun = 0};
    (void)comm;
    lt_status st = open_training(&t, device);
    if (!st)
        st = train(&t);
    close_training(&t);
    return st;
}

BENCH_COMMAND(train, BENCH_NETWORK, train_options, "time a training step on synthetic data");
