/* Test cases of collectives on one rank, compared with values computed from every rank's known input. */

#include "cases.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 4099, RANKS = 64 };

static const lt_dtype dtypes[] = {LT_F32, LT_F64, LT_F16, LT_BF16, LT_I32, LT_I64, LT_U8};
static const lt_reduce reductions[] = {LT_REDUCE_SUM, LT_REDUCE_MEAN, LT_REDUCE_MAX};
static const lt_shape shapes[] = {
    {.ndim = 0},
    {.ndim = 1, .dim = {2}}, /* fewer elements than ranks */
    {.ndim = 1, .dim = {MOST}},
    {.ndim = 4, .dim = {2, 3, 4, 5}}, /* stored channels-last */
};

bool case_fails(rank_case *c, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(c->why, sizeof c->why, format, args);
    va_end(args);
    return false;
}

bool case_ok(rank_case *c, lt_status status, const char *what)
{
    if (!status)
        return true;
    char why[400];
    snprintf(why, sizeof why, "%s", lt_error_message());
    return case_fails(c, "%s: %s: %s", what, lt_status_name(status), why);
}

static int rank_of(const rank_case *c)
{
    return lt_comm_rank(c->comm);
}

static int size_of(const rank_case *c)
{
    return lt_comm_size(c->comm);
}

static bool is_float(lt_dtype dtype)
{
    return dtype == LT_F32 || dtype == LT_F64 || dtype == LT_F16 || dtype == LT_BF16;
}

/* Rounds x to `bits` significant bits, ties to even, and to a multiple of 2^least. */
static double rounded(double x, int bits, int least)
{
    int exponent;
    frexp(x, &exponent);
    double place = ldexp(1, exponent - bits > least ? exponent - bits : least);
    return rint(x / place) * place;
}

static double to_dtype(double x, lt_dtype dtype)
{
    if (dtype == LT_BF16)
        return rounded(x, 8, -133);
    if (dtype == LT_F16)
        return rounded(x, 11, -24);
    return dtype == LT_F32 ? (double)(float)x : x;
}

/* Returns a rank's element i; magnitudes vary, so that sums depend on their order. */
static double value(int rank, int64_t i, lt_dtype dtype)
{
    uint32_t h = (uint32_t)i * 2654435761U + (uint32_t)rank * 40503U + 12345U;
    h = (h ^ h >> 15) * 2246822519U;
    h ^= h >> 13;
    int whole = (int)(h % 2001) - 1000;
    if (dtype == LT_U8)
        return h % 256;
    if (dtype == LT_I32)
        return whole * 100000.0 + rank;
    if (dtype == LT_I64)
        return whole * 1e12 + rank;
    return to_dtype(whole / 999.0 * ldexp(1, (int)(h >> 16) % 12 - 6), dtype);
}

/* Returns the reduction of element i by definition: in rank order, in f32 for 16 bits, rounded once. */
static double reduced(int size, int64_t i, lt_dtype dtype, lt_reduce op)
{
    bool single = dtype != LT_F64 && is_float(dtype);
    double sum = value(0, i, dtype);
    for (int r = 1; r < size; r++) {
        double x = value(r, i, dtype);
        if (op == LT_REDUCE_MAX)
            sum = x > sum ? x : sum;
        else
            sum = single ? (double)((float)sum + (float)x) : sum + x;
    }
    if (op == LT_REDUCE_MEAN)
        sum = single ? (double)((float)sum / (float)size) : sum / size;
    return to_dtype(sum, dtype);
}

/* Returns the row-major index of the i-th element in memory of a channels-last shape. */
static int64_t row_major(lt_shape s, int64_t i)
{
    if (s.ndim != 4)
        return i;
    int64_t c = i % s.dim[1], w = i / s.dim[1] % s.dim[3], h = i / (s.dim[1] * s.dim[3]) % s.dim[2];
    int64_t n = i / (s.dim[1] * s.dim[2] * s.dim[3]);
    return ((n * s.dim[1] + c) * s.dim[2] + h) * s.dim[3] + w;
}

static bool make(rank_case *c, lt_tensor **out, lt_dtype dtype, lt_shape shape)
{
    const lt_memory_format format =
        shape.ndim == 4 ? LT_FORMAT_CHANNELS_LAST : LT_FORMAT_CONTIGUOUS;
    return case_ok(c, lt_tensor_new_as(out, c->device, dtype, shape, format), "lt_tensor_new_as");
}

static bool fill(rank_case *c, lt_tensor *t, int rank, int64_t first)
{
    static _Thread_local double buffer[RANKS * MOST];
    lt_tensor *wide = NULL;
    lt_shape shape = lt_tensor_shape(t);
    int64_t count = lt_shape_count(shape);
    for (int64_t i = 0; i < count; i++)
        buffer[row_major(shape, i)] = value(rank, first + i, lt_tensor_dtype(t));
    bool good =
        make(c, &wide, LT_F64, shape)
        && case_ok(c, lt_tensor_write(wide, buffer, (size_t)count * sizeof *buffer), "write")
        && case_ok(c, lt_tensor_copy(t, wide), "copy");
    lt_tensor_free(&wide);
    return good;
}

/* Expected values: a reduction, or a copy of rank from's values if op < 0; they begin at element first. */
typedef struct expectation {
    int op, from;
    int64_t first;
} expectation;

static bool expect(rank_case *c, const lt_tensor *t, int64_t at, int64_t count, expectation e)
{
    static _Thread_local double buffer[RANKS * MOST];
    lt_tensor *wide = NULL;
    lt_shape shape = lt_tensor_shape(t);
    lt_dtype dtype = lt_tensor_dtype(t);
    bool good = make(c, &wide, LT_F64, shape) && case_ok(c, lt_tensor_copy(wide, t), "copy")
                && case_ok(c, lt_tensor_read(wide, buffer, lt_tensor_bytes(wide)), "read");
    lt_tensor_free(&wide);
    for (int64_t i = 0; good && i < count; i++) {
        double got = buffer[row_major(shape, at + i)];
        double want = e.op < 0 ? value(e.from, e.first + i, dtype)
                               : reduced(size_of(c), e.first + i, dtype, (lt_reduce)e.op);
        if (c->spoil && i == count - 1)
            want = to_dtype(want * (1 + 0x1p-7) + 1, dtype);
        if (got != want)
            return case_fails(c, "rank %d of %d: %s element %lld is %.17g, want %.17g", rank_of(c),
                              size_of(c), lt_dtype_name(dtype), (long long)i, got, want);
    }
    return good;
}

/* Returns a rank's elements of an even split. */
static int64_t even(int64_t count, int size, int rank)
{
    return count / size + (rank < count % size);
}

static bool counted(rank_case *c, uint64_t before, uint64_t want)
{
    uint64_t got = lt_comm_bytes(c->comm) - before;
    return got == want
           || case_fails(c, "rank %d of %d: %llu bytes counted, want %llu", rank_of(c), size_of(c),
                         (unsigned long long)got, (unsigned long long)want);
}

static bool finish(rank_case *c, lt_status begun, lt_request **request)
{
    return case_ok(c, begun, "begin") && case_ok(c, lt_request_wait(request), "wait");
}

static bool one_allreduce(rank_case *c, lt_dtype dtype, lt_reduce op, lt_shape shape)
{
    lt_tensor *t = NULL;
    lt_request *request;
    uint64_t before = lt_comm_bytes(c->comm), n = (uint64_t)size_of(c);
    uint64_t own = (uint64_t)even(lt_shape_count(shape), size_of(c), rank_of(c));
    uint64_t all = (uint64_t)lt_shape_count(shape);
    bool good = make(c, &t, dtype, shape) && fill(c, t, rank_of(c), 0)
                && finish(c, lt_comm_allreduce_begin(c->comm, t, op, &request), &request)
                && expect(c, t, 0, lt_shape_count(shape), (expectation){.op = (int)op})
                && counted(c, before, (all - own + (n - 1) * own) * lt_dtype_size(dtype));
    lt_tensor_free(&t);
    return good;
}

static bool supported(lt_dtype dtype, lt_reduce op)
{
    return dtype != LT_U8 && (op != LT_REDUCE_MEAN || is_float(dtype));
}

bool case_allreduce(rank_case *c)
{
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (size_t o = 0; o < sizeof reductions / sizeof *reductions; o++)
            for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
                if (supported(dtypes[d], reductions[o])
                    && !one_allreduce(c, dtypes[d], reductions[o], shapes[s]))
                    return false;
    return true;
}

/* Uneven shards: empty on every third rank, in the last round on all but the last rank. */
static int64_t part_of(int round, int size, int rank)
{
    static const int64_t most[] = {1, 5, 257};
    if (round == 3)
        return rank == size - 1 ? MOST : 0;
    return rank % 3 == 1 ? 0 : (most[round] * (rank + 1) + rank) % MOST;
}
enum { ROUNDS = 4 };

/* Sets the counts of all ranks and their sum; returns the offset of this rank's shard. */
static int64_t cut(const rank_case *c, int round, int64_t *count, int64_t *total)
{
    int64_t at = 0;
    *total = 0;
    for (int r = 0; r < size_of(c); r++) {
        count[r] = part_of(round, size_of(c), r);
        at += r < rank_of(c) ? count[r] : 0;
        *total += count[r];
    }
    return at;
}

static bool one_reducescatter(rank_case *c, lt_dtype dtype, lt_reduce op, int round)
{
    int64_t count[RANKS], total, at = cut(c, round, count, &total), own = count[rank_of(c)];
    uint64_t before = lt_comm_bytes(c->comm);
    lt_tensor *whole = NULL, *part = NULL;
    lt_request *request;
    bool good = make(c, &whole, dtype, LT_SHAPE(total)) && fill(c, whole, rank_of(c), 0)
                && (!own || make(c, &part, dtype, LT_SHAPE(own)))
                && finish(c, lt_comm_reducescatter_begin(c->comm, whole, part, count, op, &request),
                          &request)
                && (!own || expect(c, part, 0, own, (expectation){.op = (int)op, .first = at}))
                && counted(c, before, (uint64_t)(total - own) * lt_dtype_size(dtype));
    lt_tensor_free(&whole);
    lt_tensor_free(&part);
    return good;
}

bool case_reducescatter(rank_case *c)
{
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (size_t o = 0; o < sizeof reductions / sizeof *reductions; o++)
            for (int round = 0; round < ROUNDS; round++)
                if (supported(dtypes[d], reductions[o])
                    && !one_reducescatter(c, dtypes[d], reductions[o], round))
                    return false;
    return true;
}

static bool one_allgather(rank_case *c, lt_dtype dtype, int round)
{
    int64_t count[RANKS], total, at = 0, own;
    cut(c, round, count, &total);
    own = count[rank_of(c)];
    uint64_t before = lt_comm_bytes(c->comm);
    lt_tensor *whole = NULL, *part = NULL;
    lt_request *request;
    bool good =
        make(c, &whole, dtype, LT_SHAPE(total))
        && (!own || (make(c, &part, dtype, LT_SHAPE(own)) && fill(c, part, rank_of(c), 0)))
        && finish(c, lt_comm_allgather_begin(c->comm, part, whole, count, &request), &request);
    for (int r = 0; good && r < size_of(c); at += count[r++])
        good = expect(c, whole, at, count[r], (expectation){.op = -1, .from = r});
    lt_tensor_free(&whole);
    lt_tensor_free(&part);
    uint64_t others = (uint64_t)size_of(c) - 1;
    return good && counted(c, before, others * (uint64_t)own * lt_dtype_size(dtype));
}

enum { LONG = 1 << 18, SHORT = 5 };

/* Cuts a whole of which one rank, the owner, has nearly all elements; returns their number, and the elements that this
 * rank sends of it in pieces, by the formula of lather/comm.h. */
static int64_t cut_long(const rank_case *c, int owner, int64_t *count, int64_t *begin,
                        int64_t *sent)
{
    const int n = size_of(c), me = rank_of(c);
    int64_t all = 0, piece = 0;
    for (int r = 0; r < n; r++) {
        count[r] = r == owner ? LONG : r % 2 ? SHORT : 0;
        if (r == me)
            *begin = all;
        all += count[r];
    }
    for (int r = 0; r < me; r++)
        piece += even(all, n, r);
    const int64_t own = even(all, n, me), end = *begin + count[me],
                  first = *begin > piece ? *begin : piece,
                  last = end < piece + own ? end : piece + own;
    *sent = count[me] - (last > first ? last - first : 0) + (n - 1) * own;
    if (n < 3) /* no gain */
        *sent = (n - 1) * count[me];
    return all;
}

static bool has_indices(rank_case *c, const int32_t *value, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (value[i] != i)
            return case_fails(c, "rank %d of %d: i32 element %lld is %d", rank_of(c), size_of(c),
                              (long long)i, value[i]);
    return true;
}

static bool allgather_of_a_long_shard(rank_case *c, int owner)
{
    int64_t count[RANKS], begin = 0, sent;
    const int64_t all = cut_long(c, owner, count, &begin, &sent), own = count[rank_of(c)];
    const uint64_t before = lt_comm_bytes(c->comm);
    int32_t *value = malloc((size_t)all * sizeof *value);
    if (!value)
        return case_fails(c, "no memory");
    lt_tensor *whole = NULL, *part = NULL;
    lt_request *request;
    for (int64_t i = 0; i < own; i++)
        value[i] = (int32_t)(begin + i);
    bool good =
        make(c, &whole, LT_I32, LT_SHAPE(all))
        && (!own
            || (make(c, &part, LT_I32, LT_SHAPE(own))
                && case_ok(c, lt_tensor_write(part, value, lt_tensor_bytes(part)), "write")))
        && finish(c, lt_comm_allgather_begin(c->comm, part, whole, count, &request), &request)
        && counted(c, before, (uint64_t)sent * sizeof *value)
        && case_ok(c, lt_tensor_read(whole, value, lt_tensor_bytes(whole)), "read")
        && has_indices(c, value, all);
    lt_tensor_free(&whole);
    lt_tensor_free(&part);
    free(value);
    return good;
}

bool case_allgather(rank_case *c)
{
    for (int owner = 0; owner < size_of(c); owner++)
        if (!allgather_of_a_long_shard(c, owner))
            return false;
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (int round = 0; round < ROUNDS; round++)
            if (!one_allgather(c, dtypes[d], round))
                return false;
    return true;
}

bool case_broadcast(rank_case *c)
{
    enum { SHAPES = sizeof shapes / sizeof *shapes, DTYPES = sizeof dtypes / sizeof *dtypes };
    for (int i = 0; i < SHAPES * DTYPES * size_of(c); i++) {
        lt_dtype dtype = dtypes[i % DTYPES];
        lt_shape shape = shapes[i / DTYPES % SHAPES];
        int root = i / DTYPES / SHAPES;
        lt_tensor *t = NULL;
        lt_request *request;
        uint64_t before = lt_comm_bytes(c->comm), others = (uint64_t)size_of(c) - 1;
        bool good = make(c, &t, dtype, shape) && fill(c, t, rank_of(c), 0)
                    && finish(c, lt_comm_broadcast_begin(c->comm, t, root, &request), &request)
                    && expect(c, t, 0, lt_shape_count(shape), (expectation){.op = -1, .from = root})
                    && counted(c, before, root == rank_of(c) ? others * lt_tensor_bytes(t) : 0);
        lt_tensor_free(&t);
        if (!good)
            return false;
    }
    return case_ok(c, lt_comm_barrier(c->comm), "barrier");
}

/* Four ranks or more send pieces of a length that they cannot divide evenly. */
bool case_broadcast_large(rank_case *c)
{
    enum { LENGTH = 16387 };
    const int n = size_of(c), me = rank_of(c);
    for (int root = 0; root < n; root++) {
        lt_tensor *t = NULL;
        lt_request *request;
        const uint64_t before = lt_comm_bytes(c->comm),
                       own = sizeof(float) * (uint64_t)(LENGTH / n + (me < LENGTH % n));
        const uint64_t all = sizeof(float) * (uint64_t)LENGTH, others = (uint64_t)n - 1;
        const uint64_t direct = me == root ? others * all : 0;
        const uint64_t pieces = me == root ? all + (others - 1) * own
                                : n > 1    ? (others - 1) * own
                                           : 0;
        bool good = make(c, &t, LT_F32, LT_SHAPE(LENGTH)) && fill(c, t, me, 0)
                    && finish(c, lt_comm_broadcast_begin(c->comm, t, root, &request), &request)
                    && expect(c, t, 0, LENGTH, (expectation){.op = -1, .from = root})
                    && counted(c, before, n < 4 ? direct : pieces);
        lt_tensor_free(&t);
        if (!good)
            return false;
    }
    return case_ok(c, lt_comm_barrier(c->comm), "barrier");
}

/* Returns the elements that rank `from` sends to rank `to`; 0 between some ranks, never to all. */
static int64_t dealt(int size, int from, int to, int round)
{
    static const int most[] = {1, 7, 1000};
    return to == (from + 1) % size || round == 0 ? most[round] : (from * 3 + to * 5) % most[round];
}

/* A rank's elements for the other ranks are consecutive in value(). */
static bool one_alltoall(rank_case *c, lt_dtype dtype, int round)
{
    int64_t sent[RANKS], received[RANKS], in_all = 0, out_all = 0, at = 0;
    int n = size_of(c), me = rank_of(c);
    for (int r = 0; r < n; r++) {
        in_all += sent[r] = dealt(n, me, r, round);
        out_all += received[r] = dealt(n, r, me, round);
    }
    uint64_t before = lt_comm_bytes(c->comm);
    lt_tensor *in = NULL, *out = NULL;
    lt_request *request;
    bool good =
        make(c, &in, dtype, LT_SHAPE(in_all)) && make(c, &out, dtype, LT_SHAPE(out_all))
        && fill(c, in, me, 0)
        && finish(c, lt_comm_alltoall_begin(c->comm, in, out, sent, received, &request), &request);
    for (int r = 0; good && r < n; at += received[r++]) {
        int64_t first = 0;
        for (int to = 0; to < me; to++)
            first += dealt(n, r, to, round);
        good = expect(c, out, at, received[r], (expectation){.op = -1, .from = r, .first = first});
    }
    lt_tensor_free(&in);
    lt_tensor_free(&out);
    return good && counted(c, before, (uint64_t)(in_all - sent[me]) * lt_dtype_size(dtype));
}

/* Only rank 0 sends; with three ranks or more, rank 1 neither sends nor receives. */
static bool alltoall_from_one(rank_case *c)
{
    int64_t sent[RANKS] = {0}, received[RANKS] = {0}, all = 0, own = size_of(c) > 2 ? 3 : 0;
    lt_tensor *in = NULL, *out = NULL;
    lt_request *request;
    for (int r = 0; r < size_of(c) && rank_of(c) == 0; r++)
        all += sent[r] = own && r != 1 ? 3 : 0;
    own = rank_of(c) == 1 ? 0 : own;
    received[0] = own;
    bool good =
        (!own || make(c, &out, LT_F64, LT_SHAPE(own)))
        && (!all || (make(c, &in, LT_F64, LT_SHAPE(all)) && fill(c, in, 0, 0)))
        && finish(c, lt_comm_alltoall_begin(c->comm, in, out, sent, received, &request), &request);
    if (good && own)
        good = expect(c, out, 0, own,
                      (expectation){.op = -1, .first = rank_of(c) ? 3 * (rank_of(c) - 1) : 0});
    lt_tensor_free(&in);
    lt_tensor_free(&out);
    return good;
}

bool case_alltoall(rank_case *c)
{
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (int round = 0; round < 3; round++)
            if (!one_alltoall(c, dtypes[d], round))
                return false;
    return alltoall_from_one(c);
}

/* Begins two sends to the next rank and two receives from the previous one. */
static bool begin_messages(rank_case *c, lt_tensor *t[4], lt_request *request[4])
{
    int n = size_of(c), next = (rank_of(c) + 1) % n, last = (rank_of(c) + n - 1) % n;
    return fill(c, t[0], rank_of(c), 0) && fill(c, t[1], rank_of(c), 100)
           && case_ok(c, lt_comm_send_begin(c->comm, t[0], next, &request[0]), "send")
           && case_ok(c, lt_comm_send_begin(c->comm, t[1], next, &request[1]), "send")
           && case_ok(c, lt_comm_recv_begin(c->comm, t[2], last, &request[2]), "recv")
           && case_ok(c, lt_comm_recv_begin(c->comm, t[3], last, &request[3]), "recv");
}

/* Two messages around the ring at once arrive in the order in which they were sent. */
bool case_messages(rank_case *c)
{
    int last = (rank_of(c) + size_of(c) - 1) % size_of(c);
    lt_tensor *t[4] = {NULL};
    lt_request *request[4] = {NULL};
    bool good = true;
    for (int i = 0; good && i < 4; i++)
        good = make(c, &t[i], LT_F32, LT_SHAPE(i % 2 ? 7 : MOST));
    if (good && lt_comm_send_begin(c->comm, t[0], rank_of(c), &request[0]) != LT_E_ARG)
        good = case_fails(c, "a message to itself was accepted");
    if (good && size_of(c) > 1) {
        good = begin_messages(c, t, request);
        for (int i = 0; good && i < 4; i++)
            good = case_ok(c, lt_request_wait(&request[i]), "wait");
        good = good && expect(c, t[2], 0, MOST, (expectation){.op = -1, .from = last})
               && expect(c, t[3], 0, 7, (expectation){.op = -1, .from = last, .first = 100});
    }
    for (int i = 0; i < 4; i++)
        lt_tensor_free(&t[i]);
    return good;
}
