/* bench stragglers: gain of backup workers and deadlines where ranks are slow now and then. Ranks are threads that
 * sleep for drawn times and exchange a small gradient with the library's collectives; measured times are printed next
 * to those predicted by the order statistics of the drawn times.
 *
 * The gain of b backup workers is that of Chen et al. (arXiv 1604.00981) as it is usually given, t(0) / t(b) * N /
 * (N + b): gradients a second and rank, relative to N ranks that wait for each other. */

#include "lather/stragglers.h"

#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { EXPONENTIAL, TAIL, SLOW, MODELS, ALL = MODELS };
enum { MAX_BACKUPS = 8, RECORDED = 16, WARM = 2, ELEMENTS = 4096 };

typedef struct settings {
    bench_common common;
    const char *backups;
    int model; /* index of a choice */
    int64_t needed, micro_batches;
    double base_ms, tail;
} settings;
static settings s;

/* clang-format off */
static const lt_option table[] = {
    {"Ranks", INT("ranks", needed, 1, 100), .value = "50", .help = "N: ranks whose gradients make an update"},
    {"Ranks", TEXT("backup-workers", backups), .meta = "LIST", .value = "0,1,2,3", .help = "additional ranks, at most 28, for which no update waits"},
    {"Delays", PICK("delays", model, "exponential|tail|slow|all"), .value = "all", .help = "exponential: each micro-batch takes half of --base-ms and an exponential rest; tail: now and then a rank is slow for a step; slow: one rank always is; all"},
    {"Delays", REAL("base-ms", base_ms, 0.1, 1e5), .value = "50", .help = "mean milliseconds of a micro-batch"},
    {"Delays", REAL("tail", tail, 1, 1000), .value = "4", .help = "factor by which a slow rank is slower"},
    {"Benchmark", INT("micro-batches", micro_batches, 1, 64), .value = "4", .help = "micro-batches per step of a rank; with 1 no deadline is tried"},
    {"Benchmark", STEPS, .value = "60", .help = "measured steps of each kind"},
};
/* clang-format on */

static const char *const models[MODELS] = {"exponential", "tail", "slow"};

/* --- Delays --- */

/* Philox2x32-10: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011. Uniform in (0, 1). */
static double draw(int64_t step, int rank, int micro)
{
    enum { ROUNDS = 10 };
    uint32_t key = 1, left = (uint32_t)step, right = (uint32_t)rank << 8 | (uint32_t)micro;
    for (int i = 0; i < ROUNDS; i++) {
        const uint64_t product = (uint64_t)0xD256D193U * left;
        left = (uint32_t)(product >> 32) ^ key ^ right;
        right = (uint32_t)product;
        key += 0x9E3779B9U;
    }
    return ((double)left + 0.5) / 0x1p32;
}

/* Seconds of a micro-batch: a function of (step, rank, micro). */
static double latency(int model, int64_t step, int rank, int micro)
{
    enum { OF_STEP = 255 };
    const double tail_share = 0.01; /* share of steps in which a rank is slow */
    const double base = 1e-3 * s.base_ms;
    if (model == EXPONENTIAL)
        return base / 2 * (1 - log(draw(step, rank, micro)));
    const double steady = base * (0.95 + 0.1 * draw(step, rank, micro));
    if (model == SLOW)
        return rank ? steady : s.tail * steady;
    return draw(step, rank, OF_STEP) < tail_share ? s.tail * steady : steady;
}

/* Returns the mean over steps first .. first + steps - 1 of the needed-th smallest of the ranks' seconds. */
static double order_statistic(int model, int64_t first, int64_t steps, int ranks)
{
    double sum[BENCH_MAX_RANKS], all = 0;
    for (int64_t t = first; t < first + steps; t++) {
        for (int r = 0; r < ranks; r++) {
            sum[r] = 0;
            for (int m = 0; m < s.micro_batches; m++)
                sum[r] += latency(model, t, r, m);
        }
        qsort(sum, (size_t)ranks, sizeof *sum, bench_ascending);
        all += sum[s.needed - 1];
    }
    return all / (double)steps;
}

/* Draws the latencies of all micro-batches; the caller frees *memory. */
static lt_status make_latencies(int model, int64_t first, int64_t steps, double rest,
                                lt_drop_latencies *out, double **memory)
{
    const int ranks = (int)s.needed, micro = (int)s.micro_batches;
    double *t = calloc((size_t)steps * (size_t)ranks * (size_t)micro, sizeof *t);
    if (!t)
        return lt_fail(LT_E_NOMEM, "stragglers: no memory");
    *memory = t;
    *out = (lt_drop_latencies){t, (int)steps, ranks, micro, rest};
    for (int64_t u = 0; u < steps; u++)
        for (int r = 0; r < ranks; r++)
            for (int m = 0; m < micro; m++)
                *t++ = latency(model, first + u, r, m);
    return LT_OK;
}

/* --- Ranks --- */

/* A policy of all ranks, and its result. */
typedef struct trial {
    int model;       /* MODELS: no delay at all */
    int backups;     /* below 0: all ranks are needed, without the partial mean */
    double deadline; /* 0: none */
    int64_t steps;
    int ranks;
    double measured, predicted;  /* mean seconds of a step */
    double kept, predicted_kept; /* mean share of micro-batches that were computed */
} trial;

static trial *current; /* the one that ranks run */

static void sleep_until(const lt_data_parallel *dp, double end)
{
    static const double slice = 2e-3;
    for (double now; (now = bench_seconds()) < end && !lt_data_parallel_is_late(dp);) {
        const double next = end - now < slice ? end : now + slice;
        struct timespec t = {.tv_sec = (time_t)next};
        t.tv_nsec = (long)(1e9 * (next - (double)t.tv_sec));
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
    }
}

/* Runs micro-batches until all are done, the deadline passes, or the other ranks are done; returns their number. */
static int compute(const trial *t, const lt_data_parallel *dp, int64_t step, int rank)
{
    const double begin = bench_seconds();
    double end = begin;
    int done = 0;
    for (; done < s.micro_batches && t->model < MODELS; done++) {
        if (done && t->deadline > 0 && end - begin >= t->deadline)
            break;
        end += latency(t->model, step, rank, done);
        sleep_until(dp, end);
    }
    return t->model < MODELS ? done : (int)s.micro_batches;
}

static lt_status one_step(const trial *t, lt_data_parallel *dp, lt_param *param, int64_t step,
                          int rank)
{
    LT_TRY(lt_data_parallel_begin_update(dp, step, NULL));
    const int done = compute(t, dp, step, rank);
    LT_TRY(lt_tensor_fill(param->grad, rank));
    param->has_grad = true;
    if (t->deadline > 0)
        lt_data_parallel_set_computed(dp, done);
    lt_data_parallel_begin(dp, true);
    return lt_data_parallel_finish(dp);
}

/* Runs and times the steps of one rank; rank 0 writes the results. The first steps, in which buckets are created, are not
 * counted. */
static lt_status run(trial *t, lt_comm *comm, lt_data_parallel *dp, lt_param *param)
{
    const int rank = lt_comm_rank(comm);
    const double all = (double)(lt_comm_size(comm) * s.micro_batches * t->steps);
    double begin = 0, kept = 0;
    for (int64_t i = -WARM; i < t->steps; i++) {
        if (!i) {
            LT_TRY(lt_comm_barrier(comm));
            begin = bench_seconds();
        }
        LT_TRY(one_step(t, dp, param, RECORDED + WARM + i, rank));
        if (i >= 0 && t->deadline > 0)
            kept += (double)lt_data_parallel_total_computed(dp);
    }
    LT_TRY(lt_comm_barrier(comm));
    if (!rank) {
        t->measured = (bench_seconds() - begin) / (double)t->steps;
        t->kept = t->deadline > 0 ? kept / all : 1;
    }
    return LT_OK;
}

static lt_status play(lt_device *device, lt_comm *comm)
{
    trial *t = current;
    const lt_data_parallel_config config = {
        .needed = t->backups < 0 ? 0 : lt_comm_size(comm) - t->backups,
        .micro_batches = t->deadline > 0 ? s.micro_batches : 0};
    lt_param param = {0};
    lt_params params = {0};
    lt_tape *tape = NULL;
    lt_data_parallel *dp = NULL;
    lt_status st = lt_param_init(&param, device, "", "weight", LT_SHAPE(ELEMENTS), 0);
    if (!st)
        st = lt_params_add(&params, &param);
    if (!st)
        st = lt_tape_new(&tape, device);
    if (!st)
        st = lt_data_parallel_new(&dp, comm, &params, tape, &config);
    if (!st)
        st = run(t, comm, dp, &param);
    lt_data_parallel_free(&dp);
    lt_tape_free(&tape);
    lt_params_clear(&params);
    lt_param_clear(&param);
    return st;
}

static lt_status try_it(trial *t)
{
    current = t;
    const bench_common all = {.device = "cpu", .ranks = t->ranks, .threads = 1};
    return bench_play(&all, play);
}

/* --- Trials --- */

/* Prints a trial; gains are relative to the model's first one, without backup workers. */
static void print(const trial *t)
{
    static trial base;
    char policy[32] = "deadline";
    if (t->backups >= 0)
        snprintf(policy, sizeof policy, "%d backup workers", t->backups);
    if (!t->backups)
        base = *t;
    const double gain = t->kept / t->measured * base.measured / base.kept;
    fprintf(stderr, "%-12s %-18s %5d %9.2f %9.2f %6.3f %6.3f %6.3f\n", models[t->model], policy,
            t->ranks, 1e3 * t->measured, 1e3 * t->predicted, t->measured / t->predicted, t->kept,
            gain);
    bench_print_row("delays %s policy %s ranks %d milliseconds %g predicted %g kept %g "
                    "predicted_kept %g deadline %g gain %g",
                    models[t->model], policy, t->ranks, 1e3 * t->measured, 1e3 * t->predicted,
                    t->kept, t->predicted_kept, t->deadline, gain);
}

/* Measures the seconds of a step in which no rank sleeps, the time of the exchange. */
static lt_status measure_rest(trial t, double *rest)
{
    t.model = MODELS;
    t.steps = 20;
    const lt_status st = try_it(&t);
    *rest = t.measured;
    return st;
}

static lt_status try_backups(trial t)
{
    double rest;
    LT_TRY(measure_rest(t, &rest));
    LT_TRY(try_it(&t));
    t.predicted = order_statistic(t.model, RECORDED + WARM, t.steps, t.ranks) + rest;
    t.kept = t.predicted_kept = (double)s.needed / t.ranks;
    print(&t);
    return LT_OK;
}

/* Measures steps with a deadline that is chosen from the recorded steps before them. */
static lt_status try_deadline(trial t)
{
    double rest;
    lt_drop_latencies before, during;
    double *memory = NULL;
    LT_TRY(measure_rest(t, &rest));
    LT_TRY(make_latencies(t.model, 0, RECORDED, rest, &before, &memory));
    t.deadline = lt_drop_choose(&before).deadline;
    free(memory);
    if (!(t.deadline > 0))
        return LT_OK;
    LT_TRY(make_latencies(t.model, RECORDED + WARM, t.steps, rest, &during, &memory));
    const lt_drop_plan plan = lt_drop_predict(&during, t.deadline);
    free(memory);
    t.predicted = plan.step;
    t.predicted_kept = plan.kept;
    LT_TRY(try_it(&t));
    print(&t);
    return LT_OK;
}

static lt_status try_model(int model, const double *backups, int count)
{
    trial t = {.model = model, .steps = s.common.steps};
    for (int i = 0; i < count; i++) {
        t.backups = (int)backups[i];
        t.ranks = (int)s.needed + t.backups;
        LT_TRY(try_backups(t));
    }
    t.backups = -1;
    t.ranks = (int)s.needed;
    return s.micro_batches > 1 ? try_deadline(t) : LT_OK;
}

/* Reads the numbers of backup workers, which rise from 0: "0,1,3". */
static lt_status read_backups(double *out, int *count)
{
    LT_TRY(bench_read_list("backup-workers", s.backups, out, MAX_BACKUPS, count));
    bool rises = out[0] == 0 && (double)s.needed + out[*count - 1] <= BENCH_MAX_RANKS;
    for (int i = 1; i < *count; i++)
        rises = rises && out[i] > out[i - 1] && out[i] == floor(out[i]);
    return rises ? LT_OK
                 : lt_fail(LT_E_ARG,
                           "--backup-workers: '%s' does not rise from 0, or makes more than %d "
                           "ranks together",
                           s.backups, BENCH_MAX_RANKS);
}

static lt_status run_stragglers(lt_device *device, lt_comm *comm)
{
    double backups[MAX_BACKUPS];
    int count;
    (void)device, (void)comm;
    LT_TRY(read_backups(backups, &count));
    fprintf(stderr, "%-12s %-18s %5s %9s %9s %6s %6s %6s\n", "delays", "policy", "ranks", "step ms",
            "predicted", "ratio", "kept", "gain");
    bench_print_header("stragglers", "cpu", "f32", s.micro_batches, 1);
    bench_print_fields("needed %d base_ms %g tail %g steps %lld", (int)s.needed, s.base_ms, s.tail,
                       (long long)s.common.steps);
    bench_print_open("cells", '[');
    lt_status st = LT_OK;
    for (int model = 0; model < MODELS && !st; model++)
        if (s.model == ALL || s.model == model)
            st = try_model(model, backups, count);
    bench_print_close(']');
    return st;
}

BENCH_COMMAND(stragglers, BENCH_NO_DEVICE, table,
              "time steps that do not wait for slow ranks, and compare with order statistics");
