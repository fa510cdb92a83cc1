/* Verdicts: meshes against data parallelism, top-k against dense all-reduce. */

#include "dist/reducer/costs.h"
#include "near.h"
#include "train/plan/planner.h"

#include "lather/detail/plan.h"

#include <math.h>
#include <string.h>

static lt_cost_verdict of_mesh(lt_mesh_config mesh, double tokens, double hidden)
{
    lt_cost_verdict v = {0};
    mesh.data = mesh.data ? mesh.data : 1;
    mesh.depth = mesh.depth ? mesh.depth : 1;
    mesh.rows = mesh.rows ? mesh.rows : 1;
    assert_ok(lt_plan_mesh_verdict(&v, &mesh, tokens, hidden));
    return v;
}

/* ViT-B has 197 tokens of 768 features; 64 ranks with an image each, as a grid of 4 x 4 x 4 or as copies. 16 h tokens
 * are the bound: 12,288, a little less than 64 images. */
static void a_grid_is_refused_for_vit_b(void **state)
{
    (void)state;
    const lt_mesh_config cube = {.depth = 4, .rows = 4, .columns = 4};
    const lt_cost_verdict v = of_mesh(cube, 64 * 197, 768);
    print_message("%s\n", v.why);
    assert_false(v.pays);
    assert_near(v.bound / 768, 16, 1e-9);
    assert_non_null(strstr(v.why, "12288"));
    assert_false(of_mesh(cube, 16 * 768, 768).pays);
    assert_true(of_mesh(cube, 16 * 768 - 1, 768).pays);
    assert_true(of_mesh(cube, 16 * 197, 768).pays); /* fewer images than ranks */
}

/* In one dimension over all 64: 8 63/64 T h = 2 63/64 12 h^2, T = 3 h. */
static void one_dimension_has_a_lower_bound(void **state)
{
    (void)state;
    const lt_cost_verdict v = of_mesh((lt_mesh_config){.columns = 64}, 5000, 512);
    assert_near(v.bound / 512, 3, 1e-9);
    assert_false(v.pays);
    assert_true(of_mesh((lt_mesh_config){.columns = 64}, 1500, 512).pays);
}

/* With several replicas of a grid the bound is where both move the same bytes: checked on both sides of it. */
static void bounds_are_where_both_move_the_same_bytes(void **state)
{
    (void)state;
    static const lt_mesh_config meshes[] = {{.data = 8, .columns = 8},
                                            {.data = 4, .rows = 4, .columns = 4},
                                            {.data = 2, .depth = 2, .rows = 2, .columns = 2}};
    /* 8 7/8 T h + 2 7/8 12 h^2 / 8 = 2 63/64 12 h^2 */
    assert_near(of_mesh(meshes[0], 1, 1024).bound / 1024,
                (2 * 63.0 / 64 * 12 - 2 * 7.0 / 8 * 12 / 8) / 7, 1e-9);
    for (size_t i = 0; i < COUNT_OF(meshes); i++) {
        const double bound = of_mesh(meshes[i], 1, 1024).bound;
        assert_true(bound > 1);
        assert_true(of_mesh(meshes[i], floor(bound * (1 - 1e-9)), 1024).pays);
        assert_false(of_mesh(meshes[i], ceil(bound * (1 + 1e-9)), 1024).pays);
    }
}

/* By bytes: what lt_cost_payload() sends, dense above the bound and sparse below it; and near the formula where places
 * are of two bytes. */
static void dense_is_chosen_from_the_break_even_on(void **state)
{
    (void)state;
    const lt_cost_bucket bucket = {.elements = 8 << 20};
    for (int nodes = 2; nodes <= 128; nodes *= 2)
        for (int e = 2; e <= 4; e += 2) {
            const lt_cost_cluster c = {.nodes = nodes, .per_node = 8};
            lt_cost_verdict v;
            assert_ok(lt_cost_topk.verdict(&v, &c, bucket.elements, 0.5, e));
            const double bound = v.bound;
            if (bound < 1.0 / 16)
                assert_near(bound / (2.0 * e / (nodes * (e + 2.0))), 1, 0.03);
            for (int side = -1; side <= 1; side += 2) {
                const double density = bound * (1 + 0.01 * side);
                if (density > 1)
                    continue;
                assert_ok(lt_cost_topk.verdict(&v, &c, bucket.elements, density, e));
                assert_int_equal(v.pays, side < 0);
                lt_cost_plan cost = {.scheme = LT_COST_REDUCER,
                                     .reducer = &lt_cost_topk,
                                     .element_bytes = e,
                                     .number = density};
                const double sent = lt_cost_payload(&cost, &c, &bucket, 0).between;
                cost.scheme = LT_COST_TWO_LEVEL;
                const double dense = lt_cost_payload(&cost, &c, &bucket, 0).between;
                assert_int_equal(sent < dense, side < 0);
            }
        }
}

/* The predicted step agrees: above the bound top-k equals two-level, below it is faster. */
static void predicted_steps_agree(void **state)
{
    (void)state;
    const lt_cost_bucket bucket = {.elements = 8 << 20, .ready = 1};
    const lt_plan_profile p = {.fixed = 0.1, .backward = 0.5, .bucket = &bucket, .buckets = 1};
    const lt_plan_machine m = {.cluster = {.nodes = 16,
                                           .per_node = 8,
                                           .within = {.bandwidth = 1e10},
                                           .between = {.bandwidth = 1e8}}};
    lt_plan_setup s = {.ranks = 128, .batch_size = 1, .exchange = {.scheme = LT_COST_TWO_LEVEL}};
    lt_plan_cost dense, sparse;
    lt_cost_verdict v;
    lt_cost_cluster c = m.cluster;
    assert_ok(lt_plan_predict(&dense, &p, &m, &s));
    s.exchange.scheme = LT_COST_REDUCER;
    s.exchange.reducer = &lt_cost_topk;
    assert_ok(lt_cost_topk.verdict(&v, &c, bucket.elements, 0.01, 4));
    s.exchange.number = 1.01 * v.bound;
    assert_ok(lt_plan_predict(&sparse, &p, &m, &s));
    assert_true(sparse.seconds == dense.seconds);
    s.exchange.number = 0.5 * v.bound;
    assert_ok(lt_plan_predict(&sparse, &p, &m, &s));
    assert_true(sparse.seconds < 0.9 * dense.seconds);
}

static void values_out_of_range_are_named(void **state)
{
    (void)state;
    const lt_cost_cluster c = {.nodes = 4, .per_node = 8}, none = {0};
    lt_cost_verdict v;
    assert_fails(lt_cost_topk.verdict(&v, &c, 100, 1.5, 4), LT_E_ARG, "density 1.5");
    assert_fails(lt_cost_topk.verdict(&v, &c, 7, 0.5, 4), LT_E_ARG, "7 elements on 8");
    assert_fails(lt_cost_topk.verdict(&v, &c, 100, 0.5, 3), LT_E_ARG, "3 bytes");
    assert_fails(lt_cost_topk.verdict(&v, &none, 100, 0.5, 4), LT_E_ARG, "0 nodes");
    assert_status(lt_plan_mesh_verdict(&v, &(lt_mesh_config){1, 1, 1, 4, false}, 0, 768), LT_E_ARG);
    assert_status(lt_plan_mesh_verdict(&v, &(lt_mesh_config){1, 1, 2, 3, false}, 9, 768), LT_E_ARG);
}

/* Losses fall as 1/sqrt(steps), and those of a lossy run as if a step were 0.8 of one. */
static void a_slowdown_is_of_the_runs_points(void **state)
{
    enum { POINTS = 8 };
    plan_point exact[POINTS], late[POINTS + 1];
    (void)state;
    for (int i = 0; i < POINTS; i++) {
        exact[i] = (plan_point){.step = i + 1, .value = pow(i + 1, -0.5)};
        late[i] = (plan_point){.step = i + 1, .value = pow(0.8 * (i + 1), -0.5)};
    }
    late[POINTS] = (plan_point){.step = POINTS, .value = 1e9}; /* not one of them */
    const plan_run lossless = {.point = exact, .points = POINTS},
                   lossy = {.point = late, .points = POINTS};
    assert_near(lt_plan_slowdown(&lossy, &lossless), 1.25, 1e-9);
    assert_near(lt_plan_slowdown(&lossless, &lossy), 1, 0);
    assert_true(isnan(lt_plan_slowdown(&lossy, &(plan_run){.points = 0})));
}

int main(void)
{
    const struct CMUnitTest rows[] = {
        cmocka_unit_test(a_grid_is_refused_for_vit_b),
        cmocka_unit_test(one_dimension_has_a_lower_bound),
        cmocka_unit_test(bounds_are_where_both_move_the_same_bytes),
        cmocka_unit_test(dense_is_chosen_from_the_break_even_on),
        cmocka_unit_test(predicted_steps_agree),
        cmocka_unit_test(values_out_of_range_are_named),
        cmocka_unit_test(a_slowdown_is_of_the_runs_points),
    };
    return cmocka_run_group_tests(rows, NULL, NULL);
}
