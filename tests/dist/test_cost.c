/* Cost model of communication: bytes equal the communicators' counters, seconds equal closed forms, and faster links
 * never make a step slower. */

#include "dist/cost/parts.h"
#include "dist/reducer/costs.h"
#include "near.h"
#include "ranks.h"

#include "lather/comm.h"
#include "lather/detail/comm_cost.h"
#include "lather/detail/process_group.h"
#include "lather/device.h"
#include "lather/ext/fail.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { RANKS = 6, MANY = 12 };

static const lt_cost_cluster machines = {
    .nodes = 16,
    .per_node = 8,
    .within = {.latency = 5e-6, .message = 1e-6, .bandwidth = 130e9},
    .between = {.latency = 50e-6, .message = 2e-6, .bandwidth = 25e9 / 8},
    .unit = 1e-10,
};

/* Costs of reducers follow the built-in schemes. */
enum { TOPK = LT_COST_REDUCER, POWERSGD, KINDS };

static lt_cost_plan plan_of(int kind)
{
    lt_cost_plan p = {.scheme = (lt_cost_scheme)kind, .element_bytes = 4, .every = 32};
    if (kind >= TOPK) {
        p.scheme = LT_COST_REDUCER;
        p.reducer = kind == TOPK ? &lt_cost_topk : &lt_cost_powersgd;
        p.number = kind == TOPK ? 0.01 : 4;
    }
    return p;
}

/* --- Bytes --- */

typedef struct player {
    test_rank at;
    int per_node;
    int64_t elements;
    lt_cost_bytes flat, scatter, levels; /* scatter: reduce-scatter and all-gather */
} player;

static lt_status reduce(lt_comm *comm, lt_tensor *t)
{
    lt_request *r = NULL;
    LT_TRY(lt_comm_allreduce_begin(comm, t, LT_REDUCE_SUM, &r));
    return lt_request_wait(&r);
}

/* Reduce-scatters whole, all-reduces the shard over middle unless NULL, and all-gathers. */
static lt_status there_and_back(player *p, lt_comm *comm, int ranks, lt_tensor *whole,
                                lt_comm *middle)
{
    int64_t count[MANY];
    lt_request *r = NULL;
    lt_tensor *part = NULL;
    for (int i = 0; i < ranks; i++)
        count[i] = lt_even_shard_size(p->elements, ranks, i);
    const int64_t own = count[lt_comm_rank(comm)];
    if (own)
        LT_TRY(lt_tensor_new(&part, p->at.device, LT_F32, LT_SHAPE(own)));
    lt_status st = lt_comm_reducescatter_begin(comm, whole, part, count, LT_REDUCE_SUM, &r);
    if (!st)
        st = lt_request_wait(&r);
    if (!st && middle && own)
        st = reduce(middle, part);
    if (!st)
        st = lt_comm_allgather_begin(comm, part, whole, count, &r);
    if (!st)
        st = lt_request_wait(&r);
    lt_tensor_free(&part);
    return st;
}

static lt_status play_counters(void *context)
{
    player *p = context;
    lt_comm *node = NULL, *peers = NULL, *comm = p->at.comm;
    const int rank = p->at.rank;
    lt_tensor *t = NULL;
    LT_TRY(lt_tensor_new(&t, p->at.device, LT_F32, LT_SHAPE(p->elements)));
    lt_status st = lt_comm_split(comm, rank / p->per_node, rank, &node);
    if (!st)
        st = lt_comm_split(comm, rank % p->per_node, rank, &peers);
    const uint64_t begin = lt_comm_bytes(comm);
    if (!st)
        st = reduce(comm, t);
    const uint64_t reduced = lt_comm_bytes(comm);
    if (!st)
        st = there_and_back(p, comm, p->at.ranks, t, NULL);
    p->flat.between = (double)(reduced - begin);
    p->scatter.between = (double)(lt_comm_bytes(comm) - reduced);
    if (!st)
        st = there_and_back(p, node, p->per_node, t, peers);
    p->levels.within = st ? 0 : (double)lt_comm_bytes(node);
    p->levels.between = st ? 0 : (double)lt_comm_bytes(peers);
    lt_comm_close(&peers);
    lt_comm_close(&node);
    lt_tensor_free(&t);
    return st;
}

static double all_of(lt_cost_bytes b)
{
    return b.within + b.between;
}

static void compare(const player *p)
{
    lt_cost_cluster c = machines;
    c.nodes = p->at.ranks / p->per_node;
    c.per_node = p->per_node;
    const lt_cost_bucket b = {.elements = p->elements};
    lt_cost_plan plan = plan_of(LT_COST_FLAT);
    assert_true(all_of(lt_cost_payload(&plan, &c, &b, p->at.rank)) == all_of(p->flat));
    plan.scheme = LT_COST_SHARD_GRADIENTS;
    assert_true(all_of(lt_cost_payload(&plan, &c, &b, p->at.rank)) == all_of(p->scatter));
    plan.scheme = LT_COST_TWO_LEVEL;
    const lt_cost_bytes two = lt_cost_payload(&plan, &c, &b, p->at.rank);
    assert_true(two.within == p->levels.within);
    assert_true(two.between == p->levels.between);
}

static void check_counters(void **state)
{
    (void)state;
    static const struct {
        int nodes, per_node;
        int64_t elements;
    } rows[] = {{1, 1, 5}, {1, 3, 10}, {3, 1, 10}, {2, 2, 13}, {2, 3, 100}, {3, 2, 101}, {2, 2, 8}};
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const int ranks = rows[i].nodes * rows[i].per_node;
        player p[RANKS];
        for (int r = 0; r < ranks; r++)
            p[r] = (player){.per_node = rows[i].per_node, .elements = rows[i].elements};
        play_ranks_well(&(rank_group){RANKS_OF(p, ranks), .run = play_counters});
        for (int r = 0; r < ranks; r++)
            compare(&p[r]);
    }
}

/* Published fractions, 2 (n-1)/n and so on, for sizes that divide evenly. */
static void check_shares(void **state)
{
    (void)state;
    const lt_cost_cluster c = machines; /* 16 x 8 */
    const double d = 1 << 20, f = 4;
    const lt_cost_bucket b = {.elements = 1 << 20, .rows = 992, .columns = 2048, .dense = 128};
    double got[KINDS], nic[KINDS];
    for (int s = 0; s < KINDS; s++) {
        const lt_cost_plan plan = plan_of(s);
        const lt_cost_bytes bytes = lt_cost_payload(&plan, &c, &b, 0);
        got[s] = all_of(bytes);
        nic[s] = 8 * bytes.between;
    }
    assert_true(got[LT_COST_FLAT] == 2 * 127.0 / 128 * d * f);
    assert_true(got[LT_COST_SHARD_GRADIENTS] == 2 * 127.0 / 128 * d * f);
    assert_true(nic[LT_COST_TWO_LEVEL] == 2 * 15.0 / 16 * d * f);
    assert_true(nic[LT_COST_FLAT] == 8 * 2 * 120.0 / 128 * d * f); /* per_node times the minimum */
    assert_true(nic[LT_COST_LOCAL_STEPS] == nic[LT_COST_TWO_LEVEL] / 32);
    assert_true(nic[TOPK] == 8.0 * 15 * (double)lt_cost_sparse_bytes(1 << 17, 0.01, 4));
    assert_true(got[POWERSGD] == 2 * 127.0 / 128 * (4096 + 8192) * f);
    lt_cost_plan divided = plan_of(LT_COST_FLAT);
    divided.sharded = true;
    assert_true(all_of(lt_cost_payload(&divided, &c, &b, 0)) == 3 * 127.0 / 128 * d * f);
    divided = plan_of(LT_COST_LOCAL_STEPS);
    divided.sharded = true;
    assert_true(lt_cost_payload(&divided, &c, &b, 0).within
                == (3 * 7.0 / 8 + 7.0 / 8 / 32) * d * f);
}

/* Bytes through a node's card in a step of Shampoo, in multiples of the gradients' bytes. */
static void check_cards(void **state)
{
    (void)state;
    static const struct {
        int nodes, per_node;
        double want[LT_COST_GATHER_IN_NODE + 1];
    } rows[] = {{2, 4, {3, 1.5, 1}}, {8, 8, {8.75, 2.625, 1.75}}};
    const lt_cost_bucket b = {.elements = 1 << 20};
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        for (int gather = 0; gather <= LT_COST_GATHER_IN_NODE; gather++) {
            const lt_cost_cluster c = {.nodes = rows[i].nodes, .per_node = rows[i].per_node};
            lt_cost_plan plan = plan_of(LT_COST_TWO_LEVEL);
            plan.sharded = true;
            plan.gather = (lt_cost_gather)gather;
            double card = 0;
            for (int r = 0; r < c.per_node; r++)
                card += lt_cost_payload(&plan, &c, &b, r).between;
            assert_true(card == rows[i].want[gather] * 4 * (double)b.elements);
        }
}

/* Density above which sparse messages, with values of 4 bytes and indices of 2, are not smaller than a hierarchical
 * all-reduce. */
static double break_even(int nodes)
{
    return 2.0 * 4 / (nodes * (4.0 + 2));
}

static void check_sparse(void **state)
{
    (void)state;
    static const struct {
        int64_t elements;
        double density;
        int value_bytes;
        int64_t bytes;
    } rows[] = {
        {10, 0.1, 4, 4 + 4},                      /* one value, ten bits */
        {1 << 20, 0.00001, 4, 11 * 4 + 11 * 4},   /* 11 indices */
        {1 << 20, 0.001, 4, 1049 * 4 + 2612},     /* 2 * 1049 and 256 counts, padded from 2610 */
        {1 << 20, 0.5, 2, (1 << 20) + (1 << 17)}, /* a bitmap */
        {7, 1, 2, 16 + 4},
        {0, 0.5, 4, 0},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        assert_int_equal(
            lt_cost_sparse_bytes(rows[i].elements, rows[i].density, rows[i].value_bytes),
            rows[i].bytes);
    for (int m = 2; m <= 128; m *= 4) { /* break-even density */
        lt_cost_cluster c = machines;
        c.nodes = m;
        const lt_cost_bucket b = {.elements = 1 << 24};
        const lt_cost_plan dense = plan_of(LT_COST_TWO_LEVEL);
        const double all = lt_cost_payload(&dense, &c, &b, 0).between;
        for (int side = -1; side <= 1; side += 2) {
            lt_cost_plan plan = plan_of(TOPK);
            plan.number = break_even(m) * (1 + 0.03 * side);
            const double sparse = lt_cost_payload(&plan, &c, &b, 0).between;
            if (plan.number < 1.0 / 16) /* above, a bitmap is smaller than indices */
                assert_true(side < 0 ? sparse < all : sparse == all);
        }
    }
}

/* --- Seconds --- */

static double run(const lt_cost_plan *plan, const lt_cost_cluster *c, const lt_cost_bucket *b,
                  size_t count, double backward)
{
    lt_cost_result r;
    assert_ok(lt_cost_simulate(&r, plan, c, b, count, backward));
    return r.step;
}

/* Equal buckets that are ready simultaneously: all stages of one, then the slowest stage for each other bucket, but no
 * earlier than a link has carried all of them. */
static void check_closed_forms(void **state)
{
    (void)state;
    enum { BUCKETS = 9 };
    const double backward = 0.1;
    for (int nodes = 8; nodes <= 128; nodes *= 2)
        for (int s = 0; s < KINDS; s++) {
            lt_cost_cluster c = machines;
            const lt_cost_plan plan = plan_of(s);
            lt_cost_stage stage[LT_COST_MAX_STAGES];
            lt_cost_bucket b[BUCKETS];
            c.nodes = nodes;
            for (int i = 0; i < BUCKETS; i++)
                b[i] = (lt_cost_bucket){.elements = 6400000,
                                        .ready = backward,
                                        .rows = 5000,
                                        .columns = 6000,
                                        .dense = 1000};
            const size_t stages = lt_cost_row_of(&plan)->stages(&plan, &c, b, 0, stage);
            double all = 0, slowest = 0, link[3] = {0}, first[3] = {-1, -1, -1};
            for (size_t k = 0; k < stages; k++) {
                if (first[stage[k].uses] < 0)
                    first[stage[k].uses] = all;
                all += stage[k].seconds;
                slowest = fmax(slowest, stage[k].seconds);
                link[stage[k].uses] += BUCKETS * stage[k].seconds;
            }
            double want = all + (BUCKETS - 1) * slowest;
            for (int k = 0; k < LT_COST_COMPUTE; k++)
                want = fmax(want, first[k] + link[k]);
            want += backward + lt_cost_after_update(&plan, &c, BUCKETS * b[0].elements);
            assert_near(run(&plan, &c, b, BUCKETS, backward), want, 1e-9 * want);
            want = backward + all + lt_cost_after_update(&plan, &c, b[0].elements);
            assert_near(run(&plan, &c, b, 1, backward), want, 1e-9 * want); /* nothing overlaps */
        }
}

/* Computed by hand: hierarchical all-reduce of ResNet-50's gradients in f16 on 16 x 8 ranks, at 25 Gbit/s. */
static void check_by_hand(void **state)
{
    (void)state;
    lt_cost_plan plan = plan_of(LT_COST_TWO_LEVEL);
    lt_cost_cluster c = machines;
    c.within.message = c.between.message = 0;
    const lt_cost_bucket b = {.elements = 25600000};
    plan.element_bytes = 2;
    const double d = 25600000.0 * 2,
                 want = 2 * (5e-6 + 7.0 / 8 * d / 130e9) + 2 * (50e-6 + 15.0 / 16 * d / 3.125e9);
    assert_near(run(&plan, &c, &b, 1, 0), want, 1e-12);
    plan.scheme = LT_COST_FLAT; /* eight times as many bytes per NIC */
    assert_near(run(&plan, &c, &b, 1, 0), 2 * (50e-6 + 8 * 120.0 / 128 * d / 3.125e9), 1e-12);
    plan = plan_of(TOPK);
    plan.element_bytes = 2;
    c.unit = 1e-9;
    assert_near(run(&plan, &c, &b, 1, 0),
                2 * (5e-6 + 7.0 / 8 * d / 130e9) + 3.2e6 * 1e-9 + 50e-6
                    + 8 * 15 * (double)lt_cost_sparse_bytes(3200000, 0.01, 2) / 3.125e9,
                1e-12);
}

static double uniform(uint64_t *seed, double low, double high)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return low + (high - low) * (double)(*seed >> 11) * 0x1p-53;
}

static void check_properties(void **state)
{
    (void)state;
    uint64_t seed = 16;
    for (int trial = 0; trial < 2000; trial++) {
        const int s = trial % KINDS;
        lt_cost_plan plan = plan_of(s);
        lt_cost_cluster c = machines;
        lt_cost_bucket b[MANY];
        const size_t count = 1 + (size_t)uniform(&seed, 0, MANY - 0.01);
        const double backward = uniform(&seed, 0, 0.2);
        int64_t elements = 0;
        c.nodes = 1 + (int)uniform(&seed, 0, 100);
        c.per_node = 1 + (int)uniform(&seed, 0, 8);
        c.between.bandwidth = exp(uniform(&seed, 17, 24));
        c.within.bandwidth = exp(uniform(&seed, 20, 26));
        const double density = uniform(&seed, 0.001, 0.5);
        plan.number = s == TOPK ? density : plan.number;
        for (size_t i = 0; i < count; i++) {
            b[i] = (lt_cost_bucket){.elements = (int64_t)uniform(&seed, 0, 5e6),
                                    .ready = backward * uniform(&seed, 0, 1),
                                    .rows = 3000,
                                    .columns = 2000};
            elements += b[i].elements;
        }
        lt_cost_result r;
        assert_ok(lt_cost_simulate(&r, &plan, &c, b, count, backward));
        const double after_update = lt_cost_after_update(&plan, &c, elements), tiny = 1e-12;
        double latest = backward + after_update;
        assert_true(r.step >= backward + after_update - tiny);
        assert_near(r.exposed, r.step - backward, tiny);
        for (size_t i = 0; i < count; i++) { /* stages of a bucket, and traffic of the links */
            lt_cost_stage stage[LT_COST_MAX_STAGES];
            const size_t stages = lt_cost_row_of(&plan)->stages(&plan, &c, &b[i], 0, stage);
            double at = b[i].ready;
            for (size_t k = 0; k < stages; k++)
                at += stage[k].seconds;
            latest += at - b[i].ready;
            assert_true(r.step >= at + after_update - tiny);
        }
        assert_true(r.step >= r.link[0] + after_update - tiny
                    && r.step >= r.link[1] + after_update - tiny);
        assert_true(r.step <= latest + tiny); /* no stage waits without need */
        lt_cost_cluster better = c;
        better.between.bandwidth *= uniform(&seed, 1, 3);
        assert_true(run(&plan, &better, b, count, backward) <= r.step + tiny);
        better = c;
        better.within.bandwidth *= uniform(&seed, 1, 3);
        assert_true(run(&plan, &better, b, count, backward) <= r.step + tiny);
        better = c;
        better.between.latency = better.within.message = 0;
        assert_true(run(&plan, &better, b, count, backward) <= r.step + tiny);
    }
}

/* --- Bad input --- */

static void check_bad(void **state)
{
    (void)state;
    const lt_cost_bucket good = {.elements = 10}, less = {.elements = -1},
                         never = {.elements = 1, .ready = (double)NAN},
                         more = {.elements = 1, .dense = 2};
    const lt_cost_bucket bad[] = {less,
                                  never,
                                  more,
                                  {.elements = 1, .dense = -1},
                                  {.rows = -1},
                                  {.columns = -1},
                                  {.ready = -1e-9},
                                  {.ready = (double)INFINITY}};
    const lt_cost_bucket edges[] = {{.elements = 1, .dense = 1}, {0}};
    lt_cost_result r;
    lt_cost_plan plans[9];
    lt_cost_cluster clusters[9];
    for (int i = 0; i < 9; i++) {
        plans[i] = plan_of(TOPK);
        clusters[i] = machines;
    }
    plans[0].number = 0;
    plans[1].number = 1.5;
    plans[2] = plan_of(POWERSGD);
    plans[2].number = 0;
    plans[3] = plan_of(LT_COST_LOCAL_STEPS);
    plans[3].every = 0;
    plans[4].element_bytes = 3;
    clusters[5].nodes = 0;
    clusters[6].between.bandwidth = 0;
    clusters[7].within.latency = (double)NAN;
    for (int i = 0; i < 9; i++)
        assert_status(lt_cost_simulate(&r, &plans[i], &clusters[i], &good, 1, i == 8 ? -1 : 0),
                      LT_E_ARG);
    const lt_cost_plan plan = plan_of(LT_COST_FLAT);
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        assert_status(lt_cost_simulate(&r, &plan, &machines, &bad[i], 1, 0), LT_E_ARG);
    for (size_t i = 0; i < COUNT_OF(edges); i++)
        assert_ok(lt_cost_simulate(&r, &plan, &machines, &edges[i], 1, 0));
    assert_ok(lt_cost_simulate(&r, &plan, &machines, NULL, 0, 0.5));
    assert_true(r.step == 0.5 && r.exposed == 0);
}

static void check_reducers(void **state)
{
    (void)state;
    lt_cost_plan p = plan_of(LT_COST_FLAT);
    assert_ok(lt_cost_read_reducer(&p, "topk:0.05"));
    assert_true(p.scheme == LT_COST_REDUCER && p.reducer == &lt_cost_topk && p.number == 0.05);
    assert_ptr_equal(lt_cost_row_of(&p), &lt_cost_topk);
    assert_fails(lt_cost_read_reducer(&p, "plain"), LT_E_ARG,
                 "has no cost model; valid: powersgd, topk");
    assert_fails(lt_cost_read_reducer(&p, "nothing:1"), LT_E_ARG, "has no cost model");
    assert_null(lt_cost_of_reducer(2));
}

static void check_schemes(void **state)
{
    (void)state;
    const int none[] = {-1, LT_COST_SCHEMES};
    for (size_t i = 0; i < COUNT_OF(none); i++) {
        lt_cost_plan p = plan_of(LT_COST_FLAT);
        lt_cost_result r;
        p.scheme = (lt_cost_scheme)none[i];
        assert_fails(lt_cost_simulate(&r, &p, &machines, NULL, 0, 0), LT_E_ARG, "unknown scheme");
    }
    lt_cost_result r;
    const lt_cost_plan rowless = {.scheme = LT_COST_REDUCER, .element_bytes = 4};
    assert_fails(lt_cost_simulate(&r, &rowless, &machines, NULL, 0, 0), LT_E_ARG,
                 "without its row");
}

/* Values on both sides of each limit of a plan and a cluster. */
static void check_limits(void **state)
{
    (void)state;
    static const struct {
        int kind;
        double number;
        int every, element_bytes;
        const char *message; /* NULL: accepted */
    } rows[] = {
        {POWERSGD, 0, 0, 4, "cost: rank 0 of the factors, want 1 or more"},
        {POWERSGD, 1, 0, 4, NULL},
        {LT_COST_LOCAL_STEPS, 0, 0, 4, "cost: rounds of 0 local steps, want at least 1"},
        {LT_COST_LOCAL_STEPS, 0, 1, 4, NULL},
        {TOPK, 0, 0, 4, "cost: density 0 is not in (0, 1]"},
        {TOPK, 1e-300, 0, 4, NULL},
        {TOPK, 1, 0, 4, NULL},
        {TOPK, 1 + DBL_EPSILON, 0, 4, "cost: density 1 is not in (0, 1]"},
        {LT_COST_FLAT, 0, 0, 1, "cost: elements of 1 bytes, want 2, 4 or 8"},
        {LT_COST_FLAT, 0, 0, 2, NULL},
        {LT_COST_FLAT, 0, 0, 8, NULL},
        {LT_COST_FLAT, 0, 0, 16, "cost: elements of 16 bytes, want 2, 4 or 8"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const lt_cost_bucket b = {.elements = 10, .rows = 2, .columns = 3};
        lt_cost_plan p = plan_of(rows[i].kind);
        p.number = rows[i].number;
        p.every = rows[i].every;
        p.element_bytes = rows[i].element_bytes;
        lt_cost_result r;
        const lt_status st = lt_cost_simulate(&r, &p, &machines, &b, 1, 0);
        assert_status(st, rows[i].message ? LT_E_ARG : LT_OK);
        if (st && !strstr(lt_error_message(), rows[i].message))
            fail_msg("'%s' does not say '%s'", lt_error_message(), rows[i].message);
    }
    static const struct {
        double cores;
        int nodes, per_node;
        lt_status status;
    } cluster[] = {
        {0, 1, 1, LT_OK},         {1, 1, 1, LT_OK},
        {0.999, 1, 1, LT_E_ARG},  {-1, 1, 1, LT_E_ARG},
        {0, 1, 0, LT_E_ARG},      {0, INT32_MAX, 1, LT_OK},
        {0, 1, INT32_MAX, LT_OK}, {0, INT32_MAX / 2 + 1, 2, LT_E_ARG},
    };
    for (size_t i = 0; i < COUNT_OF(cluster); i++) {
        const lt_cost_plan p = plan_of(LT_COST_FLAT);
        lt_cost_cluster c = machines;
        lt_cost_result r;
        c.cores = cluster[i].cores;
        c.nodes = cluster[i].nodes;
        c.per_node = cluster[i].per_node;
        assert_status(lt_cost_simulate(&r, &p, &c, NULL, 0, 0), cluster[i].status);
    }
}

static void check_links(void **state)
{
    (void)state;
    for (int between = 0; between < 2; between++) {
        const lt_cost_plan p = plan_of(LT_COST_FLAT);
        lt_cost_cluster c = machines;
        lt_cost_result r;
        *(between ? &c.between : &c.within) = (lt_cost_link){.latency = -3, .bandwidth = 5};
        assert_fails(lt_cost_simulate(&r, &p, &c, NULL, 0, 0), LT_E_ARG,
                     between ? "the link between nodes has latency -3 s, 5 bytes/s"
                             : "the link within nodes has latency -3 s, 5 bytes/s");
    }
}

/* Seconds of a core, and a gather that the enumeration lacks. */
static void check_core_seconds(void **state)
{
    (void)state;
    static const struct {
        double copy, carry, wake;
        int gather;
        const char *message;
    } rows[] = {
        {-1, 0, 0, 0, "cost: -1 core seconds per byte, 0 more within a node"},
        {0, -2, 0, 0, "cost: 0 core seconds per byte, -2 more within a node"},
        {HUGE_VAL, 0, 0, 0, "cost: inf core seconds per byte"},
        {0, HUGE_VAL, 0, 0, "cost: 0 core seconds per byte, inf more within a node"},
        {0, 0, -3, 0, "cost: -3 core seconds per message"},
        {0, 0, HUGE_VAL, 0, "cost: inf core seconds per message"},
        {0, 0, 0, 17, "cost: unknown gather 17"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        lt_cost_plan p = plan_of(LT_COST_FLAT);
        lt_cost_cluster c = machines;
        lt_cost_result r;
        p.gather = (lt_cost_gather)rows[i].gather;
        c.copy = rows[i].copy;
        c.carry = rows[i].carry;
        c.wake = rows[i].wake;
        assert_fails(lt_cost_simulate(&r, &p, &c, NULL, 0, 0), LT_E_ARG, rows[i].message);
    }
}

/* 2 x 3 ranks with shards of 2 of 12 floats: 8 bytes to the rank of the other node, by a card of three ranks; then both
 * shards to the two other ranks of the node. */
static void check_two_level_gather(void **state)
{
    const lt_cost_cluster c = {.nodes = 2,
                               .per_node = 3,
                               .within = {.latency = 1, .message = 16, .bandwidth = 0.5},
                               .between = {.latency = 1000, .message = 10000, .bandwidth = 0.01}};
    (void)state;
    const lt_cost_stage s = lt_cost_two_level_gather_stage(&c, 12, 4, 1);
    assert_near(s.bytes.between, 8, 0);
    assert_near(s.bytes.within, 32, 0);
    assert_near(s.messages, 1 + 2, 0);
    assert_near(s.seconds, 1000 + 3 * 10000 + 3 * 8 / 0.01 + 1 + 2 * 16 + 32 / 0.5, 1e-9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"bytes equal the communicators' counters", check_counters, 0, 0, 0},
        {"bytes equal the published fractions", check_shares, 0, 0, 0},
        {"bytes of a step through a node's card", check_cards, 0, 0, 0},
        {"bytes of sparse messages and their break-even density", check_sparse, 0, 0, 0},
        {"seconds of equal buckets equal the closed form", check_closed_forms, 0, 0, 0},
        {"an all-gather in two levels, by hand", check_two_level_gather, 0, 0, 0},
        {"seconds of ResNet-50 equal those computed by hand", check_by_hand, 0, 0, 0},
        {"seconds respect bounds, and faster links are not slower", check_properties, 0, 0, 0},
        {"values out of range are rejected", check_bad, 0, 0, 0},
        {"reducers are found by name", check_reducers, 0, 0, 0},
        {"invalid schemes are rejected", check_schemes, 0, 0, 0},
        {"limits of plans and clusters are exact", check_limits, 0, 0, 0},
        {"a link that is named has its own numbers", check_links, 0, 0, 0},
        {"core seconds and gathers out of range are named", check_core_seconds, 0, 0, 0},
    };
    return cmocka_run_group_tests_name("cost", tests, NULL, NULL);
}
