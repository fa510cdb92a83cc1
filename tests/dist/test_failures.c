/* Failures between ranks: every rank gets an error that names the cause, and none hangs. */

#include "base/alloc.h"
#include "case_ranks.h"
#include "dist/collectives/collectives.h"
#include "dist/comm/comm.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static lt_status finish(lt_status begun, lt_request **request)
{
    return begun ? begun : lt_request_wait(request);
}

/* Kind of a call. */
typedef enum what {
    SUM,
    MAX,
    GATHER,
    GATHER_OTHER,
    SCATTER,
    EXCHANGE,
    BROADCAST_0,
    BROADCAST_1,
    BARRIER,
    SEND,
    RECV
} what;
typedef struct doing {
    what what;
    lt_dtype dtype;
    int count;
} doing;

static lt_status parts(const rank_case *c, doing d, lt_tensor *t, lt_tensor *part,
                       lt_request **request)
{
    int64_t count[2] = {1, d.count - 1}, other[2] = {d.count - 1, 1};
    if (d.what == EXCHANGE) { /* sends and receives t, with 1 element for itself */
        int64_t own[2] = {d.count - 1, d.count - 1};
        own[lt_comm_rank(c->comm)] = 1;
        return lt_comm_alltoall_begin(c->comm, t, part, own, own, request);
    }
    if (d.what == SCATTER)
        return lt_comm_reducescatter_begin(c->comm, t, part, count, LT_REDUCE_SUM, request);
    return lt_comm_allgather_begin(c->comm, part, t, d.what == GATHER ? count : other, request);
}

static lt_status call(const rank_case *c, doing d, lt_tensor *t, lt_tensor *part,
                      lt_request **request)
{
    int other = 1 - lt_comm_rank(c->comm);
    switch (d.what) {
    case SUM:
        return lt_comm_allreduce_begin(c->comm, t, LT_REDUCE_SUM, request);
    case MAX:
        return lt_comm_allreduce_begin(c->comm, t, LT_REDUCE_MAX, request);
    case GATHER:
    case GATHER_OTHER:
    case SCATTER:
    case EXCHANGE:
        return parts(c, d, t, part, request);
    case BROADCAST_0:
        return lt_comm_broadcast_begin(c->comm, t, 0, request);
    case BROADCAST_1:
        return lt_comm_broadcast_begin(c->comm, t, 1, request);
    case SEND:
        return lt_comm_send_begin(c->comm, t, other, request);
    case RECV:
        return lt_comm_recv_begin(c->comm, t, other, request);
    case BARRIER:
        return lt_comm_barrier(c->comm);
    }
    return LT_OK;
}

static lt_status run(const rank_case *c, doing d)
{
    lt_tensor *t = NULL, *part = NULL;
    lt_request *request = NULL;
    int rank = lt_comm_rank(c->comm);
    int own = (d.what == GATHER_OTHER) == (rank == 0) ? d.count - 1 : 1;
    own = d.what == EXCHANGE ? d.count : own;
    lt_status st = lt_tensor_new(&t, c->device, d.dtype, LT_SHAPE(d.count > 0 ? d.count : 1));
    if (!st)
        st = lt_tensor_new(&part, c->device, d.dtype, LT_SHAPE(own > 0 ? own : 1));
    if (!st)
        st = finish(call(c, d, t, part, &request), &request);
    lt_tensor_free(&t);
    lt_tensor_free(&part);
    return st;
}

/* Mismatched calls of two ranks, and words of the error on both. */
typedef struct mismatch {
    const char *name;
    doing does[2];
    const char *words[2];
} mismatch;

static const mismatch mismatches[] = {
    {"another count",
     {{SUM, LT_F32, 10}, {SUM, LT_F32, 12}},
     {"of 10 f32 on rank 0", "of 12 f32 on rank 1"}},
    {"another dtype", {{SUM, LT_F32, 10}, {SUM, LT_BF16, 10}}, {"of 10 f32", "of 10 bf16"}},
    {"another reduction",
     {{SUM, LT_F32, 10}, {MAX, LT_F32, 10}},
     {"allreduce (sum)", "allreduce (max)"}},
    {"another collective",
     {{SUM, LT_F32, 10}, {SCATTER, LT_F32, 10}},
     {"allreduce", "reducescatter"}},
    {"other counts",
     {{GATHER, LT_F32, 10}, {GATHER_OTHER, LT_F32, 10}},
     {"allgather of 10", "with other counts"}},
    {"other counts of an all-to-all",
     {{EXCHANGE, LT_F32, 10}, {EXCHANGE, LT_F32, 12}},
     {"an alltoall with 9 f32 between these ranks on rank 0",
      "with 11 f32 between these ranks on rank 1"}},
    {"another root",
     {{BROADCAST_0, LT_F32, 10}, {BROADCAST_1, LT_F32, 10}},
     {"from rank 0", "from rank 1"}},
    {"a barrier and a broadcast",
     {{BARRIER, LT_F32, 0}, {BROADCAST_0, LT_F32, 3}},
     {"barrier", "broadcast"}},
    {"a longer message",
     {{SEND, LT_F32, 4}, {RECV, LT_F32, 3}},
     {"message of 4 f32", "message of 3 f32"}},
    {"a message of another dtype", {{SEND, LT_F32, 4}, {RECV, LT_I32, 4}}, {"4 f32", "4 i32"}},
};
static const mismatch *current;

static bool play_mismatch(rank_case *c)
{
    doing d = current->does[lt_comm_rank(c->comm)];
    lt_status st = run(c, d);
    return case_fails_with(c, st, "mismatched calls") && case_fails_with(c, st, current->words[0])
           && case_fails_with(c, st, current->words[1])
           && case_fails_with(c, lt_comm_barrier(c->comm), "mismatched calls");
}

static void name_mismatches(void **state)
{
    char why[512];
    (void)state;
    for (size_t i = 0; i < COUNT_OF(mismatches); i++) {
        current = &mismatches[i];
        if (play_cases(2, play_mismatch, false, why, sizeof why))
            fail_msg("%s: %s", current->name, why);
    }
}

/* Small data go in rounds among four ranks or more. One rank calls something else, also of large data. */
static const doing others[] = {{SUM, LT_F32, 12},
                               {MAX, LT_F32, 10},
                               {SUM, LT_F32, 5000},
                               {BARRIER, LT_F32, 0},
                               {BROADCAST_0, LT_F32, 30000}};
static doing other;
static int odd_one;

static bool play_odd_one(rank_case *c)
{
    const lt_status st =
        run(c, lt_comm_rank(c->comm) == odd_one ? other : (doing){SUM, LT_F32, 10});
    return (!st || case_fails_with(c, st, "mismatched calls"))
           && case_fails_with(c, lt_comm_barrier(c->comm), "mismatched calls");
}

static void name_mismatches_of_small_data(void **state)
{
    char why[512];
    (void)state;
    for (size_t i = 0; i < COUNT_OF(others); i++) {
        other = others[i];
        for (odd_one = 0; odd_one < 5; odd_one++)
            if (play_cases(5, play_odd_one, false, why, sizeof why))
                fail_msg("rank %d, call %zu: %s", odd_one, i, why);
    }
}

/* Control: the same call on both ranks is no mismatch. */
static bool play_match(rank_case *c)
{
    return case_fails_with(c, run(c, current->does[0]), "");
}

static void accept_matches(void **state)
{
    char why[512];
    (void)state;
    for (size_t i = 0; i < COUNT_OF(mismatches); i++) {
        current = &mismatches[i];
        if (current->does[0].what != SEND)
            assert_int_equal(play_cases(2, play_match, false, why, sizeof why), 2);
    }
}

/* A rank closes while another one makes a call, on one thread: must not hang. */
static void name_one_that_closed(void **state)
{
    lt_device *device[2];
    lt_comm *comm[2];
    (void)state;
    for (int r = 0; r < 2; r++)
        assert_ok(lt_device_open(&device[r], "ref", NULL));
    assert_ok(lt_comm_open_threads(comm, device, 2));
    lt_comm_close(&comm[0]);
    assert_status(lt_comm_barrier(comm[1]), LT_E_COMM);
    assert_non_null(strstr(lt_error_message(), "is barrier on rank 1"));
    assert_non_null(strstr(lt_error_message(), "is close on rank 0"));
    lt_comm_close(&comm[1]);
    for (int r = 0; r < 2; r++)
        lt_device_close(&device[r]);
}

static void abort_ranks(void **state)
{
    (void)state;
    expect_cases(3, case_abort);
    expect_cases(4, case_abort_split);
}

/* The group of ranks 1 and 3, which are ranks 0 and 1 in it. */
static bool time_out_in_group(rank_case *c)
{
    lt_comm *half = NULL;
    if (lt_comm_split(c->comm, lt_comm_rank(c->comm) % 2, 0, &half))
        return case_fails(c, "%s", lt_error_message());
    const bool late = lt_comm_rank(c->comm) == 3;
    rank_case in_half = *c;
    in_half.comm = half;
    lt_comm_set_deadline(half, late ? 0.05 : 0);
    bool good =
        !late
        || (case_fails_with(c, run(&in_half, (doing){BROADCAST_0, LT_F32, 2}),
                            "from rank 1, number 1, on rank 3 of 4")
            && case_fails_with(c, lt_comm_barrier(half), "received nothing from rank 1 of 4"));
    good =
        good && case_fails_with(c, lt_comm_barrier(c->comm), "received nothing from rank 1 of 4");
    lt_comm_close(&half);
    return good;
}

static void time_outs_name_ranks_of_all(void **state)
{
    (void)state;
    expect_cases(4, time_out_in_group);
}

static bool miss_deadline(rank_case *c)
{
    lt_comm_set_deadline(c->comm, lt_comm_rank(c->comm) == 1 ? 0.05 : 0);
    if (lt_comm_rank(c->comm) == 2)
        return true;
    lt_status st = run(c, (doing){SUM, LT_F32, 77});
    return case_fails_with(c, st, "deadline exceeded")
           && case_fails_with(c, st, "allreduce (sum) of 77 f32")
           && case_fails_with(c, st, "received nothing from rank 2")
           && case_fails_with(c, st, "number 1, on rank 1 of 3");
}

/* Ranks that wait for waiting ranks leave the message to the one that waits for the cause. */
static bool miss_deadline_of_small_data(rank_case *c)
{
    if (lt_comm_barrier(c->comm)) /* on a busy machine threads start late */
        return case_fails(c, "%s", lt_error_message());
    lt_comm_set_deadline(c->comm, 0.3);
    if (lt_comm_rank(c->comm) == 5)
        return true;
    const lt_status st = run(c, (doing){SUM, LT_F32, 7});
    return case_fails_with(c, st, "deadline exceeded")
           && case_fails_with(c, st, " rank 5 of 7"); /* nothing came from it, or it took nothing */
}

static bool miss_nothing(rank_case *c)
{
    lt_comm_set_deadline(c->comm, 30);
    return case_fails_with(c, run(c, (doing){SUM, LT_F32, 77}), "deadline exceeded");
}

static void name_the_late(void **state)
{
    char why[512];
    (void)state;
    expect_cases(3, miss_deadline); /* closes rank 2 after the deadline */
    expect_cases(7, miss_deadline_of_small_data);
    assert_int_equal(play_cases(3, miss_nothing, false, why, sizeof why), 3);
}

/* The n-th allocation fails, on any thread: every rank gets an error or its result. */
static bool sum_without_memory(rank_case *c)
{
    lt_status st = run(c, (doing){SUM, LT_F32, 100});
    return !st || st == LT_E_NOMEM || st == LT_E_COMM
           || case_fails(c, "%s: %s", lt_status_name(st), lt_error_message());
}

static atomic_int sums_failed;

static bool sum_and_abort(rank_case *c)
{
    if (!sum_without_memory(c))
        return false;
    if (run(c, (doing){BARRIER, LT_F32, 0})) {
        atomic_fetch_add(&sums_failed, 1);
        lt_comm_abort(c->comm); /* as a program would */
    }
    return true;
}

static lt_status sum_before_deadline(void *context)
{
    played *p = context;
    lt_comm_set_deadline(p->at.comm, 0.2); /* one rank fails alone, the other waits for it */
    return play_case(p);
}

static void survive_without_memory(void **state)
{
    enum { ALLOCATIONS = 60 };
    played rank[2];
    const rank_group g = {RANKS_OF(rank, 2), .run = sum_before_deadline};
    lt_device *device[2];
    (void)state;
    for (int r = 0; r < 2; r++)
        assert_ok(lt_device_open(&device[r], "ref", NULL));
    for (int n = 1; n <= ALLOCATIONS; n++) {
        lt_comm *comm[2] = {NULL};
        char why[512];
        lt_alloc_fail_at(n);
        lt_status st = lt_comm_open_threads(comm, device, 2);
        for (int r = 0; r < 2; r++)
            rank[r] = (played){.at = {.rank = r, .device = device[r], .comm = comm[r]},
                               .run = sum_and_abort};
        if (!st)
            run_ranks(&g);
        if (!st && count_bad(rank, 2, why, sizeof why))
            fail_msg("allocation %d: %s", n, why);
        close_ranks(&g);
        assert_true(!st || st == LT_E_NOMEM || st == LT_E_COMM);
    }
    lt_alloc_fail_at(0);
    assert_true(atomic_load(&sums_failed) > 0);
    for (int r = 0; r < 2; r++)
        lt_device_close(&device[r]);
}

static bool refuse_sum(lt_link *link, const lt_comm_call *call, uint64_t *handle)
{
    (void)call, (void)handle;
    snprintf(link->why, sizeof link->why, "MPI_Iallreduce: out of requests");
    return false;
}

static bool sum_by_engine(rank_case *c)
{
    lt_linked_get_endpoint(c->comm)->sum = refuse_sum;
    return case_fails_with(c, run(c, (doing){SUM, LT_F32, 12}),
                           "comm mpi: MPI_Iallreduce: out of requests");
}

static void report_mpis_error(void **state)
{
    (void)state;
    expect_cases(2, sum_by_engine);
}

/* No deadline: it would wait forever. */
static void close_without_memory(void **state)
{
    (void)state;
    lt_device *device[2];
    lt_comm *comm[2] = {NULL};
    for (int r = 0; r < 2; r++)
        assert_ok(lt_device_open(&device[r], "ref", NULL));
    assert_ok(lt_comm_open_threads(comm, device, 2));
    lt_alloc_fail_at(1);
    lt_comm_close(&comm[0]);
    lt_alloc_fail_at(0);
    lt_comm_close(&comm[1]);
    for (int r = 0; r < 2; r++)
        lt_device_close(&device[r]);
}

static atomic_bool another_aborts;

static bool says_once(lt_link *self)
{
    snprintf(self->why, sizeof self->why, "rank 2 aborted the group");
    return atomic_exchange(&another_aborts, false);
}

/* Two ranks in one thread on a link like that of threads, but for its ops. */
static void open_on_link(lt_comm *comm[2], lt_device *const device[2], lt_link_ops *ops)
{
    assert_ok(lt_comm_open_threads(comm, device, 2));
    *ops = *lt_linked_get_endpoint(comm[0])->progress->link->ops;
    for (int r = 0; r < 2; r++)
        lt_comm_close(&comm[r]);
    lt_link *link = lt_alloc(1, ops->bytes);
    assert_non_null(link);
    ops->was_aborted = says_once;
    ops->poll = true;
    link->ops = ops;
    link->size = 2;
    for (int r = 0; r < 2; r++)
        assert_ok(lt_comm_allocate(&comm[r], &lt_comm_linked, device[r]));
    assert_ok(lt_linked_open(comm, link));
}

/* Another process aborts; the sum that these two are in the middle of needs nothing of it any more, the barrier does. */
static void sum_ends_after_an_abort(void **state)
{
    (void)state;
    lt_device *device[2];
    lt_comm *comm[2] = {NULL};
    lt_tensor *t[2] = {NULL};
    lt_request *request[2] = {NULL};
    lt_link_ops ops;
    for (int r = 0; r < 2; r++)
        assert_ok(lt_device_open(&device[r], "ref", NULL));
    open_on_link(comm, device, &ops);
    for (int r = 0; r < 2; r++) {
        assert_ok(lt_tensor_new(&t[r], device[r], LT_F32, LT_SHAPE(3)));
        assert_ok(lt_tensor_fill(t[r], r + 1));
    }
    assert_ok(lt_comm_allreduce_begin(comm[0], t[0], LT_REDUCE_SUM, &request[0]));
    atomic_store(&another_aborts, true);
    usleep(20000);
    assert_ok(lt_comm_allreduce_begin(comm[1], t[1], LT_REDUCE_SUM, &request[1]));
    for (int r = 0; r < 2; r++)
        assert_ok(lt_request_wait(&request[r]));
    assert_fails(lt_comm_barrier(comm[0]), LT_E_COMM, "rank 2 aborted the group");
    for (int r = 0; r < 2; r++) {
        lt_tensor_free(&t[r]);
        lt_comm_close(&comm[r]);
        lt_device_close(&device[r]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"what needs nothing more of a rank that aborted ends well", sum_ends_after_an_abort, NULL,
         NULL, NULL},
        {"a rank without memory to close ends the others", close_without_memory, NULL, NULL, NULL},
        {"a sum that MPI does not start fails with MPI's text", report_mpis_error, NULL, NULL,
         NULL},
        {"mismatched calls are named on both ranks", name_mismatches, NULL, NULL, NULL},
        {"mismatched calls of small data too", name_mismatches_of_small_data, NULL, NULL, NULL},
        {"matching calls are accepted", accept_matches, NULL, NULL, NULL},
        {"a call with a closed rank names it", name_one_that_closed, NULL, NULL, NULL},
        {"an abort reaches waiting ranks and all groups", abort_ranks, NULL, NULL, NULL},
        {"a group's time-out uses ranks of the whole job", time_outs_name_ranks_of_all, NULL, NULL,
         NULL},
        {"an exceeded deadline names the call and the missing rank", name_the_late, NULL, NULL,
         NULL},
        {"a failed allocation is an error, not a hang", survive_without_memory, NULL, NULL, NULL},
    };
    return cmocka_run_group_tests_name("comm failures", tests, NULL, NULL);
}
