/* Payload of the cost model (lather/detail/comm_cost.h) compared with the reducers' byte counters. */

#include "brought.h"
#include "dist/reducer/costs.h"

#include "lather/detail/comm_cost.h"
#include "lather/local_steps.h"

static lt_status play_once(world *w)
{
    LT_TRY(bring_random(w, 0));
    return average(w, true);
}

typedef struct row {
    scene scene;
    lt_cost_plan plan;
    int64_t flags; /* elements sent in addition to the gradients */
} row;

/* One bucket; rows and columns of the matrices [out, rest] that PowerSGD compresses. */
static const lt_cost_bucket gradients = {
    .elements = 502, .rows = 12 + 6 + 31, .columns = 10 + 36 + 5, .dense = 7 + 4};

static row rows[] = {
    {{.name = "flat, f32"}, {.scheme = LT_COST_FLAT, .element_bytes = 4}, PARAMS},
    {{.name = "flat, bf16", .dtype = LT_BF16},
     {.scheme = LT_COST_FLAT, .element_bytes = 2},
     PARAMS},
    {{.name = "topk, f32", .compress = "topk:0.05"},
     {.scheme = LT_COST_REDUCER, .reducer = &lt_cost_topk, .element_bytes = 4, .number = 0.05},
     0},
    {{.name = "topk, bf16", .compress = "topk:0.05", .dtype = LT_BF16},
     {.scheme = LT_COST_REDUCER, .reducer = &lt_cost_topk, .element_bytes = 2, .number = 0.05},
     0},
    {{.name = "topk with a density at which dense is smaller", .compress = "topk:0.9"},
     {.scheme = LT_COST_REDUCER, .reducer = &lt_cost_topk, .element_bytes = 4, .number = 0.9},
     0},
    {{.name = "powersgd, f32", .compress = "powersgd:2"},
     {.scheme = LT_COST_REDUCER, .reducer = &lt_cost_powersgd, .element_bytes = 4, .number = 2},
     PARAMS},
    {{.name = "powersgd, bf16", .compress = "powersgd:3", .dtype = LT_BF16},
     {.scheme = LT_COST_REDUCER, .reducer = &lt_cost_powersgd, .element_bytes = 2, .number = 3},
     PARAMS},
};

static void is_counted(void **state)
{
    row *r = *state;
    static const int grids[][2] = {{2, 1}, {3, 1}, {1, 3}, {2, 2}, {4, 1}};
    r->scene.play = play_once;
    for (size_t i = 0; i < COUNT_OF(grids); i++) {
        const lt_cost_cluster c = {.nodes = grids[i][0], .per_node = grids[i][1]};
        lt_cost_bucket b = gradients;
        b.elements += r->flags;
        b.dense += r->flags;
        r->scene.ranks_per_node = c.per_node;
        const world *w = play_well(&r->scene, c.nodes * c.per_node);
        for (int k = 0; k < c.nodes * c.per_node; k++) {
            const lt_cost_bytes want = lt_cost_payload(&r->plan, &c, &b, k);
            assert_true((double)w[k].sent.within == want.within);
            assert_true((double)w[k].sent.between == want.between);
        }
    }
}

/* A round of two steps. */
static lt_status play_round(world *w)
{
    const lt_local_steps_config c = {.every = 2, .lr = 0.7, .momentum = 0.9};
    lt_local_steps *local = NULL;
    bool met = true;
    LT_TRY(lt_local_steps_new(&local, w->at.comm, &w->nodes, &w->params, &c));
    lt_status st = lt_local_steps_step(local, &met);
    if (!st && !met)
        st = lt_local_steps_step(local, &met);
    const lt_local_steps_bytes b = lt_local_steps_bytes_sent(local);
    w->trace[0] = (double)b.within;
    w->trace[1] = (double)b.between;
    lt_local_steps_free(&local);
    return st ? st : met ? LT_OK : lt_fail(LT_E_ARG, "the round did not end");
}

static void a_round_is_counted(void **state)
{
    (void)state;
    const lt_cost_plan plan = {.scheme = LT_COST_LOCAL_STEPS, .element_bytes = 4, .every = 2},
                       inner = {.scheme = LT_COST_TWO_LEVEL, .element_bytes = 4};
    for (int per_node = 1; per_node <= 2; per_node++) {
        const lt_cost_cluster c = {.nodes = RANKS / per_node, .per_node = per_node};
        const scene s = {.play = play_round, .ranks_per_node = per_node};
        const world *w = play_well(&s, RANKS);
        for (int k = 0; k < RANKS; k++) {
            const lt_cost_bytes all = lt_cost_payload(&plan, &c, &gradients, k);
            const double within = lt_cost_payload(&inner, &c, &gradients, k).within;
            assert_true(w[k].trace[0] == 2 * (all.within - within));
            assert_true(w[k].trace[1] == 2 * all.between);
        }
    }
}

int main(void)
{
    struct CMUnitTest tests[COUNT_OF(rows) + 1];
    static char name[COUNT_OF(rows)][TEXT];
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        snprintf(name[i], TEXT, "counters equal the formula: %s", rows[i].scene.name);
        tests[i] = (struct CMUnitTest){name[i], is_counted, NULL, NULL, &rows[i]};
    }
    tests[COUNT_OF(rows)] = (struct CMUnitTest){"counters equal the formula: local steps",
                                                a_round_is_counted, NULL, NULL, NULL};
    return cmocka_run_group_tests_name("cost counted", tests, NULL, NULL);
}
