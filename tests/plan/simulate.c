/* Messages of all ranks as events, against closed forms: two ways to the same seconds. */

#include "plan/simulate.h"

#include "full.h"
#include "near.h"
#include "plan/events.h"

#include "lather/comm_cost.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const lt_cost_cluster machines = {
    .within = {.latency = 5e-6, .message = 1e-6, .bandwidth = 130e9},
    .between = {.latency = 50e-6, .message = 2e-6, .bandwidth = 25e9 / 8},
    .select = 1e-10,
    .factor = 1e-10,
};
static const double close = 1e-9; /* relative */

/* The cost grows with the square of the ranks. */
static int most_ranks(void)
{
    return test_full() ? 1024 : 128;
}

/* --- Events --- */

typedef struct trace {
    lt_events *events;
    double at[8];
    int count;
} trace;

static void note(void *context, int id)
{
    trace *t = context;
    t->at[id] = lt_events_now(t->events);
    t->count++;
}

static void jobs_share_a_resource(void **state)
{
    (void)state;
    trace t = {0};
    assert_ok(lt_events_new(&t.events, 2, note, &t));
    lt_events_widen(t.events, 1, 2);
    /* One alone for 1 s would be done at 1; the other wants 3. Both at half the pace until 2, then 3 - 1 alone. */
    lt_events_begin(t.events,
                    &(lt_events_job){.seconds = 1, .done = 0, .there = 1, .latency = 0.5});
    lt_events_begin(t.events, &(lt_events_job){.seconds = 3, .done = 2, .there = -1});
    for (int i = 3; i < 6; i++) /* three on two cores */
        lt_events_begin(t.events,
                        &(lt_events_job){.resource = 1, .seconds = 2, .done = i, .there = -1});
    assert_ok(lt_events_run(t.events));
    assert_near(t.at[0], 2, 1e-12);
    assert_near(t.at[1], 2.5, 1e-12);
    assert_near(t.at[2], 4, 1e-12);
    for (int i = 3; i < 6; i++)
        assert_near(t.at[i], 3, 1e-12);
    assert_int_equal(t.count, 6);
    lt_events_free(&t.events);
}

static void a_pause_saves_up_what_is_then_done_at_once(void **state)
{
    (void)state;
    trace t = {0};
    assert_ok(lt_events_new(&t.events, 1, note, &t));
    lt_events_save_up(t.events, 0, 1);
    lt_events_begin(t.events, &(lt_events_job){.seconds = 3, .done = 0, .there = -1});
    assert_ok(lt_events_run(t.events));
    assert_near(t.at[0], 2, 1e-12); /* full at first */
    lt_events_tell(t.events, 2.5, 1);
    assert_ok(lt_events_run(t.events));
    lt_events_begin(t.events, &(lt_events_job){.seconds = 2, .done = 2, .there = -1});
    assert_ok(lt_events_run(t.events));
    assert_near(t.at[2], 2.5 + 2 - 0.5, 1e-12); /* half a second's */
    lt_events_free(&t.events);
}

/* --- Exchanges --- */

typedef struct exchange_row {
    const char *name;
    lt_cost_plan plan;
} exchange_row;

static exchange_row exchanges[] = {
    {"flat", {.scheme = LT_COST_FLAT, .element_bytes = 4}},
    {"flat, bf16", {.scheme = LT_COST_FLAT, .element_bytes = 2}},
    {"two-level", {.scheme = LT_COST_TWO_LEVEL, .element_bytes = 4}},
    {"shard-gradients", {.scheme = LT_COST_SHARD_GRADIENTS, .element_bytes = 4}},
    {"topk", {.scheme = LT_COST_TOPK, .element_bytes = 4, .density = 0.001}},
    {"topk, dense as it is fewer bytes",
     {.scheme = LT_COST_TOPK, .element_bytes = 4, .density = 1}},
    {"powersgd", {.scheme = LT_COST_POWERSGD, .element_bytes = 4, .rank = 4}},
    {"local-steps", {.scheme = LT_COST_LOCAL_STEPS, .element_bytes = 4, .every = 32}},
};

static lt_cost_cluster cluster_of(int ranks, int per_node)
{
    lt_cost_cluster c = machines;
    c.per_node = per_node;
    c.nodes = ranks / per_node;
    return c;
}

static double simulate(const lt_cost_plan *p, const lt_cost_cluster *c, const lt_cost_bucket *b,
                       size_t count, double backward)
{
    double seconds = -1;
    assert_ok(lt_simulate_exchange(&seconds, p, c, b, count, backward, NULL));
    return seconds;
}

/* One bucket that all ranks have cut alike. */
static void messages_take_what_the_closed_form_says(void **state)
{
    const exchange_row *row = *state;
    for (int ranks = 64; ranks <= most_ranks(); ranks *= 2) {
        const lt_cost_cluster c = cluster_of(ranks, 8);
        const lt_cost_bucket b = {.elements = 1 << 24, .rows = 4096, .columns = 8192, .ready = 0.1};
        lt_cost_plan p = row->plan;
        lt_cost_stage stage[LT_COST_MAX_STAGES];
        double want = b.ready;
        const size_t stages = lt_cost_stages(&p, &c, &b, stage);
        for (size_t i = 0; i < stages; i++)
            want += stage[i].seconds;
        const double got = simulate(&p, &c, &b, 1, 0);
        print_message("%s, %d ranks: %.9f s\n", row->name, ranks, got);
        assert_near(got / want, 1, close);
    }
}

/* A card that one rank fewer shares, and a link without its last message, are told from the right ones. */
static void a_card_counted_once_too_few_is_seen(void **state)
{
    (void)state;
    for (int ranks = 64; ranks <= 256; ranks *= 4)
        for (size_t i = 0; i < 3; i += 2) { /* flat, two-level */
            const lt_cost_cluster c = cluster_of(ranks, 8);
            const lt_cost_bucket b = {.elements = 1 << 24};
            lt_cost_result r;
            assert_ok(lt_cost_simulate(&r, &exchanges[i].plan, &c, &b, 1, 0));
            lt_cost_cluster wrong = c;
            wrong.between.bandwidth *= 8.0 / 7;
            assert_near(simulate(&exchanges[i].plan, &c, &b, 1, 0) / r.step, 1, close);
            assert_true(simulate(&exchanges[i].plan, &wrong, &b, 1, 0) < 0.95 * r.step);
            wrong = c;
            wrong.between.message *= 1 - 1.0 / ranks;
            assert_true(simulate(&exchanges[i].plan, &wrong, &b, 1, 0) < (1 - close) * r.step);
        }
}

/* What follows the update: each rank's own segment to all others; and the end of a round of local steps. */
static void gathers_behind_an_update_too(void **state)
{
    (void)state;
    enum { MOST = 1024, ELEMENTS = 1 << 24 };
    static double seconds[MOST];
    static int64_t elements[MOST];
    const lt_cost_plan divided = {.scheme = LT_COST_FLAT, .element_bytes = 4, .divided = true},
                       round = {.scheme = LT_COST_LOCAL_STEPS, .element_bytes = 4, .every = 1};
    for (int ranks = 64; ranks <= most_ranks(); ranks *= 2) {
        const lt_cost_cluster c = cluster_of(ranks, 8), apart = cluster_of(ranks, 1);
        const lt_simulated_update u = {seconds, elements, 0};
        double got;
        for (int r = 0; r < ranks; r++) {
            seconds[r] = 0.25;
            elements[r] = ELEMENTS / ranks;
        }
        assert_ok(lt_simulate_exchange(&got, &divided, &c, NULL, 0, 0.5, &u));
        assert_near(got / (0.75 + lt_cost_behind(&divided, &c, ELEMENTS)), 1, close);
        /* Owners of unequal blocks: a card of its own sends all that its owner has to all others when that is done. */
        double last = 0;
        for (int r = 0; r < ranks; r++) {
            seconds[r] = 0.25 * (1 + r % 7 / 6.0);
            elements[r] = ELEMENTS / ranks * (1 + r % 5);
            last = fmax(last, seconds[r]
                                  + (ranks - 1)
                                        * (apart.between.message
                                           + 4.0 * (double)elements[r] / apart.between.bandwidth));
        }
        assert_ok(lt_simulate_exchange(&got, &divided, &apart, NULL, 0, 0.5, &u));
        assert_near(got / (0.5 + last + apart.between.latency), 1, close);
        for (int r = 0; r < ranks; r++)
            elements[r] = ELEMENTS / ranks;
        assert_ok(lt_simulate_exchange(&got, &divided, &apart, NULL, 0, 0.5, &u));
        assert_near(got / (1 + lt_cost_behind(&divided, &apart, ELEMENTS)), 1, close);
        /* A link has a rate of its own for it, which no mean takes. */
        lt_cost_cluster twice = apart, faster = apart;
        twice.between.gather = faster.between.bandwidth = 2 * apart.between.bandwidth;
        assert_ok(lt_simulate_exchange(&got, &divided, &twice, NULL, 0, 0.5, &u));
        assert_near(got / (1 + lt_cost_behind(&divided, &twice, ELEMENTS)), 1, close);
        assert_near(lt_cost_behind(&divided, &twice, ELEMENTS)
                        / lt_cost_behind(&divided, &faster, ELEMENTS),
                    1, close);
        assert_near(lt_cost_behind(&round, &twice, ELEMENTS)
                        / lt_cost_behind(&round, &apart, ELEMENTS),
                    1, close);
        assert_ok(lt_simulate_round(&got, &c, ELEMENTS));
        assert_near(got / lt_cost_behind(&round, &c, ELEMENTS), 1, close);
    }
}

/* Cores without a spare one, and links that take no time: backward, and what all buckets compute, one after the other. With
 * links of some time no step is shorter. A spare core hides it. */
static void shared_cores_do_one_thing_after_the_other(void **state)
{
    const exchange_row *row = *state;
    enum { BUCKETS = 3, FEW = 64 };
    const int many = most_ranks();
    const double backward = 0.2, core = 3e-10;
    for (int ranks = FEW; ranks <= many; ranks *= many / FEW) {
        const size_t buckets = ranks == FEW ? BUCKETS : 1;
        lt_cost_cluster c = cluster_of(ranks, 8);
        lt_cost_bucket b[BUCKETS];
        lt_cost_result r;
        double work = 0;
        c.within = c.between = (lt_cost_link){.bandwidth = 1e300};
        c.select = c.factor = c.copy = core;
        c.carry = core / 2;
        c.wake = 1e-5;
        c.cores = 1;
        for (size_t i = 0; i < buckets; i++) {
            b[i] = (lt_cost_bucket){.elements = ((int64_t)1 + (int64_t)i) << 20,
                                    .rows = 512 << i,
                                    .columns = 2048,
                                    .ready = backward * (double)(i + 1) / (double)buckets};
            work += lt_cost_work(&row->plan, &c, &b[i]);
        }
        assert_ok(lt_cost_simulate(&r, &row->plan, &c, b, buckets, backward));
        const double got = simulate(&row->plan, &c, b, buckets, backward);
        print_message("%s, %d ranks: %.9f s, %.9f of them an exchange's\n", row->name, ranks, got,
                      work);
        assert_true(work > 1e-3);
        assert_near(r.step / (backward + work), 1, close);
        assert_near(got / (backward + work), 1, close);
        if (ranks > FEW)
            continue;
        c.cores = 2; /* as if nothing were computed but in stages */
        assert_true(simulate(&row->plan, &c, b, buckets, backward) < backward + 0.5 * work);
        assert_ok(lt_cost_simulate(&r, &row->plan, &c, b, buckets, backward));
        assert_true(r.step < backward + 0.5 * work);
        c.cores = 1;
        c.within = machines.within;
        c.between = machines.between;
        assert_true(simulate(&row->plan, &c, b, buckets, backward)
                    >= (backward + work) * (1 - close));
    }
}

/* On shared cores what messages within nodes compute is on a bucket's way: before and behind the wire, not beside it.
 * What messages to other nodes compute takes a share of the cores from the first of it, and is else hidden. */
static void copies_within_a_node_are_on_the_way(void **state)
{
    (void)state;
    enum { PER_NODE = 8, ELEMENTS = 1 << 20 };
    const lt_cost_plan plan = {.scheme = LT_COST_TWO_LEVEL, .element_bytes = 4};
    lt_cost_cluster c = cluster_of(64, PER_NODE);
    const lt_cost_bucket b = {.elements = ELEMENTS};
    c.within = (lt_cost_link){.bandwidth = 1e300};
    c.between = (lt_cost_link){.bandwidth = 1e8};
    const double wire = simulate(&plan, &c, &b, 1, 0);
    c.copy = 3e-10;
    c.carry = 2e-10;
    c.cores = 1;
    const double copies = 2 * 2 * (c.copy + c.carry) * 4 * ELEMENTS * (PER_NODE - 1) / PER_NODE,
                 sent = 2 * 2 * c.copy * 4 * ELEMENTS / PER_NODE * 7 / 8,
                 got = simulate(&plan, &c, &b, 1, 0);
    assert_true(got > (wire + copies) * (1 - close));
    assert_true(got < (wire + copies + sent) * (1 + close));
    assert_true(sent < copies / 2);
}

/* Buckets that come one after the other. In one stage: exactly as the queue says. In several, a stage's link may be
 * shared by another's: never earlier than the longest way, nor later than all after each other. */
static void buckets_follow_one_another(void **state)
{
    const exchange_row *row = *state;
    enum { BUCKETS = 5 };
    const double backward = 0.2;
    const lt_cost_cluster c = cluster_of(64, 8);
    lt_cost_bucket b[BUCKETS];
    double after = 0;
    lt_cost_result r;
    for (int i = 0; i < BUCKETS; i++) {
        lt_cost_stage stage[LT_COST_MAX_STAGES];
        b[i] = (lt_cost_bucket){.elements = (1 + i % 3) << 20,
                                .rows = 512 * (1 + i % 3),
                                .columns = 2048,
                                .ready = backward * (i + 1) / BUCKETS};
        const size_t stages = lt_cost_stages(&row->plan, &c, &b[i], stage);
        after = fmax(after, b[i].ready);
        for (size_t k = 0; k < stages; k++)
            after += stage[k].seconds;
    }
    assert_ok(lt_cost_simulate(&r, &row->plan, &c, b, BUCKETS, backward));
    const double got = simulate(&row->plan, &c, b, BUCKETS, backward),
                 behind = lt_cost_behind(&row->plan, &c, 9 << 20);
    const double queue = r.step - behind;
    print_message("%s: %.9f s, the queue says %.9f\n", row->name, got, queue);
    if (row->plan.scheme == LT_COST_FLAT || row->plan.scheme == LT_COST_SHARD_GRADIENTS
        || row->plan.scheme == LT_COST_LOCAL_STEPS)
        assert_near(got / queue, 1, close);
    assert_true(got <= after * (1 + close));
    assert_near(got / queue, 1, 0.01);
}

/* Elements that do not divide: the longest chunk is rank 0's in the closed form, at most one element more. */
static void uneven_chunks_are_near(void **state)
{
    const exchange_row *row = *state;
    const lt_cost_cluster c = cluster_of(48, 6);
    const lt_cost_bucket b = {.elements = 10000019, .rows = 4099, .columns = 8191, .dense = 17};
    lt_cost_result r;
    assert_ok(lt_cost_simulate(&r, &row->plan, &c, &b, 1, 0));
    const double got = simulate(&row->plan, &c, &b, 1, 0),
                 want = r.step - lt_cost_behind(&row->plan, &c, b.elements);
    assert_near(got / want, 1, 1e-4);
}

/* --- Products on grids --- */

static const struct {
    int q, depth;
} grids[] = {{8, 1}, {4, 4}, {8, 2}, {16, 1}, {8, 4}, {8, 8}, {16, 2}, {32, 1}, {16, 4}};

/* A rank on each node; a and w are what a block's broadcast takes, m the longer of both, l a message's latency, g a step's
 * product. The diagonal's card sends both of them in each step, but only once does anything wait for that: a rank off the
 * diagonal has its own blocks earlier, and the next step's root is one. So
 *     forward = a + w + l + (q - 1) max(g, m + l) + g. */
static double forward_by_hand(int q, double a, double w, double l, double g)
{
    return a + w + l + (q - 1) * fmax(g, fmax(a, w) + l) + g;
}

/* In a gradient one operand is broadcast in b, the other summed in s. A step follows the one before by max(b, g), or the
 * one before that by s + g, as two sums are in flight; j is how often the latter is what it waits for. */
static double gradient_by_hand(int q, double b, double s, double g)
{
    double most = 0;
    for (int j = 0; 2 * j <= q - 1; j++)
        most = fmax(most, b + (q - 1 - 2 * j) * fmax(b, g) + g + j * (s + g) + s);
    return most;
}

enum { PACES = 4 };
/* Of a step's product, in exchanges of a step: none, less than one, more, much more. */
static double pace(int i, double exchange)
{
    return 0.7 * i * exchange;
}

/* Latency is a part of each broadcast and of the last sum. Beside sums that steps wait for it is hidden in part: what a root
 * has later than others is one message of many. */
static void compare_gradient(const lt_cost_cluster *c, lt_simulated_product p, double b, double s)
{
    const double l = c->between.latency, g = p.seconds;
    const double most = gradient_by_hand(p.rows, b + l, s + l, g);
    double got;
    assert_ok(lt_simulate_product(&got, c, &p));
    assert_true(got <= most * (1 + close));
    if (!(l > 0) || s + l + g <= 2 * fmax(b + l, g))
        assert_near(got / most, 1, close);
    assert_true(got >= gradient_by_hand(p.rows, b, s, g) * (1 - close));
}

static void products_on_grids_take_what_the_closed_forms_say(void **state)
{
    (void)state;
    static const double sizes[][2] = {{1e6, 1e6}, {1e6, 3e6}, {5e6, 1e6}};
    for (size_t i = 0; i < COUNT_OF(grids); i++)
        for (size_t k = 0; k < COUNT_OF(sizes) * PACES; k++) {
            if (grids[i].q * grids[i].q * grids[i].depth > most_ranks())
                continue;
            const int q = grids[i].q;
            const double *size = sizes[k / PACES];
            lt_cost_cluster c = cluster_of(q * q * grids[i].depth, 1);
            const double a = (q - 1) * (c.between.message + size[0] / c.between.bandwidth),
                         w = (q - 1) * (c.between.message + size[1] / c.between.bandwidth);
            lt_simulated_product p = {.rows = q,
                                      .x_bytes = size[0],
                                      .w_bytes = size[1],
                                      .seconds = pace(k % PACES, fmax(a, w))};
            double got;
            assert_ok(lt_simulate_product(&got, &c, &p));
            assert_near(got / forward_by_hand(q, a, w, c.between.latency, p.seconds), 1, close);
            for (int late = 0; late < 2; late++) {
                c.between.latency = late ? 0.1 * fmin(a, w) : 0;
                p.kind = LT_PRODUCT_DX;
                compare_gradient(&c, p, w, a);
                p.kind = LT_PRODUCT_DW;
                compare_gradient(&c, p, a, w);
            }
        }
}

int main(void)
{
    enum { EXCHANGES = COUNT_OF(exchanges), KINDS = 4 };
    static const struct {
        const char *name;
        CMUnitTestFunction run;
    } kinds[KINDS] = {
        {"messages take what the closed form says", messages_take_what_the_closed_form_says},
        {"buckets follow one another", buckets_follow_one_another},
        {"uneven chunks are near", uneven_chunks_are_near},
        {"shared cores do one thing after the other", shared_cores_do_one_thing_after_the_other},
    };
    static const struct CMUnitTest own[] = {
        cmocka_unit_test(jobs_share_a_resource),
        cmocka_unit_test(copies_within_a_node_are_on_the_way),
        cmocka_unit_test(a_pause_saves_up_what_is_then_done_at_once),
        cmocka_unit_test(a_card_counted_once_too_few_is_seen),
        cmocka_unit_test(gathers_behind_an_update_too),
        cmocka_unit_test(products_on_grids_take_what_the_closed_forms_say),
    };
    static char name[EXCHANGES * KINDS][100];
    struct CMUnitTest rows[COUNT_OF(name) + COUNT_OF(own)];
    for (size_t i = 0; i < COUNT_OF(name); i++) {
        exchange_row *e = &exchanges[i % EXCHANGES];
        snprintf(name[i], sizeof name[i], "%s: %s", kinds[i / EXCHANGES].name, e->name);
        rows[i] = (struct CMUnitTest){name[i], kinds[i / EXCHANGES].run, NULL, NULL, e};
    }
    memcpy(rows + COUNT_OF(name), own, sizeof own);
    return cmocka_run_group_tests_name("simulate", rows, NULL, NULL);
}
