/* Elementwise expressions as the parameter of one launch. */

#include "vec.h"

#include "lather/ext/fail.h"

/* Returns whether four consecutive elements can be accessed at once; operand A may be a gradient in 16 bits. */
static bool can_use_fours(const lt_view *v, int operand)
{
    enum { A = 1 };
    const bool narrow = operand == A && (v->dtype == LT_BF16 || v->dtype == LT_F16);
    return (narrow || v->dtype == LT_F32) && (uintptr_t)v->data % (narrow ? 8 : 16) == 0;
}

/* All expressions of a list use the memory order of the first one's y. */
static void fill_expression(lt_vec_expression *s, const lt_vec_job *job,
                            const int order[LT_MAX_DIMS])
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
    lt_iter_given_order(&s->iter, view, operands, order);
    s->fours = lt_iter_has_aligned_fours(&s->iter);
    for (int k = 0; k < operands; k++) {
        s->data[k] = view[k]->data;
        s->dtype[k] = view[k]->dtype;
        s->fours = s->fours && can_use_fours(view[k], k);
    }
}

static void append_list(lt_vec_batch *batch, const lt_vec_list *list)
{
    const int at = batch->lists++;
    int order[LT_MAX_DIMS];
    lt_iter_sort_dims(&list->job[0].y, order);
    batch->list[at].first = batch->expressions;
    batch->list[at].length = (int)list->count;
    batch->list[at].scratch = list->scratch;
    batch->list[at].first_block = batch->blocks;
    for (size_t i = 0; i < list->count; i++)
        fill_expression(&batch->expression[batch->expressions++], &list->job[i], order);
    const int64_t count = lt_shape_count(list->job[0].y.shape);
    batch->blocks += (int)((count + LT_VEC_BLOCK - 1) / LT_VEC_BLOCK);
}

lt_status lt_vec_fill_batch(lt_vec_batch *batch, const lt_vec_list *list, size_t count,
                            size_t *taken)
{
    size_t i = 0;
    *taken = 0;
    batch->lists = batch->expressions = batch->blocks = 0;
    for (; i < count && batch->expressions + (int)list[i].count <= LT_VEC_JOBS; i++) {
        if (list[i].count > LT_VEC_LIST_LENGTH)
            return lt_fail(LT_E_UNSUPPORTED, "cuda: a list of %zu expressions, at most %d",
                           list[i].count, LT_VEC_LIST_LENGTH);
        if (list[i].count > 0)
            append_list(batch, &list[i]);
    }
    *taken = i;
    return LT_OK;
}

static bool can_keep_in_registers(const lt_vec_expression *s, int count, const void *scratch)
{
    bool can = scratch != NULL;
    for (int k = 0; k < count; k++)
        for (int d = 0; d < 3; d++)
            can = can && (s[k].data[d] != scratch || s[k].fours);
    return can;
}

void lt_vec_hold_scratch(lt_vec_batch *batch)
{
    for (int i = 0; i < batch->lists; i++) {
        lt_vec_expression *s = &batch->expression[batch->list[i].first];
        const void *scratch = batch->list[i].scratch;
        const bool can = can_keep_in_registers(s, batch->list[i].length, scratch);
        bool made = false;
        for (int k = 0; k < batch->list[i].length && can; k++) {
            const int inputs = (s[k].data[1] == scratch ? LT_VEC_HELD_A : 0)
                               | (s[k].data[2] == scratch ? LT_VEC_HELD_B : 0);
            const bool is_made = s[k].data[0] == scratch;
            s[k].held = (uint8_t)((made ? inputs : 0) | (is_made ? LT_VEC_HELD_Y : 0)
                                  | (is_made && made ? LT_VEC_HELD_OLD : 0));
            made = made || is_made;
        }
    }
}

lt_vec_norm lt_vec_make_norm(const lt_vec_job *job, double *out, int64_t first_block)
{
    lt_vec_job of = *job;
    int order[LT_MAX_DIMS];
    of.y.data = NULL;
    lt_iter_sort_dims(&of.y, order);
    lt_vec_norm n = {.first_block = first_block, .out = out};
    fill_expression(&n.expression, &of, order);
    n.expression.fours = n.expression.fours && of.a.dtype == LT_F32;
    n.blocks = (n.expression.iter.count + LT_VEC_NORM_BLOCK - 1) / LT_VEC_NORM_BLOCK;
    return n;
}
