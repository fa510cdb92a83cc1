/* Cost of PowerSGD: a hierarchical all-reduce of P and all vectors, then one of Q. */

#include "dist/cost/parts.h"
#include "dist/reducer/costs.h"

#include "lather/ext/fail.h"

static size_t powersgd_stages(const lt_cost_plan *p, const lt_cost_cluster *c,
                              const lt_cost_bucket *b, int rank,
                              lt_cost_stage out[LT_COST_MAX_STAGES])
{
    const int64_t first = (int64_t)p->number * b->rows + b->dense,
                  second_allreduce_elements = (int64_t)p->number * b->columns;
    out[0] = lt_cost_compute_stage(c->unit * p->number * (double)(b->elements - b->dense));
    out[1] = lt_cost_two_level_stage(c, first, p->element_bytes, rank);
    out[2] = lt_cost_two_level_stage(c, second_allreduce_elements, p->element_bytes, rank);
    return 3;
}

static lt_status check_rank(double rank)
{
    return rank >= 1 ? LT_OK
                     : lt_fail(LT_E_ARG, "cost: rank %g of the factors, want 1 or more", rank);
}

const lt_cost_row lt_cost_powersgd = {
    .name = "powersgd",
    .stages = powersgd_stages,
    .kept = 1, /* a rank's error feedback; the factors are small in comparison */
    .check = check_rank,
    .unit = "factor", /* per element and rank of the factors */
    .sample = "4",
    .units = 4,
    .usual = 0.6e-9, /* as in `bench regimes` */
};
