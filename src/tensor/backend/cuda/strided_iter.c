/* Iterator over several strided views: order and merging of dimensions. */

#include "strided_iter.h"

#include <string.h>

void lt_view_set_dense_strides(lt_view *v)
{
    const int64_t *d = v->shape.dim;
    if (v->shape.ndim == 4) {
        v->stride[0] = d[1] * d[2] * d[3];
        v->stride[1] = 1;
        v->stride[2] = d[3] * d[1];
        v->stride[3] = d[1];
        return;
    }
    int64_t step = 1;
    for (int i = v->shape.ndim - 1; i >= 0; i--) {
        v->stride[i] = step;
        step *= d[i];
    }
}

/* Copies dimension `from` of the views to dimension `to` of the iterator. */
static void copy_dim(lt_iter *w, int to, const lt_view *const *view, int from)
{
    w->dim[to] = view[0]->shape.dim[from];
    for (int k = 0; k < w->operands; k++)
        w->stride[k][to] = view[k]->stride[from];
}

static bool can_merge_dims(const lt_iter *w, int outer, int inner)
{
    for (int k = 0; k < w->operands; k++)
        if (w->stride[k][outer] != w->stride[k][inner] * w->dim[inner])
            return false;
    return true;
}

static void merge_dims(lt_iter *w)
{
    int last = 0;
    for (int d = 1; d < w->ndim; d++) {
        const int64_t size = w->dim[last];
        if (can_merge_dims(w, last, d))
            w->dim[last] = size * w->dim[d];
        else
            w->dim[++last] = w->dim[d];
        for (int k = 0; k < w->operands; k++)
            w->stride[k][last] = w->stride[k][d];
    }
    w->ndim = w->ndim ? last + 1 : 0;
}

void lt_iter_sort_dims(const lt_view *first, int order[LT_MAX_DIMS])
{
    for (int d = 0; d < LT_MAX_DIMS; d++)
        order[d] = d;
    for (int i = 1; i < first->shape.ndim; i++)
        for (int j = i; j > 0 && first->stride[order[j - 1]] < first->stride[order[j]]; j--) {
            const int other = order[j];
            order[j] = order[j - 1];
            order[j - 1] = other;
        }
}

void lt_iter_given_order(lt_iter *w, const lt_view *const *view, int operands,
                         const int order[LT_MAX_DIMS])
{
    memset(w, 0, sizeof *w);
    w->operands = operands;
    w->count = lt_shape_count(view[0]->shape);
    for (int i = 0; i < view[0]->shape.ndim; i++)
        if (view[0]->shape.dim[order[i]] != 1)
            copy_dim(w, w->ndim++, view, order[i]);
    merge_dims(w);
}

void lt_iter_memory_order(lt_iter *iter, const lt_view *const *view, int operands)
{
    int order[LT_MAX_DIMS];
    lt_iter_sort_dims(view[0], order);
    lt_iter_given_order(iter, view, operands, order);
}

void lt_iter_logical_order(lt_iter *iter, const lt_view *const *view, int operands)
{
    int order[LT_MAX_DIMS];
    for (int d = 0; d < LT_MAX_DIMS; d++)
        order[d] = d;
    lt_iter_given_order(iter, view, operands, order);
}

bool lt_iter_has_aligned_fours(const lt_iter *w)
{
    const int last = w->ndim - 1;
    if (w->ndim > 1 && w->dim[last] % 4 != 0)
        return false;
    for (int k = 0; k < w->operands && w->ndim > 0; k++) {
        if (w->stride[k][last] != 1)
            return false;
        for (int d = 0; d < last; d++)
            if (w->stride[k][d] % 4 != 0)
                return false;
    }
    return true;
}

bool lt_iter_is_dense(const lt_iter *iter)
{
    for (int k = 0; k < iter->operands && iter->ndim > 0; k++)
        if (iter->ndim > 1 || iter->stride[k][0] != 1)
            return false;
    return true;
}

/* --- Partition of sums over some dimensions --- */

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

static void choose_chunks(lt_reduction *plan)
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
    lt_iter_memory_order(&plan->out, outputs,
                         2); /* in the order of x, which is most of the traffic */
    lt_iter_memory_order(&plan->in, elements, 1);
    plan->columns = smallest_stride(x, y, false) < smallest_stride(x, y, true);
    choose_chunks(plan);
}
