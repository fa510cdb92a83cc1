/* Cost of top-k: a hierarchical reduction that sends the largest elements of a shard between nodes if that is smaller:
 * nodes * message < 2 * shard. */

#include "dist/cost/parts.h"
#include "dist/reducer/costs.h"
#include "dist/reducer/sparse_codec.h"

#include "lather/detail/process_group.h"
#include "lather/ext/fail.h"

#include <stdio.h>

int64_t lt_cost_sparse_bytes(int64_t elements, double density, int value_bytes)
{
    return lt_sparse_layout(elements, lt_sparse_count_selected(density, elements),
                            value_bytes == 2 ? LT_BF16 : LT_F32)
        .bytes;
}

static size_t topk_stages(const lt_cost_plan *p, const lt_cost_cluster *c, const lt_cost_bucket *b,
                          int rank, lt_cost_stage out[LT_COST_MAX_STAGES])
{
    const int64_t shard = lt_even_shard_size(b->elements, c->per_node, rank % c->per_node),
                  message = lt_cost_sparse_bytes(shard, p->number, p->element_bytes);
    const bool is_sparse = c->nodes * message < 2 * shard * p->element_bytes;
    size_t n = 0;
    out[n++] = lt_cost_in_node_stage(c, b->elements, p->element_bytes, LT_COST_SCATTER, rank);
    if (is_sparse)
        out[n++] = lt_cost_compute_stage(c->unit * (double)shard);
    out[n++] = is_sparse
                   ? lt_cost_between_stage(c, (double)((c->nodes - 1) * message), LT_COST_GATHER)
                   : lt_cost_shard_allreduce_stage(c, b->elements, p->element_bytes, rank);
    out[n++] = lt_cost_in_node_stage(c, b->elements, p->element_bytes, LT_COST_GATHER, rank);
    return n;
}

static lt_status check_density(double density)
{
    return density > 0 && density <= 1
               ? LT_OK
               : lt_fail(LT_E_ARG, "cost: density %g is not in (0, 1]", density);
}

/* Returns top-k's bytes of a shard relative to those of a dense all-reduce; below 1 it sends less. */
static double relative_bytes(const lt_cost_cluster *c, int64_t shard, double density,
                             int element_bytes)
{
    return c->nodes * (double)lt_cost_sparse_bytes(shard, density, element_bytes)
           / (2.0 * (double)shard * element_bytes);
}

/* Returns the least density at which top-k does not send less; its bytes are monotonic in the density. */
static double break_even_density(const lt_cost_cluster *c, int64_t shard, int element_bytes)
{
    int64_t less = 0, more = shard + 1; /* elements */
    while (more - less > 1) {
        const int64_t k = less + (more - less) / 2;
        if (relative_bytes(c, shard, (double)k / (double)shard, element_bytes) < 1)
            less = k;
        else
            more = k;
    }
    return (double)more / (double)shard;
}

static lt_status topk_verdict(lt_cost_verdict *out, const lt_cost_cluster *c, int64_t elements,
                              double density, int element_bytes)
{
    if (c->nodes < 1 || c->per_node < 1)
        return lt_fail(LT_E_ARG, "cost: %d nodes of %d ranks", c->nodes, c->per_node);
    if (!(density > 0 && density <= 1) || elements < c->per_node)
        return lt_fail(LT_E_ARG, "cost: density %g of %lld elements on %d ranks", density,
                       (long long)elements, c->per_node);
    if (element_bytes != 2 && element_bytes != 4)
        return lt_fail(LT_E_ARG, "cost: elements of %d bytes, want 2 or 4", element_bytes);
    const int64_t shard = lt_even_shard_size(elements, c->per_node, 0);
    const double share = relative_bytes(c, shard, density, element_bytes);
    lt_cost_verdict v = {.value = density,
                         .bound = break_even_density(c, shard, element_bytes),
                         .pays = c->nodes > 1 && share < 1};
    snprintf(v.why, sizeof v.why,
             "top-k with density %g sends %.3g times the bytes of a dense all-reduce between %d "
             "nodes; it sends less below density %.4g",
             density, share, c->nodes, v.bound);
    *out = v;
    return LT_OK;
}

const lt_cost_row lt_cost_topk = {
    .name = "topk",
    .stages = topk_stages,
    .kept = 1,
    .by_node = true, /* error feedback is per node */
    .check = check_density,
    .verdict = topk_verdict,
    .unit = "select", /* per element of a shard */
    .sample = "0.01",
    .units = 1,
    .usual = 3.6e-9, /* as in `bench regimes` */
};
