/* bench regimes: the fastest exchange of gradients for each rate of the links between nodes and each number of
 * ranks, by the closed forms and the simulation of lather/detail/comm_cost.h. Nothing is run. The dense reference,
 * with which all others are compared, is the fastest of flat and two-level, f32 or bf16, overlapped with backward.
 *
 * On the gain to expect: Agarwal, Wang, Venkataraman & Papailiopoulos, "On the Utility of Gradient
 * Compression in Distributed Training Systems", MLSys 2022, found few configurations with one. */

#include "bench.h"

#include "lather/detail/comm_cost.h"
#include "lather/detail/process_group.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct settings {
    bench_common common;
    const char *gbit, *ranks;
    double params, backward_ms, forward_ms, density, bucket_mib, within_gbit, within_us, between_us,
        message_us, select_ns, factor_ns;
    int64_t per_node, rank, local, matrices;
} settings;
static settings s;

#define TINY 1e-9

/* clang-format off */
static const lt_option table[] = {
    {"Model", REAL("params", params, 1, 1e13), .value = "25.6e6", .help = "parameters"},
    {"Model", INT("matrices", matrices, 1, 1000000), .value = "53", .help = "number of equal square matrices that hold the parameters, for PowerSGD"},
    {"Model", REAL("forward-ms", forward_ms, 0, 1e9), .value = "50", .help = "milliseconds of a step outside backward, without communication"},
    {"Model", REAL("backward-ms", backward_ms, TINY, 1e9), .value = "100", .help = "milliseconds of backward; buckets become ready evenly"},
    {"Model", REAL("bucket-mib", bucket_mib, 0.001, 4096), .value = "25", .help = "size of a bucket of gradients"},
    {"Cluster", TEXT("gbit", gbit), .value = "1,10,100", .meta = "LIST", .help = "rates of a node's NIC in Gbit/s"},
    {"Cluster", TEXT("ranks", ranks), .value = "8..1024", .meta = "LIST", .help = "ranks: 8,16,32, or 8..1024 for doublings"},
    {"Cluster", INT("per-node", per_node, 1, 1024), .value = "8", .help = "ranks of a node; fewer ranks are one node"},
    {"Cluster", REAL("latency-us", between_us, 0, 1e9), .value = "50", .help = "latency between nodes in microseconds"},
    {"Cluster", REAL("message-us", message_us, 0, 1e9), .value = "1", .help = "microseconds per message in addition to the latency"},
    {"Cluster", REAL("within-gbit", within_gbit, TINY, 1e9), .value = "200", .help = "rate between two ranks of a node in Gbit/s"},
    {"Cluster", REAL("within-latency-us", within_us, 0, 1e9), .value = "5", .help = "latency inside a node in microseconds"},
    {"Exchange", REAL("density", density, TINY, 1), .value = "0.01", .help = "topk: share of gradients that is sent"},
    {"Exchange", INT("rank", rank, 1, 4096), .value = "4", .help = "powersgd: rank of the factors"},
    {"Exchange", INT("local", local, 1, 1000000), .value = "32", .help = "local steps: inner steps of a round"},
    {"Exchange", REAL("select-ns", select_ns, 0, 1e6), .value = "3.6", .help = "topk: nanoseconds per element of a shard to select (radix select on one CPU core: 3.6)"},
    {"Exchange", REAL("factor-ns", factor_ns, 0, 1e6), .value = "0.6", .help = "powersgd: nanoseconds per element and rank of the factors (assumed)"},
};
/* clang-format on */

enum { MAX_VALUES = 64 };

typedef struct values {
    double at[MAX_VALUES];
    int count;
} values;

static lt_status read_values(values *v, const char *option, const char *text, double most)
{
    LT_TRY(bench_read_list(option, text, v->at, MAX_VALUES, &v->count));
    for (int i = 0; i < v->count; i++)
        if (!(v->at[i] > 0 && v->at[i] <= most))
            return lt_fail(LT_E_ARG, "--%s: %g is not in (0, %g]", option, v->at[i], most);
    return LT_OK;
}

/* Reads a list, or doublings: "8..1024". */
static lt_status read_ranks(values *v, const char *text)
{
    const double most = 1 << 20;
    const char *dots = strstr(text, "..");
    char *end, *last_end;
    if (dots) {
        const long first = strtol(text, &end, 10), last = strtol(dots + 2, &last_end, 10);
        if (end != dots || *last_end || first < 1 || last < first)
            return lt_fail(LT_E_ARG, "--ranks: got '%s', want a range such as 8..1024", text);
        for (long r = first; r <= last && r <= (long)most; r *= 2)
            v->at[v->count++] = (double)r; /* at most 21 */
    } else {
        LT_TRY(read_values(v, "ranks", text, most));
    }
    for (int i = 0; i < v->count; i++)
        if (v->at[i] > (double)s.per_node && (int64_t)v->at[i] % s.per_node)
            return lt_fail(LT_E_ARG, "--ranks: %g is not a multiple of --per-node %d", v->at[i],
                           (int)s.per_node);
    return LT_OK;
}

/* --- A cell --- */

/* Candidates; the first DENSE are the dense references. */
typedef struct candidate {
    const char *name;
    lt_cost_scheme scheme;
    int element_bytes;
    enum { NONE, TOPK, POWERSGD } reducer;
} candidate;
static const candidate candidates[] = {
    {"flat", LT_COST_FLAT, 4, NONE},
    {"flat-bf16", LT_COST_FLAT, 2, NONE},
    {"two-level", LT_COST_TWO_LEVEL, 4, NONE},
    {"two-level-bf16", LT_COST_TWO_LEVEL, 2, NONE},
    {"shard-gradients", LT_COST_SHARD_GRADIENTS, 4, NONE},
    {"topk", LT_COST_REDUCER, 4, TOPK},
    {"powersgd", LT_COST_REDUCER, 4, POWERSGD},
    {"local-steps", LT_COST_LOCAL_STEPS, 4, NONE},
};
enum { DENSE = 4, CANDIDATES = sizeof candidates / sizeof *candidates };

static lt_cost_bucket *make_buckets(size_t *count)
{
    const double mib = 1 << 20, f32 = 4;
    const int64_t elements = (int64_t)s.params;
    *count = (size_t)ceil(s.params * f32 / (s.bucket_mib * mib));
    if (*count > 1000000)
        *count = 1000000;
    lt_cost_bucket *b = calloc(*count, sizeof *b);
    for (size_t i = 0; b && i < *count; i++) {
        const double share = 1 / (double)*count;
        b[i].elements = lt_even_shard_size(elements, (int)*count, (int)i);
        b[i].ready = s.backward_ms / 1e3 * ((double)i + 1) * share;
        b[i].rows = (int64_t)(sqrt(s.params * (double)s.matrices) * share);
        b[i].columns = b[i].rows;
    }
    return b;
}

static lt_cost_cluster cluster_of(double gbit, int ranks)
{
    const double us = 1e-6, bytes = 1e9 / 8;
    lt_cost_cluster c = {.per_node = ranks < s.per_node ? ranks : (int)s.per_node,
                         .within = {.latency = s.within_us * us,
                                    .message = s.message_us * us,
                                    .bandwidth = s.within_gbit * bytes},
                         .between = {.latency = s.between_us * us,
                                     .message = s.message_us * us,
                                     .bandwidth = gbit * bytes}};
    c.nodes = ranks / c.per_node;
    return c;
}

/* Fills a candidate's plan, and *unit with its reducer's seconds per unit of computation. */
static lt_status plan_of(lt_cost_plan *plan, double *unit, const candidate *c)
{
    const double ns = 1e-9;
    char compress[64];
    *plan = (lt_cost_plan){
        .scheme = c->scheme, .element_bytes = c->element_bytes, .every = (int)s.local};
    *unit = (c->reducer == TOPK ? s.select_ns : s.factor_ns) * ns;
    if (c->reducer == NONE)
        return LT_OK;
    snprintf(compress, sizeof compress, "%s:%.17g", c->name,
             c->reducer == TOPK ? s.density : (double)s.rank);
    return lt_cost_read_reducer(plan, compress);
}

/* Computes and prints one cell. */
static lt_status add_cell(double gbit, int ranks, const lt_cost_bucket *b, size_t count)
{
    const double least = 1.05; /* smallest gain that is worth a change */
    double ms[CANDIDATES];
    int dense = 0, fastest = 0;
    lt_cost_cluster c = cluster_of(gbit, ranks);
    for (int i = 0; i < CANDIDATES; i++) {
        lt_cost_result r;
        lt_cost_plan plan;
        LT_TRY(plan_of(&plan, &c.unit, &candidates[i]));
        LT_TRY(lt_cost_simulate(&r, &plan, &c, b, count, s.backward_ms / 1e3));
        ms[i] = 1e3 * r.step + s.forward_ms;
        fastest = ms[i] < ms[fastest] ? i : fastest;
        dense = i < DENSE && ms[i] < ms[dense] ? i : dense;
    }
    const double gain = ms[dense] / ms[fastest];
    const char *dense_name = candidates[dense].name, *fastest_name = candidates[fastest].name;
    fprintf(stderr, "%8g %6d %6d  %-16s %9.1f  %-16s %9.1f %6.2f\n", gbit, ranks, c.nodes,
            dense_name, ms[dense], gain >= least ? fastest_name : "nothing helps", ms[fastest],
            gain);
    bench_print_open(NULL, '{');
    bench_print_fields(gain >= least ? "helps true" : "helps false");
    bench_print_fields("gbit %g ranks %d nodes %d dense %s fastest %s gain %g", gbit, ranks,
                       c.nodes, dense_name, fastest_name, gain);
    bench_print_open("milliseconds", '{');
    for (int i = 0; i < CANDIDATES; i++)
        bench_print_number(candidates[i].name, ms[i]);
    bench_print_close('}');
    bench_print_close('}');
    return LT_OK;
}

static lt_status run_regimes(lt_device *device, lt_comm *comm)
{
    values gbit = {.count = 0}, ranks = {.count = 0};
    size_t buckets;
    (void)device, (void)comm;
    LT_TRY(read_values(&gbit, "gbit", s.gbit, 1e6));
    LT_TRY(read_ranks(&ranks, s.ranks));
    lt_cost_bucket *b = make_buckets(&buckets);
    lt_status st = b ? LT_OK : lt_fail(LT_E_NOMEM, "regimes: no memory");
    fprintf(stderr, "%8s %6s %6s  %-16s %9s  %-16s %9s %6s\n", "Gbit/s", "ranks", "nodes", "dense",
            "ms", "fastest", "ms", "gain");
    bench_print_header("regimes", "none", "f32", 0, 0);
    bench_print_fields("params %g backward_ms %g forward_ms %g density %g rank %d local %d",
                       s.params, s.backward_ms, s.forward_ms, s.density, (int)s.rank, (int)s.local);
    bench_print_open("cells", '[');
    for (int i = 0; !st && i < gbit.count * ranks.count; i++)
        st = add_cell(gbit.at[i / ranks.count], (int)ranks.at[i % ranks.count], b, buckets);
    bench_print_close(']');
    free(b);
    return st;
}

BENCH_COMMAND(regimes, BENCH_NO_DEVICE, table,
              "map which exchange of gradients is the fastest, by simulation");
