/* The communicator "nccl" over a NCCL in host memory: every collective, and what goes wrong. Ranks
 * are threads that find each other by TCP on this machine. */

#include "nccl_ranks.h"
#include "tensor/tensor.h"

#include "lather/data_parallel.h"
#include "lather/detail/view.h"

#include <stdlib.h>
#include <string.h>

typedef struct job {
    const case_row *row;
    int size;
} job;

static void run_case(void **state)
{
    const job *j = *state;
    expect_good(j->size, j->row->run);
}

static void wrong_values_are_rejected(void **state)
{
    char why[512];
    (void)state;
    prepare(3, case_allreduce);
    for (int r = 0; r < 3; r++)
        players[r].base.c.spoil = true;
    assert_int_equal(play_all(3, why, sizeof why), 3);
}

/* Both send before they receive, more than fits anywhere between them. */
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

/* A message that is not waited for goes before the collective that follows it. */
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
        st = sum_of(c, 5);
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

static void two_ranks_on_a_gpu_are_told_both(void **state)
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

/* What one rank meets while they open is told to all. */
static void a_rank_that_cannot_open_is_heard(void **state)
{
    char why[512];
    (void)state;
    for (int bad = 0; bad < 3; bad++) {
        prepare(3, nothing);
        players[bad].gpu.fails = "gpu_name";
        assert_int_equal(play_all(3, why, sizeof why), 3);
        for (int r = 0; r < 3; r++)
            if (!strstr(players[r].base.at.message, "a gpu_name that fails"))
                fail_msg("rank %d of those with %d: %s", r, bad, players[r].base.at.message);
    }
}

static bool abort_all(rank_case *c)
{
    if (lt_comm_rank(c->comm) == 2)
        lt_comm_abort(c->comm);
    return fails_with(c, sum_of(c, 5000), "rank 2 of 3 aborted the group")
           && fails_with(c, lt_comm_barrier(c->comm), "rank 2 of 3 aborted the group");
}

static void an_abort_is_heard(void **state)
{
    (void)state;
    expect_good(3, abort_all);
}

static bool abort_part(rank_case *c)
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

static void an_abort_reaches_groups(void **state)
{
    (void)state;
    expect_good(4, abort_part);
}

/* Rank 2 never comes. */
static bool miss_deadline(rank_case *c)
{
    const char *words = "allreduce (sum) of 77 f32 on rank 1 of 3 exceeded its deadline of 0.05 s";
    lt_comm_set_deadline(c->comm, lt_comm_rank(c->comm) == 1 ? 0.05 : 0);
    if (lt_comm_rank(c->comm) == 2)
        return fails_with(c, idle(c), words);
    return fails_with(c, sum_of(c, 77), words);
}

static void a_deadline_is_everybodys(void **state)
{
    (void)state;
    expect_good(3, miss_deadline);
}

static bool meet_failure(rank_case *c)
{
    return fails_with(c, sum_of(c, 9), "allreduce (sum) of 9 f32 on rank 1 of 3: a allreduce");
}

static void a_call_that_fails_is_everybodys(void **state)
{
    char why[512];
    (void)state;
    prepare(3, meet_failure);
    players[1].gpu.fails = "allreduce";
    if (play_all(3, why, sizeof why))
        fail_msg("%s", why);
}

/* Rank 0, which asks for nothing, finds it. */
static bool meet_fault(rank_case *c)
{
    lt_comm_set_deadline(c->comm, 0);
    return fails_with(c, lt_comm_rank(c->comm) == 0 ? idle(c) : sum_of(c, 9),
                      "on rank 0 of 3: the network is gone");
}

static void what_nccl_finds_by_itself_is_heard(void **state)
{
    char why[512];
    (void)state;
    prepare(3, meet_fault);
    players[0].gpu.health = "the network is gone";
    if (play_all(3, why, sizeof why))
        fail_msg("%s", why);
}

/* Requests that are not waited for end with the communicator. */
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

static void closing_ends_requests(void **state)
{
    (void)state;
    expect_good(2, leave_requests);
}

enum { GRADIENTS = 37 };

static float gradient_of(int rank, int i)
{
    return (float)((3 * i + 5 * rank) % 7 - 3);
}

/* An update of one parameter in two nodes of two ranks; the mean is right. */
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

/* On host memory stages are threads, else they run at once. */
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

static bool reduce_by_threads(rank_case *c)
{
    return reduce_in_two_levels(c, true);
}

static bool reduce_at_once(rank_case *c)
{
    return reduce_in_two_levels(c, false);
}

static void two_levels_average_gradients(void **state)
{
    (void)state;
    expect_good(4, reduce_by_threads);
    expect_good(4, reduce_at_once);
}

static void negative_colors_are_refused(void **state)
{
    lt_comm *part = NULL;
    (void)state;
    prepare(1, nothing);
    assert_ok(open_rank(&players[0], &players[0].base.c.comm));
    assert_status(lt_comm_split(players[0].base.c.comm, -2, 0, &part), LT_E_ARG);
    lt_comm_close(&players[0].base.c.comm);
    lt_device_close(&players[0].base.at.device);
}

static void other_devices_are_refused(void **state)
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
        cmocka_unit_test(wrong_values_are_rejected),
        cmocka_unit_test(both_may_send_first),
        cmocka_unit_test(messages_go_before_collectives),
        cmocka_unit_test(two_ranks_on_a_gpu_are_told_both),
        cmocka_unit_test(a_rank_that_cannot_open_is_heard),
        cmocka_unit_test(an_abort_is_heard),
        cmocka_unit_test(an_abort_reaches_groups),
        cmocka_unit_test(a_deadline_is_everybodys),
        cmocka_unit_test(a_call_that_fails_is_everybodys),
        cmocka_unit_test(what_nccl_finds_by_itself_is_heard),
        cmocka_unit_test(closing_ends_requests),
        cmocka_unit_test(two_levels_average_gradients),
        cmocka_unit_test(negative_colors_are_refused),
        cmocka_unit_test(other_devices_are_refused),
    };
    enum { NAME = 64, MOST = 64 };
    static job jobs[MOST];
    static char names[MOST][NAME];
    struct CMUnitTest tests[MOST];
    int count = 0;
    for (int i = 0; i < case_count; i++)
        for (size_t s = 0; s < COUNT_OF(sizes); s++, count++) {
            jobs[count] = (job){&case_rows[i], sizes[s]};
            snprintf(names[count], NAME, "%s on %d ranks", case_rows[i].name, sizes[s]);
            tests[count] = (struct CMUnitTest){
                .name = names[count], .test_func = run_case, .initial_state = &jobs[count]};
        }
    int failed = _cmocka_run_group_tests("nccl", tests, (size_t)count, NULL, NULL);
    return failed + cmocka_run_group_tests_name("nccl failures", others, NULL, NULL);
}
