/* Elementwise expressions as a kernel's parameter. */

#include "vec.h"

#include "lather/ext/fail.h"

static bool is_aligned(const void *data)
{
    return ((uintptr_t)data & 15) == 0;
}

/* All expressions of a list go in one order: that of the first one's y in memory. */
static void take(lt_vec_expression *s, const lt_vec_job *job, const int order[LT_MAX_DIMS])
{
    const lt_view *const view[] = {&job->y, &job->a, &job->b};
    const int operands = job->b.data ? 3 : 2;
    *s = (lt_vec_expression){
        .op = job->op,
        .alpha = job->alpha,
        .beta = job->beta,
        .gamma = job->gamma,
        .delta = job->delta,
        .factor = job->factor,
    };
    lt_walk_in_order(&s->walk, view, operands, order);
    s->fours = lt_walk_has_fours(&s->walk);
    for (int k = 0; k < operands; k++) {
        s->data[k] = view[k]->data;
        s->dtype[k] = view[k]->dtype;
        s->fours = s->fours && view[k]->dtype == LT_F32 && is_aligned(view[k]->data);
    }
}

static void append(lt_vec_batch *batch, const lt_vec_list *list)
{
    const int at = batch->lists++;
    int order[LT_MAX_DIMS];
    lt_walk_order(&list->job[0].y, order);
    batch->list[at].first = batch->expressions;
    batch->list[at].length = (int)list->count;
    batch->list[at].first_block = batch->blocks;
    for (size_t i = 0; i < list->count; i++)
        take(&batch->expression[batch->expressions++], &list->job[i], order);
    const int64_t count = lt_view_count(&list->job[0].y);
    batch->blocks += (int)((count + LT_VEC_BLOCK - 1) / LT_VEC_BLOCK);
}

lt_status lt_vec_fill(lt_vec_batch *batch, const lt_vec_list *list, size_t count, size_t *taken)
{
    size_t i = 0;
    *taken = 0;
    batch->lists = batch->expressions = batch->blocks = 0;
    for (; i < count && batch->expressions + (int)list[i].count <= LT_VEC_JOBS; i++) {
        if (list[i].count > LT_VEC_LIST_LENGTH)
            return lt_fail(LT_E_UNSUPPORTED, "cuda: a list of %zu expressions, at most %d",
                           list[i].count, LT_VEC_LIST_LENGTH);
        if (list[i].count > 0)
            append(batch, &list[i]);
    }
    *taken = i;
    return LT_OK;
}
