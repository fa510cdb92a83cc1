/* Closed forms of the communication of buckets, against recorded seconds of a simulation of every message through the
 * card of its node (version 0.1). */

#include "dist/reducer/costs.h"
#include "near.h"

#include "lather/detail/comm_cost.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const lt_cost_cluster machines = {
    .within = {.latency = 5e-6, .message = 1e-6, .bandwidth = 130e9},
    .between = {.latency = 50e-6, .message = 2e-6, .bandwidth = 25e9 / 8},
    .unit = 1e-10,
};
static const double close = 1e-8; /* relative: digits of the recorded values */

typedef struct exchange_row {
    const char *name;
    lt_cost_plan plan;
    double on_64, on_128; /* seconds of one bucket that is ready at 0.1 s */
    double queue;         /* seconds of five buckets */
} exchange_row;

static exchange_row exchanges[] = {
    {"flat", {.scheme = LT_COST_FLAT, .element_bytes = 4}, 0.402539711, 0.426062547, 0.239472964},
    {"flat, bf16",
     {.scheme = LT_COST_FLAT, .element_bytes = 2},
     0.252215855,
     0.265001274,
     0.220682482},
    {"two-level",
     {.scheme = LT_COST_TWO_LEVEL, .element_bytes = 4},
     0.138832352,
     0.141772707,
     0.205158544},
    {"shard-gradients",
     {.scheme = LT_COST_SHARD_GRADIENTS, .element_bytes = 4},
     0.251269855,
     0.263031274,
     0.219736482},
    {"topk",
     {.scheme = LT_COST_REDUCER, .reducer = &lt_cost_topk, .element_bytes = 4, .number = 0.001},
     0.101543031,
     0.101949805,
     0.200355745},
    {"topk, dense as it is fewer bytes",
     {.scheme = LT_COST_REDUCER, .reducer = &lt_cost_topk, .element_bytes = 4, .number = 1},
     0.138832352,
     0.141772707,
     0.205158544},
    {"powersgd",
     {.scheme = LT_COST_REDUCER, .reducer = &lt_cost_powersgd, .element_bytes = 4, .number = 4},
     0.107519634,
     0.108039498,
     0.201563048},
    {"local-steps",
     {.scheme = LT_COST_LOCAL_STEPS, .element_bytes = 4, .every = 32},
     0.100927389,
     0.100927389,
     0.200136924},
};

static lt_cost_cluster cluster_of(int ranks, int per_node)
{
    lt_cost_cluster c = machines;
    c.per_node = per_node;
    c.nodes = ranks / per_node;
    return c;
}

/* Seconds until all buckets are reduced, without communication after the update. */
static double buckets_take(const exchange_row *row, const lt_cost_cluster *c,
                           const lt_cost_bucket *b, size_t count, double backward)
{
    lt_cost_result r;
    int64_t elements = 0;
    for (size_t i = 0; i < count; i++)
        elements += b[i].elements;
    assert_ok(lt_cost_simulate(&r, &row->plan, c, b, count, backward));
    return r.step - lt_cost_after_update(&row->plan, c, elements);
}

static void closed_forms_equal_the_simulation(void **state)
{
    const exchange_row *row = *state;
    const lt_cost_bucket b = {.elements = 1 << 24, .rows = 4096, .columns = 8192, .ready = 0.1};
    const lt_cost_cluster few = cluster_of(64, 8), many = cluster_of(128, 8);
    assert_near(buckets_take(row, &few, &b, 1, 0) / row->on_64, 1, close);
    assert_near(buckets_take(row, &many, &b, 1, 0) / row->on_128, 1, close);
}

static void buckets_follow_one_another(void **state)
{
    const exchange_row *row = *state;
    enum { BUCKETS = 5 };
    const double backward = 0.2;
    const lt_cost_cluster c = cluster_of(64, 8);
    lt_cost_bucket b[BUCKETS];
    for (int i = 0; i < BUCKETS; i++)
        b[i] = (lt_cost_bucket){.elements = (1 + i % 3) << 20,
                                .rows = 512 * (1 + i % 3),
                                .columns = 2048,
                                .ready = backward * (i + 1) / BUCKETS};
    assert_near(buckets_take(row, &c, b, BUCKETS, backward) / row->queue, 1, close);
}

/* Cores without a spare one, and links that take no time: backward, and what all buckets compute, one after the other.
 * With links of some time no step is shorter. A spare core hides it. */
static void shared_cores_do_one_thing_after_the_other(void **state)
{
    const exchange_row *row = *state;
    enum { BUCKETS = 3 };
    const double backward = 0.2, core = 3e-10;
    lt_cost_cluster c = cluster_of(64, 8);
    lt_cost_bucket b[BUCKETS];
    double work = 0;
    c.within = c.between = (lt_cost_link){.bandwidth = 1e300};
    c.unit = c.copy = core;
    c.carry = core / 2;
    c.wake = 1e-5;
    c.cores = 1;
    for (int i = 0; i < BUCKETS; i++) {
        b[i] = (lt_cost_bucket){.elements = (int64_t)(1 + i) << 20,
                                .rows = 512 << i,
                                .columns = 2048,
                                .ready = backward * (i + 1) / BUCKETS};
        work += lt_cost_work(&row->plan, &c, &b[i]);
    }
    assert_true(work > 1e-3);
    assert_near(buckets_take(row, &c, b, BUCKETS, backward) / (backward + work), 1, close);
    c.cores = 2; /* as if nothing were computed but in stages */
    assert_true(buckets_take(row, &c, b, BUCKETS, backward) < backward + 0.5 * work);
    c.cores = 1;
    c.within = machines.within;
    c.between = machines.between;
    assert_true(buckets_take(row, &c, b, BUCKETS, backward) >= (backward + work) * (1 - close));
}

/* A link has a separate bandwidth for the all-gather after the update, which an all-reduce does not use. */
static void an_all_gather_has_a_separate_bandwidth(void **state)
{
    (void)state;
    enum { ELEMENTS = 1 << 24 };
    const lt_cost_plan divided = {.scheme = LT_COST_FLAT, .element_bytes = 4, .sharded = true},
                       round = {.scheme = LT_COST_LOCAL_STEPS, .element_bytes = 4, .every = 1};
    const lt_cost_cluster c = cluster_of(64, 1);
    lt_cost_cluster twice = c, faster = c;
    twice.between.gather = faster.between.bandwidth = 2 * c.between.bandwidth;
    const lt_cost_link *l = &c.between;
    assert_near(lt_cost_after_update(&divided, &c, ELEMENTS)
                    / (l->latency + 63 * (l->message + 4.0 * ELEMENTS / 64 / l->bandwidth)),
                1, close);
    assert_near(lt_cost_after_update(&divided, &twice, ELEMENTS)
                    / lt_cost_after_update(&divided, &faster, ELEMENTS),
                1, close);
    assert_near(lt_cost_after_update(&round, &twice, ELEMENTS)
                    / lt_cost_after_update(&round, &c, ELEMENTS),
                1, close);
}

int main(void)
{
    enum { EXCHANGES = COUNT_OF(exchanges), KINDS = 3 };
    static const struct {
        const char *name;
        CMUnitTestFunction run;
    } kinds[KINDS] = {
        {"closed forms equal the simulation", closed_forms_equal_the_simulation},
        {"buckets follow one another", buckets_follow_one_another},
        {"shared cores do one thing after the other", shared_cores_do_one_thing_after_the_other},
    };
    static char name[EXCHANGES * KINDS][100];
    struct CMUnitTest rows[COUNT_OF(name) + 1] = {
        cmocka_unit_test(an_all_gather_has_a_separate_bandwidth)};
    for (size_t i = 0; i < COUNT_OF(name); i++) {
        exchange_row *e = &exchanges[i % EXCHANGES];
        snprintf(name[i], sizeof name[i], "%s: %s", kinds[i / EXCHANGES].name, e->name);
        rows[i + 1] = (struct CMUnitTest){name[i], kinds[i / EXCHANGES].run, NULL, NULL, e};
    }
    return cmocka_run_group_tests_name("simulate", rows, NULL, NULL);
}
