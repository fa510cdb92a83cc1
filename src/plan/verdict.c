/* Whether a mesh or top-k pays at all, from what they move: no machine is better for what moves more over the same
 * links. Where it fits into memory, data parallelism is the measure of a mesh, as the publications of grids compare
 * them with one another only. */

#include "lather/ext/fail.h"
#include "lather/plan.h"

#include <stdio.h>

static int one_at_least(int n)
{
    return n ? n : 1;
}

/* Elements of a layer's weights. */
static double weights_of(double hidden)
{
    return 12 * hidden * hidden;
}

/* What copies of the model, or of a part of it, receive to have the same gradients. */
static double between_copies(double copies, double weights)
{
    return 2 * (copies - 1) / copies * weights;
}

lt_status lt_plan_mesh_verdict(lt_plan_verdict *out, const lt_mesh_config *mesh, double tokens,
                               double hidden)
{
    double at_one, at_two, moved;
    LT_TRY(lt_mesh_cost_layer(&at_one, mesh, 1, hidden));
    LT_TRY(lt_mesh_cost_layer(&at_two, mesh, 2, hidden));
    LT_TRY(lt_mesh_cost_layer(&moved, mesh, tokens, hidden));
    const int rows = one_at_least(mesh->rows), columns = one_at_least(mesh->columns),
              depth = one_at_least(mesh->depth), copies = one_at_least(mesh->data);
    const double ranks = (double)copies * depth * rows * columns, weights = weights_of(hidden);
    const double gradients = between_copies(copies, weights / (rows * columns)),
                 whole = between_copies(ranks, weights);
    const double of_token = at_two - at_one, fixed = at_one - of_token + gradients;
    const double bound = of_token > 0 ? (whole - fixed) / of_token : 0;
    lt_plan_verdict v = {.value = tokens, .bound = bound > 0 ? bound : 0};
    v.pays = moved + gradients < whole;
    snprintf(
        v.why, sizeof v.why,
        "a rank receives %.4g numbers for a layer, with data parallelism over %.0f ranks %.4g: "
        "%dx%dx%d pays below %.0f tokens of a copy (%.3g times the width), and there are %.0f",
        moved + gradients, ranks, whole, rows, columns, depth, v.bound, v.bound / hidden, tokens);
    *out = v;
    return LT_OK;
}

/* Top-k's bytes of a shard over the dense ones: below 1 it sends less. */
static double ratio(const lt_cost_cluster *c, int64_t shard, double density, int element_bytes)
{
    return c->nodes * (double)lt_cost_sparse_bytes(shard, density, element_bytes)
           / (2.0 * (double)shard * element_bytes);
}

/* The least density that sends no less; bytes never fall with it. */
static double break_even(const lt_cost_cluster *c, int64_t shard, int element_bytes)
{
    int64_t less = 0, more = shard + 1; /* elements */
    while (more - less > 1) {
        const int64_t k = less + (more - less) / 2;
        if (ratio(c, shard, (double)k / (double)shard, element_bytes) < 1)
            less = k;
        else
            more = k;
    }
    return (double)more / (double)shard;
}

lt_status lt_plan_topk_verdict(lt_plan_verdict *out, const lt_cost_cluster *c, int64_t elements,
                               double density, int element_bytes)
{
    if (c->nodes < 1 || c->per_node < 1)
        return lt_fail(LT_E_ARG, "plan: %d nodes of %d ranks", c->nodes, c->per_node);
    if (!(density > 0 && density <= 1) || elements < c->per_node)
        return lt_fail(LT_E_ARG, "plan: density %g of %lld elements on %d ranks", density,
                       (long long)elements, c->per_node);
    if (element_bytes != 2 && element_bytes != 4)
        return lt_fail(LT_E_ARG, "plan: elements of %d bytes, want 2 or 4", element_bytes);
    const int64_t shard = lt_cost_chunk(elements, c->per_node, 0);
    const double share = ratio(c, shard, density, element_bytes);
    lt_plan_verdict v = {.value = density,
                         .bound = break_even(c, shard, element_bytes),
                         .pays = c->nodes > 1 && share < 1};
    snprintf(v.why, sizeof v.why,
             "top-k of density %g sends %.3g times the bytes of a dense mean between %d nodes; it "
             "pays below %.4g",
             density, share, c->nodes, v.bound);
    *out = v;
    return LT_OK;
}
