/* Costs of communication by the row of its scheme, and the simulation of buckets through their stages: a tandem queue,
 * which is a longest path (Baccelli, Cohen, Olsder & Quadrat, "Synchronization and Linearity", 1992, section 1.2:
 * max-plus), so that a faster stage never makes a step slower. */

#include "dist/cost/parts.h"

#include "lather/ext/fail.h"

#include <math.h>

/* --- Bytes --- */

/* Local steps: the all-gather of a state that is sharded over the node's ranks, and, divided by the steps of a round,
 * its end: an all-reduce of a shard between nodes and an all-gather in the node. */
static lt_cost_bytes after_local_step(const lt_cost_plan *p, const lt_cost_cluster *c, int64_t d,
                                      int rank)
{
    const int64_t shard = lt_cost_chunk(d, c->per_node, rank % c->per_node);
    const double gather = (double)((c->per_node - 1) * shard * LT_COST_F32);
    return (lt_cost_bytes){.within = (p->sharded ? gather : 0) + 1.0 / p->every * gather,
                           .between =
                               1.0 / p->every * lt_cost_two_level(c, d, LT_COST_F32, rank).between};
}

lt_cost_bytes lt_cost_payload(const lt_cost_plan *p, const lt_cost_cluster *c,
                              const lt_cost_bucket *b, int rank)
{
    const lt_cost_bytes bytes = lt_cost_row_of(p)->payload(p, c, b, rank);
    lt_cost_bytes more = {0};
    if (p->scheme == LT_COST_LOCAL_STEPS)
        more = after_local_step(p, c, b->elements, rank);
    else if (p->sharded || p->scheme == LT_COST_SHARD_GRADIENTS)
        more = lt_cost_allgather(c, b->elements, LT_COST_F32, rank);
    return (lt_cost_bytes){bytes.within + more.within, bytes.between + more.between};
}

/* --- Seconds --- */

size_t lt_cost_stages(const lt_cost_plan *p, const lt_cost_cluster *c, const lt_cost_bucket *b,
                      lt_cost_stage out[LT_COST_MAX_STAGES])
{
    return lt_cost_row_of(p)->stages(p, c, b, out);
}

double lt_cost_gather_rate(const lt_cost_link *l)
{
    return l->gather > 0 ? l->gather : l->bandwidth;
}

/* All-gather of updated parameters from their owners. */
static double gather_updates(const lt_cost_cluster *c, int64_t elements)
{
    lt_cost_cluster alone = *c;
    alone.within.bandwidth = lt_cost_gather_rate(&c->within);
    alone.between.bandwidth = lt_cost_gather_rate(&c->between);
    return lt_cost_over_all(&alone, lt_cost_allgather(c, elements, LT_COST_F32, 0), LT_COST_GATHER)
        .seconds;
}

double lt_cost_after_update(const lt_cost_plan *p, const lt_cost_cluster *c, int64_t elements)
{
    double seconds = 0;
    if (p->scheme == LT_COST_LOCAL_STEPS) {
        const double shard = lt_cost_two_level(c, elements, LT_COST_F32, 0).between,
                     gather = lt_cost_in_node(c, elements, LT_COST_F32, LT_COST_GATHER).seconds;
        seconds = (lt_cost_between(c, shard, LT_COST_REDUCE).seconds + gather) / p->every
                  + (p->sharded ? gather : 0);
    } else if (p->sharded || p->scheme == LT_COST_SHARD_GRADIENTS) {
        seconds = gather_updates(c, elements);
    }
    return seconds;
}

/* --- Cores --- */

bool lt_cost_shares_cores(const lt_cost_cluster *c)
{
    return c->cores > 0 && c->cores < 2;
}

double lt_cost_work(const lt_cost_plan *p, const lt_cost_cluster *c, const lt_cost_bucket *b)
{
    lt_cost_stage stage[LT_COST_MAX_STAGES];
    const size_t stages = lt_cost_stages(p, c, b, stage);
    const lt_cost_bytes sent = lt_cost_row_of(p)->payload(p, c, b, 0);
    double computed = 0, messages = 0;
    for (size_t i = 0; i < stages; i++) {
        computed += stage[i].uses == LT_COST_COMPUTE ? stage[i].seconds : 0;
        messages += stage[i].messages;
    }
    return computed
           + 2 /* both ways */
                 * ((c->copy + c->carry) * sent.within + c->copy * sent.between
                    + c->wake * messages);
}

/* --- Simulation --- */

static bool is_link(const lt_cost_link *l)
{
    return l->latency >= 0 && l->message >= 0 && l->bandwidth > 0 && l->gather >= 0
           && isfinite(l->latency) && isfinite(l->message) && isfinite(l->gather);
}

static lt_status check_plan(const lt_cost_plan *p)
{
    if ((unsigned)p->scheme >= LT_COST_SCHEMES)
        return lt_fail(LT_E_ARG, "cost: unknown scheme %d", (int)p->scheme);
    if (p->element_bytes != 2 && p->element_bytes != 4 && p->element_bytes != 8)
        return lt_fail(LT_E_ARG, "cost: elements of %d bytes, want 2, 4 or 8", p->element_bytes);
    if (p->scheme == LT_COST_REDUCER && !p->reducer)
        return lt_fail(LT_E_ARG, "cost: a reducer without its row");
    if (p->scheme == LT_COST_REDUCER && p->reducer->check)
        LT_TRY(p->reducer->check(p->number));
    if (p->scheme == LT_COST_LOCAL_STEPS && p->every < 1)
        return lt_fail(LT_E_ARG, "cost: rounds of %d local steps, want at least 1", p->every);
    return LT_OK;
}

static lt_status check_cores(const lt_cost_cluster *c)
{
    if (!(c->copy >= 0 && isfinite(c->copy) && c->carry >= 0 && isfinite(c->carry)))
        return lt_fail(LT_E_ARG, "cost: %g core seconds per byte, %g more within a node", c->copy,
                       c->carry);
    if (!(c->wake >= 0 && isfinite(c->wake)))
        return lt_fail(LT_E_ARG, "cost: %g core seconds per message", c->wake);
    return c->cores >= 1 || (c->cores <= 0 && c->cores >= 0)
               ? LT_OK
               : lt_fail(LT_E_ARG, "cost: %g cores per rank, want 0, or 1 and more", c->cores);
}

static lt_status check(const lt_cost_plan *p, const lt_cost_cluster *c, double backward)
{
    LT_TRY(check_plan(p));
    if (c->nodes < 1 || c->per_node < 1 || c->nodes > INT32_MAX / c->per_node)
        return lt_fail(LT_E_ARG, "cost: %d nodes of %d ranks", c->nodes, c->per_node);
    if (!is_link(&c->within) || !is_link(&c->between))
        return lt_fail(LT_E_ARG, "cost: the link %s nodes has latency %g s, %g bytes/s",
                       is_link(&c->within) ? "between" : "within",
                       is_link(&c->within) ? c->between.latency : c->within.latency,
                       is_link(&c->within) ? c->between.bandwidth : c->within.bandwidth);
    if (!(c->unit >= 0 && backward >= 0 && isfinite(backward)))
        return lt_fail(LT_E_ARG, "cost: %g s of backward, %g s per unit", backward, c->unit);
    return check_cores(c);
}

/* When each stage becomes free; first use and total seconds of each link. */
typedef struct queue {
    double free[LT_COST_MAX_STAGES];
    double begin[2], used[2]; /* by link */
} queue;

static lt_status pass(queue *q, const lt_cost_plan *p, const lt_cost_cluster *c,
                      const lt_cost_bucket *b)
{
    lt_cost_stage stage[LT_COST_MAX_STAGES];
    if (b->elements < 0 || b->dense < 0 || b->dense > b->elements || b->rows < 0 || b->columns < 0
        || !(b->ready >= 0) || !isfinite(b->ready))
        return lt_fail(LT_E_ARG,
                       "cost: a bucket of %lld elements, %lld in no matrix, ready at %g s",
                       (long long)b->elements, (long long)b->dense, b->ready);
    const size_t stages = lt_cost_stages(p, c, b, stage);
    double at = b->ready;
    for (size_t s = 0; s < stages; s++) {
        at = at > q->free[s] ? at : q->free[s];
        if (stage[s].uses != LT_COST_COMPUTE) {
            const int link = stage[s].uses == LT_COST_BETWEEN;
            q->begin[link] = at < q->begin[link] ? at : q->begin[link];
            q->used[link] += stage[s].seconds;
        }
        at += stage[s].seconds;
        q->free[s] = at;
    }
    return LT_OK;
}

lt_status lt_cost_simulate(lt_cost_result *out, const lt_cost_plan *plan,
                           const lt_cost_cluster *cluster, const lt_cost_bucket *bucket,
                           size_t count, double backward)
{
    queue q = {.begin = {(double)INFINITY, (double)INFINITY}};
    int64_t elements = 0;
    double work = backward;
    LT_TRY(check(plan, cluster, backward));
    for (size_t i = 0; i < count; i++) {
        LT_TRY(pass(&q, plan, cluster, &bucket[i]));
        elements += bucket[i].elements;
        work += lt_cost_work(plan, cluster, &bucket[i]);
    }
    double last = backward;
    if (lt_cost_shares_cores(cluster) && work / cluster->cores > last)
        last = work / cluster->cores;
    for (int s = 0; s < LT_COST_MAX_STAGES; s++)
        last = q.free[s] > last ? q.free[s] : last;
    for (int k = 0; k < 2; k++)
        if (q.used[k] > 0 && q.begin[k] + q.used[k] > last)
            last = q.begin[k] + q.used[k];
    last += lt_cost_after_update(plan, cluster, elements);
    *out =
        (lt_cost_result){.step = last, .exposed = last - backward, .link = {q.used[0], q.used[1]}};
    return LT_OK;
}
