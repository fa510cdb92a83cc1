/* bench overlap: how much of the gradients' communication is hidden by backward. Steps with overlap, without it, and
 * without any communication run alternately; the time of the first two beyond that of the third is exposed.
 *
 * bench exchange: one mean of gradients over ranks, by each of several reducers in turn, and the bytes that it takes. */

#include "bench.h"

#include "lather/data_parallel.h"
#include "lather/detail/topology.h"
#include "lather/layers.h"
#include "lather/ops.h"
#include "lather/optim_config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LAYERS = 4, BATCH = 4, MOST_CONTESTS = 16 };

typedef struct settings {
    bench_common common;
    int dtype;        /* index of a choice */
    int64_t elements; /* elements and reducers: exchange only */
    lt_option_list reducers;
} settings;
static settings s = {.common = {.warmup = 2}}; /* the first round makes the buckets */

#define COMM_DTYPE \
    PICK("grad-comm-dtype", dtype, "f32|bf16|f16"), .help = "dtype in which gradients are sent"

/* clang-format off */
static const lt_option overlap_options[] = {
    {"Benchmark", TEXT("arch", common.model.arch), .value = "resnet50", .help = "network, as of bench train"},
    {"Benchmark", INT("batch-size", common.model.batch, 1, 65536), .alias = 'b', .value = "16", .help = "images per rank and step"},
    {"Benchmark", INT("image-size", common.model.size, 1, 4096), .value = "224", .help = "side of the images in pixels"},
    {"Benchmark", STEPS, .value = "5", .help = "measured steps of each kind"},
    {"Ranks", COMM_DTYPE},
};
static const lt_option exchange_options[] = {
    {"Benchmark", INT("elements", elements, 4, 1 << 30), .value = "6400000", .help = "approximate number of gradients, in four square matrices"},
    {"Benchmark", .name = "reducer", .type = LT_OPTION_LIST, AT(reducers), .meta = "NAME", .help = "flat, two-level, or a value of a trainer's --compress (topk:0.01); repeatable; default: flat"},
    {"Benchmark", STEPS, .value = "5", .help = "measured exchanges of each reducer"},
    {"Benchmark", COMM_DTYPE},
};
/* clang-format on */

/* A contestant on one rank: one configuration of data parallelism. */
typedef struct contest {
    const char *name;
    lt_tape *tape; /* separate, as data parallelism hooks into backward */
    lt_data_parallel *dp;
    lt_reducer_bytes sent; /* bytes sent before the measured exchanges */
} contest;

/* State of one rank. Members are zero until they are opened. */
typedef struct player {
    lt_device *device;
    lt_comm *comm;
    lt_nodes nodes;
    bench_network net;
    lt_optim *optim;
    lt_pass pass;
    contest contest[MOST_CONTESTS];
    int contests;
    int64_t attempt;
    uint64_t bytes; /* sent in a step */
} player;

static lt_status open_contest(player *p, contest *c, lt_data_parallel_config config)
{
    config.dtype = bench_amp_dtypes[s.dtype];
    config.nodes = &p->nodes;
    LT_TRY(lt_tape_new(&c->tape, p->device));
    return lt_data_parallel_new(&c->dp, p->comm, &p->net.params, c->tape, &config);
}

static void close_player(player *p)
{
    for (int i = 0; i < MOST_CONTESTS; i++) {
        lt_data_parallel_free(&p->contest[i].dp);
        lt_tape_free(&p->contest[i].tape);
    }
    lt_optim_free(&p->optim);
    bench_network_close(&p->net);
    lt_nodes_clear(&p->nodes);
}

/* Opens and measures on this rank; rank 0 reports. */
static lt_status play(player p, lt_status (*open)(player *), lt_status (*measure)(player *))
{
    lt_status st = lt_comm_nodes(&p.nodes, p.comm, (int)s.common.ranks_per_node);
    if (!st)
        st = open(&p);
    if (!st)
        st = measure(&p);
    close_player(&p);
    return st;
}

static lt_status backward(player *p, contest *c, bool exchanges)
{
    lt_task_output out = {0};
    lt_tape_reset(c->tape, p->pass);
    p->net.kind->loss(p->net.model, c->tape, &p->net.batch, &out);
    lt_params_zero_grad(&p->net.params);
    lt_data_parallel_begin(c->dp, exchanges);
    return lt_tape_backward(c->tape, out.loss, 1);
}

static lt_status finish(contest *c)
{
    LT_TRY(lt_data_parallel_finish(c->dp));
    return lt_data_parallel_commit(c->dp, true);
}

/* --- bench overlap --- */

enum { WITH, WITHOUT, NONE, MODES, EXCHANGES = NONE };
/* Columns of a round, in milliseconds: each mode; waiting in the modes that exchange; excess of those over NONE. */
enum { WAITED = MODES, BEYOND = WAITED + EXCHANGES, COLUMNS = BEYOND + EXCHANGES };

static lt_status open_overlap(player *p)
{
    p->pass = LT_PASS_TRAIN;
    p->pass.recompute = LT_RECOMPUTE_CHEAP;
    LT_TRY(bench_network_open(&p->net, p->device, s.common.model));
    LT_TRY(lt_optim_open(&p->optim, "sgd", &p->net.params));
    for (int mode = 0; mode < EXCHANGES; mode++)
        LT_TRY(open_contest(p, &p->contest[mode],
                            (lt_data_parallel_config){.no_overlap = mode == WITHOUT}));
    return LT_OK;
}

static lt_status step(player *p, int mode)
{
    contest *c = &p->contest[mode == NONE ? WITH : mode];
    LT_TRY(backward(p, c, mode != NONE));
    if (mode != NONE)
        LT_TRY(finish(c));
    const lt_step numbers = {.lr = 0.001, .attempt = ++p->attempt};
    LT_TRY(lt_optim_step(p->optim, &numbers));
    return lt_device_sync(p->device);
}

/* Times steps from a barrier of all ranks until the last one has finished. */
static lt_status run_modes(void *context, int64_t round, double found[COLUMNS])
{
    player *p = context;
    (void)round;
    for (int mode = 0; mode < MODES; mode++) {
        lt_data_parallel *dp = mode == NONE ? NULL : p->contest[mode].dp;
        if (dp)
            (void)lt_data_parallel_wait_seconds(dp);
        LT_TRY(lt_comm_barrier(p->comm));
        const uint64_t before = lt_comm_bytes(p->comm);
        const double begin = bench_seconds();
        LT_TRY(step(p, mode));
        p->bytes = dp ? lt_comm_bytes(p->comm) - before : p->bytes;
        LT_TRY(lt_comm_barrier(p->comm));
        found[mode] = 1e3 * (bench_seconds() - begin);
        if (dp)
            found[WAITED + mode] = 1e3 * lt_data_parallel_wait_seconds(dp);
    }
    for (int mode = 0; mode < EXCHANGES; mode++)
        found[BEYOND + mode] = found[mode] - found[NONE];
    return LT_OK;
}

static void print_overlap(const player *p, const double *ms)
{
    const bench_model_config *m = &s.common.model;
    const char *link = s.common.link ? s.common.link : "real";
    const double *waited = ms + WAITED, *beyond = ms + BEYOND;
    fprintf(stderr,
            "%s batch %d on %d ranks, link %s: %.1f ms with overlap, %.1f without, %.1f without "
            "communication; exposed %.1f of %.1f ms; waited %.1f of %.1f ms\n",
            m->arch, (int)m->batch, lt_comm_size(p->comm), link, ms[WITH], ms[WITHOUT], ms[NONE],
            beyond[WITH], beyond[WITHOUT], waited[WITH], waited[WITHOUT]);
    bench_print_head("overlap", p->device, "f32", m->batch);
    bench_print_fields("arch %s ranks %d link %s steps %d milliseconds %g "
                       "milliseconds_without_overlap %g milliseconds_without_communication %g "
                       "exposed_milliseconds %g exposed_milliseconds_without_overlap %g "
                       "exposed_ratio %g waited_milliseconds %g "
                       "waited_milliseconds_without_overlap %g bytes_per_step %llu "
                       "peak_memory_bytes %lld",
                       m->arch, lt_comm_size(p->comm), link, (int)s.common.steps, ms[WITH],
                       ms[WITHOUT], ms[NONE], beyond[WITH], beyond[WITHOUT],
                       beyond[WITH] / beyond[WITHOUT], waited[WITH], waited[WITHOUT],
                       (unsigned long long)p->bytes, (long long)bench_process_bytes("VmHWM"));
}

static lt_status measure_overlap(player *p)
{
    double ms[COLUMNS];
    LT_TRY(bench_rounds(&s.common, run_modes, p, COLUMNS, ms));
    if (!lt_comm_rank(p->comm))
        print_overlap(p, ms);
    return LT_OK;
}

static lt_status run_overlap(lt_device *device, lt_comm *comm)
{
    return play((player){.device = device, .comm = comm}, open_overlap, measure_overlap);
}

BENCH_COMMAND(overlap, BENCH_RANKS, overlap_options,
              "time a training step of several ranks with and without overlap");

/* --- bench exchange --- */

static void loss_of_layers(lt_module *model, lt_tape *tape, const lt_batch *batch,
                           lt_task_output *out)
{
    out->loss =
        lt_softmax_xent(tape, lt_module_forward(model, tape, batch->inputs), batch->labels, 0);
}

/* Square matrices, whose step takes far less time than the exchange of their gradients. */
static const bench_model square_layers = {.loss = loss_of_layers};

static int64_t side_of(void)
{
    return (int64_t)(sqrt((double)s.elements / LAYERS) + 0.5);
}

static lt_status open_layers(player *p)
{
    const int64_t side = side_of();
    lt_module *layer = NULL;
    p->net.kind = &square_layers;
    p->pass = LT_PASS_TRAIN;
    LT_TRY(lt_layer_sequential(&p->net.model));
    for (int i = 0; i < LAYERS; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        LT_TRY(lt_layer_linear(&layer, p->device, name, (int)side, (int)side, false));
        LT_TRY(lt_sequential_add(p->net.model, &layer));
    }
    LT_TRY(lt_module_params(p->net.model, &p->net.params));
    for (size_t i = 0; i < p->net.params.count; i++) /* keeps the scale of activations */
        LT_TRY(bench_fill_random(p->net.params.item[i]->value, sqrt(3.0 / (double)side), i));
    LT_TRY(lt_tensor_new(&p->net.batch.inputs, p->device, LT_F32, LT_SHAPE(BATCH, side)));
    LT_TRY(lt_tensor_new(&p->net.batch.labels, p->device, LT_I32, LT_SHAPE(BATCH)));
    LT_TRY(bench_fill_random(p->net.batch.inputs, 1, 1 + (uint64_t)lt_comm_rank(p->comm)));
    return bench_fill_random(p->net.batch.labels, (double)side, 2);
}

static lt_status open_exchange(player *p)
{
    const lt_option_list *wanted = &s.reducers;
    LT_TRY(open_layers(p));
    if (wanted->count > MOST_CONTESTS)
        return lt_fail(LT_E_ARG, "--reducer: given %d times, at most %d are allowed",
                       (int)wanted->count, MOST_CONTESTS);
    for (size_t i = 0; i < wanted->count || !i; i++) {
        const char *name = wanted->count ? wanted->item[i] : "flat";
        const bool dense =
            !strcmp(name, "flat") || !strcmp(name, "two-level") || !strcmp(name, "auto");
        contest *c = &p->contest[p->contests++];
        c->name = name;
        LT_TRY(open_contest(p, c,
                            (lt_data_parallel_config){.no_overlap = true,
                                                      .allreduce = dense ? name : NULL,
                                                      .compress = dense ? NULL : name}));
    }
    return LT_OK;
}

/* Times each exchange from a barrier after backward until the last rank has the mean. */
static lt_status run_exchanges(void *context, int64_t round, double *found)
{
    player *p = context;
    for (int i = 0; i < p->contests; i++) {
        contest *c = &p->contest[i];
        if (!round)
            lt_data_parallel_bytes_sent(c->dp, &c->sent);
        LT_TRY(backward(p, c, true));
        LT_TRY(lt_device_sync(p->device));
        LT_TRY(lt_comm_barrier(p->comm));
        const double begin = bench_seconds();
        LT_TRY(finish(c));
        LT_TRY(lt_device_sync(p->device));
        LT_TRY(lt_comm_barrier(p->comm));
        found[i] = 1e3 * (bench_seconds() - begin);
    }
    return LT_OK;
}

/* Computes the bytes of all ranks per exchange, within and between nodes. */
static lt_status sum_bytes(player *p, const contest *c, double *within, double *between)
{
    const double steps = (double)s.common.steps;
    lt_reducer_bytes now;
    lt_tensor *sum;
    lt_request *request;
    lt_data_parallel_bytes_sent(c->dp, &now);
    int64_t bytes[2] = {(int64_t)(now.within - c->sent.within),
                        (int64_t)(now.between - c->sent.between)};
    LT_TRY(lt_tensor_new(&sum, p->device, LT_I64, LT_SHAPE(2)));
    lt_status st = lt_tensor_write(sum, bytes, sizeof bytes);
    if (!st)
        st = lt_comm_allreduce_begin(p->comm, sum, LT_REDUCE_SUM, &request);
    if (!st)
        st = lt_request_wait(&request);
    if (!st)
        st = lt_tensor_read(sum, bytes, sizeof bytes);
    lt_tensor_free(&sum);
    *within = (double)bytes[0] / steps;
    *between = (double)bytes[1] / steps;
    return st;
}

static lt_status measure_exchange(player *p)
{
    const bool speaks = !lt_comm_rank(p->comm);
    const long long side = side_of();
    double ms[MOST_CONTESTS], within, between;
    LT_TRY(bench_rounds(&s.common, run_exchanges, p, p->contests, ms));
    if (speaks) {
        bench_print_head("exchange", p->device, "f32", 0);
        bench_print_fields("ranks %d nodes %d ranks_per_node %d elements %lld steps %d",
                           lt_comm_size(p->comm), p->nodes.count, p->nodes.ranks_per_node,
                           LAYERS * side * side, (int)s.common.steps);
        bench_print_open("reducers", '[');
    }
    for (int i = 0; i < p->contests; i++) {
        const char *name = p->contest[i].name;
        LT_TRY(sum_bytes(p, &p->contest[i], &within, &between));
        if (!speaks)
            continue;
        fprintf(stderr,
                "%-14s %9.1f ms, %.2f of the first; all ranks sent %.0f bytes inside nodes, "
                "%.0f between\n",
                name, ms[i], ms[i] / ms[0], within, between);
        bench_print_row("name %s milliseconds %g bytes_within %.0f bytes_between %.0f", name, ms[i],
                        within, between);
    }
    if (speaks)
        bench_print_close(']');
    return LT_OK;
}

static lt_status run_exchange(lt_device *device, lt_comm *comm)
{
    return play((player){.device = device, .comm = comm}, open_exchange, measure_exchange);
}

BENCH_COMMAND(exchange, BENCH_RANKS, exchange_options,
              "time the mean of gradients over ranks, by each of several reducers");
