/* Reducers: means over ranks of given gradients, in buckets. */

#include "brought.h"
#include "formulas.h"

enum { STEPS = 3, ELEMENTS = 120 + 216 + 7 + 4 + 155 };

typedef double value_fn(int rank, int step, int64_t i);

/* Configuration of a test. */
typedef struct job {
    scene base;
    int ranks;
    value_fn *value; /* NULL: integers() */
    int lacking;     /* rank + 1 without a gradient of VECTOR; 0: no rank */
} job;

/* Bytes of a rank's last update. */
static struct {
    lt_reducer_bytes sent;
    uint64_t apart, on_comm;
} bytes[MOST_WORLDS];

/* Small integers, whose sums are exact in every dtype. */
static double integers(int rank, int step, int64_t i)
{
    return (double)((i * 7 + rank * 3 + step) % 8 - 3);
}

/* Numbers whose sums depend on their order. */
static double fractions(int rank, int step, int64_t i)
{
    return integers(rank, step, i) / 3 + 1e-3 * (double)(i % 107 * rank);
}

/* FILTER has no gradient on any rank. */
static lt_status update(world *w, int step)
{
    const job *j = (const job *)(const void *)w->scene;
    value_fn *value = j->value ? j->value : integers;
    double g[MOST];
    for (int k = 0; k < PARAMS; k++) {
        const bool lacks = k == FILTER || (k == VECTOR && j->lacking == w->at.rank + 1);
        for (int64_t i = 0; i < count_of(k); i++)
            g[i] = value(w->at.rank, step, start_of(k) + i);
        LT_TRY(bring(w, k, lacks ? NULL : g));
    }
    return average(w, step + 1 < STEPS);
}

static lt_status play_updates(world *w)
{
    lt_reducer_bytes before, after;
    const int r = w->at.rank;
    for (int step = 0; step < STEPS; step++) {
        lt_data_parallel_bytes_sent(w->dp, &before);
        const uint64_t comm = lt_comm_bytes(w->at.comm),
                       apart = lt_data_parallel_subgroup_bytes(w->dp);
        LT_TRY(update(w, step));
        lt_data_parallel_bytes_sent(w->dp, &after);
        bytes[r].sent =
            (lt_reducer_bytes){after.within - before.within, after.between - before.between};
        bytes[r].apart = lt_data_parallel_subgroup_bytes(w->dp) - apart;
        bytes[r].on_comm = lt_comm_bytes(w->at.comm) - comm;
    }
    return LT_OK;
}

/* Runs the updates and checks that all ranks have the same means. */
static const world *run_well(const job *j)
{
    job all = *j;
    all.base.play = play_updates;
    const world *w = play_well(&all.base, j->ranks);
    for (int r = 0; r < j->ranks; r++)
        if (memcmp(w[r].mean, w->mean, sizeof w->mean) != 0)
            fail_msg("rank %d differs from rank 0", r);
    return w;
}

/* m nodes of n ranks. */
typedef struct grid {
    int nodes, per_node;
} grid;
static const grid grids[] = {{2, 1}, {1, 2}, {2, 2}, {4, 2}, {2, 4}, {3, 2}, {2, 3}};

static job two_level_of(grid g)
{
    return (job){
        .ranks = g.nodes * g.per_node,
        .base = {.allreduce = "two-level", .bucket_bytes = 64, .ranks_per_node = g.per_node}};
}

static double two[PARAMS][MOST]; /* means of a hierarchical all-reduce */

static void two_level_equals_flat_on_integers(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(grids); i++)
        for (int kind = 0; kind < 4; kind++) {
            job j = two_level_of(grids[i]);
            j.base.f64 = kind == 1;
            j.base.dtype = kind == 2 ? LT_BF16 : kind == 3 ? LT_F16 : LT_F32;
            if (kind == 3 && (grids[i].nodes == 3 || grids[i].per_node == 3))
                continue; /* f16 rounds the mean on each level */
            memcpy(two, run_well(&j)->mean, sizeof two);
            j.base.allreduce = "flat";
            assert_memory_equal(two, run_well(&j)->mean, sizeof two);
            double expected = 0; /* control: the mean */
            for (int r = 0; r < j.ranks; r++)
                expected += integers(r, STEPS - 1, 0);
            assert_near(two[0][0], expected / j.ranks, j.base.dtype == LT_F32 ? 1e-7 : 1e-2);
        }
}

/* Rounding error: on each level at most half a unit in the last place of its sum. */
static void two_level_differs_from_flat_by_rounding(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(grids); i++) {
        job j = two_level_of(grids[i]);
        j.value = fractions;
        memcpy(two, run_well(&j)->mean, sizeof two);
        assert_memory_equal(two, run_well(&j)->mean, sizeof two);
        j.base.allreduce = "flat";
        const world *flat = run_well(&j);
        for (int k = 0; k < PARAMS; k++)
            for (int64_t e = 0; e < count_of(k); e++)
                assert_near(two[k][e], flat->mean[k][e], 8 * 0x1p-24 * 3);
    }
}

/* Ranks of a node are added first, then nodes. Control: a flat sum differs by rounding. */
static void two_level_adds_by_rank_then_by_node(void **state)
{
    (void)state;
    job j = two_level_of((grid){2, 3});
    j.value = fractions;
    memcpy(two, run_well(&j)->mean, sizeof two);
    for (int64_t i = 0; i < count_of(MATRIX); i++) {
        float node[2];
        for (int m = 0; m < 2; m++) {
            node[m] = (float)fractions(3 * m, STEPS - 1, i);
            node[m] += (float)fractions(3 * m + 1, STEPS - 1, i);
            node[m] += (float)fractions(3 * m + 2, STEPS - 1, i);
        }
        assert_near(two[MATRIX][i], (double)((node[0] + node[1]) / 6), 0);
    }
    j.base.allreduce = "flat";
    assert_memory_not_equal(two, run_well(&j)->mean, sizeof two);
}

static void a_gradient_that_one_rank_lacks_is_shared(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(grids); i++) {
        job j = two_level_of(grids[i]);
        j.lacking = j.ranks;
        const world *w = run_well(&j);
        for (int r = 0; r < j.ranks; r++)
            for (int k = 0; k < PARAMS; k++)
                assert_int_equal(w[r].has_grad[k], k != FILTER);
        memcpy(two, w->mean, sizeof two);
        j.base.allreduce = "flat";
        assert_memory_equal(two, run_well(&j)->mean, sizeof two);
    }
}

/* One bucket of E = elements and flags: an all-reduce of E within the node, whose two halves are the reduce-scatter and
 * the all-gather; between nodes an all-reduce of this rank's shard. */
static void bytes_of_two_level_equal_the_formula(void **state)
{
    (void)state;
    const int64_t elements = ELEMENTS + PARAMS;
    for (size_t i = 0; i < COUNT_OF(grids); i++)
        for (int half = 0; half < 2; half++) {
            const grid g = grids[i];
            job j = two_level_of(g);
            j.base.bucket_bytes = 0;
            j.base.dtype = half ? LT_BF16 : LT_F32;
            run_well(&j);
            for (int r = 0; r < j.ranks; r++) {
                const int node = r / g.per_node, local = r % g.per_node;
                const int64_t size = half ? 2 : 4;
                const int64_t shard = even_chunk(elements, local, g.per_node);
                const lt_reducer_bytes sent = bytes[r].sent;
                assert_int_equal(sent.within, size * allreduce_sent(elements, local, g.per_node));
                assert_int_equal(sent.between, size * allreduce_sent(shard, node, g.nodes));
                assert_int_equal(bytes[r].apart, sent.within + sent.between);
            }
        }
}

/* In one all-reduce a rank sends the other ranks' chunks to them, and its own chunk to all. */
static void bytes_of_plain_are_split_by_nodes(void **state)
{
    (void)state;
    const int64_t elements = ELEMENTS + PARAMS;
    for (size_t i = 0; i < COUNT_OF(grids); i++) {
        const int n = grids[i].per_node, ranks = grids[i].nodes * n;
        run_well(&(job){.ranks = ranks, .base.ranks_per_node = n});
        for (int r = 0; r < ranks; r++) {
            int64_t within = 0, between = 0;
            for (int s = 0; s < ranks; s++)
                if (s != r)
                    *(s / n == r / n ? &within : &between) +=
                        4 * (even_chunk(elements, r, ranks) + even_chunk(elements, s, ranks));
            assert_int_equal(bytes[r].sent.within, within);
            assert_int_equal(bytes[r].sent.between, between);
            assert_int_equal(bytes[r].on_comm, within + between);
            assert_int_equal(bytes[r].apart, 0);
        }
    }
}

static void auto_is_two_level_where_it_saves_bytes(void **state)
{
    (void)state;
    static const struct {
        job j;
        bool levels;
    } rows[] = {
        {{.ranks = 4, .base.ranks_per_node = 2}, true},
        {{.ranks = 4, .base.ranks_per_node = 4}, false},
        {{.ranks = 4, .base.ranks_per_node = 1}, false},
        {{.ranks = 4}, false},
        {{.ranks = 3, .base.of_node = "001"}, false},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        job j = rows[i].j;
        j.base.allreduce = "auto";
        run_well(&j);
        assert_int_equal(bytes[0].apart > 0, rows[i].levels);
    }
}

static void rejects(scene s, int ranks, const char *words)
{
    s.play = play_updates;
    const world *w = play(&s, ranks);
    for (int r = 0; r < ranks; r++) {
        assert_status(w[r].at.status, LT_E_ARG);
        if (!strstr(w[r].at.message, words))
            fail_msg("'%s', want '%s'", w[r].at.message, words);
    }
}

static void invalid_reducers_are_rejected(void **state)
{
    (void)state;
    rejects((scene){.of_node = "00111", .allreduce = "two-level"}, 5,
            "--allreduce two-level needs the same number of ranks on each node; node 0 has 2, "
            "node 1 has 3");
    rejects((scene){.of_node = "001", .compress = "topk:0.1"}, 3,
            "--compress topk needs the same number of ranks on each node; node 0 has 2, node 1 "
            "has 1");
    rejects((scene){.allreduce = "two-level"}, 2, "nodes");
    rejects((scene){.ranks_per_node = 1, .allreduce = "tree"}, 2, "'tree'");
    rejects((scene){.ranks_per_node = 1, .compress = "zip:3"}, 2, "'zip:3'");
    rejects((scene){.ranks_per_node = 1, .compress = "plain:3"}, 2, "'3'");
}

/* --- A registered reducer: broadcasts rank 0's gradients, and counts commits --- */

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
                                    .bytes = sizeof(lt_reducer),
                                    .begin = lead_begin,
                                    .finish = lead_finish,
                                    .commit = lead_commit,
                                    .sent = lead_sent};

static void a_registered_reducer_is_found_by_its_name(void **state)
{
    (void)state;
    const job j = {.ranks = 3,
                   .lacking = 1,
                   .base = {.ranks_per_node = 1, .compress = "lead", .bucket_bytes = 64}};
    memset(kept, 0, sizeof kept);
    memset(dropped, 0, sizeof dropped);
    const world *w = run_well(&j);
    for (int64_t i = 0; i < count_of(MATRIX); i++)
        assert_near(w->mean[MATRIX][i], integers(0, STEPS - 1, i), 0);
    for (int r = 0; r < j.ranks; r++) {
        assert_true(
            w[r].has_grad[VECTOR]); /* flags are averaged separately: rank 0 has no gradient */
        assert_false(w[r].has_grad[FILTER]);
        assert_int_equal(kept[r], STEPS - 1);
        assert_int_equal(dropped[r], 1);
    }
    rejects((scene){.ranks_per_node = 1, .compress = "lead:1"}, 2, "no argument");
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
}

/* The last test, as reducers remain registered. */
static void the_number_of_reducers_is_limited(void **state)
{
    static lt_reducer_ops more[16];
    static char name[COUNT_OF(more)][8];
    size_t taken = 0;
    lt_status st = LT_OK;
    (void)state;
    for (; !st && taken < COUNT_OF(more); taken++) {
        more[taken] = lead;
        more[taken].kind = name[taken];
        snprintf(name[taken], sizeof name[taken], "r%zu", taken);
        st = lt_reducer_register(&more[taken]);
    }
    assert_failed(st, LT_E_NOMEM, "reducer r11: too many reducers registered, at most 16");
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
        cmocka_unit_test(the_number_of_reducers_is_limited),
    };
    if (lt_reducer_register(&lead))
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
