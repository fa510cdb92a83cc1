/* Costs of communication by the row of its scheme, and the simulation of buckets through their stages: a tandem queue,
 * which is a longest path (Baccelli, Cohen, Olsder & Quadrat, "Synchronization and Linearity", 1992, section 1.2:
 * max-plus), so that a faster stage never makes a step slower. */

#include "dist/cost/parts.h"

#include "lather/ext/fail.h"

#include <math.h>

/* --- The library's schemes; reducers of --compress have their rows next to their code --- */

static size_t flat_stages(const lt_cost_plan *p, const lt_cost_cluster *c, const lt_cost_bucket *b,
                          int rank, lt_cost_stage out[LT_COST_MAX_STAGES])
{
    out[0] = lt_cost_all_ranks_stage(c, b->elements, p->element_bytes, LT_COST_REDUCE, rank);
    return 1;
}

static size_t shard_gradients_stages(const lt_cost_plan *p, const lt_cost_cluster *c,
                                     const lt_cost_bucket *b, int rank,
                                     lt_cost_stage out[LT_COST_MAX_STAGES])
{
    out[0] = lt_cost_all_ranks_stage(c, b->elements, p->element_bytes, LT_COST_SCATTER, rank);
    return 1;
}

static size_t two_level_stages(const lt_cost_plan *p, const lt_cost_cluster *c,
                               const lt_cost_bucket *b, int rank,
                               lt_cost_stage out[LT_COST_MAX_STAGES])
{
    out[0] = lt_cost_in_node_stage(c, b->elements, p->element_bytes, LT_COST_SCATTER, rank);
    out[1] = lt_cost_shard_allreduce_stage(c, b->elements, p->element_bytes, rank);
    out[2] = lt_cost_in_node_stage(c, b->elements, p->element_bytes, LT_COST_GATHER, rank);
    return 3;
}

static size_t local_steps_stages(const lt_cost_plan *p, const lt_cost_cluster *c,
                                 const lt_cost_bucket *b, int rank,
                                 lt_cost_stage out[LT_COST_MAX_STAGES])
{
    out[0] = lt_cost_in_node_stage(c, b->elements, p->element_bytes, LT_COST_REDUCE, rank);
    return 1;
}

const lt_cost_row *lt_cost_row_of(const lt_cost_plan *plan)
{
    static const lt_cost_row rows[LT_COST_SCHEMES] = {
        [LT_COST_FLAT] = {.name = "flat", .stages = flat_stages},
        [LT_COST_TWO_LEVEL] = {.name = "two-level", .stages = two_level_stages},
        [LT_COST_SHARD_GRADIENTS] = {.name = "shard-gradients", .stages = shard_gradients_stages},
        [LT_COST_LOCAL_STEPS] = {.name = "local-steps",
                                 .stages = local_steps_stages,
                                 .kept = 2, /* parameters at the start of the round, and momentum */
                                 .by_node = true},
    };
    return plan->scheme == LT_COST_REDUCER ? plan->reducer : &rows[plan->scheme];
}

/* --- After the update --- */

double lt_cost_gather_rate(const lt_cost_link *l)
{
    return l->gather > 0 ? l->gather : l->bandwidth;
}

/* Returns local steps' cost per step: an all-gather of the sharded state within the node and, divided by the steps
 * of a round, the outer step: an all-reduce of a shard between nodes and an all-gather in the node. */
static lt_cost_stage local_steps_sync_stage(const lt_cost_plan *p, const lt_cost_cluster *c,
                                            int64_t d, int rank)
{
    const lt_cost_stage shard = lt_cost_shard_allreduce_stage(c, d, LT_COST_F32, rank),
                        gather = lt_cost_in_node_stage(c, d, LT_COST_F32, LT_COST_GATHER, rank);
    lt_cost_stage s = {
        .seconds = (shard.seconds + gather.seconds) / p->every,
        .bytes = {1.0 / p->every * gather.bytes.within, 1.0 / p->every * shard.bytes.between}};
    if (p->sharded) {
        s.seconds += gather.seconds;
        s.bytes.within += gather.bytes.within;
    }
    return s;
}

static lt_cost_stage gather_stage(const lt_cost_plan *p, const lt_cost_cluster *c, int64_t d,
                                  int rank)
{
    if (p->scheme == LT_COST_SHARD_GRADIENTS || p->gather == LT_COST_GATHER_FLAT)
        return lt_cost_all_ranks_stage(c, d, LT_COST_F32, LT_COST_GATHER, rank);
    return p->gather == LT_COST_GATHER_IN_NODE
               ? lt_cost_in_node_stage(c, d, LT_COST_F32, LT_COST_GATHER, rank)
               : lt_cost_two_level_gather_stage(c, d, LT_COST_F32, rank);
}

/* Returns the stage after an update: local steps' synchronization, or the owners' all-gather of parameters. */
static lt_cost_stage after_update_stage(const lt_cost_plan *p, const lt_cost_cluster *c, int64_t d,
                                        int rank)
{
    lt_cost_cluster alone = *c;
    if (p->scheme == LT_COST_LOCAL_STEPS)
        return local_steps_sync_stage(p, c, d, rank);
    if (!p->sharded && p->scheme != LT_COST_SHARD_GRADIENTS)
        return (lt_cost_stage){0};
    alone.within.bandwidth = lt_cost_gather_rate(&c->within);
    alone.between.bandwidth = lt_cost_gather_rate(&c->between);
    return gather_stage(p, &alone, d, rank);
}

double lt_cost_after_update(const lt_cost_plan *p, const lt_cost_cluster *c, int64_t elements)
{
    return after_update_stage(p, c, elements, 0).seconds;
}

lt_cost_bytes lt_cost_payload(const lt_cost_plan *p, const lt_cost_cluster *c,
                              const lt_cost_bucket *b, int rank)
{
    lt_cost_stage stage[LT_COST_MAX_STAGES + 1];
    const size_t stages = lt_cost_row_of(p)->stages(p, c, b, rank, stage);
    lt_cost_bytes sum = {0};
    stage[stages] = after_update_stage(p, c, b->elements, rank);
    for (size_t i = 0; i <= stages; i++) {
        sum.within += stage[i].bytes.within;
        sum.between += stage[i].bytes.between;
    }
    return sum;
}

/* --- Cores --- */

bool lt_cost_shares_cores(const lt_cost_cluster *c)
{
    return c->cores > 0 && c->cores < 2;
}

double lt_cost_work(const lt_cost_plan *p, const lt_cost_cluster *c, const lt_cost_bucket *b)
{
    lt_cost_stage stage[LT_COST_MAX_STAGES];
    const size_t stages = lt_cost_row_of(p)->stages(p, c, b, 0, stage);
    lt_cost_stage sum = {0};
    for (size_t i = 0; i < stages; i++) {
        sum.seconds += stage[i].uses == LT_COST_COMPUTE ? stage[i].seconds : 0;
        sum.messages += stage[i].messages;
        sum.bytes.within += stage[i].bytes.within;
        sum.bytes.between += stage[i].bytes.between;
    }
    return sum.seconds
           + 2 /* both ways */
                 * ((c->copy + c->carry) * sum.bytes.within + c->copy * sum.bytes.between
                    + c->wake * sum.messages);
}

/* --- Simulation --- */

static bool is_valid_link(const lt_cost_link *l)
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
    if ((unsigned)p->gather > LT_COST_GATHER_IN_NODE)
        return lt_fail(LT_E_ARG, "cost: unknown gather %d", (int)p->gather);
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

static lt_status check_arguments(const lt_cost_plan *p, const lt_cost_cluster *c, double backward)
{
    LT_TRY(check_plan(p));
    if (c->nodes < 1 || c->per_node < 1 || c->nodes > INT32_MAX / c->per_node)
        return lt_fail(LT_E_ARG, "cost: %d nodes of %d ranks", c->nodes, c->per_node);
    if (!is_valid_link(&c->within) || !is_valid_link(&c->between))
        return lt_fail(LT_E_ARG, "cost: the link %s nodes has latency %g s, %g bytes/s",
                       is_valid_link(&c->within) ? "between" : "within",
                       is_valid_link(&c->within) ? c->between.latency : c->within.latency,
                       is_valid_link(&c->within) ? c->between.bandwidth : c->within.bandwidth);
    if (!(c->unit >= 0 && backward >= 0 && isfinite(backward)))
        return lt_fail(LT_E_ARG, "cost: %g s of backward, %g s per unit", backward, c->unit);
    return check_cores(c);
}

/* State of the simulation: time when each stage becomes free; first use and total seconds of each link. */
typedef struct queue {
    double free[LT_COST_MAX_STAGES];
    double begin[2], used[2]; /* by link */
} queue;

static lt_status simulate_bucket(queue *q, const lt_cost_plan *p, const lt_cost_cluster *c,
                                 const lt_cost_bucket *b)
{
    lt_cost_stage stage[LT_COST_MAX_STAGES];
    if (b->elements < 0 || b->dense < 0 || b->dense > b->elements || b->rows < 0 || b->columns < 0
        || !(b->ready >= 0) || !isfinite(b->ready))
        return lt_fail(LT_E_ARG,
                       "cost: a bucket of %lld elements, %lld in no matrix, ready at %g s",
                       (long long)b->elements, (long long)b->dense, b->ready);
    const size_t stages = lt_cost_row_of(p)->stages(p, c, b, 0, stage);
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
    LT_TRY(check_arguments(plan, cluster, backward));
    for (size_t i = 0; i < count; i++) {
        LT_TRY(simulate_bucket(&q, plan, cluster, &bucket[i]));
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
