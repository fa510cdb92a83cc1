/* Compares a mesh with data parallelism by the elements that a rank receives: over the same links, no machine favours
 * the one that moves more. Publications on grids compare them with one another only. */

#include "lather/detail/mesh_cost.h"
#include "lather/detail/plan.h"
#include "lather/ext/fail.h"

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

/* Elements that a replica of a model, or of a shard, receives in an all-reduce. */
static double between_replicas(double replicas, double weights)
{
    return 2 * (replicas - 1) / replicas * weights;
}

lt_status lt_plan_mesh_verdict(lt_cost_verdict *out, const lt_mesh_config *mesh, double tokens,
                               double hidden)
{
    double at_one, at_two, moved;
    LT_TRY(lt_mesh_cost_layer(&at_one, mesh, 1, hidden));
    LT_TRY(lt_mesh_cost_layer(&at_two, mesh, 2, hidden));
    LT_TRY(lt_mesh_cost_layer(&moved, mesh, tokens, hidden));
    const int rows = one_at_least(mesh->rows), columns = one_at_least(mesh->columns),
              depth = one_at_least(mesh->depth), replicas = one_at_least(mesh->data);
    const double ranks = (double)replicas * depth * rows * columns, weights = weights_of(hidden);
    const double gradients = between_replicas(replicas, weights / (rows * columns)),
                 whole = between_replicas(ranks, weights);
    const double of_token = at_two - at_one, fixed = at_one - of_token + gradients;
    const double bound = of_token > 0 ? (whole - fixed) / of_token : 0;
    lt_cost_verdict v = {.value = tokens, .bound = bound > 0 ? bound : 0};
    v.pays = moved + gradients < whole;
    snprintf(
        v.why, sizeof v.why,
        "a rank receives %.4g elements per layer, with data parallelism over %.0f ranks %.4g: "
        "%dx%dx%d pays below %.0f tokens per replica (%.3g times the width), and there are %.0f",
        moved + gradients, ranks, whole, rows, columns, depth, v.bound, v.bound / hidden, tokens);
    *out = v;
    return LT_OK;
}
