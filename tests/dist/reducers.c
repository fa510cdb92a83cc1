/* Reducers: means over ranks of given gradients, in buckets. */

#include "doubles.h"
#include "formulas.h"
#include "ranks.h"

#include "lather/data_parallel.h"

enum { RANKS = 8, PARAMS = 4, STEPS = 3, ELEMENTS = 37 + 1 + 5 + 64 };
static const int64_t sizes[PARAMS] = {37, 1, 5, 64};

/* Configuration of a test. */
typedef struct job {
    int ranks, per_node;     /* per_node 0: nodes of of_node; -1: unknown nodes */
    const int *of_node;      /* [ranks] */
    bool f64, uneven_values; /* uneven_values: gradients are not integers */
    int lacking;             /* rank + 1 without a gradient of parameter 2; 0: no rank */
    bool commits; /* call lt_data_parallel_commit() after each update: applied, except the last */
    lt_data_parallel_config config;
} job;

/* A rank and its results. */
typedef struct outcome {
    test_rank at;
    const job *j;
    lt_tape *tape;
    lt_param param[PARAMS];
    lt_params params;
    lt_nodes nodes;
    lt_data_parallel *dp;
    double grad[ELEMENTS];
    bool has_grad[PARAMS];
    lt_reducer_bytes sent; /* by the last update */
    uint64_t apart, on_comm;
} outcome;

/* Small integers, whose sums are exact in every dtype. */
static double gradient(const job *j, int rank, int step, int64_t i)
{
    const double integer = (double)((i * 7 + rank * 3 + step) % 8 - 3);
    return j->uneven_values ? integer / 3 + 1e-3 * (double)(i * rank) : integer;
}

static lt_status make_nodes(outcome *r)
{
    const job *j = r->j;
    if (j->per_node > 0)
        return lt_comm_nodes(&r->nodes, r->at.comm, j->per_node);
    r->nodes = LT_NODES_ALONE;
    r->nodes.of = lt_alloc((size_t)j->ranks, sizeof *r->nodes.of);
    r->nodes.index = j->of_node ? j->of_node[r->at.rank] : 0;
    r->nodes.locals = 0;
    for (int i = 0; i < j->ranks && j->of_node; i++) {
        r->nodes.of[i] = j->of_node[i];
        r->nodes.count = j->of_node[i] + 1 > r->nodes.count ? j->of_node[i] + 1 : r->nodes.count;
        r->nodes.local += i < r->at.rank && j->of_node[i] == r->nodes.index;
        r->nodes.locals += j->of_node[i] == r->nodes.index;
    }
    r->nodes.ranks_per_node = 0;
    return LT_OK;
}

static lt_status make(outcome *r)
{
    static const char *const names[PARAMS] = {"a", "b", "c", "d"};
    lt_data_parallel_config c = r->j->config;
    for (int i = 0; i < PARAMS; i++) {
        LT_TRY(lt_param_init(&r->param[i], r->at.device, "", names[i], LT_SHAPE(sizes[i]), 0));
        LT_TRY(lt_params_add(&r->params, &r->param[i]));
    }
    LT_TRY(lt_tape_new(&r->tape, r->at.device));
    LT_TRY(make_nodes(r));
    c.nodes = r->j->per_node < 0 ? NULL : &r->nodes;
    return lt_data_parallel_new(&r->dp, r->at.comm, &r->params, r->tape, &c);
}

static lt_status update(outcome *r, int step)
{
    double value[ELEMENTS];
    int64_t at = 0;
    lt_reducer_bytes before, after;
    lt_data_parallel_sent(r->dp, &before);
    const uint64_t comm = lt_comm_bytes(r->at.comm), apart = lt_data_parallel_apart(r->dp);
    for (int i = 0; i < PARAMS; at += sizes[i++]) {
        r->param[i].has_grad = !(r->j->lacking == r->at.rank + 1 && i == 2) && i != 1;
        for (int64_t k = 0; k < sizes[i]; k++)
            value[k] = gradient(r->j, r->at.rank, step, at + k);
        LT_TRY(write_doubles(r->param[i].grad, value));
    }
    lt_data_parallel_begin(r->dp, true);
    LT_TRY(lt_data_parallel_finish(r->dp));
    if (r->j->commits)
        LT_TRY(lt_data_parallel_commit(r->dp, step + 1 < STEPS));
    lt_data_parallel_sent(r->dp, &after);
    r->sent = (lt_reducer_bytes){after.within - before.within, after.between - before.between};
    r->apart = lt_data_parallel_apart(r->dp) - apart;
    r->on_comm = lt_comm_bytes(r->at.comm) - comm;
    return LT_OK;
}

static lt_status work(void *context)
{
    outcome *r = context;
    double *to = r->grad;
    LT_TRY(make(r));
    for (int step = 0; step < STEPS; step++)
        LT_TRY(update(r, step));
    for (int i = 0; i < PARAMS; to += sizes[i++]) {
        r->has_grad[i] = r->param[i].has_grad;
        if (r->param[i].has_grad)
            LT_TRY(read_doubles(r->param[i].grad, to));
    }
    return LT_OK;
}

static void finish(void *context)
{
    outcome *r = context;
    lt_data_parallel_free(&r->dp);
    lt_nodes_clear(&r->nodes);
    lt_tape_free(&r->tape);
    lt_params_clear(&r->params);
    for (int i = 0; i < PARAMS; i++)
        lt_param_clear(&r->param[i]);
}

static rank_group run(const job *j, outcome *out)
{
    const rank_group g = {RANKS_OF(out, j->ranks),
                          .device = j->f64 ? "ref" : "cpu",
                          .f64 = j->f64,
                          .same_refusal = true,
                          .run = work,
                          .end = finish};
    memset(out, 0, (size_t)j->ranks * sizeof *out);
    for (int r = 0; r < j->ranks; r++)
        out[r].j = j;
    play_ranks(&g);
    return g;
}

static void run_well(const job *j, outcome *out)
{
    const rank_group g = run(j, out);
    expect_ranks(&g);
    for (int r = 0; r < j->ranks; r++)
        if (memcmp(out[r].grad, out->grad, sizeof out->grad) != 0)
            fail_msg("rank %d differs from rank 0", r);
}

/* m nodes of n ranks. */
typedef struct grid {
    int nodes, per_node;
} grid;
static const grid grids[] = {{2, 1}, {1, 2}, {2, 2}, {4, 2}, {2, 4}, {3, 2}, {2, 3}};

static job two_level_of(grid g)
{
    return (job){.ranks = g.nodes * g.per_node,
                 .per_node = g.per_node,
                 .config = {.allreduce = "two-level", .bucket_bytes = 64}};
}

static void two_level_equals_flat_on_integers(void **state)
{
    (void)state;
    outcome two[RANKS], flat[RANKS];
    for (size_t i = 0; i < COUNT_OF(grids); i++)
        for (int kind = 0; kind < 4; kind++) {
            job j = two_level_of(grids[i]);
            j.f64 = kind == 1;
            j.config.dtype = kind == 2 ? LT_BF16 : kind == 3 ? LT_F16 : LT_F32;
            if (kind == 3 && (grids[i].nodes == 3 || grids[i].per_node == 3))
                continue; /* f16 rounds the mean on each level */
            run_well(&j, two);
            j.config.allreduce = "flat";
            run_well(&j, flat);
            assert_memory_equal(two->grad, flat->grad, sizeof flat->grad);
            double expected = 0; /* control: the mean */
            for (int r = 0; r < j.ranks; r++)
                expected += gradient(&j, r, STEPS - 1, 0);
            assert_near(two->grad[0], expected / j.ranks, j.config.dtype == LT_F32 ? 1e-7 : 1e-2);
        }
}

/* Rounding error: on each level at most half a unit in the last place of its sum. */
static void two_level_differs_from_flat_by_rounding(void **state)
{
    (void)state;
    outcome two[RANKS], again[RANKS], flat[RANKS];
    for (size_t i = 0; i < COUNT_OF(grids); i++) {
        job j = two_level_of(grids[i]);
        j.uneven_values = true;
        run_well(&j, two);
        run_well(&j, again);
        assert_memory_equal(two->grad, again->grad, sizeof two->grad);
        j.config.allreduce = "flat";
        run_well(&j, flat);
        for (int k = 0; k < ELEMENTS; k++)
            assert_near(two->grad[k], flat->grad[k], 8 * 0x1p-24 * 3);
    }
}

/* Ranks of a node are added first, then nodes. Control: a flat sum differs by rounding. */
static void two_level_adds_by_rank_then_by_node(void **state)
{
    (void)state;
    enum { MANY = 6 };
    outcome out[MANY], flat[MANY];
    job j = two_level_of((grid){2, 3});
    j.uneven_values = true;
    run_well(&j, out);
    for (int64_t i = 0; i < 37; i++) {
        float node[2];
        for (int m = 0; m < 2; m++) {
            node[m] = (float)gradient(&j, 3 * m, STEPS - 1, i);
            node[m] += (float)gradient(&j, 3 * m + 1, STEPS - 1, i);
            node[m] += (float)gradient(&j, 3 * m + 2, STEPS - 1, i);
        }
        assert_near(out->grad[i], (double)((node[0] + node[1]) / MANY), 0);
    }
    j.config.allreduce = "flat";
    run_well(&j, flat);
    assert_memory_not_equal(out->grad, flat->grad, sizeof flat->grad);
}

static void a_gradient_that_one_rank_lacks_is_shared(void **state)
{
    (void)state;
    outcome out[RANKS], flat[RANKS];
    for (size_t i = 0; i < COUNT_OF(grids); i++) {
        job j = two_level_of(grids[i]);
        j.lacking = j.ranks;
        run_well(&j, out);
        for (int r = 0; r < j.ranks; r++) {
            assert_true(out[r].has_grad[0] && out[r].has_grad[2] && out[r].has_grad[3]);
            assert_false(out[r].has_grad[1]); /* no rank has one */
        }
        j.config.allreduce = "flat";
        run_well(&j, flat);
        assert_memory_equal(out->grad, flat->grad, sizeof flat->grad);
    }
}

/* One bucket of E = elements and flags: an all-reduce of E within the node, whose two halves are the reduce-scatter and
 * the all-gather; between nodes an all-reduce of this rank's shard. */
static void bytes_of_two_level_equal_the_formula(void **state)
{
    (void)state;
    outcome out[RANKS];
    const int64_t elements = ELEMENTS + PARAMS;
    for (size_t i = 0; i < COUNT_OF(grids); i++)
        for (int half = 0; half < 2; half++) {
            const grid g = grids[i];
            job j = two_level_of(g);
            j.config.bucket_bytes = 0;
            j.config.dtype = half ? LT_BF16 : LT_F32;
            run_well(&j, out);
            for (int r = 0; r < j.ranks; r++) {
                const int node = r / g.per_node, local = r % g.per_node;
                const int64_t size = half ? 2 : 4;
                const int64_t shard = even_chunk(elements, local, g.per_node);
                assert_int_equal(out[r].sent.within,
                                 size * allreduce_sent(elements, local, g.per_node));
                assert_int_equal(out[r].sent.between, size * allreduce_sent(shard, node, g.nodes));
                assert_int_equal(out[r].apart, out[r].sent.within + out[r].sent.between);
            }
        }
}

/* In one all-reduce a rank sends the other ranks' chunks to them, and its own chunk to all. */
static void bytes_of_plain_are_split_by_nodes(void **state)
{
    (void)state;
    outcome out[RANKS];
    const int64_t elements = ELEMENTS + PARAMS;
    for (size_t i = 0; i < COUNT_OF(grids); i++) {
        job j = two_level_of(grids[i]);
        j.config = (lt_data_parallel_config){0};
        run_well(&j, out);
        for (int r = 0; r < j.ranks; r++) {
            int64_t within = 0, between = 0;
            for (int s = 0; s < j.ranks; s++) {
                const int64_t bytes =
                    4 * (even_chunk(elements, r, j.ranks) + even_chunk(elements, s, j.ranks));
                if (s != r)
                    *(s / j.per_node == r / j.per_node ? &within : &between) += bytes;
            }
            assert_int_equal(out[r].sent.within, within);
            assert_int_equal(out[r].sent.between, between);
            assert_int_equal(out[r].on_comm, within + between);
            assert_int_equal(out[r].apart, 0);
        }
    }
}

static void auto_is_two_level_where_it_saves_bytes(void **state)
{
    (void)state;
    outcome out[RANKS];
    const struct {
        job j;
        bool levels;
    } rows[] = {
        {{.ranks = 4, .per_node = 2}, true},
        {{.ranks = 4, .per_node = 4}, false},
        {{.ranks = 4, .per_node = 1}, false},
        {{.ranks = 4, .per_node = -1}, false},
        {{.ranks = 3, .of_node = (const int[]){0, 0, 1}}, false},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        job j = rows[i].j;
        j.config.allreduce = "auto";
        run_well(&j, out);
        assert_int_equal(out->apart > 0, rows[i].levels);
    }
}

static void rejects(job j, const char *words)
{
    outcome out[RANKS];
    (void)run(&j, out);
    for (int r = 0; r < j.ranks; r++) {
        assert_status(out[r].at.status, LT_E_ARG);
        if (!strstr(out[r].at.message, words))
            fail_msg("'%s', want '%s'", out[r].at.message, words);
    }
}

static void invalid_reducers_are_rejected(void **state)
{
    (void)state;
    rejects(
        (job){.ranks = 5, .of_node = (const int[]){0, 0, 1, 1, 1}, .config.allreduce = "two-level"},
        "--allreduce two-level needs the same number of ranks on each node; node 0 has 2, node 1 has 3");
    rejects(
        (job){.ranks = 3, .of_node = (const int[]){0, 0, 1}, .config.compress = "topk:0.1"},
        "--compress topk needs the same number of ranks on each node; node 0 has 2, node 1 has 1");
    rejects((job){.ranks = 2, .per_node = -1, .config.allreduce = "two-level"}, "nodes");
    rejects((job){.ranks = 2, .per_node = 1, .config.allreduce = "tree"}, "'tree'");
    rejects((job){.ranks = 2, .per_node = 1, .config.compress = "zip:3"}, "'zip:3'");
    rejects((job){.ranks = 2, .per_node = 1, .config.compress = "plain:3"}, "'3'");
}

/* --- A registered reducer: broadcasts rank 0's gradients, and counts commits --- */

typedef struct leader {
    lt_reducer base;
    int updates, kept, dropped;
} leader;
static int kept[RANKS], dropped[RANKS];

static lt_status lead_begin(lt_reducer *self, size_t bucket)
{
    (void)self;
    (void)bucket;
    return LT_OK;
}

static lt_status lead_finish(lt_reducer *self, size_t bucket)
{
    lt_request *request = NULL;
    LT_TRY(lt_comm_broadcast_begin(self->comm, self->bucket[bucket].flat, 0, &request));
    return lt_request_wait(&request);
}

static lt_status lead_commit(lt_reducer *self, bool applied)
{
    (applied ? kept : dropped)[lt_comm_rank(self->comm)]++;
    return LT_OK;
}

static void lead_sent(const lt_reducer *self, lt_reducer_bytes *out)
{
    (void)self;
    *out = (lt_reducer_bytes){0};
}

static const lt_reducer_ops lead = {.kind = "lead",
                                    .bytes = sizeof(leader),
                                    .begin = lead_begin,
                                    .finish = lead_finish,
                                    .commit = lead_commit,
                                    .sent = lead_sent};

static void a_registered_reducer_is_found_by_its_name(void **state)
{
    (void)state;
    outcome out[RANKS];
    job j = {.ranks = 3, .per_node = 1, .lacking = 1, .commits = true};
    j.config = (lt_data_parallel_config){.compress = "lead", .bucket_bytes = 64};
    memset(kept, 0, sizeof kept);
    memset(dropped, 0, sizeof dropped);
    run_well(&j, out);
    for (int64_t i = 0; i < 37; i++)
        assert_near(out->grad[i], gradient(&j, 0, STEPS - 1, i), 0);
    for (int r = 0; r < j.ranks; r++) {
        assert_true(out[r].has_grad[2]); /* flags are averaged separately: rank 0 has no gradient */
        assert_false(out[r].has_grad[1]);
        assert_int_equal(kept[r], STEPS - 1);
        assert_int_equal(dropped[r], 1);
    }
    rejects((job){.ranks = 2, .per_node = 1, .config.compress = "lead:1"}, "no argument");
}

static void names_are_unique(void **state)
{
    (void)state;
    lt_reducer_ops other = lead;
    assert_status(lt_reducer_register(&lead), LT_E_ARG);
    other.kind = "plain";
    assert_status(lt_reducer_register(&other), LT_E_ARG);
    other.kind = "a:b";
    assert_status(lt_reducer_register(&other), LT_E_ARG);
    other.kind = "whole";
    other.sent = NULL;
    assert_status(lt_reducer_register(&other), LT_E_ARG);
    assert_string_equal(lt_reducer_registered(0), "lead");
    assert_null(lt_reducer_registered(1));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_level_equals_flat_on_integers),
        cmocka_unit_test(two_level_differs_from_flat_by_rounding),
        cmocka_unit_test(two_level_adds_by_rank_then_by_node),
        cmocka_unit_test(a_gradient_that_one_rank_lacks_is_shared),
        cmocka_unit_test(bytes_of_two_level_equal_the_formula),
        cmocka_unit_test(bytes_of_plain_are_split_by_nodes),
        cmocka_unit_test(auto_is_two_level_where_it_saves_bytes),
        cmocka_unit_test(invalid_reducers_are_rejected),
        cmocka_unit_test(a_registered_reducer_is_found_by_its_name),
        cmocka_unit_test(names_are_unique),
    };
    if (lt_reducer_register(&lead))
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
