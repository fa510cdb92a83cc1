/* Communication of gradients between replicas, and of updates. */

#include "base/alloc.h"
#include "cost_model/parts.h"

#include <math.h>

enum { F32 = 4 };

typedef struct exchange {
    const lt_system *s;
    const lt_system_owner *owner;
    lt_cost_plan plan;
    lt_cost_cluster cluster;
    lt_cost_bucket *bucket;
    double backward;
} exchange;

/* The cluster of the ranks that hold the same shard of a model; as many groups as a node has shards use its network
 * card. */
static lt_cost_cluster cluster_of_replicas(const lt_system *s)
{
    lt_cost_cluster c = s->cluster;
    const int shards = s->mesh.rows * s->mesh.columns;
    const int in_node = c.per_node / shards > 0 ? c.per_node / shards : 1;
    const int groups = c.per_node / in_node;
    c.nodes = s->setup->ranks / shards / in_node;
    c.per_node = in_node;
    c.between.bandwidth /= groups;
    c.between.gather /= groups;
    c.between.message *= groups;
    return c;
}

static lt_status make_scaled_buckets(lt_cost_bucket **out, const lt_system *s, double backward)
{
    const lt_plan_profile *p = s->profile;
    const int shards = s->mesh.rows * s->mesh.columns;
    lt_cost_bucket *b = NULL;
    LT_TRY(LT_ALLOC(&b, p->buckets ? p->buckets : 1));
    for (size_t i = 0; i < p->buckets; i++) {
        b[i] = p->bucket[i];
        b[i].ready *= backward;
        b[i].elements = (b[i].elements + shards - 1) / shards;
        b[i].dense = b[i].dense < b[i].elements ? b[i].dense : b[i].elements;
    }
    *out = b;
    return LT_OK;
}

/* Returns seconds to send shards of parameters to owners and back, within a replica, where there are no blocks. */
static double owner_exchange_seconds(const lt_system *s, const lt_cost_cluster *c)
{
    if (s->model == 1 || s->profile->blocks || !s->sharded)
        return 0;
    double elements = 0;
    for (size_t i = 0; i < s->profile->buckets; i++)
        elements += (double)s->profile->bucket[i].elements;
    const int replicas = s->setup->ranks / (s->mesh.rows * s->mesh.columns), t = s->model;
    const double bytes = 2.0 * F32 * (t - 1) / t * elements / t / replicas;
    const bool inside = s->cluster.nodes == 1 || t <= s->cluster.per_node;
    const int sharers = s->cluster.per_node;
    return inside ? bytes / c->within.bandwidth + 2 * c->within.latency
                  : sharers * bytes / s->cluster.between.bandwidth + 2 * c->between.latency;
}

/* The number of elements with which equal owners would keep a network card as busy as the busiest one is when owners
 * send their updates to all. A card sends the elements of its node to all other ranks, and receives all others for each
 * of its ranks; in two levels once for each node. In a node a rank is its own card. Unequal shards go in pieces if that
 * is faster (lather/comm.h): each once to other ranks, then equal ones to all. */
static int64_t elements_if_owners_were_equal(const exchange *x, int64_t elements)
{
    const lt_system *s = x->s;
    const bool in_node = x->plan.gather == LT_COST_GATHER_IN_NODE || x->cluster.nodes == 1;
    const int per_node = in_node ? 1 : x->cluster.per_node, owners = lt_system_owner_count(s),
              ranks = in_node ? x->cluster.per_node : x->cluster.nodes * per_node,
              copies = x->plan.gather == LT_COST_GATHER_TWO_LEVELS ? 1 : per_node,
              to = (ranks / per_node - 1) * copies;
    double all = 0, most = 0, longest = 0;
    for (int r = 0; r < ranks; r++)
        all += x->owner[r % owners].elements;
    for (int first = 0; first < ranks; first += per_node) {
        double own = 0;
        for (int r = first; r < first + per_node; r++)
            own += x->owner[r % owners].elements;
        most = fmax(most, fmax(own * to, (all - own) * copies));
        longest = fmax(longest, own);
    }
    const double share = all * per_node / ranks, even = share * to;
    most = fmin(most, longest - share + even);
    return even > 0 ? llround((double)elements * most / even) : elements;
}

/* Simulates a step's communication; in local steps owners send their updates within their node only. */
static lt_status simulate_exchange(double *seconds, const exchange *x)
{
    lt_cost_result r;
    LT_TRY(lt_cost_simulate(&r, &x->plan, &x->cluster, x->bucket, x->s->profile->buckets,
                            x->backward));
    int64_t elements = 0;
    for (size_t i = 0; i < x->s->profile->buckets; i++)
        elements += x->bucket[i].elements;
    *seconds = r.exposed;
    if (x->plan.scheme != LT_COST_LOCAL_STEPS)
        *seconds = r.exposed - lt_cost_after_update(&x->plan, &x->cluster, elements)
                   + lt_cost_after_update(&x->plan, &x->cluster,
                                          elements_if_owners_were_equal(x, elements));
    return LT_OK;
}

lt_status lt_system_exchange_seconds(double *seconds, const lt_system *s,
                                     const lt_system_owner *owner)
{
    exchange x = {.s = s,
                  .owner = owner,
                  .plan = s->setup->exchange,
                  .cluster = s->model > 1 ? cluster_of_replicas(s) : s->cluster,
                  .backward = s->profile->backward * lt_system_micro_batch_seconds(s)};
    x.plan.sharded = s->sharded;
    x.plan.element_bytes = x.plan.element_bytes ? x.plan.element_bytes : F32;
    LT_TRY(make_scaled_buckets(&x.bucket, s, x.backward));
    const lt_status st = simulate_exchange(seconds, &x); /* also checks x.plan */
    lt_free(x.bucket);
    if (!st)
        *seconds += owner_exchange_seconds(s, &x.cluster);
    return st;
}
