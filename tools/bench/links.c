/* bench links: latency and bandwidth of messages inside a node and between two. Rank 0 talks to the next rank of its
 * node, then to the first rank of node 1, while the others wait: a small message there and back; messages that grow
 * until one takes long enough. For both it also measures the time that rank 0's cores spend, waiting included. It takes
 * a few seconds. */

#include "bench.h"

#include "lather/detail/topology.h"

#include <stdio.h>

static bench_common settings;

enum { WITHIN, BETWEEN, LINKS };
enum { SAMPLES = 200, FIRST_BYTES = 1 << 16, MOST_BYTES = 1 << 26 };
static const double latency_seconds = 1; /* limit for each link */
static const double rate_seconds = 3;
static const double long_enough = 0.05; /* seconds of a message, far above latency and bursts */

/* One of the two ends of a link. */
typedef struct end {
    lt_device *device;
    lt_comm *comm;
    int peer;
    bool leads;
} end;

typedef struct link {
    bool there;
    int peer;
    double latency_us, gbit;
    double core_us;     /* core time of this rank per small message sent or received */
    double core_us_mib; /* core time of this rank per MiB sent in large messages */
    int64_t bytes;      /* size of the messages from which the rate was computed */
} link;

static lt_status move(const end *e, lt_tensor *t, bool sends)
{
    lt_request *request;
    LT_TRY(sends ? lt_comm_send_begin(e->comm, t, e->peer, &request)
                 : lt_comm_recv_begin(e->comm, t, e->peer, &request));
    return lt_request_wait(&request);
}

/* Sends the leader's number to the other end. */
static lt_status tell(const end *e, int64_t *value)
{
    lt_tensor *t;
    LT_TRY(lt_tensor_new(&t, e->device, LT_I64, LT_SHAPE(1)));
    lt_status st = e->leads ? lt_tensor_write(t, value, sizeof *value) : LT_OK;
    if (!st)
        st = move(e, t, e->leads);
    if (!st && !e->leads)
        st = lt_tensor_read(t, value, sizeof *value);
    lt_tensor_free(&t);
    return st;
}

/* Times a round trip: a message there, a small one back. */
static lt_status exchange(const end *e, lt_tensor *there, lt_tensor *back, double *seconds)
{
    const double begin = bench_seconds();
    LT_TRY(move(e, there, e->leads));
    LT_TRY(move(e, back, !e->leads));
    *seconds = bench_seconds() - begin;
    return LT_OK;
}

/* Median of up to `most` round trips, fewer if they take longer than `longest` seconds together; *samples: their number. */
static lt_status sample(const end *e, int64_t bytes, double longest, int most, double *median,
                        int *samples)
{
    double seconds[SAMPLES];
    int count = 0;
    int64_t again = 1;
    lt_tensor *there = NULL, *back = NULL;
    lt_status st = lt_tensor_new(&there, e->device, LT_U8, LT_SHAPE(bytes));
    if (!st)
        st = lt_tensor_new(&back, e->device, LT_U8, LT_SHAPE(1));
    for (const double begin = bench_seconds(); !st && again; count++) {
        st = exchange(e, there, back, &seconds[count]);
        again = count + 1 < most && bench_seconds() - begin < longest;
        if (!st)
            st = tell(e, &again);
    }
    lt_tensor_free(&there);
    lt_tensor_free(&back);
    *median = st ? 0 : bench_median(seconds, count);
    *samples = count;
    return st;
}

/* Doubles the message size until one takes long enough; the other end is told after each size whether
 * a larger one follows. */
static lt_status measure_rate(const end *e, double round_trip, link *out)
{
    enum { FEW = 3, MANY = 9, MIB = 1 << 20 };
    double seconds;
    int count;
    int64_t bytes = FIRST_BYTES, larger = 1;
    while (larger) {
        LT_TRY(sample(e, bytes, rate_seconds, FEW, &seconds, &count));
        larger = seconds < long_enough && bytes < MOST_BYTES;
        LT_TRY(tell(e, &larger));
        if (larger)
            bytes *= 2;
    }
    const double begin = bench_core_seconds();
    LT_TRY(sample(e, bytes, rate_seconds, MANY, &seconds, &count));
    out->core_us_mib = 1e6 * (bench_core_seconds() - begin) / count / ((double)bytes / MIB);
    out->bytes = bytes;
    out->gbit = seconds > round_trip ? 8e-9 * (double)bytes / (seconds - round_trip) : 0;
    return LT_OK;
}

static lt_status measure_link(const end *e, link *out)
{
    enum { WARM = 20, MESSAGES = 3 }; /* messages of a sample: there, back, whether more follow */
    double round_trip;
    int count;
    LT_TRY(sample(e, 1, latency_seconds, WARM, &round_trip, &count));
    const double begin = bench_core_seconds();
    LT_TRY(sample(e, 1, latency_seconds, SAMPLES, &round_trip, &count));
    out->core_us = 1e6 * (bench_core_seconds() - begin) / (MESSAGES * count);
    out->latency_us = 1e6 * round_trip / 2;
    return measure_rate(e, round_trip, out);
}

/* --- Links --- */

/* Returns the first rank after 0 that is in rank 0's node (or, for the other kind, is not). */
static int partner(const lt_nodes *nodes, int ranks, int kind)
{
    for (int r = 1; r < ranks; r++)
        if ((nodes->of[r] == nodes->of[0]) == (kind == WITHIN))
            return r;
    return 0;
}

/* --- The report --- */

static void print_link(int kind, const link *l)
{
    static const char *const where[LINKS] = {"inside a node", "between nodes"},
                             *const names[LINKS] = {"within", "between"};
    if (!l->there) {
        fprintf(stderr, "%s: no two ranks\n", where[kind]);
        bench_print_fields(kind == WITHIN ? "within null" : "between null");
        return;
    }
    fprintf(stderr,
            "%s: %.1f us, of a core %.1f us and %.0f us a MiB, %.3f Gbit/s (messages of "
            "%lld bytes, ranks 0 and %d)\n",
            where[kind], l->latency_us, l->core_us, l->core_us_mib, l->gbit, (long long)l->bytes,
            l->peer);
    bench_print_open(names[kind], '{');
    bench_print_fields("latency_us %g core_us %g core_us_mib %g gbit %g message_bytes %lld peer %d",
                       l->latency_us, l->core_us, l->core_us_mib, l->gbit, (long long)l->bytes,
                       l->peer);
    bench_print_close('}');
}

static lt_status run_links(lt_device *device, lt_comm *comm)
{
    const int rank = lt_comm_rank(comm);
    lt_nodes nodes;
    LT_TRY(lt_comm_nodes(&nodes, comm, (int)settings.ranks_per_node));
    if (!rank) {
        fprintf(stderr, "%d nodes\n", nodes.count);
        bench_print_head("links", device, "u8", 0);
        bench_print_fields("ranks %d nodes %d ranks_per_node %d", lt_comm_size(comm), nodes.count,
                           nodes.ranks_per_node);
    }
    lt_status st = LT_OK;
    for (int kind = 0; kind < LINKS && !st; kind++) {
        const int peer = partner(&nodes, lt_comm_size(comm), kind);
        const end e = {device, comm, rank ? 0 : peer, !rank};
        link found = {.there = peer != 0, .peer = peer};
        st = lt_comm_barrier(comm);
        if (!st && peer && (!rank || rank == peer))
            st = measure_link(&e, &found);
        if (!st && !rank)
            print_link(kind, &found);
    }
    lt_nodes_clear(&nodes);
    return st ? st : lt_comm_barrier(comm);
}

const bench_command bench_links = {.name = "links",
                                   .summary = "time messages inside a node and between two",
                                   .kind = BENCH_RANKS,
                                   .settings = &settings,
                                   .run = run_links};
