/* bench exchange: one mean of gradients over ranks, by each of several reducers, and the bytes that it takes. The
 * reducers take turns, so that a busy machine slows all of them alike. */

#include "ranks.h"

#include "lather/data_parallel.h"
#include "lather/layers.h"
#include "lather/ops.h"
#include "lather/topology.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 4, BATCH = 4, MOST_REDUCERS = 16 };

typedef struct settings {
    const char *device, *link;
    int64_t ranks, ranks_per_node, threads, elements, rounds;
    int dtype; /* index of a choice */
    double bucket_mib;
    lt_option_list reducers;
    bool json;
} settings;

#define AT(field) .offset = offsetof(settings, field)

/* clang-format off */
static const lt_option table[] = {
    {"Benchmark", .name = "elements", .type = LT_OPTION_INT, AT(elements), .min = 4, .max = 1 << 30, .value = "6400000", .help = "gradients, in four square matrices: about so many"},
    {"Benchmark", .name = "reducer", .type = LT_OPTION_LIST, AT(reducers), .meta = "NAME", .help = "flat, two-level, or what --compress of a trainer takes (topk:0.01); may be given several times; default: flat"},
    {"Benchmark", .name = "steps", .type = LT_OPTION_INT, AT(rounds), .min = 1, .max = 100000, .value = "5", .help = "measured exchanges of each reducer"},
    {"Benchmark", .name = "grad-comm-dtype", .type = LT_OPTION_CHOICE, AT(dtype), .choices = "f32|bf16|f16", .help = "dtype of gradients on the way"},
    {"Benchmark", .name = "bucket-mib", .type = LT_OPTION_DOUBLE, AT(bucket_mib), .min = 0.001, .max = 4096, .value = "25", .help = "size of a bucket of gradients"},
    BENCH_RANKS_OPTIONS(settings, 2),
    BENCH_NODES_OPTION(settings),
    BENCH_MACHINE_OPTIONS(settings),
};
/* clang-format on */

static const lt_program program = {
    .name = "bench exchange",
    .summary = "time the mean of gradients over ranks",
    .usage = "[OPTION]...",
    .option = table,
    .count = sizeof table / sizeof *table,
};

/* One reducer on one rank. */
typedef struct contest {
    const char *name;
    lt_tape *tape; /* each listens to its own backward */
    lt_data_parallel *dp;
    double *seconds;
    lt_reducer_bytes sent; /* in all measured exchanges */
} contest;

typedef struct player {
    const settings *s;
    lt_device *device;
    lt_comm *comm;
    lt_nodes nodes;
    lt_module *model;
    lt_params params;
    lt_tensor *x, *labels;
    int64_t side, elements;
    contest contest[MOST_REDUCERS];
    int contests;
} player;

static lt_status open_contest(player *p, contest *c, const char *name)
{
    static const lt_dtype dtypes[] = {LT_F32, LT_BF16, LT_F16};
    const bool dense = !strcmp(name, "flat") || !strcmp(name, "two-level") || !strcmp(name, "auto");
    const lt_data_parallel_config config = {.bucket_bytes = (size_t)(p->s->bucket_mib * 0x1p20),
                                            .dtype = dtypes[p->s->dtype],
                                            .no_overlap = true,
                                            .allreduce = dense ? name : NULL,
                                            .compress = dense ? NULL : name,
                                            .nodes = &p->nodes};
    c->name = name;
    c->seconds = calloc((size_t)p->s->rounds, sizeof *c->seconds);
    if (!c->seconds)
        return LT_E_NOMEM;
    LT_TRY(lt_tape_new(&c->tape, p->device));
    return lt_data_parallel_new(&c->dp, p->comm, &p->params, c->tape, &config);
}

/* Matrices of equal sides, so that a step of them is next to nothing. */
static lt_status open_model(player *p)
{
    lt_module *layer = NULL;
    p->side = (int64_t)(sqrt((double)p->s->elements / LAYERS) + 0.5);
    p->elements = LAYERS * p->side * p->side;
    LT_TRY(lt_layer_sequential(&p->model));
    for (int i = 0; i < LAYERS; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        LT_TRY(lt_layer_linear(&layer, p->device, name, (int)p->side, (int)p->side, false));
        LT_TRY(lt_sequential_add(p->model, &layer));
    }
    LT_TRY(lt_module_params(p->model, &p->params));
    for (size_t i = 0; i < (size_t)p->params.count;
         i++) /* so that signals neither grow nor shrink */
        LT_TRY(bench_fill_random(p->params.item[i]->value, sqrt(3.0 / (double)p->side), i));
    LT_TRY(lt_tensor_new(&p->x, p->device, LT_F32, LT_SHAPE(BATCH, p->side)));
    LT_TRY(lt_tensor_new(&p->labels, p->device, LT_I32, LT_SHAPE(BATCH)));
    LT_TRY(bench_fill_random(p->x, 1, 1 + (uint64_t)lt_comm_rank(p->comm)));
    return bench_fill_random(p->labels, (double)p->side, 2);
}

static lt_status open_player(player *p)
{
    const lt_option_list *wanted = &p->s->reducers;
    LT_TRY(lt_comm_nodes(&p->nodes, p->comm, (int)p->s->ranks_per_node));
    LT_TRY(open_model(p));
    if (wanted->count > MOST_REDUCERS)
        return lt_fail(LT_E_ARG, "--reducer: %d of them, at most %d are taken", (int)wanted->count,
                       MOST_REDUCERS);
    for (size_t i = 0; i < wanted->count || !i; i++)
        LT_TRY(
            open_contest(p, &p->contest[p->contests++], wanted->count ? wanted->item[i] : "flat"));
    return LT_OK;
}

static void close_player(player *p)
{
    for (int i = 0; i < p->contests; i++) {
        lt_data_parallel_free(&p->contest[i].dp);
        lt_tape_free(&p->contest[i].tape);
        free(p->contest[i].seconds);
    }
    lt_params_clear(&p->params);
    lt_module_free(&p->model);
    lt_tensor_free(&p->x);
    lt_tensor_free(&p->labels);
    lt_nodes_clear(&p->nodes);
}

/* From when all ranks have their gradients to when the last one has the mean. */
static lt_status exchange(player *p, contest *c, double *seconds)
{
    const lt_pass pass = LT_PASS_TRAIN;
    lt_tape_reset(c->tape, pass);
    lt_tensor *logits = lt_module_forward(p->model, c->tape, p->x);
    lt_tensor *loss = lt_softmax_xent(c->tape, logits, p->labels, 0);
    lt_params_zero_grad(&p->params);
    lt_data_parallel_begin(c->dp, true);
    LT_TRY(lt_tape_backward(c->tape, loss, 1));
    LT_TRY(lt_device_sync(p->device));
    LT_TRY(lt_comm_barrier(p->comm));
    const double begin = bench_seconds();
    LT_TRY(lt_data_parallel_finish(c->dp));
    LT_TRY(lt_data_parallel_commit(c->dp, true));
    LT_TRY(lt_device_sync(p->device));
    LT_TRY(lt_comm_barrier(p->comm));
    *seconds = bench_seconds() - begin;
    return LT_OK;
}

static lt_status measure(player *p)
{
    enum { WARM = 2 }; /* the first makes the buckets */
    double ignored;
    LT_TRY(open_player(p));
    for (int round = 0; round < WARM; round++)
        for (int i = 0; i < p->contests; i++)
            LT_TRY(exchange(p, &p->contest[i], &ignored));
    lt_reducer_bytes before[MOST_REDUCERS];
    for (int i = 0; i < p->contests; i++)
        lt_data_parallel_sent(p->contest[i].dp, &before[i]);
    for (int64_t round = 0; round < p->s->rounds; round++)
        for (int i = 0; i < p->contests; i++)
            LT_TRY(exchange(p, &p->contest[i], &p->contest[i].seconds[round]));
    for (int i = 0; i < p->contests; i++) {
        lt_data_parallel_sent(p->contest[i].dp, &p->contest[i].sent);
        p->contest[i].sent.within -= before[i].within;
        p->contest[i].sent.between -= before[i].between;
    }
    return LT_OK;
}

/* --- The report --- */

/* Of all ranks together, in one exchange. */
static lt_status sum_bytes(player *p, contest *c, double *within, double *between)
{
    const int ranks = lt_comm_size(p->comm);
    lt_reducer_bytes *all = calloc((size_t)ranks, sizeof *all);
    int64_t *bytes = calloc((size_t)ranks, sizeof *bytes);
    lt_status st = all && bytes ? LT_OK : LT_E_NOMEM;
    for (int r = 0; !st && r < ranks; r++)
        bytes[r] = sizeof *all;
    if (!st)
        st = lt_comm_allgather_host(p->comm, &c->sent, bytes, all);
    *within = *between = 0;
    for (int r = 0; !st && r < ranks; r++) {
        *within += (double)all[r].within / (double)p->s->rounds;
        *between += (double)all[r].between / (double)p->s->rounds;
    }
    free(all);
    free(bytes);
    return st;
}

static void print_head(const player *p)
{
    const bench_header header = {"exchange", lt_device_name(p->device), "f32", 0,
                                 lt_device_threads(p->device)};
    bench_print_header(&header);
    printf(", \"ranks\": %d, \"nodes\": %d, \"ranks_per_node\": %d, \"elements\": %lld, \"steps\": "
           "%d, \"reducers\": [",
           lt_comm_size(p->comm), p->nodes.count, p->nodes.ranks_per_node, (long long)p->elements,
           (int)p->s->rounds);
}

static lt_status report(player *p)
{
    const bool speaks = !lt_comm_rank(p->comm), json = speaks && p->s->json;
    double first = 0;
    if (json)
        print_head(p);
    for (int i = 0; i < p->contests; i++) {
        contest *c = &p->contest[i];
        double within, between, median = 1e3 * bench_median(c->seconds, (int)p->s->rounds);
        LT_TRY(sum_bytes(p, c, &within, &between));
        first = i ? first : median;
        if (speaks)
            fprintf(stderr,
                    "%-14s %9.1f ms, %.2f of the first; all ranks sent %.0f bytes inside nodes, "
                    "%.0f between\n",
                    c->name, median, median / first, within, between);
        if (json)
            printf("%s{\"name\": \"%s\", \"milliseconds\": %.6g, \"bytes_within\": %.0f, "
                   "\"bytes_between\": %.0f}",
                   i ? ", " : "", c->name, median, within, between);
    }
    if (json)
        printf("]}\n");
    return LT_OK;
}

static lt_status play(lt_device *device, lt_comm *comm, const void *context)
{
    player p = {.s = context, .device = device, .comm = comm};
    lt_status st = measure(&p);
    if (!st)
        st = report(&p);
    close_player(&p);
    return st;
}

lt_status bench_exchange(int argc, char *const *argv)
{
    static settings s; /* the options free its list */
    bool run;
    LT_TRY(bench_parse(&program, &s, argc, argv, &run));
    if (!run)
        return LT_OK;
    const bench_ranks ranks = {s.device, s.link, s.ranks, s.threads};
    return bench_play(&ranks, play, &s);
}
