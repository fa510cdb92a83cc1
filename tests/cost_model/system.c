/* The cost of a step: small profiles computed by hand, order statistics against all draws, bad input. */

#include "dist/reducer/costs.h"
#include "example.h"

#include "lather/stragglers.h"

#include <math.h>
#include <stdlib.h>

/* --- Parts --- */

static void one_rank_computes_and_updates(void **state)
{
    (void)state;
    const lt_plan_cost c = predict(&profile, &machine, &alone);
    assert_near(c.load, 0.018, tiny);
    assert_near(c.compute, 0.1, tiny);
    assert_near(c.update, 0.006 + 0.01, tiny);
    assert_near(c.exposed, 0, tiny);
    assert_near(c.waiting, 0, tiny);
    assert_near(c.seconds, 0.116, tiny);
    assert_near(c.samples, 18, tiny);
    assert_near(c.memory, 16e6 * 2 + 64e6 + 18e6, tiny);
    assert_true(c.fits);
}

static void a_slow_loader_limits_the_step(void **state)
{
    (void)state;
    lt_plan_profile p = profile;
    p.load_per_sample = 0.01;
    const lt_plan_cost c = predict(&p, &machine, &alone);
    assert_near(c.seconds, 0.18, tiny);
}

/* 0.1 s of a rank and 0.016 of its update next to 0.018 of its loader: two ranks on one core, on two, which four
 * threads share, on 2.2, and on four, where each has its own. */
static void loaders_take_cores_from_ranks_that_share_them(void **state)
{
    (void)state;
    lt_plan_machine m = machine;
    lt_plan_setup s = alone;
    s.ranks = s.ranks_per_node = 2;
    const double own = 0.116;
    for (int i = 0; i < 4; i++) {
        const double slots[] = {1, 2, 2.2, 4},
                     want[] = {2 * (own + 0.018), own + 0.018, (own + 0.018) / 1.1, own};
        m.slots = slots[i];
        const lt_plan_cost c = predict(&profile, &m, &s);
        assert_near(c.seconds - c.exposed, want[i], tiny);
    }
}

/* 0.004 s of copies into buckets and back, of the gradients that a rank holds: none with one rank, or with local steps
 * and one rank per node; half of it where owners keep the gradients. */
static void copies_into_buckets_and_back_are_counted(void **state)
{
    (void)state;
    static const struct {
        int ranks, per_node;
        lt_cost_scheme scheme;
        lt_mesh_config mesh;
        double want;
    } row[] = {
        {1, 1, LT_COST_FLAT, {0}, 0},
        {4, 1, LT_COST_FLAT, {0}, 0.004},
        {4, 2, LT_COST_TWO_LEVEL, {0}, 0.004},
        {4, 1, LT_COST_SHARD_GRADIENTS, {0}, 0.002},
        {4, 1, LT_COST_LOCAL_STEPS, {0}, 0},
        {4, 2, LT_COST_LOCAL_STEPS, {0}, 0.004},
        {8, 1, LT_COST_FLAT, {.data = 2, .rows = 2, .columns = 2}, 0.001},
        {4, 1, LT_COST_FLAT, {.rows = 2, .columns = 2}, 0},
        {8, 1, LT_COST_FLAT, {.depth = 2, .rows = 2, .columns = 2}, 0.001},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        lt_plan_setup s = alone;
        lt_plan_profile p = profile;
        s.ranks = row[i].ranks;
        s.ranks_per_node = row[i].per_node;
        s.mesh = row[i].mesh;
        s.exchange = (lt_cost_plan){.scheme = row[i].scheme, .every = 2};
        const lt_plan_cost without = predict(&p, &machine, &s);
        p.staging = 0.004;
        assert_near(predict(&p, &machine, &s).compute - without.compute, row[i].want, tiny);
    }
}

/* Two nodes: of d floats each card carries 4 d bytes. Backward is the last half of the last micro-batch; the
 * first bucket's 0.04 s begin in its middle, the second's 0.12 s at its end, when 0.015 s of the first are left. */
static void backward_overlaps_with_each_bucket_once(void **state)
{
    (void)state;
    lt_plan_setup s = alone;
    s.ranks = 2;
    s.grad_accum = 3;
    const lt_plan_cost c = predict(&profile, &machine, &s);
    assert_near(c.compute, 0.3, tiny);
    assert_near(c.exposed, 0.04 - 0.025 + 0.12, tiny);
    assert_near(c.seconds, 0.3 + 0.016 + 0.135, tiny);
    assert_near(c.samples, 2 * 3 * 18, tiny);
    s.shard_optimizer = true; /* half of 16 10^6 bytes from each */
    const lt_plan_cost d = predict(&profile, &machine, &s);
    assert_near(d.exposed, 0.135 + 0.08, tiny);
    assert_near(d.update, 0.008, tiny);
    assert_near(d.memory, 16e6 * 2 + 32e6 + 18e6, tiny);
}

static void shared_cores_scale_computation(void **state)
{
    (void)state;
    lt_plan_machine m = machine;
    lt_plan_setup s = alone;
    s.ranks = s.ranks_per_node = 8;
    m.slots = 2;
    m.cluster.within.bandwidth = 1e30;
    const lt_plan_cost c = predict(&profile, &m, &s);
    assert_near(c.compute, 0.1 * 4, tiny);
    assert_near(c.update, 0.016 * 4, tiny);
    m.cluster.within.bandwidth =
        7e7; /* copies of 7 and 21 MB per rank, at a quarter of it, from 0.1 s on */
    assert_near(predict(&profile, &m, &s).exposed, 0.1 + 0.4 + 1.2 - 0.2, tiny);
    m.cluster.within.bandwidth = 1e30;
    m.slots = 16; /* more cores than ranks are no gain */
    assert_near(predict(&profile, &m, &s).compute, 0.1, tiny);
}

/* Two nodes on two cores in all: a rank has one, for backward of 0.05 s and the work of communication. Flat: 4 bytes of
 * 4 10^6 elements each way, a nanosecond each: 32 ms; and two messages each way of each bucket. Backward and these take
 * 0.082 s at least, and overlap with the links' 0.135 s; a link that takes no time leaves nothing else. */
static void communication_competes_with_backward_for_a_shared_core(void **state)
{
    (void)state;
    lt_plan_machine m = machine;
    lt_plan_setup s = alone;
    s.ranks = 2;
    m.slots = 1;
    m.cluster.copy = 1e-9;
    m.cluster.wake = 1e-4;
    const double moving = 2 * 1e-9 * 16e6 + 2 * 1e-4 * 2 * 2;
    assert_near(predict(&profile, &m, &s).exposed, 0.04 - 0.025 + 0.12, tiny);
    m.cluster.between.bandwidth = 1e30;
    assert_near(predict(&profile, &m, &s).exposed, moving, 1e-12);
    m.slots = 1.25; /* a quarter of a core is spare */
    assert_near(predict(&profile, &m, &s).exposed, (0.05 + moving) / 1.25 - 0.05, 1e-12);
    m.slots = 0.5; /* two ranks share it */
    assert_near(predict(&profile, &m, &s).exposed, 2 * moving, 1e-12);
    m.slots = 2; /* a core is spare: nothing is to be seen of it */
    assert_near(predict(&profile, &m, &s).exposed, 0, tiny);
    m.slots = 0;
    assert_near(predict(&profile, &m, &s).exposed, 0, tiny);
    m.slots = 1;
    m.cluster.unit = 5e-9; /* topk chooses from all elements: 20 ms */
    s.exchange =
        (lt_cost_plan){.scheme = LT_COST_REDUCER, .reducer = &lt_cost_topk, .number = 0.001};
    const double sparse =
        (double)(lt_cost_sparse_bytes(1000000, 0.001, 4) + lt_cost_sparse_bytes(3000000, 0.001, 4));
    assert_near(predict(&profile, &m, &s).exposed, 0.02 + 2e-9 * sparse + 2 * 1e-4 * 2, 1e-12);
}

/* On shared cores an all-gather of a sharded layer takes at least the CPU time of its messages, and a grid's products
 * take that much longer. */
static void communication_of_a_sharded_layer_takes_a_shared_core(void **state)
{
    (void)state;
    lt_plan_machine m = machine;
    lt_plan_setup s = alone;
    s.ranks = 4;
    s.optim = "adamw";
    s.mesh.columns = 4;
    m.slots = 1;
    m.cluster.between.bandwidth = 1e30;
    const double before = predict(&profile, &m, &s).compute;
    m.cluster.copy = 1e-9;
    m.cluster.wake = 1e-4;
    const double gather = 2 * (1e-9 * 0.75 * 4 * 1800 * 512 + 1e-4 * 3);
    assert_near(predict(&profile, &m, &s).compute, before + 2 * 2 * 4 * gather, 1e-12);
    s.mesh = (lt_mesh_config){.rows = 2, .columns = 2};
    const double x = 4.0 * 1800 * 512 / 4,
                 w = 4.0 * 512 * 512 / 4; /* bytes of a block, of one width */
    const double step = 2 * (1e-9 * ((1 + 1 + 1 + 4) * x + (3 + 1 + 4 + 4) * w) / 2 + 4 * 1e-4);
    assert_near(predict(&profile, &m, &s).compute, before + 2 * 3 * 2 * step, 1e-12);
    m.slots = 2;
    assert_near(predict(&profile, &m, &s).compute, before, 1e-12);
}

static void memory_limits_candidates(void **state)
{
    (void)state;
    lt_plan_machine m = machine;
    m.memory = 114e6;
    assert_true(predict(&profile, &m, &alone).fits);
    m.memory = 113e6;
    assert_false(predict(&profile, &m, &alone).fits);
    m.memory = 0;
    assert_true(predict(&profile, &m, &alone).fits);
}

/* Four ranks, each a node; 18 samples of 100 tokens, width 512: a gather is 3/4 of 3.7 MB from each rank, 27.6 ms of
 * its card. A layer computes (10 + 90 / 4) / 2 = 16.25 ms, of 36 parts 3, 1, 4 and 4 overlap with gathers, 3/4 of
 * each. */
static void a_sharded_layer_waits_for_exposed_communication(void **state)
{
    (void)state;
    lt_plan_setup s = alone;
    s.ranks = 4;
    s.mesh.columns = 4;
    const double gather = 0.75 * 4 * 1800 * 512 / 1e8, layer = (0.01 + 0.09 / 4) / 2;
    const double exposed = 2 * (4 * gather - 0.75 * layer * 12 / 36);
    const lt_plan_cost c = predict(&profile, &machine, &s);
    assert_near(c.compute, 2 * (layer + exposed), tiny);
    /* A rank sends three quarters of its quarter of the parameters to owners, and receives the same. */
    assert_near(c.exposed, 2 * 4 * 0.75 * 1e6 / 1e8, tiny);
    assert_near(c.samples, 18, tiny);
    assert_near(c.memory, 2 * 4e6 + 64e6 / 4 + 18e6 / 4, 1e-6);
    s.optim = "adamw"; /* updates its boxes, and moves nothing */
    const lt_plan_cost own = predict(&profile, &machine, &s);
    assert_near(own.exposed, 0, tiny);
    assert_near(own.update, c.update, tiny);
    assert_near(own.memory, c.memory, 1e-6);
}

/* Rows of a sharded vocabulary are sent four times, and gradients of parameters that are not sharded are summed: of 7 x
 * 10^6 all but 12 h^2 of two layers and a table of 300 rows. */
static void communication_outside_the_layers_is_counted(void **state)
{
    (void)state;
    lt_plan_profile p = profile;
    lt_plan_setup s = alone;
    const lt_cost_bucket bucket = {.elements = 7000000, .ready = 1};
    s.ranks = 4;
    s.optim = "adamw";
    s.mesh.columns = 4;
    const double before = predict(&p, &machine, &s).compute;
    const double gather = 0.75 * 4 * 1800 * 512 / 1e8, sum = 2 * 0.75 * 4 / 1e8;
    p.bucket = &bucket;
    p.buckets = 1;
    assert_near(predict(&p, &machine, &s).compute, before + sum * (7e6 - 24 * 512 * 512), tiny);
    p.vocabulary = 300;
    s.grad_accum = 3;
    assert_near(predict(&p, &machine, &s).compute,
                3 * (before + 4 * gather + sum * (7e6 - (24 * 512 + 300) * 512)), tiny);
}

/* One of three messages does not leave the node, and its two ranks share a card: 4/3 of the bytes, not twice. */
static void ranks_that_share_a_card_send_messages_between_nodes_only(void **state)
{
    (void)state;
    const lt_cost_bucket bucket = {.elements = 7000000, .ready = 1};
    lt_plan_profile p = profile, with = profile;
    lt_plan_setup s = alone;
    s.ranks = 4;
    s.ranks_per_node = 2;
    s.optim = "adamw";
    s.mesh.columns = 4;
    with.bucket = &bucket;
    with.buckets = 1;
    const double sum = 2 * 0.75 * 4 / 1e8;
    assert_near(predict(&with, &machine, &s).compute - predict(&p, &machine, &s).compute,
                4.0 / 3 * sum * (7e6 - 24 * 512 * 512), tiny);
}

/* Bytes of a product of two steps on a grid of 2 x 2, a rank a node, nothing of it hidden: forward sends both operands,
 * then the larger; a gradient broadcasts one, and sums of the other are two in flight. */
static double of_product(double x, double w)
{
    return x + w + fmax(x, w) + w + w + x + x + x + w;
}

static void a_grid_exchanges_norms_gradients_in_depth_and_a_table(void **state)
{
    (void)state;
    lt_plan_profile p = profile;
    lt_plan_setup s = alone;
    const double rows = 1800, h = 512, unit = h * h, depth = 2,
                 part = 4.0 / 4; /* bytes of a fourth */
    p.fixed = p.per_sample = 1e-18;
    s.ranks = 8;
    s.mesh = (lt_mesh_config){.rows = 2, .columns = 2, .depth = 2};
    double layer = 4 * (4 * 2 * rows / 2 / depth) + 4 * 13 * h / 2;
    layer += of_product(part * rows * h / depth, part * 3 * unit);
    layer += of_product(part * rows * h / depth, part * unit);
    layer += of_product(part * rows * h / depth, part * 4 * unit);
    layer += of_product(part * rows * 4 * h / depth, part * 4 * unit);
    const double weights = 24 * unit, in_depth = part * weights;
    const double bytes = predict(&p, &machine, &s).compute * 1e8;
    assert_near(bytes / (2 * layer + in_depth), 1, 1e-9);
    p.vocabulary = 300;
    const double table = part * 300 * h, embedded = part * rows * h / depth;
    const double more = 2 * table + 2 * embedded + of_product(embedded, table) + 2 * table;
    assert_near(predict(&p, &machine, &s).compute * 1e8 / (bytes + more), 1, 1e-9);
}

/* --- Message by message --- */

/* Seconds by a simulation of every message of every rank, through the card of its node: lt_plan_simulate() of version
 * 0.1. */
static const struct {
    lt_plan_setup setup;
    double compute, exposed, seconds;
} simulated[] = {
    {{.ranks = 64}, 0.33, 0.168996, 0.554996},
    {{.ranks = 64, .shard_optimizer = true, .exchange = {.scheme = LT_COST_TWO_LEVEL}},
     0.33,
     0.135834,
     0.466709},
    {{.ranks = 128,
      .exchange = {.scheme = LT_COST_REDUCER, .reducer = &lt_cost_topk, .number = 0.001}},
     0.33,
     0.00258632,
     0.38858632},
    {{.ranks = 64, .exchange = {.scheme = LT_COST_SHARD_GRADIENTS}}, 0.33, 0.196996, 0.527871},
    {{.ranks = 64, .exchange = {.scheme = LT_COST_LOCAL_STEPS, .every = 8}},
     0.33,
     0.005827,
     0.391827},
    {{.ranks = 64,
      .shard_optimizer = true,
      .exchange = {.scheme = LT_COST_LOCAL_STEPS, .every = 8}},
     0.33,
     0.007239,
     0.344239},
    {{.ranks = 64, .mesh = {.columns = 8}}, 0.0522049644, 0.03537175, 0.0884517144},
    {{.ranks = 64, .ranks_per_node = 1, .mesh = {.rows = 8, .columns = 8}},
     0.426023296,
     0.0005921875,
     0.427490484},
    {{.ranks = 64, .mesh = {.rows = 8, .columns = 8}}, 0.463670549, 0.0040375, 0.468583049},
    {{.ranks = 64, .mesh = {.rows = 4, .columns = 4, .depth = 4}},
     0.173754089,
     0.016306375,
     0.190935464},
};

/* Whole steps of grids with a rank a node, whose cards no other rank shares, without latency, whether products or
 * exchanges take longer. */
static void a_grid_with_a_rank_per_node_takes_the_time_of_its_messages(void **state)
{
    (void)state;
    static const lt_mesh_config meshes[] = {{.rows = 8, .columns = 8},
                                            {.rows = 4, .columns = 4, .depth = 4},
                                            {.rows = 16, .columns = 16}};
    static const double compute[] = {0.131358243,  0.459544752, 2.22096429, 42.0593929,
                                     0.0691401351, 0.136809603, 1.42476214, 41.4517445,
                                     0.138791077,  0.479342427, 1.93622032, 12.3442861};
    lt_plan_machine m = machine;
    m.cluster.between = (lt_cost_link){.message = 1e-6, .bandwidth = 1e9};
    for (size_t i = 0; i < COUNT_OF(compute); i++) {
        lt_plan_setup s = {.mesh = meshes[i / 4], .batch_size = 16 << 2 * (i % 4)};
        lt_plan_profile p = profile;
        s.ranks = s.mesh.rows * s.mesh.columns * (s.mesh.depth ? s.mesh.depth : 1);
        p.vocabulary = 1024;
        p.per_sample *= 1 << 3 * (i % 4);
        assert_near(predict(&p, &m, &s).compute / compute[i], 1, 1e-8);
    }
}

static void steps_take_the_time_of_their_messages(void **state)
{
    (void)state;
    lt_plan_machine m = machine;
    m.cluster = (lt_cost_cluster){.per_node = 8,
                                  .within = {.latency = 5e-6, .message = 1e-6, .bandwidth = 1e10},
                                  .between = {.latency = 5e-5, .message = 1e-6, .bandwidth = 1e9}};
    for (size_t i = 0; i < COUNT_OF(simulated); i++) {
        lt_plan_setup s = simulated[i].setup;
        s.batch_size = 64;
        s.frequency = 10;
        const lt_plan_cost p = predict(&profile, &m, &s);
        assert_near(p.compute / simulated[i].compute, 1,
                    0.06); /* grids: which steps share a card */
        assert_near(p.exposed / simulated[i].exposed, 1, 0.01);
        assert_near(p.seconds / simulated[i].seconds, 1, 0.06);
    }
}

/* --- Waiting --- */

static const double recorded[] = {1.0, 1.5, 0.9, 4.0, 1.1};
enum { RECORDED = COUNT_OF(recorded) };

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The mean over all draws of n from the recorded. */
static double mean_of_all(int n, int k)
{
    double sum = 0;
    int64_t draws = 1;
    for (int i = 0; i < n; i++)
        draws *= RECORDED;
    for (int64_t d = 0; d < draws; d++) {
        double x[8];
        int64_t digits = d;
        for (int i = 0; i < n; i++, digits /= RECORDED)
            x[i] = recorded[digits % RECORDED];
        qsort(x, (size_t)n, sizeof *x, ascending);
        sum += x[k - 1];
    }
    return sum / (double)draws;
}

static void order_statistics_are_means_over_all_draws(void **state)
{
    (void)state;
    for (int n = 1; n <= 6; n++)
        for (int k = 1; k <= n; k++) {
            double got;
            assert_ok(lt_plan_order_statistic(&got, recorded, RECORDED, n, k));
            assert_near(got, mean_of_all(n, k), 1e-12);
        }
    double got; /* nearly all of 1,024 ranks draw the largest value */
    assert_ok(lt_plan_order_statistic(&got, recorded, RECORDED, 1024, 1024));
    assert_near(got, 4, 1e-12);
    assert_ok(lt_plan_order_statistic(&got, recorded, RECORDED, 1024, 512));
    assert_near(got, 1.1, 1e-9);
    assert_status(lt_plan_order_statistic(&got, recorded, RECORDED, 3, 4), LT_E_ARG);
    assert_status(lt_plan_order_statistic(&got, recorded, 0, 3, 3), LT_E_ARG);
}

static void an_update_waits_for_the_slowest_it_needs(void **state)
{
    (void)state;
    lt_plan_profile p = profile;
    lt_plan_setup s = alone;
    p.step_seconds = recorded;
    p.steps = RECORDED;
    s.ranks = 4;
    const double mean = 1.7;
    const lt_plan_cost all = predict(&p, &machine, &s);
    assert_near(all.waiting, 0.1 * (mean_of_all(4, 4) / mean - 1), 1e-12);
    s.backup_workers = 1;
    const lt_plan_cost three = predict(&p, &machine, &s);
    assert_near(three.waiting, 0.1 * (mean_of_all(4, 3) / mean - 1), 1e-12);
    assert_near(three.samples, 3 * 18, tiny);
    assert_true(three.waiting < all.waiting);
}

/* All draws of three ranks are updates that a deadline would have cut. */
static void a_deadline_agrees_with_drop_compute(void **state)
{
    (void)state;
    enum { RANKS = 3, MICRO = 4, DRAWS = RECORDED * RECORDED * RECORDED };
    static double latency[DRAWS][RANKS][MICRO];
    const double mean = 1.7, micro = 0.1;
    for (int d = 0; d < DRAWS; d++)
        for (int r = 0, digits = d; r < RANKS; r++, digits /= RECORDED)
            for (int m = 0; m < MICRO; m++)
                latency[d][r][m] = micro * recorded[digits % RECORDED] / mean;
    const lt_drop_latencies all = {&latency[0][0][0], DRAWS, RANKS, MICRO, 0};
    lt_plan_profile p = profile;
    lt_plan_setup s = alone;
    p.step_seconds = recorded;
    p.steps = RECORDED;
    s.ranks = RANKS;
    s.grad_accum = MICRO;
    for (int i = 0; i < 4; i++) {
        s.deadline = 0.17 * i;
        const lt_drop_plan want = lt_drop_predict(&all, s.deadline);
        const lt_plan_cost c = predict(&p, &machine, &s);
        assert_near(c.compute + c.waiting, want.step, 1e-12);
        assert_near(c.samples, want.kept * RANKS * MICRO * 18, 1e-9);
    }
}

/* --- Bad input --- */

typedef struct bad_row {
    const char *name, *part;
    lt_plan_setup setup;
    lt_plan_machine machine;
    lt_plan_profile profile;
} bad_row;

static bad_row bad_rows[] = {
    {.name = "no ranks", .part = "0 ranks", .setup = {.batch_size = 1}},
    {.name = "no samples", .part = "1 micro-batches of 0", .setup = {.ranks = 4, .grad_accum = 1}},
    {.name = "ranks per node below zero",
     .part = "4 ranks, -1 per node: want at least 1 and 0",
     .setup = {.ranks = 4, .batch_size = 1, .ranks_per_node = -1}},
    {.name = "roots that are refreshed before each update",
     .part = "roots refreshed every -2 updates, want 0 or more",
     .setup = {.ranks = 4, .batch_size = 1, .frequency = -2}},
    {.name = "nodes that are not full",
     .part = "4 ranks do not fill nodes of 3",
     .setup = {.ranks = 4, .batch_size = 1, .ranks_per_node = 3}},
    {.name = "a mesh of other ranks",
     .part = "2 x 2 x 1 are not 6",
     .setup = {.ranks = 6, .batch_size = 1, .mesh = {.rows = 2, .columns = 2}}},
    {.name = "no square",
     .part = "2 rows and 3 columns",
     .setup = {.ranks = 6, .batch_size = 1, .mesh = {.rows = 2, .columns = 3}}},
    {.name = "all are backup workers",
     .part = "4 backup workers of 4",
     .setup = {.ranks = 4, .batch_size = 1, .backup_workers = 4}},
    {.name = "a backup worker and a deadline",
     .part = "one of them",
     .setup = {.ranks = 4, .batch_size = 1, .backup_workers = 1, .deadline = 1}},
    {.name = "a density",
     .part = "density 2",
     .setup = {.ranks = 4,
               .batch_size = 1,
               .exchange = {.scheme = LT_COST_REDUCER, .reducer = &lt_cost_topk, .number = 2}}},
    {.name = "too few nodes",
     .part = "need 4 nodes, and there are 3",
     .setup = {.ranks = 4, .batch_size = 1}},
    {.name = "a share above one", .part = "backward is 2", .setup = {.ranks = 4, .batch_size = 1}},
    {.name = "seconds that are no number",
     .part = "update is nan",
     .setup = {.ranks = 4, .batch_size = 1}},
    {.name = "a step of no time",
     .part = "recorded step 1 took 0",
     .setup = {.ranks = 4, .batch_size = 1}},
    {.name = "no transformer",
     .part = "0 layers",
     .setup = {.ranks = 4, .batch_size = 1, .mesh = {.columns = 2}}},
};

static bad_row *make_bad(size_t *count)
{
    static const double steps[] = {1, 0};
    *count = COUNT_OF(bad_rows);
    for (size_t i = 0; i < *count; i++) {
        bad_rows[i].machine = machine;
        bad_rows[i].profile = profile;
    }
    bad_rows[10].machine.cluster.nodes = 3;
    bad_rows[11].profile.backward = 2;
    bad_rows[12].profile.update = (double)NAN;
    bad_rows[13].profile.step_seconds = steps;
    bad_rows[13].profile.steps = 2;
    bad_rows[14].profile.layers = 0;
    return bad_rows;
}

static void fields_out_of_range_are_named(void **state)
{
    (void)state;
    size_t count;
    const bad_row *rows = make_bad(&count);
    for (size_t i = 0; i < count; i++) {
        lt_plan_cost c = {.seconds = 7};
        print_message("%s\n", rows[i].name);
        assert_fails(lt_plan_predict(&c, &rows[i].profile, &rows[i].machine, &rows[i].setup),
                     LT_E_ARG, rows[i].part);
        assert_true(c.seconds == 7);
    }
}

int main(void)
{
    const struct CMUnitTest rows[] = {
        cmocka_unit_test(one_rank_computes_and_updates),
        cmocka_unit_test(a_grid_exchanges_norms_gradients_in_depth_and_a_table),
        cmocka_unit_test(a_slow_loader_limits_the_step),
        cmocka_unit_test(loaders_take_cores_from_ranks_that_share_them),
        cmocka_unit_test(copies_into_buckets_and_back_are_counted),
        cmocka_unit_test(backward_overlaps_with_each_bucket_once),
        cmocka_unit_test(shared_cores_scale_computation),
        cmocka_unit_test(communication_competes_with_backward_for_a_shared_core),
        cmocka_unit_test(communication_of_a_sharded_layer_takes_a_shared_core),
        cmocka_unit_test(memory_limits_candidates),
        cmocka_unit_test(a_sharded_layer_waits_for_exposed_communication),
        cmocka_unit_test(communication_outside_the_layers_is_counted),
        cmocka_unit_test(ranks_that_share_a_card_send_messages_between_nodes_only),
        cmocka_unit_test(a_grid_with_a_rank_per_node_takes_the_time_of_its_messages),
        cmocka_unit_test(steps_take_the_time_of_their_messages),
        cmocka_unit_test(order_statistics_are_means_over_all_draws),
        cmocka_unit_test(an_update_waits_for_the_slowest_it_needs),
        cmocka_unit_test(a_deadline_agrees_with_drop_compute),
        cmocka_unit_test(fields_out_of_range_are_named),
    };
    return cmocka_run_group_tests(rows, NULL, NULL);
}
