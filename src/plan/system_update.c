/* The optimizer's part: undivided, or dealt out to owners as lather/shard.h deals blocks. Owners are told apart by
 * two kinds of updates, as all roots are renewed in one of `frequency`: the mean of an update is
 *     ((f - 1) max over ranks of u(r) + max over ranks of (u(r) + R(r))) / f. */

#include "base/alloc.h"
#include "optim/sharding/assign.h"
#include "plan/parts.h"

#include <math.h>
#include <stdlib.h>

int lt_system_owners(const lt_system *s)
{
    if (!s->divided) /* a rank has the state of its box */
        return s->mesh.rows * s->mesh.columns;
    return s->setup->exchange.scheme == LT_COST_LOCAL_STEPS ? s->cluster.per_node : s->setup->ranks;
}

/* Updates between roots; INFINITY: there are none. */
double lt_system_frequency(const lt_system *s)
{
    return s->setup->frequency ? s->setup->frequency : (double)INFINITY;
}

static double refresh_of(const lt_plan_profile *p, size_t block)
{
    return p->block_refresh ? p->block_refresh[block] : 0;
}

typedef struct deal {
    int64_t *cost; /* by block */
    int *owner;
    double *seconds; /* of a node's owners, twice */
} deal;

/* Whole nanoseconds, as the optimizer weighs its parts. */
static lt_status choose_owners(deal *d, const lt_system *s, int owners)
{
    const lt_plan_profile *p = s->profile;
    const double ns = 1e9;
    for (size_t i = 0; i < p->blocks; i++)
        d->cost[i] = llround(ns * (p->block_update[i] + refresh_of(p, i) / lt_system_frequency(s)));
    LT_TRY(lt_assign(d->cost, p->blocks, owners, d->owner));
    return lt_assign_improve(d->cost, p->blocks, owners, d->owner);
}

static void add_up(lt_system_owner *out, const deal *d, const lt_system *s)
{
    const lt_plan_profile *p = s->profile;
    for (size_t i = 0; i < p->blocks; i++) {
        lt_system_owner *o = &out[d->owner[i]];
        o->update += p->block_update[i];
        o->refresh += refresh_of(p, i);
        o->elements += (double)p->block_elements[i];
    }
}

static int by_value(const void *x, const void *y)
{
    const double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

/* When work of so many seconds is done, one of `count` that begin together and have the cores in equal parts, one at most. */
static double finish(const double *sorted, int count, double cores, double work)
{
    double now = 0, done = 0;
    for (int i = 0; i < count && done < work; i++) {
        now += (sorted[i] - done) * fmax(1, (count - i) / cores);
        done = sorted[i];
    }
    return now;
}

/* Of a node's owners. Who has less is done sooner and leaves its core to the others. */
static void share_node(lt_system_owner *o, int count, const lt_system *s, double *plain)
{
    const double cores = s->machine->slots > 0 ? s->machine->slots : count;
    double *whole = plain + count;
    for (int i = 0; i < count; i++) {
        plain[i] = o[i].update;
        whole[i] = o[i].update + o[i].refresh;
    }
    qsort(plain, (size_t)count, sizeof *plain, by_value);
    qsort(whole, (size_t)count, sizeof *whole, by_value);
    for (int i = 0; i < count; i++) {
        const double done = finish(whole, count, cores, o[i].update + o[i].refresh);
        o[i].update = finish(plain, count, cores, o[i].update);
        o[i].refresh = done - o[i].update;
    }
}

static void share_alike(lt_system_owner *out, const lt_system *s, int owners)
{
    const lt_plan_profile *p = s->profile;
    double elements = 0;
    for (size_t i = 0; i < p->buckets; i++)
        elements += (double)p->bucket[i].elements;
    for (int r = 0; r < owners; r++)
        out[r] = (lt_system_owner){.update = s->slow * p->update / owners,
                                   .refresh = s->slow * p->refresh / owners,
                                   .elements = elements / owners};
}

lt_status lt_system_deal(lt_system_owner **out, const lt_system *s)
{
    const int owners = lt_system_owners(s);
    const size_t blocks = s->profile->blocks;
    lt_system_owner *o = lt_alloc((size_t)owners, sizeof *o);
    if (!o)
        return LT_E_NOMEM;
    *out = o;
    if (!s->divided || owners == 1 || !blocks) {
        share_alike(o, s, owners);
        return LT_OK;
    }
    const int per_node = s->cluster.per_node < owners ? s->cluster.per_node : owners;
    deal d = {lt_alloc(blocks, sizeof *d.cost), lt_alloc(blocks, sizeof *d.owner),
              lt_alloc(2 * (size_t)per_node, sizeof *d.seconds)};
    const lt_status st = d.cost && d.owner && d.seconds ? choose_owners(&d, s, owners) : LT_E_NOMEM;
    if (!st)
        add_up(o, &d, s);
    for (int r = 0; !st && r < owners; r += per_node)
        share_node(o + r, per_node, s, d.seconds);
    lt_free(d.cost);
    lt_free(d.owner);
    lt_free(d.seconds);
    return st;
}

double lt_system_update(const lt_system_owner *owner, const lt_system *s, double *share)
{
    double plain = 0, whole = 0, most = 0, all = 0;
    const int owners = lt_system_owners(s);
    for (int r = 0; r < owners; r++) {
        plain = fmax(plain, owner[r].update);
        whole = fmax(whole, owner[r].update + owner[r].refresh);
        most = fmax(most, owner[r].elements);
        all += owner[r].elements;
    }
    *share = all > 0 ? most / all : 1.0 / owners;
    return plain + (whole - plain) / lt_system_frequency(s);
}
