/* Schedule of refreshes: the steps in which blocks get new inverse roots. */

#include "base/alloc.h"
#include "base/trace.h"
#include "optim/shampoo/assign.h"
#include "optim/shampoo/root_refresh.h"
#include "optim/shampoo/shampoo.h"
#include "tensor/tensor.h"

/* Returns true after the first refresh, of this process or of the one that wrote the checkpoint. */
static bool has_begun(const lt_shampoo *s)
{
    bool begun = s->begun;
    for (size_t i = 0; i < s->total && !begun; i++)
        begun = s->block[i].root_step || s->block[i].failures;
    return begun;
}

/* Returns true in steps in which all blocks are refreshed: at start, or in the next one if that was skipped. */
static bool all_are_due(const lt_shampoo *s)
{
    int64_t t = s->base.attempt, start = s->config.start_preconditioning_step;
    bool rest = s->config.refresh_timing == LT_REFRESH_REFERENCE;
    return t == start
           || (t > start && (!has_begun(s) || (rest && t % s->config.precondition_frequency == 0)));
}

/* Returns the phase that the staggered timing refreshes in this step, or -1. */
static int64_t due_phase(const lt_shampoo *s)
{
    const int64_t after = s->base.attempt - s->config.start_preconditioning_step;
    const bool staggered = s->config.refresh_timing == LT_REFRESH_STAGGERED;
    return staggered && after > 0 ? (after - 1) % s->config.precondition_frequency : -1;
}

static bool is_due(const lt_block *b, bool all, int64_t phase)
{
    return all || b->phase == phase;
}

lt_due lt_shampoo_mark_due_blocks(lt_shampoo *s)
{
    const bool all = all_are_due(s);
    const int64_t phase = due_phase(s);
    s->begun = s->begun || all;
    for (size_t i = 0; i < s->count; i++)
        s->block[i].due = is_due(&s->block[i], all, phase);
    return all ? LT_DUE_ALL : phase >= 0 ? LT_DUE_SOME : LT_DUE_NONE;
}

bool lt_shampoo_has_due_blocks(const lt_shampoo *s)
{
    const bool all = all_are_due(s);
    const int64_t phase = due_phase(s);
    bool any = all;
    for (size_t i = 0; i < s->count && !any; i++)
        any = is_due(&s->block[i], all, phase);
    return any;
}

static lt_status run_tasks_in_batches(lt_shampoo *s, lt_root_task *tasks, size_t count)
{
    for (size_t begin = 0, end; begin < count; begin = end) {
        end = lt_shampoo_end_of_root_batch(s->base.device, tasks, begin, count);
        LT_TRY(lt_shampoo_run_root_tasks(s, tasks + begin, end - begin));
    }
    return LT_OK;
}

lt_status lt_shampoo_refresh_roots(lt_shampoo *s, lt_block_batch batch)
{
    int64_t begin = lt_clock_nanoseconds();
    lt_root_task *tasks = NULL;
    LT_TRY(LT_ALLOC(&tasks, (batch.end - batch.begin) * LT_MAX_DIMS));
    size_t count = lt_shampoo_list_root_tasks(s, batch, tasks);
    lt_status st = run_tasks_in_batches(s, tasks, count);
    if (!st)
        st = lt_shampoo_handle_failures(s, tasks, count, s->base.attempt);
    lt_free(tasks);
    lt_shampoo_add_time(begin, &s->stats.root_seconds, "shampoo roots");
    return st;
}

/* --- Staggered timing ---
 *
 * Blocks are assigned to f phases: most expensive first, each to the phase with the least cost so far
 * (the first of several). Step t > start refreshes phase (t - start - 1) mod f. So every block is
 * refreshed once in any f consecutive steps, and no phase costs more than the mean plus the most
 * expensive block. Graham, "Bounds on multiprocessing timing anomalies", 1969.
 *
 * On a device with a stream a round of launches and the synchronization at its end cost the same for
 * any number of roots. There are therefore only as many phases as batches of device_elements: a step
 * refreshes a whole batch or nothing. Batches are at the end of their share of the f steps, as start
 * itself refreshes all.
 *
 * Phases depend only on the list of all blocks and on the kind of device: they are the same in a run
 * that is resumed, or sharded over another number of ranks. */

typedef struct item {
    lt_block *block;
    double cost;
} item;

static int by_cost(const void *x, const void *y)
{
    const item *a = x, *b = y;
    if (a->cost < b->cost || a->cost > b->cost)
        return a->cost < b->cost ? 1 : -1;
    return a->block->number < b->block->number ? -1 : 1;
}

static int64_t count_factor_elements(const lt_block *b)
{
    int64_t elements = 0;
    for (int d = 0; d < LT_MAX_DIMS; d++)
        if (b->factor[d].is_matrix)
            elements += b->region.shape.dim[d] * b->region.shape.dim[d];
    return elements;
}

/* Returns the number of phases: at most f, and at most the number of blocks. */
static int64_t count_phases(const lt_shampoo *s, int64_t batch_elements)
{
    int64_t phases = s->config.precondition_frequency, elements = 0;
    for (size_t i = 0; i < s->total; i++)
        elements += count_factor_elements(&s->block[i]);
    const int64_t batches =
        batch_elements ? (elements + batch_elements - 1) / batch_elements : phases;
    if (phases > batches)
        phases = batches > 0 ? batches : 1;
    return phases < (int64_t)s->total ? phases : (int64_t)s->total;
}

/* Assigns blocks to phases. If there are fewer phases than steps they are spread over all steps; batches come last
 * in their shares. */
static void assign_phases(const lt_shampoo *s, const item *items, double *load, int64_t phases,
                          bool batched)
{
    const int64_t share =
        phases ? s->config.precondition_frequency / phases : 0; /* there may be no blocks */
    for (size_t i = 0; i < s->total; i++) {
        int64_t least = 0;
        for (int64_t k = 1; k < phases; k++)
            if (load[k] < load[least])
                least = k;
        load[least] += items[i].cost;
        items[i].block->phase = least * share + (batched ? share - 1 : 0);
    }
}

lt_status lt_shampoo_assign_phases(lt_shampoo *s, int64_t batch_elements)
{
    const int64_t phases = count_phases(s, batch_elements);
    item *items = lt_alloc(s->total, sizeof *items);
    double *load = lt_alloc((size_t)phases, sizeof *load);
    for (size_t i = 0; items && i < s->total; i++)
        items[i] = (item){&s->block[i], lt_block_root_cost(&s->block[i])};
    if (items && load) {
        qsort(items, s->total, sizeof *items, by_cost);
        assign_phases(s, items, load, phases, batch_elements > 0);
    }
    bool ok = items && load;
    lt_free(load);
    lt_free(items);
    return ok ? LT_OK : LT_E_NOMEM;
}
