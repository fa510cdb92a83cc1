/* The staggered timing. The blocks are dealt out to f phases: largest first, each to the phase with
 * the least cost so far (the first of several). Step t > start refreshes phase (t - start - 1)
 * mod f: every block once in any f steps in a row, and no phase costs more than the mean and the
 * largest block together. Graham, "Bounds on multiprocessing timing anomalies", 1969.
 *
 * Phases depend on the list of all blocks and nothing else: a run that is resumed, or divided over
 * another number of ranks, goes on as it was. */

#include "base/alloc.h"
#include "optim/shampoo/assign.h"
#include "optim/shampoo/refresh.h"

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

/* More phases than blocks would leave the last ones empty: spread over all steps instead. */
static void deal(const lt_shampoo *s, const item *items, double *load, int64_t phases)
{
    const int64_t steps = s->config.precondition_frequency;
    for (size_t i = 0; i < s->total; i++) {
        int64_t least = 0;
        for (int64_t k = 1; k < phases; k++)
            if (load[k] < load[least])
                least = k;
        load[least] += items[i].cost;
        items[i].block->phase = steps == phases ? least : least * (steps / phases);
    }
}

lt_status lt_shampoo_stagger(lt_shampoo *s)
{
    int64_t phases = s->config.precondition_frequency;
    if (phases > (int64_t)s->total)
        phases = (int64_t)s->total;
    item *items = lt_alloc(s->total, sizeof *items);
    double *load = lt_alloc((size_t)phases, sizeof *load);
    for (size_t i = 0; items && i < s->total; i++)
        items[i] = (item){&s->block[i], lt_block_root_cost(&s->block[i])};
    if (items && load) {
        qsort(items, s->total, sizeof *items, by_cost);
        deal(s, items, load, phases);
    }
    bool ok = items && load;
    lt_free(load);
    lt_free(items);
    return ok ? LT_OK : LT_E_NOMEM;
}
