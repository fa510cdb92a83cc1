/* bench collectives: seconds of each collective by its size, from a barrier to its end on rank 0; of sums of f32 also by the
 * engine below the communicator (MPI), alternating. */

#include "bench.h"

#include "lather/ext/comm.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct settings {
    bench_common common;
    const char *bytes;
} settings;

static settings s;

enum { SIZES = 16, WARM = 2 };
enum { ORDERED, ENGINE, WAYS };

static const struct {
    const char *name;
    lt_dtype dtype;
    lt_comm_call_kind kind;
    lt_reduce op;
} calls[] = {
    {"sum", LT_F32, LT_COMM_ALLREDUCE, LT_REDUCE_SUM},
    {"maximum", LT_I32, LT_COMM_ALLREDUCE, LT_REDUCE_MAX},
    {"all-gather", LT_F32, LT_COMM_ALLGATHER, LT_REDUCE_SUM},
    {"broadcast", LT_F32, LT_COMM_BROADCAST, LT_REDUCE_SUM},
    {"all-to-all", LT_F32, LT_COMM_ALLTOALL, LT_REDUCE_SUM},
};
enum { CALLS = sizeof calls / sizeof *calls };

/* Tensors of a call: the whole, the same elements again, this rank's. */
typedef struct buffers {
    lt_comm *comm;
    lt_tensor *whole, *other, *part;
    int64_t count[BENCH_MAX_RANKS];
} buffers;

/* Elements are a multiple of the ranks. */
static lt_status open_buffers(buffers *b, lt_device *device, lt_comm *comm, int call, double bytes)
{
    const int ranks = lt_comm_size(comm);
    const int64_t whole = (int64_t)bytes / (int64_t)sizeof(float),
                  each = (whole + ranks - 1) / ranks;
    *b = (buffers){.comm = comm};
    for (int r = 0; r < ranks; r++)
        b->count[r] = each;
    LT_TRY(lt_tensor_new(&b->whole, device, calls[call].dtype, LT_SHAPE(each * ranks)));
    LT_TRY(lt_tensor_new(&b->other, device, calls[call].dtype, LT_SHAPE(each * ranks)));
    LT_TRY(lt_tensor_new(&b->part, device, calls[call].dtype, LT_SHAPE(each)));
    LT_TRY(lt_tensor_fill(b->whole, 0));
    LT_TRY(lt_tensor_fill(b->other, 0));
    return lt_tensor_fill(b->part, 0);
}

static void close_buffers(buffers *b)
{
    lt_tensor_free(&b->whole);
    lt_tensor_free(&b->other);
    lt_tensor_free(&b->part);
}

static lt_status begin(buffers *b, int call, lt_request **request)
{
    switch ((int)calls[call].kind) {
    case LT_COMM_ALLREDUCE:
        return lt_comm_allreduce_begin(b->comm, b->whole, calls[call].op, request);
    case LT_COMM_ALLGATHER:
        return lt_comm_allgather_begin(b->comm, b->part, b->whole, b->count, request);
    case LT_COMM_BROADCAST:
        return lt_comm_broadcast_begin(b->comm, b->whole, 0, request);
    default:
        return lt_comm_alltoall_begin(b->comm, b->whole, b->other, b->count, b->count, request);
    }
}

static lt_status time_call(buffers *b, int call, double *seconds)
{
    lt_request *request = NULL;
    LT_TRY(lt_comm_barrier(b->comm));
    const double start = bench_seconds();
    LT_TRY(begin(b, call, &request));
    LT_TRY(lt_request_wait(&request));
    *seconds = bench_seconds() - start;
    return LT_OK;
}

/* Alternates the ways; fills the least and the median seconds of each. */
static lt_status time_ways(buffers *b, int call, int ways, double *least, double *median)
{
    static const int steps_at_once = 5;
    const size_t steps = (size_t)s.common.steps;
    double *seconds = calloc(WAYS * steps, sizeof *seconds);
    lt_status st = seconds ? LT_OK : LT_E_NOMEM;
    for (size_t i = 0; i < WARM + steps && !st; i++)
        for (int way = 0; way < ways && !st; way++) {
            double best = 0;
            if (ways > 1)
                st = lt_comm_use_engine_sums(b->comm, way == ENGINE);
            for (int k = 0; k < steps_at_once && !st; k++) {
                double now = 0;
                st = time_call(b, call, &now);
                best = !k || now < best ? now : best;
            }
            if (i >= WARM && !st)
                seconds[(size_t)way * steps + i - WARM] = best;
        }
    for (int way = 0; way < ways && !st; way++) {
        median[way] = bench_median(seconds + (size_t)way * steps, (int)steps);
        least[way] = seconds[(size_t)way * steps];
    }
    free(seconds);
    return st;
}

static void print_row(int call, const buffers *b, int ways, const double *least,
                      const double *median)
{
    const long long bytes = (long long)lt_tensor_bytes(b->whole);
    fprintf(stderr, "%-20s %9lld bytes: least %9.1f us, median %9.1f us", calls[call].name, bytes,
            1e6 * least[0], 1e6 * median[0]);
    if (ways > 1)
        fprintf(stderr, "; by the engine %9.1f and %9.1f us", 1e6 * least[1], 1e6 * median[1]);
    fputc('\n', stderr);
    bench_print_open(NULL, '{');
    bench_print_fields("call %s bytes %lld", calls[call].name, bytes);
    bench_print_number("us", 1e6 * least[0]);
    bench_print_number("median_us", 1e6 * median[0]);
    if (ways > 1) {
        bench_print_number("engine_us", 1e6 * least[1]);
        bench_print_number("engine_median_us", 1e6 * median[1]);
    }
    bench_print_close('}');
}

static lt_status run_one(lt_device *device, lt_comm *comm, int call, double bytes)
{
    double least[WAYS], median[WAYS];
    buffers b;
    const bool sums = calls[call].kind == LT_COMM_ALLREDUCE && calls[call].op == LT_REDUCE_SUM;
    const int ways = sums && !lt_comm_use_engine_sums(comm, false) ? WAYS : 1;
    lt_status st = open_buffers(&b, device, comm, call, bytes);
    if (!st)
        st = time_ways(&b, call, ways, least, median);
    if (!st && !lt_comm_rank(comm))
        print_row(call, &b, ways, least, median);
    close_buffers(&b);
    return st;
}

static lt_status run_collectives(lt_device *device, lt_comm *comm)
{
    double bytes[SIZES];
    int sizes;
    lt_status st = LT_OK;
    LT_TRY(bench_read_list("bytes", s.bytes, bytes, SIZES, &sizes));
    if (!lt_comm_rank(comm)) {
        bench_print_head("collectives", device, "f32", 0);
        bench_print_fields("ranks %d", lt_comm_size(comm));
        bench_print_open("calls", '[');
    }
    for (int call = 0; call < CALLS && !st; call++)
        for (int i = 0; i < sizes && !st; i++)
            st = run_one(device, comm, call, bytes[i]);
    if (!lt_comm_rank(comm))
        bench_print_close(']');
    return st;
}

/* clang-format off */
static const lt_option table[] = {
    {"Benchmark", STEPS, .value = "20", .help = "rounds; each takes the best of five calls"},
    {"Benchmark", TEXT("bytes", bytes), .value = "88,65536,4194304", .meta = "BYTES,...", .help = "bytes of all ranks' elements, or of the sum"},
};
/* clang-format on */

BENCH_COMMAND(collectives, BENCH_RANKS, table, "time each collective by its size");
