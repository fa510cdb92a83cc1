/* Implementation of lather/detail/shampoo_report.h: blocks, and statistics of a step. */

#include "optim/shampoo/assign.h"
#include "optim/shampoo/state.h"

lt_status lt_shampoo_block_at(const lt_optim *optim, size_t index, lt_shampoo_block *out)
{
    if (!lt_shampoo_settings(optim))
        return lt_fail(LT_E_ARG, "shampoo: %s has no blocks", optim->ops->name);
    const lt_shampoo *s = (const lt_shampoo *)optim;
    if (index >= s->total)
        return LT_END;
    lt_block *b = lt_shampoo_block_number(s, index);
    *out = (lt_shampoo_block){
        .param = b->slot->param->name,
        .block = b->index,
        .shape = b->region.shape,
        .factor_bytes = lt_shampoo_block_bytes(s, b, true),
        .state_bytes = lt_shampoo_block_bytes(s, b, false),
        .step_ns = lt_block_step_nanoseconds(&s->config, b),
        .refresh_ns = lt_block_refresh_nanoseconds(b),
        .owner = b->owner,
    };
    for (int d = 0; d < out->shape.ndim; d++)
        out->factors += b->factor[d].is_matrix;
    return LT_OK;
}

/* Returns the age of the oldest root in use: the steps since its factors. */
static int64_t age_of_roots(const lt_shampoo *s)
{
    int64_t age = 0;
    for (size_t i = 0; i < s->count; i++) {
        int64_t root_step = s->block[i].root_step;
        if (root_step && s->base.attempt - root_step > age)
            age = s->base.attempt - root_step;
    }
    return age;
}

lt_shampoo_stats lt_shampoo_statistics(const lt_optim *optim)
{
    lt_shampoo_stats stats = {0};
    if (!lt_shampoo_settings(optim))
        return stats;
    const lt_shampoo *s = (const lt_shampoo *)optim;
    if (s->stats_step == s->base.attempt) /* otherwise the step was skipped */
        stats = s->stats;
    if (s->base.shard)
        stats.gather_seconds = s->base.shard->seconds;
    stats.root_age = age_of_roots(s);
    return stats;
}
