/* Seconds of stages, and buckets that pass through them: a tandem queue, which is a longest path
 * (Baccelli, Cohen, Olsder & Quadrat, "Synchronization and Linearity", 1992, section 1.2: max-plus),
 * so that nothing that becomes faster makes the whole slower. */

#include "dist/cost/cost.h"

#include "lather/ext/fail.h"

#include <math.h>

typedef enum lt_cost_round {
    SCATTER,
    GATHER,
    REDUCE
} exchange; /* REDUCE: the one, then the other */

/* Seconds of an exchange between `ranks`, of which this one sends so many bytes, over a link that
 * `sharers` use alike. */
static double on_link(const lt_cost_link *link, int ranks, int sharers, double bytes, exchange kind)
{
    const int rounds = kind == REDUCE ? 2 : 1;
    if (ranks < 2)
        return 0;
    return rounds * (link->latency + (ranks - 1) * sharers * link->message)
           + sharers * bytes / link->bandwidth;
}

/* Messages inside the node and to others go at once: the slower link decides. */
static lt_cost_stage over_all(const lt_cost_cluster *c, lt_cost_bytes bytes, exchange kind)
{
    const int others = c->nodes > 1 ? (c->nodes - 1) * c->per_node + 1 : 1;
    const double in = on_link(&c->within, c->per_node, 1, bytes.within, kind),
                 out = on_link(&c->between, others, c->per_node, bytes.between, kind);
    return (lt_cost_stage){.uses = c->nodes > 1 ? LT_COST_BETWEEN : LT_COST_WITHIN,
                           .seconds = out > in ? out : in};
}

static lt_cost_stage in_node(const lt_cost_cluster *c, int64_t d, int element_bytes, exchange kind)
{
    const int64_t own = lt_cost_chunk(d, c->per_node, 0);
    const int64_t scatter = d - own, gather = (c->per_node - 1) * own;
    const int64_t sent = kind == SCATTER ? scatter : kind == GATHER ? gather : scatter + gather;
    return (lt_cost_stage){
        .uses = LT_COST_WITHIN,
        .seconds = on_link(&c->within, c->per_node, 1, (double)(sent * element_bytes), kind)};
}

static lt_cost_stage between(const lt_cost_cluster *c, double bytes, exchange kind)
{
    return (lt_cost_stage){.uses = LT_COST_BETWEEN,
                           .seconds = on_link(&c->between, c->nodes, c->per_node, bytes, kind)};
}

static lt_cost_stage compute(double seconds)
{
    return (lt_cost_stage){.uses = LT_COST_COMPUTE, .seconds = seconds};
}

static size_t stages_of_levels(const lt_cost_plan *p, const lt_cost_cluster *c,
                               const lt_cost_bucket *b, lt_cost_stage out[LT_COST_MAX_STAGES])
{
    lt_cost_plan alone = *p;
    alone.divided = false;
    const double bytes = lt_cost_payload(&alone, c, b, 0).between;
    const bool sparse = lt_cost_is_sparse(p, c, lt_cost_chunk(b->elements, c->per_node, 0));
    size_t n = 0;
    out[n++] = in_node(c, b->elements, p->element_bytes, SCATTER);
    if (sparse)
        out[n++] = compute(c->select * (double)lt_cost_chunk(b->elements, c->per_node, 0));
    out[n++] = between(c, bytes, sparse ? GATHER : REDUCE);
    out[n++] = in_node(c, b->elements, p->element_bytes, GATHER);
    return n;
}

/* Two levels without other buckets in between. */
static lt_cost_stage in_levels(const lt_cost_cluster *c, int64_t d, int element_bytes)
{
    lt_cost_stage s = between(c, lt_cost_two_level(c, d, element_bytes, 0).between, REDUCE);
    s.uses = c->nodes > 1 ? LT_COST_BETWEEN : LT_COST_WITHIN;
    s.seconds += in_node(c, d, element_bytes, REDUCE).seconds;
    return s;
}

size_t lt_cost_stages(const lt_cost_plan *p, const lt_cost_cluster *c, const lt_cost_bucket *b,
                      lt_cost_stage out[LT_COST_MAX_STAGES])
{
    const int64_t d = b->elements;
    switch (p->scheme) {
    case LT_COST_TWO_LEVEL:
    case LT_COST_TOPK:
        return stages_of_levels(p, c, b, out);
    case LT_COST_SHARD_GRADIENTS:
        out[0] = over_all(c, lt_cost_reducescatter(c, d, p->element_bytes, 0), SCATTER);
        return 1;
    case LT_COST_POWERSGD:
        out[0] = compute(c->factor * p->rank * (double)(d - b->dense));
        out[1] = in_levels(c, p->rank * b->rows + b->dense, p->element_bytes);
        out[2] = in_levels(c, p->rank * b->columns, p->element_bytes);
        return 3;
    case LT_COST_LOCAL_STEPS:
        out[0] = in_node(c, d, p->element_bytes, REDUCE);
        return 1;
    case LT_COST_FLAT:
    case LT_COST_SCHEMES:
        break;
    }
    out[0] = over_all(c, lt_cost_allreduce(c, d, p->element_bytes, 0), REDUCE);
    return 1;
}

double lt_cost_gather_rate(const lt_cost_link *l)
{
    return l->gather > 0 ? l->gather : l->bandwidth;
}

/* Of updates, from their owners to all. */
static double gather_updates(const lt_cost_cluster *c, int64_t elements)
{
    lt_cost_cluster alone = *c;
    alone.within.bandwidth = lt_cost_gather_rate(&c->within);
    alone.between.bandwidth = lt_cost_gather_rate(&c->between);
    return over_all(&alone, lt_cost_allgather(c, elements, LT_COST_F32, 0), GATHER).seconds;
}

double lt_cost_behind(const lt_cost_plan *p, const lt_cost_cluster *c, int64_t elements)
{
    double seconds = 0;
    if (p->scheme == LT_COST_LOCAL_STEPS) {
        const double shard = lt_cost_two_level(c, elements, LT_COST_F32, 0).between,
                     gather = in_node(c, elements, LT_COST_F32, GATHER).seconds;
        seconds =
            (between(c, shard, REDUCE).seconds + gather) / p->every + (p->divided ? gather : 0);
    } else if (p->divided || p->scheme == LT_COST_SHARD_GRADIENTS) {
        seconds = gather_updates(c, elements);
    }
    return seconds;
}

/* --- Cores --- */

bool lt_cost_shares_cores(const lt_cost_cluster *c)
{
    return c->cores > 0 && c->cores < 2;
}

/* Messages that a rank sends for a bucket; it gets as many. */
static double messages(const lt_cost_plan *p, const lt_cost_cluster *c, bool sparse)
{
    const double all = (double)c->nodes * c->per_node - 1, node = c->per_node - 1,
                 peers = c->nodes - 1;
    switch (p->scheme) {
    case LT_COST_TWO_LEVEL:
        return 2 * (node + peers);
    case LT_COST_TOPK:
        return 2 * node + (sparse ? 1 : 2) * peers;
    case LT_COST_SHARD_GRADIENTS:
        return all;
    case LT_COST_POWERSGD:
        return 2 * 2 * (node + peers);
    case LT_COST_LOCAL_STEPS:
        return 2 * node;
    case LT_COST_FLAT:
    case LT_COST_SCHEMES:
        break;
    }
    return 2 * all;
}

/* Both ways, by rank 0, without what follows the update. */
static double moving(const lt_cost_plan *p, const lt_cost_cluster *c, const lt_cost_bucket *b)
{
    lt_cost_plan alone = *p;
    alone.divided = false;
    lt_cost_bytes sent = lt_cost_payload(&alone, c, b, 0);
    if (p->scheme == LT_COST_SHARD_GRADIENTS)
        sent = lt_cost_reducescatter(c, b->elements, p->element_bytes, 0);
    if (p->scheme == LT_COST_LOCAL_STEPS)
        sent = (lt_cost_bytes){.within =
                                   lt_cost_two_level(c, b->elements, p->element_bytes, 0).within};
    const bool sparse = lt_cost_is_sparse(p, c, lt_cost_chunk(b->elements, c->per_node, 0));
    return 2
           * ((c->copy + c->carry) * sent.within + c->copy * sent.between
              + c->wake * messages(p, c, sparse));
}

double lt_cost_work(const lt_cost_plan *p, const lt_cost_cluster *c, const lt_cost_bucket *b)
{
    lt_cost_stage stage[LT_COST_MAX_STAGES];
    const size_t stages = lt_cost_stages(p, c, b, stage);
    double seconds = moving(p, c, b);
    for (size_t i = 0; i < stages; i++)
        seconds += stage[i].uses == LT_COST_COMPUTE ? stage[i].seconds : 0;
    return seconds;
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
        return lt_fail(LT_E_ARG, "cost: %d is no scheme", (int)p->scheme);
    if (p->element_bytes != 2 && p->element_bytes != 4 && p->element_bytes != 8)
        return lt_fail(LT_E_ARG, "cost: elements of %d bytes, not 2, 4 or 8", p->element_bytes);
    if (p->scheme == LT_COST_TOPK && !(p->density > 0 && p->density <= 1))
        return lt_fail(LT_E_ARG, "cost: density %g is not in (0, 1]", p->density);
    if (p->scheme == LT_COST_POWERSGD && p->rank < 1)
        return lt_fail(LT_E_ARG, "cost: rank %d of factors is below 1", p->rank);
    if (p->scheme == LT_COST_LOCAL_STEPS && p->every < 1)
        return lt_fail(LT_E_ARG, "cost: a round of %d steps, less than 1", p->every);
    return LT_OK;
}

static lt_status check_cores(const lt_cost_cluster *c)
{
    if (!(c->copy >= 0 && isfinite(c->copy) && c->carry >= 0 && isfinite(c->carry)))
        return lt_fail(LT_E_ARG, "cost: %g core seconds a byte, %g more within a node", c->copy,
                       c->carry);
    if (!(c->wake >= 0 && isfinite(c->wake)))
        return lt_fail(LT_E_ARG, "cost: %g core seconds a message", c->wake);
    return c->cores >= 1 || (c->cores <= 0 && c->cores >= 0)
               ? LT_OK
               : lt_fail(LT_E_ARG, "cost: %g cores of a rank, not 0, or 1 and more", c->cores);
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
    if (!(c->select >= 0 && c->factor >= 0 && backward >= 0 && isfinite(backward)))
        return lt_fail(LT_E_ARG, "cost: %g s of backward, %g and %g s per element", backward,
                       c->select, c->factor);
    return check_cores(c);
}

/* Stages as they become free, and what links are used. */
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
    last += lt_cost_behind(plan, cluster, elements);
    *out =
        (lt_cost_result){.step = last, .exposed = last - backward, .link = {q.used[0], q.used[1]}};
    return LT_OK;
}
