/* Bytes of a rank: values, gradients, the optimizer's state, activations, and what exchanges leave behind. */

#include "plan/parts.h"

/* What is kept between steps beside the optimizer's state. */
static double residual_bytes(const lt_system *s, double parameters)
{
    switch (s->setup->exchange.scheme) {
    case LT_COST_TOPK: /* a node's, divided over its ranks */
        return parameters / s->cluster.per_node;
    case LT_COST_POWERSGD: /* a rank's own; the factors are small beside it */
        return parameters;
    case LT_COST_LOCAL_STEPS: /* where a round began, and its momentum: a shard of the node's rank */
        return 2 * parameters / s->cluster.per_node;
    case LT_COST_FLAT:
    case LT_COST_TWO_LEVEL:
    case LT_COST_SHARD_GRADIENTS:
    case LT_COST_SCHEMES:
        break;
    }
    return 0;
}

double lt_system_memory(const lt_system *s, double share)
{
    const lt_plan_profile *p = s->profile;
    const double parameters = p->parameter_bytes / (s->mesh.rows * s->mesh.columns);
    const double samples = (double)s->setup->batch_size / s->model;
    return 2 * parameters + p->state_bytes * share + p->activation_bytes * samples
           + residual_bytes(s, parameters);
}
