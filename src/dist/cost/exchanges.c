/* Cost rows of the library's communication schemes; reducers of --compress define theirs next to their code. */

#include "dist/cost/parts.h"

#include <stddef.h>

/* --- Over all ranks --- */

static lt_cost_bytes flat(const lt_cost_plan *p, const lt_cost_cluster *c, const lt_cost_bucket *b,
                          int rank)
{
    return lt_cost_allreduce(c, b->elements, p->element_bytes, rank);
}

static size_t flat_stages(const lt_cost_plan *p, const lt_cost_cluster *c, const lt_cost_bucket *b,
                          lt_cost_stage out[LT_COST_MAX_STAGES])
{
    out[0] = lt_cost_over_all(c, flat(p, c, b, 0), LT_COST_REDUCE);
    return 1;
}

static lt_cost_bytes scatter(const lt_cost_plan *p, const lt_cost_cluster *c,
                             const lt_cost_bucket *b, int rank)
{
    return lt_cost_reducescatter(c, b->elements, p->element_bytes, rank);
}

static size_t scatter_stages(const lt_cost_plan *p, const lt_cost_cluster *c,
                             const lt_cost_bucket *b, lt_cost_stage out[LT_COST_MAX_STAGES])
{
    out[0] = lt_cost_over_all(c, scatter(p, c, b, 0), LT_COST_SCATTER);
    return 1;
}

/* --- Two levels --- */

static lt_cost_bytes levels(const lt_cost_plan *p, const lt_cost_cluster *c,
                            const lt_cost_bucket *b, int rank)
{
    return lt_cost_two_level(c, b->elements, p->element_bytes, rank);
}

static size_t levels_stages(const lt_cost_plan *p, const lt_cost_cluster *c,
                            const lt_cost_bucket *b, lt_cost_stage out[LT_COST_MAX_STAGES])
{
    out[0] = lt_cost_in_node(c, b->elements, p->element_bytes, LT_COST_SCATTER);
    out[1] = lt_cost_between(c, levels(p, c, b, 0).between, LT_COST_REDUCE);
    out[2] = lt_cost_in_node(c, b->elements, p->element_bytes, LT_COST_GATHER);
    return 3;
}

/* --- Local steps: within the node --- */

static lt_cost_bytes inner(const lt_cost_plan *p, const lt_cost_cluster *c, const lt_cost_bucket *b,
                           int rank)
{
    return (lt_cost_bytes){.within = levels(p, c, b, rank).within};
}

static size_t inner_stages(const lt_cost_plan *p, const lt_cost_cluster *c, const lt_cost_bucket *b,
                           lt_cost_stage out[LT_COST_MAX_STAGES])
{
    out[0] = lt_cost_in_node(c, b->elements, p->element_bytes, LT_COST_REDUCE);
    return 1;
}

const lt_cost_row *lt_cost_row_of(const lt_cost_plan *plan)
{
    static const lt_cost_row rows[LT_COST_SCHEMES] = {
        [LT_COST_FLAT] = {.name = "flat", .payload = flat, .stages = flat_stages},
        [LT_COST_TWO_LEVEL] = {.name = "two-level", .payload = levels, .stages = levels_stages},
        [LT_COST_SHARD_GRADIENTS] = {.name = "shard-gradients",
                                     .payload = scatter,
                                     .stages = scatter_stages},
        [LT_COST_LOCAL_STEPS] = {.name = "local-steps",
                                 .payload = inner,
                                 .stages = inner_stages,
                                 .kept = 2,
                                 .by_node =
                                     true /* parameters at the start of the round, and momentum */},
    };
    return plan->scheme == LT_COST_REDUCER ? plan->reducer : &rows[plan->scheme];
}
