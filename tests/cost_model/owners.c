/* An update of sharded state: assignment of blocks, cores shared by owners, the network card of the busiest owner. */

#include "example.h"

static const lt_plan_block blocks[] = {
    {0.006, 0.004, 600}, {0.005, 0.002, 100}, {0.003, 0, 200}, {0.002, 0, 100}};

/* Owners: costs 6 + 4/2, 5 + 2/2, 3, 2 ms are dealt out as {1st}, {2nd, 4th} and {1st, ...}: the loads of two
 * ranks are 8 | 6 + 2 and 3 more. */
static void the_slowest_owner_counts(void **state)
{
    (void)state;
    lt_plan_profile p = profile;
    p.block = blocks;
    p.blocks = COUNT_OF(blocks);
    lt_plan_setup s = alone;
    s.ranks = 2;
    s.shard_optimizer = true;
    s.frequency = 2;
    /* Weights 8, 6, 3, 2: {8, 2} and {6, 3}. Plain 8 and 8; with roots 12 and 10. */
    const lt_plan_cost c = predict(&p, &machine, &s);
    assert_near(c.update, 0.008 + (0.012 - 0.008) / 2, tiny);
    assert_near(c.memory, 16e6 * 2 + 64e6 * 0.7 + 18e6, 1e-6);
    s.frequency = 0; /* weights 6, 5, 3, 2: {6, 2} and {5, 3} */
    assert_near(predict(&p, &machine, &s).update, 0.008, tiny);
    s.ranks = 3; /* {6}, {5}, {3, 2} */
    assert_near(predict(&p, &machine, &s).update, 0.006, tiny);
    s.frequency = 2; /* weights 8, 6, {3, 2}; with roots 10, 7, 5 */
    assert_near(predict(&p, &machine, &s).update, 0.006 + (0.010 - 0.006) / 2, tiny);
}

/* Three ranks of a node on two cores have 6, 5 and 5 ms: while all are at work each has two thirds of a core, then the
 * first all of one: 15/2 + 1. With roots 10, 7 and 5: 15/2, then 2 ms of two at full speed, then 3 of one. One that has
 * all of the work is not slowed by those that wait. */
static void an_owner_that_finishes_frees_its_core(void **state)
{
    (void)state;
    lt_plan_profile p = profile;
    p.block = blocks;
    p.blocks = COUNT_OF(blocks);
    lt_plan_machine m = machine;
    m.slots = 2;
    lt_plan_setup s = alone;
    s.ranks = s.ranks_per_node = 3;
    s.shard_optimizer = true;
    s.frequency = 2;
    assert_near(predict(&p, &m, &s).update, 0.0085 + (0.0125 - 0.0085) / 2, tiny);
    p.blocks = 1; /* one has all of it */
    s.ranks = s.ranks_per_node = 8;
    assert_near(predict(&p, &m, &s).update, 0.006 + 0.004 / 2, tiny);
    m.slots = 0.5; /* half a core */
    assert_near(predict(&p, &m, &s).update, 2 * (0.006 + 0.004 / 2), tiny);
}

/* One of eight ranks has 10^6 of 1.3 10^6 elements: it sends those outside of its piece, an eighth of all, to the ranks of
 * their pieces, then its piece to seven; two of a node send theirs to six outside. */
static void the_largest_owner_is_limited_by_its_card(void **state)
{
    (void)state;
    const lt_plan_block one_large[] = {
        {0.001, 0, 1000000}, {0.001, 0, 100000}, {0.001, 0, 100000}, {0.001, 0, 100000}};
    const lt_cost_bucket bucket = {.elements = 1300000, .ready = 1};
    lt_plan_profile p = profile;
    lt_plan_setup s = alone;
    p.bucket = &bucket;
    p.buckets = 1;
    p.block = one_large;
    p.blocks = COUNT_OF(one_large);
    s.ranks = 8;
    s.shard_optimizer = true;
    s.frequency = 0;
    const double gradients = 2 * 7.0 / 8 * 4 * 1.3e6 / 1e8;
    const double piece = 1.3e6 / 8;
    assert_near(predict(&p, &machine, &s).exposed, gradients + 4 * (1e6 - piece + 7 * piece) / 1e8,
                1e-7);
    static const struct {
        int per_node;
        double exposed; /* by counting each message through its card */
    } nodes[] = {{1, 0.17}, {2, 0.261}, {4, 0.338}};
    for (size_t i = 0; i < COUNT_OF(nodes); i++) {
        s.ranks_per_node = nodes[i].per_node;
        assert_near(predict(&p, &machine, &s).exposed / nodes[i].exposed, 1, 0.02);
    }
}

/* Two nodes of four ranks. Four owners: a copy of the state in each node. Eight: node 0 has all four blocks, and sends each
 * to the other node once. */
static void updates_stay_in_the_node_or_cross_once(void **state)
{
    (void)state;
    const lt_plan_block one_large[] = {
        {0.001, 0, 1000000}, {0.001, 0, 100000}, {0.001, 0, 100000}, {0.001, 0, 100000}};
    const lt_cost_bucket bucket = {.elements = 1300000, .ready = 1};
    lt_plan_profile p = profile;
    lt_plan_setup s = alone;
    p.bucket = &bucket;
    p.buckets = 1;
    s.ranks = 8;
    s.ranks_per_node = 4;
    s.frequency = 0;
    const double gradients = predict(&p, &machine, &s).exposed;
    p.block = one_large;
    p.blocks = COUNT_OF(one_large);
    s.shard_optimizer = true;
    s.exchange.gather = LT_COST_GATHER_IN_NODE;
    const lt_plan_cost in_node = predict(&p, &machine, &s);
    assert_near(in_node.exposed - gradients, 4 * (1e6 + 2 * 1.3e6 / 4) / 1e10, 1e-8);
    s.exchange.gather = LT_COST_GATHER_TWO_LEVELS;
    const lt_plan_cost twice = predict(&p, &machine, &s);
    assert_near(twice.exposed - gradients, 4 * 1.3e6 / 1e8 + 3 * 4 * 0.65e6 / 1e10, 1e-8);
    p.block = NULL; /* equal owners */
    p.blocks = 0;
    assert_near(predict(&p, &machine, &s).memory, 16e6 * 2 + 64e6 / 8 + 18e6, 1e-6);
    s.exchange.gather = LT_COST_GATHER_IN_NODE;
    assert_near(predict(&p, &machine, &s).memory, 16e6 * 2 + 64e6 / 4 + 18e6, 1e-6);
    assert_near(predict(&p, &machine, &s).update, 0.006 / 4, tiny);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_slowest_owner_counts),
        cmocka_unit_test(an_owner_that_finishes_frees_its_core),
        cmocka_unit_test(the_largest_owner_is_limited_by_its_card),
        cmocka_unit_test(updates_stay_in_the_node_or_cross_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
