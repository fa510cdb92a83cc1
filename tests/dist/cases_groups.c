/* Test cases of long tensors, concurrent requests, groups, agreement and aborts, on one rank. */

#include "cases.h"

#include "lather/ext/comm.h"

#include <stdio.h>
#include <string.h>

enum { LONG = 400003 }; /* sent in several messages */

/* Checks that element i is factor * (i % 1009) + term. */
static bool long_is(rank_case *c, const lt_tensor *t, int factor, int term, const char *what)
{
    static _Thread_local float data[LONG];
    if (!case_ok(c, lt_tensor_read(t, data, sizeof data), "read"))
        return false;
    for (int i = 0; i < LONG; i++)
        if (data[i] != (float)(factor * (i % 1009) + term + c->spoil))
            return case_fails(c, "%s: element %d is %g", what, i, (double)data[i]);
    return true;
}

bool case_long(rank_case *c)
{
    static _Thread_local float data[LONG];
    lt_tensor *t = NULL;
    lt_request *request;
    int n = lt_comm_size(c->comm), rank = lt_comm_rank(c->comm);
    for (int i = 0; i < LONG; i++)
        data[i] = (float)(i % 1009 + rank);
    bool good = case_ok(c, lt_tensor_new(&t, c->device, LT_F32, LT_SHAPE(LONG)), "new")
                && case_ok(c, lt_tensor_write(t, data, sizeof data), "write")
                && case_ok(c, lt_comm_allreduce_begin(c->comm, t, LT_REDUCE_SUM, &request), "begin")
                && case_ok(c, lt_request_wait(&request), "wait")
                && long_is(c, t, n, n * (n - 1) / 2, "allreduce")
                && case_ok(c, lt_tensor_write(t, data, sizeof data), "write")
                && case_ok(c, lt_comm_broadcast_begin(c->comm, t, n - 1, &request), "begin")
                && case_ok(c, lt_request_wait(&request), "wait")
                && long_is(c, t, 1, n - 1, "broadcast");
    lt_tensor_free(&t);
    return good;
}

/* Requests begun together, waited for from the last to the first. */
bool case_many(rank_case *c)
{
    enum { COUNT = 12, SIZE = 1000 };
    lt_tensor *t[COUNT] = {NULL};
    lt_request *request[COUNT] = {NULL};
    int n = lt_comm_size(c->comm), rank = lt_comm_rank(c->comm);
    bool good = true;
    for (int i = 0; good && i < COUNT; i++)
        good = case_ok(c, lt_tensor_new(&t[i], c->device, LT_F32, LT_SHAPE(SIZE + i)), "new")
               && case_ok(c, lt_tensor_fill(t[i], i + rank), "fill")
               && case_ok(c, lt_comm_allreduce_begin(c->comm, t[i], LT_REDUCE_SUM, &request[i]),
                          "begin");
    for (int i = COUNT - 1; i >= 0; i--)
        good = case_ok(c, lt_request_wait(&request[i]), "wait") && good;
    for (int i = 0; good && i < COUNT; i++) {
        float data[SIZE + COUNT];
        good = case_ok(c, lt_tensor_read(t[i], data, lt_tensor_bytes(t[i])), "read");
        for (int k = 0; good && k < SIZE + i; k++)
            if (data[k] != (float)(n * i + n * (n - 1) / 2 + c->spoil))
                good = case_fails(c, "request %d: element %d is %g", i, k, (double)data[k]);
    }
    for (int i = 0; i < COUNT; i++)
        lt_tensor_free(&t[i]);
    return good;
}

/* Checks the sum over the group of `mine`. */
static bool sum_is(rank_case *c, lt_comm *group, int mine, int want)
{
    lt_tensor *t = NULL;
    lt_request *request;
    double got = 0;
    bool good = case_ok(c, lt_tensor_new(&t, c->device, LT_F64, LT_SCALAR), "new")
                && case_ok(c, lt_tensor_fill(t, mine), "fill")
                && case_ok(c, lt_comm_allreduce_begin(group, t, LT_REDUCE_SUM, &request), "begin")
                && case_ok(c, lt_request_wait(&request), "wait")
                && case_ok(c, lt_tensor_item(t, &got), "item");
    lt_tensor_free(&t);
    return good
           && (got == want + c->spoil || case_fails(c, "sum of a group is %g, want %d", got, want));
}

/* Groups of even and odd ranks in reverse order, then pairs of each, all in use concurrently. */
bool case_split(rank_case *c)
{
    int n = lt_comm_size(c->comm), rank = lt_comm_rank(c->comm), want = 0, members = 0;
    lt_comm *half = NULL, *pair = NULL;
    for (int r = rank % 2; r < n; r += 2, members++)
        want += r;
    lt_comm_set_deadline(c->comm, c->comm->deadline + 1);
    bool good = case_ok(c, lt_comm_split(c->comm, rank % 2, -rank, &half), "split");
    if (good && half->deadline < c->comm->deadline)
        good = case_fails(c, "a deadline of %g s in a group", half->deadline);
    lt_comm_set_deadline(c->comm, c->comm->deadline - 1);
    int place = members - 1 - rank / 2;
    if (good && (lt_comm_size(half) != members || lt_comm_rank(half) != place))
        good = case_fails(c, "rank %d is %d of %d in its half", rank, lt_comm_rank(half),
                          lt_comm_size(half));
    good = good && sum_is(c, half, rank, want)
           && case_ok(c, lt_comm_split(half, lt_comm_rank(half) / 2, 0, &pair), "split");
    int mate = place ^ 1;
    int other = mate < members ? rank % 2 + 2 * (members - 1 - mate) : 0;
    good = good && sum_is(c, pair, rank, rank + other) && sum_is(c, half, rank, want)
           && sum_is(c, c->comm, rank, n * (n - 1) / 2);
    lt_comm_close(&pair);
    lt_comm_close(&half);
    return good;
}

bool case_same(rank_case *c)
{
    char mine[32];
    int n = lt_comm_size(c->comm), rank = lt_comm_rank(c->comm);
    if (!case_ok(c, lt_comm_check_same(c->comm, "--lr", "0.1"), "same")
        || !case_ok(c, lt_comm_check_same(c->comm, "empty", ""), "same"))
        return false;
    snprintf(mine, sizeof mine, "0.%d", rank == n - 1 ? 123 : 1);
    lt_status st = lt_comm_check_same(c->comm, "--lr", mine);
    if (n == 1)
        return case_ok(c, st, "same");
    char want[64];
    snprintf(want, sizeof want, "--lr is 0.1 on rank 0, 0.123 on rank %d", n - 1 + c->spoil);
    return (st == LT_E_ARG && !strcmp(lt_error_message(), want))
           || case_fails(c, "other texts: %s: %s", lt_status_name(st), lt_error_message());
}

/* Rank r contributes r bytes of value r: rank 0 none. */
bool case_host(rank_case *c)
{
    enum { MOST = 16 };
    int64_t bytes[MOST];
    char own[MOST], all[MOST * MOST], *at = all;
    const int n = lt_comm_size(c->comm), rank = lt_comm_rank(c->comm);
    for (int r = 0; r < n; r++)
        bytes[r] = r;
    memset(own, rank, sizeof own);
    memset(all, MOST, sizeof all);
    if (!case_ok(c, lt_comm_allgather_host(c->comm, own, bytes, all), "allgather_host"))
        return false;
    for (int r = 0; r < n; r++)
        for (int i = 0; i < r; i++, at++)
            if (*at != r + c->spoil)
                return case_fails(c, "byte %d of rank %d is %d", i, r, *at);
    return *at == MOST || case_fails(c, "bytes after the last rank's were overwritten");
}

bool case_fails_with(rank_case *c, lt_status got, const char *words)
{
    char why[400];
    snprintf(why, sizeof why, "%s", lt_error_message());
    return (got == LT_E_COMM && strstr(why, words))
           || case_fails(c, "rank %d: %s: '%s', want '%s'", lt_comm_rank(c->comm),
                         lt_status_name(got), why, words);
}

lt_status case_sum(const rank_case *c, int count)
{
    lt_tensor *t = NULL;
    lt_request *request = NULL;
    lt_status st = lt_tensor_new(&t, c->device, LT_F32, LT_SHAPE(count));
    if (!st)
        st = lt_comm_allreduce_begin(c->comm, t, LT_REDUCE_SUM, &request);
    if (!st)
        st = lt_request_wait(&request);
    lt_tensor_free(&t);
    return st;
}

bool case_abort(rank_case *c)
{
    char want[64];
    const int size = lt_comm_size(c->comm);
    snprintf(want, sizeof want, "rank %d of %d aborted the group", size - 1, size);
    if (lt_comm_rank(c->comm) == size - 1)
        lt_comm_abort(c->comm);
    return case_fails_with(c, case_sum(c, 5000), want)
           && case_fails_with(c, lt_comm_barrier(c->comm), want);
}

bool case_abort_split(rank_case *c)
{
    lt_comm *half = NULL;
    if (lt_comm_split(c->comm, lt_comm_rank(c->comm) % 2, 0, &half))
        return case_fails(c, "%s", lt_error_message());
    if (lt_comm_rank(c->comm) == 3)
        lt_comm_abort(half);
    bool good = case_fails_with(c, lt_comm_barrier(c->comm), "rank 3 of 4 aborted")
                && case_fails_with(c, lt_comm_barrier(half), "rank 3 of 4 aborted");
    lt_comm_close(&half);
    return good;
}

const case_row case_rows[] = {
    {"allreduce", case_allreduce}, {"reducescatter", case_reducescatter},
    {"allgather", case_allgather}, {"allgather of host memory", case_host},
    {"broadcast", case_broadcast}, {"large broadcast", case_broadcast_large},
    {"alltoall", case_alltoall},   {"messages", case_messages},
    {"long tensors", case_long},   {"many requests at once", case_many},
    {"groups", case_split},        {"agreement", case_same},
};
const int case_count = sizeof case_rows / sizeof *case_rows;
