/* Sums by MPI: lt_comm_use_engine_sums(). After the headers of all ranks, which name mismatched calls and late ranks; in the same
 * order on all ranks, as MPI requires: turns. */

#include "dist/collectives/collectives.h"

lt_link_sum_fn *lt_engine_sum_of(const lt_collective *self)
{
    const lt_comm_call *c = &self->call;
    const bool applies = self->endpoint->size > 1 && c->what == LT_COMM_ALLREDUCE
                         && c->op != LT_REDUCE_MAX && !c->tree
                         && (c->dtype == LT_F32 || c->dtype == LT_F64) && c->elements <= INT32_MAX
                         && !self->small;
    return applies ? self->endpoint->sum : NULL;
}

void lt_engine_finish(const lt_collective *self)
{
    const lt_comm_call *c = &self->call;
    const int n = c->op == LT_REDUCE_MEAN ? self->endpoint->size : 1;
    for (int64_t i = 0; i < c->elements && n > 1; i++)
        if (c->dtype == LT_F32)
            ((float *)c->out)[i] /= (float)n;
        else
            ((double *)c->out)[i] /= n;
}
