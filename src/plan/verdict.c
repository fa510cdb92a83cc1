/* Whether a mesh pays at all, from what it moves: no machine is better for what moves more over the same links. Where it fits into memory, data parallelism is the measure of a mesh, as the publications of grids compare
 * them with one another only. */

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

/* What copies of the model, or of a part of it, receive to have the same gradients. */
static double between_copies(double copies, double weights)
{
    return 2 * (copies - 1) / copies * weights;
}

lt_status lt_plan_mesh_verdict(lt_cost_verdict *out, const lt_mesh_config *mesh, double tokens,
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
    lt_cost_verdict v = {.value = tokens, .bound = bound > 0 ? bound : 0};
    v.pays = moved + gradients < whole;
    snprintf(
        v.why, sizeof v.why,
        "a rank receives %.4g numbers for a layer, with data parallelism over %.0f ranks %.4g: "
        "%dx%dx%d pays below %.0f tokens of a copy (%.3g times the width), and there are %.0f",
        moved + gradients, ranks, whole, rows, columns, depth, v.bound, v.bound / hidden, tokens);
    *out = v;
    return LT_OK;
}
