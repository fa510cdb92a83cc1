/* Steps of sharded state that fail, or are skipped, on some ranks only. */

#include "state_ranks.h"
#include "tensor/tensor.h"

#include <string.h>

static lt_status spoil_factor(void *context, const lt_state_entry *entry)
{
    (void)context;
    return entry->tensor && !strcmp(entry->param, "bias") && !strcmp(entry->name, "factor.0")
               ? lt_tensor_fill(entry->tensor, (double)NAN)
               : LT_OK;
}

static lt_status poison(fixture *f, int rank)
{
    (void)rank;
    lt_state_visitor v = {.entry = spoil_factor, .number = ignore_number};
    return lt_optim_visit(f->optim, &v);
}

/* One owner's factor is not finite: all ranks fail with the owner's message. */
static void all_ranks_fail_with_the_message_of_the_owner(void **state)
{
    (void)state;
    static rank_run p[RANKS];
    const scenario s = {.make = make_whole, .before = poison};
    run_all(p, 4, &s);
    for (int r = 0; r < 4; r++) {
        assert_int_equal(p[r].base.status, p[0].base.status);
        assert_int_not_equal(p[r].base.status, LT_OK);
        assert_int_not_equal(p[r].base.status, LT_E_COMM);
        assert_string_equal(p[r].base.message, p[0].base.message);
        assert_non_null(strstr(p[r].base.message, "bias"));
        assert_int_equal(strncmp(p[r].base.message, "rank ", 5), 0);
    }
}

static const lt_graph_ops graphs; /* captures nothing */
static lt_backend with_graphs;

static lt_status poison_with_graphs(fixture *f, int rank)
{
    f->device->backend = &with_graphs;
    return poison(f, rank);
}

/* Others may replay a graph, which reads no flags: the rank that fails ends the communicator. */
static void with_graphs_the_owner_ends_the_communicator(void **state)
{
    (void)state;
    static rank_run p[RANKS];
    int owners = 0;
    const scenario s = {.make = make_whole, .before = poison_with_graphs};
    with_graphs = *lt_backend_ref();
    with_graphs.graphs = &graphs;
    run_all(p, 4, &s);
    for (int r = 0; r < 4; r++) {
        assert_int_not_equal(p[r].base.status, LT_OK);
        owners += p[r].base.status != LT_E_COMM && strstr(p[r].base.message, "bias") != NULL;
    }
    assert_int_equal(owners, 1);
}

static lt_status spoil_one_copy(fixture *f, int rank)
{
    return rank == 1 ? lt_tensor_fill(f->param[0].grad, (double)NAN) : LT_OK;
}

/* Gradients must be equal on all ranks; a skip of some is noticed. */
static void a_skip_on_some_ranks_is_an_error(void **state)
{
    (void)state;
    static rank_run p[RANKS];
    const scenario s = {.make = make_adam, .spoil = spoil_one_copy};
    run_all(p, 3, &s);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(p[r].base.status, LT_E_COMM);
        assert_non_null(
            strstr(p[r].base.message, "adam: gradients differ: 1 of 3 ranks skip this step"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ranks_fail_with_the_message_of_the_owner),
        cmocka_unit_test(with_graphs_the_owner_ends_the_communicator),
        cmocka_unit_test(a_skip_on_some_ranks_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
