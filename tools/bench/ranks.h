/* Several ranks of a benchmark: threads of this process, or the processes of a launcher. */
#ifndef BENCH_RANKS_H
#define BENCH_RANKS_H

#include "bench.h"

#include "lather/comm.h"

enum { BENCH_MAX_RANKS = 128 };

typedef struct bench_ranks {
    const char *device, *link; /* link: of --comm-model, or NULL */
    int64_t ranks,
        threads; /* ranks: unless a launcher says; threads of each; 0: its part of the machine */
} bench_ranks;

/* All of a rank. */
typedef lt_status bench_rank_fn(lt_device *device, lt_comm *comm, const void *settings);

/* Plays fn on every rank; the failure of one ends all. */
lt_status bench_play(const bench_ranks *ranks, bench_rank_fn *fn, const void *settings);

/* Rows of ranks; settings has ranks, link and ranks_per_node. */
/* clang-format off */
#define BENCH_RANKS_OPTIONS(settings, least)                                                       \
    {.group = "Ranks", .name = "ranks", .type = LT_OPTION_INT,                                     \
     .offset = offsetof(settings, ranks), .value = "2", .min = (least), .max = BENCH_MAX_RANKS,    \
     .help = "threads that are ranks; under mpirun: its processes"},                               \
    {.group = "Ranks", .name = "comm-model", .type = LT_OPTION_STRING,                             \
     .offset = offsetof(settings, link), .meta = "US,GBIT",                                        \
     .help = "the link: latency in microseconds and rate in Gbit/s; default: the real one"}
#define BENCH_NODES_OPTION(settings)                                                               \
    {.group = "Ranks", .name = "ranks-per-node", .type = LT_OPTION_INT,                            \
     .offset = offsetof(settings, ranks_per_node), .value = "0", .min = 0, .max = 1000000,         \
     .help = "ranks of a node, neighbours in order; 0: those that see one boot id and host name"}
/* clang-format on */

#endif
