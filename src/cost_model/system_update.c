/* The optimizer's update, alone or sharded to owners as lather/shard.h assigns blocks. All roots are refreshed in one
 * of f updates, so that with u(r) and R(r) of rank r the mean is
 *     ((f - 1) max over ranks of u(r) + max over ranks of (u(r) + R(r))) / f. */

#include "base/alloc.h"
#include "cost_model/parts.h"
#include "optim/sharding/assign.h"

#include <math.h>
#include <stdlib.h>

int lt_system_owner_count(const lt_system *s)
{
    if (!s->sharded) /* a rank has the state of its shard */
        return s->mesh.rows * s->mesh.columns;
    const lt_cost_plan *p = &s->setup->exchange;
    return p->scheme == LT_COST_LOCAL_STEPS || p->gather == LT_COST_GATHER_IN_NODE
               ? s->cluster.per_node
               : s->setup->ranks;
}

/* Returns the number of updates between root refreshes; INFINITY without refreshes. */
static double refresh_interval(const lt_system *s)
{
    return s->setup->frequency ? s->setup->frequency : (double)INFINITY;
}

/* Work memory of the assignment of blocks to owners. */
typedef struct deal {
    int64_t *cost; /* [blocks] nanoseconds */
    int *owner;
    double *seconds; /* [2 * owners of a node] workspace */
} deal;

/* Assigns blocks by their whole nanoseconds, as the optimizer does. */
static lt_status choose_owners(deal *d, const lt_system *s, int owners)
{
    const lt_plan_profile *p = s->profile;
    const double ns = 1e9;
    for (size_t i = 0; i < p->blocks; i++)
        d->cost[i] = llround(ns * (p->block[i].update + p->block[i].refresh / refresh_interval(s)));
    LT_TRY(lt_assign(d->cost, p->blocks, owners, d->owner));
    return lt_assign_improve(d->cost, p->blocks, owners, d->owner);
}

static void sum_blocks_by_owner(lt_system_owner *out, const deal *d, const lt_system *s)
{
    const lt_plan_profile *p = s->profile;
    for (size_t i = 0; i < p->blocks; i++) {
        lt_system_owner *o = &out[d->owner[i]];
        o->update += p->block[i].update;
        o->refresh += p->block[i].refresh;
        o->elements += (double)p->block[i].elements;
    }
}

/* Returns when a task of `work` seconds ends, one of `count` that start at once and share the cores equally, one core
 * at most each. */
static double task_end_time(const double *sorted, int count, double cores, double work)
{
    double now = 0, done = 0;
    for (int i = 0; i < count && done < work; i++) {
        now += (sorted[i] - done) * fmax(1, (count - i) / cores);
        done = sorted[i];
    }
    return now;
}

/* Slows owners of a node that share its cores; an owner with less work finishes first and frees its core. */
static void share_cores_of_node(lt_system_owner *o, int count, const lt_system *s, double *plain)
{
    const double cores = s->machine->slots > 0 ? s->machine->slots : count;
    double *whole = plain + count;
    for (int i = 0; i < count; i++) {
        plain[i] = o[i].update;
        whole[i] = o[i].update + o[i].refresh;
    }
    qsort(plain, (size_t)count, sizeof *plain, lt_compare_ascending);
    qsort(whole, (size_t)count, sizeof *whole, lt_compare_ascending);
    for (int i = 0; i < count; i++) {
        const double done = task_end_time(whole, count, cores, o[i].update + o[i].refresh);
        o[i].update = task_end_time(plain, count, cores, o[i].update);
        o[i].refresh = done - o[i].update;
    }
}

static void split_work_equally(lt_system_owner *out, const lt_system *s, int owners)
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

lt_status lt_system_assign_blocks(lt_system_owner **out, const lt_system *s)
{
    const int owners = lt_system_owner_count(s);
    const size_t blocks = s->profile->blocks;
    lt_system_owner *o = NULL;
    LT_TRY(LT_ALLOC(&o, owners));
    *out = o;
    if (!s->sharded || owners == 1 || !blocks) {
        split_work_equally(o, s, owners);
        return LT_OK;
    }
    const int per_node = s->cluster.per_node < owners ? s->cluster.per_node : owners;
    deal d = {lt_alloc(blocks, sizeof *d.cost), lt_alloc(blocks, sizeof *d.owner),
              lt_alloc(2 * (size_t)per_node, sizeof *d.seconds)};
    const lt_status st = d.cost && d.owner && d.seconds ? choose_owners(&d, s, owners) : LT_E_NOMEM;
    if (!st)
        sum_blocks_by_owner(o, &d, s);
    for (int r = 0; !st && r < owners; r += per_node)
        share_cores_of_node(o + r, per_node, s, d.seconds);
    lt_free(d.cost);
    lt_free(d.owner);
    lt_free(d.seconds);
    return st;
}

double lt_system_update_seconds(const lt_system_owner *owner, const lt_system *s, double *share)
{
    double plain = 0, whole = 0, most = 0, all = 0;
    const int owners = lt_system_owner_count(s);
    for (int r = 0; r < owners; r++) {
        plain = fmax(plain, owner[r].update);
        whole = fmax(whole, owner[r].update + owner[r].refresh);
        most = fmax(most, owner[r].elements);
        all += owner[r].elements;
    }
    *share = all > 0 ? most / all : 1.0 / owners;
    return plain + (whole - plain) / refresh_interval(s);
}
