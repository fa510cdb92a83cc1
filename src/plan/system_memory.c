/* Memory of a rank: values, gradients, optimizer state, activations, and buffers of reducers. */

#include "plan/parts.h"

double lt_system_memory(const lt_system *s, double share)
{
    const lt_plan_profile *p = s->profile;
    const lt_cost_row *row = lt_cost_row_of(&s->setup->exchange);
    const double parameters = p->parameter_bytes / (s->mesh.rows * s->mesh.columns);
    const double samples = (double)s->setup->batch_size / s->model;
    return 2 * parameters + p->state_bytes * share + p->activation_bytes * samples
           + parameters * row->kept / (row->by_node ? s->cluster.per_node : 1);
}
