/* When roots are computed, and in which order. */

#include "optim/shampoo/refresh.h"

#include "base/alloc.h"
#include "base/trace.h"
#include "optim/shampoo/report.h"

/* A limit for the memory of a batch: 2^23 elements, or one matrix. */
static const int64_t batch_elements = (int64_t)1 << 23;

/* The steps in which all blocks get new roots at once. */
static bool all_are_due(const lt_shampoo *s)
{
    int64_t t = s->base.attempt, start = s->config.start_preconditioning_step;
    bool rest = s->config.refresh_timing == LT_REFRESH_REFERENCE;
    return t == start || (rest && t > start && t % s->config.precondition_frequency == 0);
}

lt_due lt_shampoo_plan(lt_shampoo *s)
{
    int64_t t = s->base.attempt, start = s->config.start_preconditioning_step;
    bool all = all_are_due(s);
    bool some = !all && t > start && s->config.refresh_timing == LT_REFRESH_STAGGERED;
    int64_t phase = some ? (t - start - 1) % s->config.precondition_frequency : -1;
    for (size_t i = 0; i < s->count; i++)
        s->block[i].due = all || s->block[i].phase == phase;
    return all ? LT_DUE_ALL : some ? LT_DUE_SOME : LT_DUE_NONE;
}

bool lt_shampoo_refreshes(const lt_shampoo *s)
{
    int64_t t = s->base.attempt, start = s->config.start_preconditioning_step;
    if (all_are_due(s))
        return true;
    if (t <= start || s->config.refresh_timing != LT_REFRESH_STAGGERED)
        return false;
    for (size_t i = 0; i < s->count; i++)
        if (s->block[i].phase == (t - start - 1) % s->config.precondition_frequency)
            return true;
    return false;
}

/* Large matrices first: a batch then holds matrices of similar size. */
static int by_size(const void *x, const void *y)
{
    const lt_root_task *a = x, *b = y;
    if (a->n != b->n)
        return a->n < b->n ? 1 : -1;
    if (a->block != b->block)
        return a->block < b->block ? -1 : 1;
    return a->dim - b->dim;
}

size_t lt_shampoo_list_tasks(lt_shampoo *s, lt_block_batch batch, lt_root_task *tasks)
{
    size_t count = 0;
    for (size_t i = batch.begin; i < batch.end; i++) {
        lt_block *b = &s->block[i];
        for (int d = 0; d < LT_MAX_DIMS && b->active && b->due; d++)
            if (b->factor[d].is_matrix)
                tasks[count++] = (lt_root_task){.block = b, .dim = d, .n = b->box.shape.dim[d]};
    }
    qsort(tasks, count, sizeof *tasks, by_size);
    return count;
}

size_t lt_shampoo_tasks_end(const lt_root_task *tasks, size_t begin, size_t count)
{
    int64_t elements = 0;
    size_t end = begin;
    for (; end < count; end++) {
        elements += tasks[end].n * tasks[end].n;
        if (elements > batch_elements && end > begin)
            break;
    }
    return end;
}

static lt_status run_all(lt_shampoo *s, lt_root_task *tasks, size_t count)
{
    for (size_t begin = 0, end; begin < count; begin = end) {
        end = lt_shampoo_tasks_end(tasks, begin, count);
        LT_TRY(lt_shampoo_run_tasks(s, tasks + begin, end - begin));
    }
    return LT_OK;
}

lt_status lt_shampoo_refresh(lt_shampoo *s, lt_block_batch batch)
{
    int64_t begin = lt_clock_nanoseconds();
    lt_root_task *tasks = lt_alloc((batch.end - batch.begin) * LT_MAX_DIMS, sizeof *tasks);
    if (!tasks)
        return LT_E_NOMEM;
    size_t count = lt_shampoo_list_tasks(s, batch, tasks);
    lt_status st = run_all(s, tasks, count);
    if (!st)
        st = lt_shampoo_apply_policy(s, tasks, count, s->base.attempt);
    lt_free(tasks);
    lt_shampoo_took(begin, &s->stats.root_seconds, "shampoo roots");
    return st;
}
