/* Communicator "nccl" in captured steps, over a fake NCCL in host memory: waits on the device, aborts and deadlines. */

#include "nccl_ranks.h"

/* A wait during capture does not block: the peer joins later. */
static bool wait_on_device(rank_case *c)
{
    lt_tensor *t = NULL;
    lt_request *request = NULL;
    if (lt_tensor_new(&t, c->device, LT_F32, LT_SHAPE(4)))
        return false;
    lt_status st = lt_comm_allreduce_begin(c->comm, t, LT_REDUCE_SUM, &request);
    if (!st)
        st = lt_request_wait(&request);
    players[lt_comm_rank(c->comm)].gpu.captured = false;
    if (!st)
        st = lt_comm_barrier(c->comm);
    lt_tensor_free(&t);
    return !st || case_fails(c, "%s", lt_error_message());
}

static void waits_in_a_capture_are_queued_on_the_device(void **state)
{
    char why[512];
    (void)state;
    prepare(2, wait_on_device);
    for (int r = 0; r < 2; r++)
        players[r].gpu.captured = true;
    if (play_all(2, why, sizeof why))
        fail_msg("%s", why);
    assert_int_equal(players[0].gpu.waits, 1);
    assert_int_equal(players[1].gpu.waits, 1);
}

/* A discarded capture: its request never completes. */
static bool throw_away(rank_case *c)
{
    fake_gpu *gpu = &players[lt_comm_rank(c->comm)].gpu;
    lt_tensor *t = NULL;
    lt_request *request = NULL;
    if (lt_tensor_new(&t, c->device, LT_F32, LT_SHAPE(4)))
        return false;
    lt_status st = lt_comm_allreduce_begin(c->comm, t, LT_REDUCE_SUM, &request);
    gpu->captured = false;
    if (!st)
        st = lt_request_wait(&request);
    if (!st)
        st = lt_comm_barrier(c->comm);
    lt_tensor_free(&t);
    return (!st && !gpu->waits) || case_fails(c, "%d: %s", gpu->waits, lt_error_message());
}

static void discarded_captures_are_not_waited_for(void **state)
{
    char why[512];
    (void)state;
    prepare(2, throw_away);
    for (int r = 0; r < 2; r++)
        players[r].gpu.captured = true;
    if (play_all(2, why, sizeof why))
        fail_msg("%s", why);
}

/* Calls the hooks as a device does when it launches a captured step. */
static lt_status launch(const rank_case *c)
{
    const lt_nccl_launch_hooks *hooks = &players[lt_comm_rank(c->comm)].gpu.hooks;
    LT_TRY(hooks->before(hooks->context));
    hooks->after(hooks->context);
    return LT_OK;
}

static lt_status record_sum(const rank_case *c)
{
    fake_gpu *gpu = &players[lt_comm_rank(c->comm)].gpu;
    gpu->captured = true;
    lt_status st = case_sum(c, 3);
    gpu->captured = false;
    return st;
}

static bool launch_after_abort(rank_case *c)
{
    if (record_sum(c) || launch(c) || lt_comm_barrier(c->comm))
        return case_fails(c, "%s", lt_error_message());
    if (lt_comm_rank(c->comm) == 2)
        lt_comm_abort(c->comm);
    return case_fails_with(c, idle(c), "rank 2 of 3 aborted the group")
           && case_fails_with(c, launch(c), "rank 2 of 3 aborted the group");
}

/* Control: a step without calls is launched. */
static bool launch_without_calls(rank_case *c)
{
    lt_comm_abort(c->comm);
    return !launch(c) || case_fails(c, "%s", lt_error_message());
}

static void captured_calls_do_not_run_after_an_abort(void **state)
{
    (void)state;
    expect_good(3, launch_after_abort);
    expect_good(2, launch_without_calls);
}

/* Rank 1's stream is stuck in a captured step; no call follows. */
static bool miss_captured_deadline(rank_case *c)
{
    lt_comm_set_deadline(c->comm, 0.3);
    if (record_sum(c) || launch(c))
        return case_fails(c, "%s", lt_error_message());
    return case_fails_with(c, idle(c),
                           "a captured step on rank 1 of 3 exceeded its deadline of 0.3 s");
}

static void captured_steps_have_a_deadline(void **state)
{
    char why[512];
    (void)state;
    prepare(3, miss_captured_deadline);
    players[1].gpu.stuck = true;
    if (play_all(3, why, sizeof why))
        fail_msg("%s", why);
}

static bool launch_and_leave(rank_case *c)
{
    lt_comm_set_deadline(c->comm, 60);
    return !(record_sum(c) || launch(c)) || case_fails(c, "%s", lt_error_message());
}

/* The world closes before its watcher sees that the step is done. */
static void a_launched_step_leaves_no_event(void **state)
{
    (void)state;
    expect_good(2, launch_and_leave);
}

static int no_event_is_left(void **state)
{
    (void)state;
    return fake_nccl_events();
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(waits_in_a_capture_are_queued_on_the_device, no_event_is_left),
        cmocka_unit_test_teardown(discarded_captures_are_not_waited_for, no_event_is_left),
        cmocka_unit_test_teardown(captured_calls_do_not_run_after_an_abort, no_event_is_left),
        cmocka_unit_test_teardown(captured_steps_have_a_deadline, no_event_is_left),
        cmocka_unit_test_teardown(a_launched_step_leaves_no_event, no_event_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
