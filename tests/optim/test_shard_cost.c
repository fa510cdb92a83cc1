/* Bytes of the cost model (lather/detail/comm_cost.h) compared with those that an optimizer with sharded state sends. */

#include "state_ranks.h"

#include "lather/detail/comm_cost.h"

typedef struct gather_case {
    lt_cost_gather gather;
    int nodes, per_node;
} gather_case;

static int64_t count_elements(void)
{
    int64_t elements = 0;
    for (int k = 0; k < PARAMS; k++)
        elements += lt_shape_count(shapes[k]);
    return elements;
}

/* Adds the bytes of all ranks' gather by the cost model. */
static lt_cost_bytes predict(const gather_case *c, int64_t elements)
{
    const lt_cost_cluster cluster = {.nodes = c->nodes, .per_node = c->per_node};
    const lt_cost_plan none = {.element_bytes = 4},
                       plan = {.element_bytes = 4, .sharded = true, .gather = c->gather};
    const lt_cost_bucket b = {.elements = elements};
    lt_cost_bytes sum = {0};
    for (int r = 0; r < c->nodes * c->per_node; r++) {
        const lt_cost_bytes all = lt_cost_payload(&plan, &cluster, &b, r),
                            gradients = lt_cost_payload(&none, &cluster, &b, r);
        sum.within += all.within - gradients.within;
        sum.between += all.between - gradients.between;
    }
    return sum;
}

/* All ranks together send each element, and the flag of its owner, as often as the model says, for any assignment. */
static void bytes_are_the_models(void **state)
{
    static rank_run p[RANKS];
    const gather_case *c = *state;
    const bool in_node = c->gather == LT_COST_GATHER_IN_NODE;
    const int ranks = c->nodes * c->per_node;
    const scenario s = {.make = make_shampoo,
                        .config = {.group = in_node ? c->per_node : 0},
                        .ranks_per_node = c->gather == LT_COST_GATHER_TWO_LEVELS ? c->per_node : 0};
    const int64_t elements = count_elements() + (in_node ? c->per_node : ranks);
    const lt_cost_bytes want = predict(c, elements);
    double sent = 0;
    run_all(p, ranks, &s);
    for (int r = 0; r < ranks; r++) {
        if (p[r].base.status)
            fail_msg("rank %d: %s", r, p[r].base.message);
        sent += (double)p[r].bytes;
    }
    const double once = 4 * (double)elements * (c->nodes - 1);
    assert_true(sent == want.within + want.between);
    assert_true(want.between
                == (in_node                                  ? 0
                    : c->gather == LT_COST_GATHER_TWO_LEVELS ? once
                                                             : c->per_node * once));
}

int main(void)
{
    static const gather_case cases[] = {
        {LT_COST_GATHER_FLAT, 2, 2},       {LT_COST_GATHER_FLAT, 2, 4},
        {LT_COST_GATHER_TWO_LEVELS, 2, 2}, {LT_COST_GATHER_TWO_LEVELS, 2, 4},
        {LT_COST_GATHER_TWO_LEVELS, 4, 2}, {LT_COST_GATHER_IN_NODE, 2, 2},
        {LT_COST_GATHER_IN_NODE, 2, 4},    {LT_COST_GATHER_IN_NODE, 4, 2},
    };
    static char name[COUNT_OF(cases)][64];
    struct CMUnitTest tests[COUNT_OF(cases)];
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        static const char *const how[] = {"flat", "in two levels", "in the node"};
        snprintf(name[i], sizeof name[i], "gathered %s on %d nodes of %d", how[cases[i].gather],
                 cases[i].nodes, cases[i].per_node);
        tests[i] = row_test(name[i], bytes_are_the_models, &cases[i]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
