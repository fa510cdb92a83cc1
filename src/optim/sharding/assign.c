/* Assigns parts to ranks. Greedy: Graham, "Bounds on multiprocessing timing anomalies", SIAM J. Appl. Math. 17,
 * 1969, at most 4/3 of the optimum. Then a local search over moves and exchanges: Finn & Horowitz, "A linear time
 * approximation algorithm for multiprocessor scheduling", BIT 19, 1979, with exchanges added. */

#include "assign.h"

#include "base/alloc.h"

#include <stdbool.h>
#include <stdlib.h>

/* Each change reduces the sum of squared loads, so the search ends; this limits its time. */
enum { MOST_CHANGES = 512 };

typedef struct item {
    int64_t cost;
    size_t index;
} item;

static int by_cost(const void *x, const void *y)
{
    const item *a = x, *b = y;
    if (a->cost != b->cost)
        return a->cost < b->cost ? 1 : -1;
    return a->index < b->index ? -1 : a->index > b->index;
}

static int least_loaded(const int64_t *load, int ranks)
{
    int least = 0;
    for (int r = 1; r < ranks; r++)
        if (load[r] < load[least])
            least = r;
    return least;
}

lt_status lt_assign(const int64_t *cost, size_t count, int ranks, int *owner)
{
    item *items = lt_alloc(count, sizeof *items);
    int64_t *load = lt_alloc((size_t)ranks, sizeof *load);
    const bool ok = items && load;
    for (size_t i = 0; ok && i < count; i++)
        items[i] = (item){cost[i], i};
    if (ok)
        qsort(items, count, sizeof *items, by_cost);
    for (size_t i = 0; ok && i < count; i++) {
        int r = least_loaded(load, ranks);
        owner[items[i].index] = r;
        load[r] += items[i].cost;
    }
    lt_free(items);
    lt_free(load);
    return ok ? LT_OK : LT_E_NOMEM;
}

void lt_assign_compute_loads(const int64_t *cost, size_t count, int ranks, const int *owner,
                             int64_t *load)
{
    for (int r = 0; r < ranks; r++)
        load[r] = 0;
    for (size_t i = 0; i < count; i++)
        load[owner[i]] += cost[i];
}

/* Moves part `from` of the most loaded rank to rank `to`, and part `back` (if below count) the other way. */
typedef struct change {
    size_t from, back;
    int to;
    int64_t worst; /* larger of the two ranks' loads after the change */
} change;

typedef struct search {
    const int64_t *cost;
    size_t count;
    int ranks, top;
    int *owner;
    int64_t *load;
} search;

static void consider_change(const search *s, size_t from, int to, size_t back, change *best)
{
    const int64_t less = s->cost[from] - (back < s->count ? s->cost[back] : 0);
    const int64_t top = s->load[s->top] - less, other = s->load[to] + less;
    const int64_t worst = top > other ? top : other;
    if (less > 0 && worst < best->worst)
        *best = (change){from, back, to, worst};
}

static bool find_change(const search *s, change *best)
{
    *best = (change){.worst = s->load[s->top]};
    for (size_t i = 0; i < s->count; i++) {
        if (s->owner[i] != s->top)
            continue;
        for (int r = 0; r < s->ranks; r++)
            if (r != s->top)
                consider_change(s, i, r, s->count, best);
        for (size_t k = 0; k < s->count; k++)
            if (s->owner[k] != s->top)
                consider_change(s, i, s->owner[k], k, best);
    }
    return best->worst < s->load[s->top];
}

static void apply_change(search *s, const change *c)
{
    const bool exchange = c->back < s->count;
    const int64_t less = s->cost[c->from] - (exchange ? s->cost[c->back] : 0);
    s->owner[c->from] = c->to;
    if (exchange)
        s->owner[c->back] = s->top;
    s->load[s->top] -= less;
    s->load[c->to] += less;
}

static bool is_balanced(search *s)
{
    int64_t sum = 0, largest = 0;
    s->top = 0;
    for (int r = 0; r < s->ranks; r++) {
        sum += s->load[r];
        if (s->load[r] > s->load[s->top])
            s->top = r;
    }
    for (size_t i = 0; i < s->count; i++)
        largest = s->cost[i] > largest ? s->cost[i] : largest;
    const int64_t mean = sum / s->ranks;
    return s->load[s->top] <= largest || s->load[s->top] <= mean + mean / 100;
}

lt_status lt_assign_improve(const int64_t *cost, size_t count, int ranks, int *owner)
{
    search s = {cost, count, ranks, 0, owner, lt_alloc((size_t)ranks, sizeof(int64_t))};
    change c;
    if (!s.load)
        return LT_E_NOMEM;
    lt_assign_compute_loads(cost, count, ranks, owner, s.load);
    for (int i = 0; i < MOST_CHANGES && !is_balanced(&s) && find_change(&s, &c); i++)
        apply_change(&s, &c);
    lt_free(s.load);
    return LT_OK;
}

/* Returns the local elements gained by exchanging two owners. */
static int64_t exchange_gain(const int64_t *local, int ranks, const int *owner, size_t i, size_t k)
{
    const int64_t *a = local + i * (size_t)ranks, *b = local + k * (size_t)ranks;
    return a[owner[k]] + b[owner[i]] - a[owner[i]] - b[owner[k]];
}

void lt_assign_prefer_local(const int64_t *cost, const int64_t *local, size_t count, int ranks,
                            int *owner)
{
    int64_t looks =
        /* each exchange gains an element, so the search ends; this limits its time */
        (int64_t)1 << 26;
    for (bool changed = true; changed && looks > 0;) {
        changed = false;
        for (size_t i = 0; i < count; i++)
            for (size_t k = i + 1; k < count && looks-- > 0; k++) {
                if (cost[i] != cost[k] || exchange_gain(local, ranks, owner, i, k) <= 0)
                    continue;
                const int other = owner[i];
                owner[i] = owner[k];
                owner[k] = other;
                changed = true;
            }
    }
}
