/* Communicator "nccl" over a fake NCCL in host memory: all collectives, and failures. Ranks are threads that use the
 * TCP rendezvous. */

#include "nccl_ranks.h"
#include "tensor/tensor.h"

#include "lather/data_parallel.h"
#include "lather/detail/view.h"

#include <stdlib.h>
#include <string.h>

static void run_case(void **state)
{
    const case_job *j = *state;
    expect_good(j->size, j->row->run);
}

static void wrong_values_are_found(void **state)
{
    char why[512];
    (void)state;
    prepare(3, case_allreduce);
    for (int r = 0; r < 3; r++)
        players[r].base.c.spoil = true;
    assert_int_equal(play_all(3, why, sizeof why), 3);
}

/* Both send before they receive, more than any buffer between them holds. */
static bool cross(rank_case *c)
{
    enum { COUNT = 100000 };
    const int rank = lt_comm_rank(c->comm);
    lt_tensor *out = NULL, *in = NULL;
    lt_request *request[2] = {NULL, NULL};
    float got = 0;
    bool good = !lt_tensor_new(&out, c->device, LT_F32, LT_SHAPE(COUNT))
                && !lt_tensor_new(&in, c->device, LT_F32, LT_SHAPE(COUNT));
    if (good) {
        const lt_view v = lt_tensor_view(out);
        ((float *)v.data)[COUNT - 1] = (float)(rank + 1);
        good = !lt_comm_send_begin(c->comm, out, 1 - rank, &request[0])
               && !lt_comm_recv_begin(c->comm, in, 1 - rank, &request[1])
               && !lt_request_wait(&request[0]) && !lt_request_wait(&request[1]);
    }
    if (good)
        got = ((const float *)lt_tensor_view(in).data)[COUNT - 1];
    lt_tensor_free(&out);
    lt_tensor_free(&in);
    return (good && got == (float)(2 - rank))
           || case_fails(c, "%g: %s", (double)got, lt_error_message());
}

static void both_may_send_first(void **state)
{
    (void)state;
    expect_good(2, cross);
}

/* A message that is not waited for starts before the collective that follows it. */
static bool message_then_sum(rank_case *c)
{
    lt_tensor *t = NULL;
    lt_request *request = NULL;
    lt_status st = lt_tensor_new(&t, c->device, LT_F32, LT_SHAPE(3));
    if (!st && lt_comm_rank(c->comm) == 0)
        st = lt_comm_send_begin(c->comm, t, 1, &request);
    else if (!st)
        st = lt_comm_recv_begin(c->comm, t, 0, &request);
    if (!st)
        st = case_sum(c, 5);
    if (!st)
        st = lt_request_wait(&request);
    lt_tensor_free(&t);
    return !st || case_fails(c, "%s", lt_error_message());
}

static void messages_go_before_collectives(void **state)
{
    (void)state;
    expect_good(2, message_then_sum);
}

static bool nothing(rank_case *c)
{
    (void)c;
    return true;
}

static void ranks_on_the_same_gpu_are_named(void **state)
{
    char why[512];
    (void)state;
    prepare(3, nothing);
    snprintf(players[2].gpu.name, LT_NCCL_GPU_NAME, "GPU 1");
    assert_int_equal(play_all(3, why, sizeof why), 3);
    for (int r = 0; r < 3; r++)
        assert_non_null(
            strstr(players[r].base.at.message, "ranks 1 and 2 have the same GPU, GPU 1"));
}

/* A failure on one rank during opening is reported on all. */
static void a_failure_to_open_fails_on_all_ranks(void **state)
{
    char why[512];
    (void)state;
    for (int bad = 0; bad < 3; bad++) {
        prepare(3, nothing);
        players[bad].gpu.fails = "gpu_name";
        assert_int_equal(play_all(3, why, sizeof why), 3);
        for (int r = 0; r < 3; r++)
            if (!strstr(players[r].base.at.message, "a gpu_name that fails"))
                fail_msg("rank %d, failure on rank %d: %s", r, bad, players[r].base.at.message);
    }
}

static void an_abort_reaches_all_ranks_and_groups(void **state)
{
    (void)state;
    expect_good(3, case_abort);
    expect_good(4, case_abort_split);
}

/* Rank 2 never joins the sum. */
static bool miss_deadline(rank_case *c)
{
    const char *words = "allreduce (sum) of 77 f32 on rank 1 of 3 exceeded its deadline of 0.05 s";
    lt_comm_set_deadline(c->comm, lt_comm_rank(c->comm) == 1 ? 0.05 : 0);
    if (lt_comm_rank(c->comm) == 2)
        return case_fails_with(c, idle(c), words);
    return case_fails_with(c, case_sum(c, 77), words);
}

static void an_exceeded_deadline_fails_on_all_ranks(void **state)
{
    (void)state;
    expect_good(3, miss_deadline);
}

static bool meet_failure(rank_case *c)
{
    return case_fails_with(c, case_sum(c, 9),
                           "allreduce (sum) of 9 f32 on rank 1 of 3: a allreduce");
}

static void a_failed_call_fails_on_all_ranks(void **state)
{
    char why[512];
    (void)state;
    prepare(3, meet_failure);
    players[1].gpu.fails = "allreduce";
    if (play_all(3, why, sizeof why))
        fail_msg("%s", why);
}

/* Rank 0, which makes no call, detects the error. */
static bool meet_fault(rank_case *c)
{
    lt_comm_set_deadline(c->comm, 0);
    return case_fails_with(c, lt_comm_rank(c->comm) == 0 ? idle(c) : case_sum(c, 9),
                           "on rank 0 of 3: the network is gone");
}

static void an_asynchronous_error_fails_on_all_ranks(void **state)
{
    char why[512];
    (void)state;
    prepare(3, meet_fault);
    players[0].gpu.health = "the network is gone";
    if (play_all(3, why, sizeof why))
        fail_msg("%s", why);
}

/* Closing a communicator completes requests that are not waited for. */
static bool leave_requests(rank_case *c)
{
    static lt_tensor *t[MOST_RANKS];
    lt_request *request = NULL;
    const int rank = lt_comm_rank(c->comm);
    if (lt_tensor_new(&t[rank], c->device, LT_F32, LT_SHAPE(4))
        || lt_comm_allreduce_begin(c->comm, t[rank], LT_REDUCE_SUM, &request))
        return case_fails(c, "%s", lt_error_message());
    lt_comm_close(&c->comm);
    lt_tensor_free(&t[rank]);
    return true;
}

static void closing_completes_requests(void **state)
{
    (void)state;
    expect_good(2, leave_requests);
}

enum { GRADIENTS = 37 };

static float gradient_of(int rank, int i)
{
    return (float)((3 * i + 5 * rank) % 7 - 3);
}

/* Checks an update of one parameter on two nodes of two ranks. */
static lt_status update_in_two_levels(rank_case *c, lt_tape *tape, lt_param *p, lt_params *params,
                                      const lt_nodes *nodes)
{
    float value[GRADIENTS];
    const lt_data_parallel_config config = {.allreduce = "two-level", .nodes = nodes};
    lt_data_parallel *dp;
    LT_TRY(lt_param_init(p, c->device, "", "weight", LT_SHAPE(GRADIENTS), 0));
    LT_TRY(lt_params_add(params, p));
    LT_TRY(lt_data_parallel_new(&dp, c->comm, params, tape, &config));
    for (int i = 0; i < GRADIENTS; i++)
        value[i] = gradient_of(lt_comm_rank(c->comm), i);
    lt_status st = lt_tensor_write(p->grad, value, sizeof value);
    p->has_grad = true;
    lt_data_parallel_begin(dp, true);
    if (!st)
        st = lt_data_parallel_finish(dp);
    if (!st)
        st = lt_tensor_read(p->grad, value, sizeof value);
    for (int i = 0; i < GRADIENTS && !st; i++) {
        float sum = 0;
        for (int r = 0; r < lt_comm_size(c->comm); r++)
            sum += gradient_of(r, i);
        if (value[i] * (float)lt_comm_size(c->comm) != sum)
            st = lt_fail(LT_E_ARG, "element %d is %g", i, (double)value[i]);
    }
    lt_data_parallel_free(&dp);
    return st;
}

/* On host memory the pipeline uses threads, otherwise the caller's thread. */
static bool reduce_in_two_levels(rank_case *c, bool host_memory)
{
    lt_tape *tape = NULL;
    lt_param p = {0};
    lt_params params = {0};
    lt_nodes nodes = {0};
    const lt_backend *own = c->device->backend;
    lt_backend other = *own;
    other.host_memory = host_memory;
    c->device->backend = &other;
    lt_status st = lt_tape_new(&tape, c->device);
    if (!st)
        st = lt_comm_nodes(&nodes, c->comm, 2);
    if (!st)
        st = update_in_two_levels(c, tape, &p, &params, &nodes);
    const bool good = !st || case_fails(c, "%s", lt_error_message());
    lt_nodes_clear(&nodes);
    lt_params_clear(&params);
    lt_param_clear(&p);
    lt_tape_free(&tape);
    c->device->backend = own;
    return good;
}

static bool reduce_on_threads(rank_case *c)
{
    return reduce_in_two_levels(c, true);
}

static bool reduce_on_caller(rank_case *c)
{
    return reduce_in_two_levels(c, false);
}

static void two_levels_average_gradients(void **state)
{
    (void)state;
    expect_good(4, reduce_on_threads);
    expect_good(4, reduce_on_caller);
}

static void negative_colors_are_rejected(void **state)
{
    lt_comm *part = NULL;
    (void)state;
    prepare(1, nothing);
    assert_ok(open_rank(&players[0], &players[0].base.c.comm));
    assert_status(lt_comm_split(players[0].base.c.comm, -2, 0, &part), LT_E_ARG);
    lt_comm_close(&players[0].base.c.comm);
    lt_device_close(&players[0].base.at.device);
}

static void devices_other_than_cuda_are_rejected(void **state)
{
    lt_device *device;
    lt_comm *comm = NULL;
    (void)state;
    assert_ok(lt_device_open(&device, "cpu", NULL));
    assert_status(lt_comm_open(&comm, "nccl", device), LT_E_ARG);
    assert_non_null(strstr(lt_error_message(), "the device is cpu"));
    lt_device_close(&device);
}

int main(void)
{
    static const int sizes[] = {1, 2, 3, 4};
    static const struct CMUnitTest others[] = {
        cmocka_unit_test(wrong_values_are_found),
        cmocka_unit_test(both_may_send_first),
        cmocka_unit_test(messages_go_before_collectives),
        cmocka_unit_test(ranks_on_the_same_gpu_are_named),
        cmocka_unit_test(a_failure_to_open_fails_on_all_ranks),
        cmocka_unit_test(an_abort_reaches_all_ranks_and_groups),
        cmocka_unit_test(an_exceeded_deadline_fails_on_all_ranks),
        cmocka_unit_test(a_failed_call_fails_on_all_ranks),
        cmocka_unit_test(an_asynchronous_error_fails_on_all_ranks),
        cmocka_unit_test(closing_completes_requests),
        cmocka_unit_test(two_levels_average_gradients),
        cmocka_unit_test(negative_colors_are_rejected),
        cmocka_unit_test(devices_other_than_cuda_are_rejected),
    };
    struct CMUnitTest tests[MOST_JOBS];
    const int count = list_case_jobs(tests, run_case, sizes, COUNT_OF(sizes));
    int failed = _cmocka_run_group_tests("nccl", tests, (size_t)count, NULL, NULL);
    return failed + cmocka_run_group_tests_name("nccl failures", others, NULL, NULL);
}
