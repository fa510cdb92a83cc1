/* What goes wrong between ranks ends in an error on every rank that names it, never in a hang. */

#include "base/alloc.h"
#include "case_ranks.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Whether a call failed with LT_E_COMM and these words in its message. */
static bool fails_with(rank_case *c, lt_status got, const char *words)
{
    char why[400];
    snprintf(why, sizeof why, "%s", lt_error_message());
    return (got == LT_E_COMM && strstr(why, words))
           || case_fails(c, "rank %d: %s: '%s', want '%s'", lt_comm_rank(c->comm),
                         lt_status_name(got), why, words);
}

static lt_status finish(lt_status begun, lt_request **request)
{
    return begun ? begun : lt_request_wait(request);
}

/* One kind of call; count elements. */
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
    if (d.what == EXCHANGE) { /* as one that has t to send and to receive, but 1 to itself */
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

/* Two ranks that do different things, and what both must be told. */
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
    return fails_with(c, st, "mismatched calls") && fails_with(c, st, current->words[0])
           && fails_with(c, st, current->words[1])
           && fails_with(c, lt_comm_barrier(c->comm), "mismatched calls");
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

/* The same as both ranks do it together is no mismatch: the control. */
static bool play_match(rank_case *c)
{
    return fails_with(c, run(c, current->does[0]), "");
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

/* A rank that closes while another still asks for something: by one thread, so without a hang. */
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

static bool abort_all(rank_case *c)
{
    if (lt_comm_rank(c->comm) == 2)
        lt_comm_abort(c->comm);
    /* A sum that rank 2 joins too late, or never: both end the same way. */
    return fails_with(c, run(c, (doing){SUM, LT_F32, 5000}), "rank 2 of 3 aborted the group")
           && fails_with(c, run(c, (doing){BROADCAST_0, LT_F32, 2}), "rank 2 of 3 aborted");
}

static void wake_waiting_ranks(void **state)
{
    char why[512];
    (void)state;
    if (play_cases(3, abort_all, false, why, sizeof why))
        fail_msg("%s", why);
}

/* In the group of ranks 1 and 3, whose own numbers are 0 and 1. */
static bool time_out_in_group(rank_case *c)
{
    lt_comm *half = NULL;
    if (lt_comm_split(c->comm, lt_comm_rank(c->comm) % 2, 0, &half))
        return case_fails(c, "%s", lt_error_message());
    const bool late = lt_comm_rank(c->comm) == 3;
    rank_case in_half = *c;
    in_half.comm = half;
    lt_comm_set_deadline(half, late ? 0.05 : 0);
    bool good = !late
                || (fails_with(c, run(&in_half, (doing){BROADCAST_0, LT_F32, 2}),
                               "from rank 1, number 1, on rank 3 of 4")
                    && fails_with(c, lt_comm_barrier(half), "received nothing from rank 1 of 4"));
    good = good && fails_with(c, lt_comm_barrier(c->comm), "received nothing from rank 1 of 4");
    lt_comm_close(&half);
    return good;
}

static void time_outs_name_ranks_of_all(void **state)
{
    char why[512];
    (void)state;
    if (play_cases(4, time_out_in_group, false, why, sizeof why))
        fail_msg("%s", why);
}

/* A group falls with the one it was split from, and the other way round. */
static bool abort_group(rank_case *c)
{
    lt_comm *half = NULL;
    if (lt_comm_split(c->comm, lt_comm_rank(c->comm) % 2, 0, &half))
        return case_fails(c, "%s", lt_error_message());
    if (lt_comm_rank(c->comm) == 3)
        lt_comm_abort(half);
    bool good = fails_with(c, lt_comm_barrier(c->comm), "rank 3 of 4 aborted")
                && fails_with(c, lt_comm_barrier(half), "rank 3 of 4 aborted");
    lt_comm_close(&half);
    return good;
}

static void abort_groups(void **state)
{
    char why[512];
    (void)state;
    if (play_cases(4, abort_group, false, why, sizeof why))
        fail_msg("%s", why);
}

static bool miss_deadline(rank_case *c)
{
    lt_comm_set_deadline(c->comm, lt_comm_rank(c->comm) == 1 ? 0.05 : 0);
    if (lt_comm_rank(c->comm) == 2)
        return true;
    lt_status st = run(c, (doing){SUM, LT_F32, 77});
    return fails_with(c, st, "deadline exceeded") && fails_with(c, st, "allreduce (sum) of 77 f32")
           && fails_with(c, st, "received nothing from rank 2")
           && fails_with(c, st, "number 1, on rank 1 of 3");
}

static bool miss_nothing(rank_case *c)
{
    lt_comm_set_deadline(c->comm, 30);
    return fails_with(c, run(c, (doing){SUM, LT_F32, 77}), "deadline exceeded");
}

static void name_the_late(void **state)
{
    char why[512];
    (void)state;
    /* All are joined by play_cases(), rank 2 first of all: its end is closed after the deadline. */
    if (play_cases(3, miss_deadline, false, why, sizeof why))
        fail_msg("%s", why);
    assert_int_equal(play_cases(3, miss_nothing, false, why, sizeof why), 3);
}

/* The n-th allocation fails, on whichever thread: every rank gets an error or its result. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"ranks that do different things are told both", name_mismatches, NULL, NULL, NULL},
        {"and not when they do the same", accept_matches, NULL, NULL, NULL},
        {"a rank that has closed is named", name_one_that_closed, NULL, NULL, NULL},
        {"an abort wakes ranks that wait", wake_waiting_ranks, NULL, NULL, NULL},
        {"an abort reaches groups and what they came from", abort_groups, NULL, NULL, NULL},
        {"a group's time-out names ranks among all", time_outs_name_ranks_of_all, NULL, NULL, NULL},
        {"a deadline names the call and who is missing", name_the_late, NULL, NULL, NULL},
        {"without memory there is an error, not a hang", survive_without_memory, NULL, NULL, NULL},
    };
    return cmocka_run_group_tests_name("comm failures", tests, NULL, NULL);
}
