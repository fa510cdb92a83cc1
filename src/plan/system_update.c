/* The optimizer's part: undivided, or dealt out to owners as lather/shard.h deals blocks. Owners are told apart by
 * two kinds of updates, as all roots are renewed in one of `frequency`: the mean of an update is
 *     ((f - 1) max over ranks of u(r) + max over ranks of (u(r) + R(r))) / f. */

#include "base/alloc.h"
#include "optim/assign.h"
#include "plan/system.h"

#include <math.h>
#include <string.h>

int lt_system_owners(const lt_system *s)
{
    if (!s->divided)
        return 1;
    return s->setup->exchange.scheme == LT_COST_LOCAL_STEPS ? s->cluster.per_node : s->setup->ranks;
}

/* Updates between roots; INFINITY: there are none. */
static double frequency_of(const lt_system *s)
{
    return s->setup->frequency ? s->setup->frequency : (double)INFINITY;
}

static double refresh_of(const lt_plan_profile *p, size_t block)
{
    return p->block_refresh ? p->block_refresh[block] : 0;
}

typedef struct deal {
    double *update, *refresh, *elements; /* by rank */
    int64_t *cost;                       /* by block */
    int *owner;
} deal;

static lt_status open_deal(deal *d, size_t blocks, int owners)
{
    const size_t n = (size_t)owners;
    *d = (deal){
        .update = lt_alloc(n, sizeof *d->update),
        .refresh = lt_alloc(n, sizeof *d->refresh),
        .elements = lt_alloc(n, sizeof *d->elements),
        .cost = lt_alloc(blocks, sizeof *d->cost),
        .owner = lt_alloc(blocks, sizeof *d->owner),
    };
    return d->update && d->refresh && d->elements && d->cost && d->owner ? LT_OK : LT_E_NOMEM;
}

static void close_deal(deal *d)
{
    lt_free(d->update);
    lt_free(d->refresh);
    lt_free(d->elements);
    lt_free(d->cost);
    lt_free(d->owner);
}

/* Whole nanoseconds, as the optimizer weighs its parts. */
static lt_status choose_owners(deal *d, const lt_system *s, int owners)
{
    const lt_plan_profile *p = s->profile;
    const double ns = 1e9;
    for (size_t i = 0; i < p->blocks; i++)
        d->cost[i] = llround(ns * (p->block_update[i] + refresh_of(p, i) / frequency_of(s)));
    LT_TRY(lt_assign(d->cost, p->blocks, owners, d->owner));
    return lt_assign_improve(d->cost, p->blocks, owners, d->owner);
}

static void add_up(deal *d, const lt_plan_profile *p, int owners)
{
    memset(d->update, 0, (size_t)owners * sizeof *d->update);
    memset(d->refresh, 0, (size_t)owners * sizeof *d->refresh);
    memset(d->elements, 0, (size_t)owners * sizeof *d->elements);
    for (size_t i = 0; i < p->blocks; i++) {
        d->update[d->owner[i]] += p->block_update[i];
        d->refresh[d->owner[i]] += refresh_of(p, i);
        d->elements[d->owner[i]] += (double)p->block_elements[i];
    }
}

static void take_slowest(double *seconds, double *share, const deal *d, int owners,
                         double frequency)
{
    double plain = 0, whole = 0, most = 0, all = 0;
    for (int r = 0; r < owners; r++) {
        plain = fmax(plain, d->update[r]);
        whole = fmax(whole, d->update[r] + d->refresh[r]);
        most = fmax(most, d->elements[r]);
        all += d->elements[r];
    }
    *seconds = plain + (whole - plain) / frequency;
    *share = all > 0 ? most / all : 1.0 / owners;
}

lt_status lt_system_update(double *seconds, double *share, const lt_system *s)
{
    const lt_plan_profile *p = s->profile;
    const int owners = lt_system_owners(s);
    deal d;
    *seconds = (p->update + p->refresh / frequency_of(s)) / owners;
    *share = 1.0 / owners;
    if (owners > 1 && p->blocks) {
        lt_status st = open_deal(&d, p->blocks, owners);
        if (!st)
            st = choose_owners(&d, s, owners);
        if (!st) {
            add_up(&d, p, owners);
            take_slowest(seconds, share, &d, owners, frequency_of(s));
        }
        close_deal(&d);
        LT_TRY(st);
    }
    *seconds *= s->slow;
    return LT_OK;
}
