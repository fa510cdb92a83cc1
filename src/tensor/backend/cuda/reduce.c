/* The cut of sums over some dimensions. */

#include "reduce.h"

static bool is_summed(const lt_view *x, const lt_view *y, int d)
{
    return y->shape.dim[d] == 1 && x->shape.dim[d] != 1;
}

static int64_t smallest_stride(const lt_view *x, const lt_view *y, bool summed)
{
    int64_t least = INT64_MAX;
    for (int d = 0; d < x->shape.ndim; d++)
        if (x->shape.dim[d] != 1 && is_summed(x, y, d) == summed && x->stride[d] < least)
            least = x->stride[d];
    return least;
}

static void cut(lt_reduction *plan)
{
    enum { BLOCKS = 512, SHORTEST = 2048 };
    const int64_t all = plan->in.count, outputs = plan->out.count;
    const int64_t groups = plan->columns ? (outputs + LT_COLUMNS - 1) / LT_COLUMNS : outputs;
    const int64_t shortest = plan->columns ? SHORTEST / LT_COLUMNS : SHORTEST;
    int64_t chunks = BLOCKS / groups, most = (all + shortest - 1) / shortest;
    chunks = chunks < most ? chunks : most;
    chunks = chunks > 1 ? chunks : 1;
    plan->length = (all + chunks - 1) / chunks;
    plan->chunks = (all + plan->length - 1) / plan->length;
}

void lt_reduction_plan(lt_reduction *plan, const lt_view *x, const lt_view *y)
{
    lt_view kept = *x, summed = *x, to = *y;
    for (int d = 0; d < x->shape.ndim; d++)
        (is_summed(x, y, d) ? &kept : &summed)->shape.dim[d] = 1;
    const lt_view *const outputs[] = {&kept, &to}, *const elements[] = {&summed};
    to.shape = kept.shape;
    lt_walk_over(&plan->out, outputs, 2); /* in the order of x, which is most of the traffic */
    lt_walk_over(&plan->in, elements, 1);
    plan->columns = smallest_stride(x, y, false) < smallest_stride(x, y, true);
    cut(plan);
}
