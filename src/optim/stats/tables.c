/* Tables of --optim-stats: which parameters, blocks and factors there are, and their columns. */

#include "tables.h"

#include "base/alloc.h"
#include "base/pattern.h"
#include "optim/sharding/shard.h"
#include "tensor/tensor.h"

#include <string.h>

/* Most n^3, summed over the factors whose spectrum an event measures: a second of one core. Larger factors are
 * measured alone. Independent of ranks, so that all measure the same. */
static const double most_cubes = 1 << 29;

const char *lt_optim_rule_name(lt_optim_rule rule)
{
    static const char *const names[LT_RULES] = {
        "none",  "elementwise", "root", "eigenbasis", "diagonal",    "grafted",
        "adamw", "orthogonal",  "sign", "frozen",     "no_gradient", "skipped"};
    return names[rule];
}

lt_status lt_optim_param_rule(const lt_optim *o, size_t index, lt_param_rule *out)
{
    lt_optim_block block;
    if (index >= o->count)
        return LT_END;
    const lt_slot *slot = &o->slot[index];
    *out = (lt_param_rule){.param = slot->param->name,
                           .shape = lt_tensor_shape(slot->param->value),
                           .rule = o->ops->name,
                           .lr_scale = slot->lr_scale};
    if (o->ops->describe)
        o->ops->describe(o, slot, out);
    for (; o->ops->stat_block && o->ops->stat_block(o, slot, (size_t)out->blocks, &block);
         out->blocks++)
        out->block = out->blocks ? out->block : block.shape;
    return LT_OK;
}

/* --- Making the tables --- */

static bool is_parameter(const lt_param *p)
{
    return p->role != LT_PARAM_STAT && p->role != LT_PARAM_COUNT;
}

/* Marks the parameters that a pattern matches. */
static lt_status mark_matching(const lt_params *params, const char *text, bool *chosen)
{
    regex_t pattern;
    bool found = false;
    LT_TRY(lt_pattern_compile("--optim-stats-params", text, &pattern));
    for (size_t i = 0; i < params->count; i++)
        if (is_parameter(params->item[i]) && !regexec(&pattern, params->item[i]->name, 0, NULL, 0))
            found = chosen[i] = true;
    regfree(&pattern);
    return found ? LT_OK
                 : lt_fail(LT_E_ARG, "--optim-stats-params: no parameter matches '%s'", text);
}

static lt_slot *find_slot(const lt_optim *o, const lt_param *param)
{
    for (size_t i = 0; i < o->count; i++)
        if (o->slot[i].param == param)
            return &o->slot[i];
    return NULL;
}

/* Describes block number `block` of a parameter; false past the last, and without blocks. */
static bool describe_block(const lt_optim *o, const lt_stat_param *p, size_t block,
                           lt_optim_block *out)
{
    *out = (lt_optim_block){.graft_ratio = (double)NAN};
    return p->slot && o->ops->stat_block && o->ops->stat_block(o, p->slot, block, out);
}

/* Returns true if this rank measures what `owner` owns: without sharded state rank 0 does. */
static bool is_mine(const lt_optim_stats *s, int owner)
{
    return s->optim->shard ? s->optim->shard->rank == owner : s->rank == 0;
}

static lt_status add_factors(lt_optim_stats *s, size_t region, size_t *capacity)
{
    const lt_optim_block *b = &s->region[region].block;
    LT_TRY(LT_GROW(&s->factor, capacity, s->factors + LT_MAX_DIMS));
    for (int d = 0; d < b->shape.ndim; d++)
        if (b->has_factor[d])
            s->factor[s->factors++] =
                (lt_stat_factor){.region = region, .dim = d, .n = b->shape.dim[d]};
    return LT_OK;
}

static lt_status add_region(lt_optim_stats *s, size_t param, const lt_optim_block *block,
                            size_t capacity[2])
{
    lt_stat_param *p = &s->param[param];
    LT_TRY(LT_GROW(&s->region, &capacity[0], s->regions + 1));
    const lt_stat_region r = {.param = param,
                              .row = s->table[LT_TABLE_BLOCK].rows,
                              .block = *block,
                              .mine = is_mine(s, block->owner)};
    s->table[LT_TABLE_BLOCK].rows += p->has_blocks;
    s->region[s->regions++] = r;
    p->mine = p->mine || r.mine;
    p->regions++;
    return add_factors(s, s->regions - 1, &capacity[1]);
}

/* Fails unless the parameter's next block is a part of it. */
static lt_status check_block(const lt_optim *o, const lt_stat_param *p, const lt_optim_block *b)
{
    char of_offset[LT_SHAPE_TEXT], of_extent[LT_SHAPE_TEXT], of_all[LT_SHAPE_TEXT];
    const lt_shape all = lt_tensor_shape(p->param->value);
    bool fits = b->offset.ndim == all.ndim && b->extent.ndim == all.ndim
                && p->regions < (size_t)lt_shape_count(all);
    for (int d = 0; d < all.ndim && fits; d++)
        fits = b->offset.dim[d] >= 0 && b->extent.dim[d] > 0
               && b->extent.dim[d] <= all.dim[d] - b->offset.dim[d];
    for (int d = 0; d < LT_MAX_DIMS; d++)
        fits = fits && (!b->has_factor[d] || (d < b->shape.ndim && b->shape.dim[d] > 0));
    return fits ? LT_OK
                : lt_fail(LT_E_SHAPE,
                          "%s: stat_block: block %zu of %s, offset %s, extent %s, is no part of %s",
                          o->ops->name, p->regions, p->param->name,
                          lt_shape_text(b->offset, of_offset), lt_shape_text(b->extent, of_extent),
                          lt_shape_text(all, of_all));
}

static lt_status add_param(lt_optim_stats *s, const lt_param *param, size_t capacity[2])
{
    const lt_shape shape = lt_tensor_shape(param->value);
    lt_stat_param *p = &s->param[s->params];
    lt_optim_block block;
    *p = (lt_stat_param){
        .param = param, .slot = find_slot(s->optim, param), .region = s->regions, .row = s->rows};
    s->rows += shape.ndim ? (size_t)shape.dim[0] : 1;
    p->has_blocks = describe_block(s->optim, p, 0, &block);
    if (!p->has_blocks)
        block = (lt_optim_block){
            .offset.ndim = shape.ndim, .extent = shape, .owner = p->slot ? p->slot->owner : 0};
    do {
        LT_TRY(p->has_blocks ? check_block(s->optim, p, &block) : LT_OK);
        LT_TRY(add_region(s, s->params, &block, capacity));
    } while (p->has_blocks && describe_block(s->optim, p, p->regions, &block));
    s->params++;
    return LT_OK;
}

/* Divides the factors into groups of consecutive ones, whose spectra are measured in turn. */
static void group_factors(lt_optim_stats *s)
{
    double used = 0;
    s->groups = s->factors > 0;
    for (size_t i = 0; i < s->factors; i++) {
        const double n = (double)s->factor[i].n, cubes = n * n * n;
        if (used > 0 && used + cubes > most_cubes) {
            used = 0;
            s->groups++;
        }
        used += cubes;
        s->factor[i].group = s->groups - 1;
    }
}

/* --- Columns --- */

/* clang-format off */
static const lt_stat_table tables[LT_STATS_TABLES] = {
    {.name = "parameter", .columns = LT_PARAM_STATS, .column = {
        "rule", "weight_norm", "gradient_norm", "update_norm", "update_ratio", "update_cosine",
        "consecutive_cosine", "zero_gradient_rows"}},
    {.name = "block", .columns = LT_BLOCK_STATS, .column = {
        "rule", "graft_ratio", "weight_norm", "gradient_norm", "update_norm", "update_cosine"}},
    {.name = "factor", .columns = LT_FACTOR_STATS, .column = {
        "eigenvalue_min", "eigenvalue_max", "condition", "effective_rank", "below_epsilon",
        "off_diagonal", "epsilon", "root_age", "residual", "failures", "spectrum_age",
        "q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7", "q8"}},
};
/* clang-format on */

/* Completes the tables by the optimizer's own columns and by numbers of rows. */
static void count_tables(lt_optim_stats *s)
{
    lt_stat_table *params = &s->table[LT_TABLE_PARAMETER];
    for (int k = 0; k < LT_MAX_STATS && s->optim->ops->stat_name[k]; k++)
        params->column[params->columns++] = s->optim->ops->stat_name[k];
    params->rows = s->params;
    s->table[LT_TABLE_FACTOR].rows = s->factors;
    for (int t = 0; t < LT_STATS_TABLES; t++) {
        s->table[t].first = s->width;
        s->width += s->table[t].rows * s->table[t].columns;
    }
}

/* Allocates the numbers of an event. */
static lt_status allocate_numbers(lt_optim_stats *s)
{
    const size_t of_regions = s->regions * (sizeof *s->of_region / sizeof(double));
    const size_t of_params = s->params * (sizeof *s->of_param / sizeof(double));
    const size_t of_factors = s->factors * LT_FACTOR_STATS;
    s->numbers = of_regions + of_params + of_factors + s->rows;
    LT_TRY(LT_ALLOC(&s->number, s->numbers));
    s->of_region = (lt_region_numbers *)s->number;
    s->of_param = (lt_param_numbers *)(s->number + of_regions);
    s->of_factor = (double(*)[LT_FACTOR_STATS])(s->number + of_regions + of_params);
    s->of_row = s->number + of_regions + of_params + of_factors;
    return LT_OK;
}

static lt_status make_tables(lt_optim_stats *s, const lt_optim_stats_config *c, bool *chosen)
{
    size_t capacity[2] = {0};
    for (size_t i = 0; i < c->patterns; i++)
        LT_TRY(mark_matching(c->params, c->pattern[i], chosen));
    for (size_t i = 0; i < c->params->count; i++)
        if (is_parameter(c->params->item[i]) && (!c->patterns || chosen[i]))
            LT_TRY(add_param(s, c->params->item[i], capacity));
    group_factors(s);
    count_tables(s);
    return allocate_numbers(s);
}

lt_status lt_optim_stats_new(lt_optim_stats **out, const lt_optim_stats_config *c)
{
    if (!c->every)
        return LT_OK;
    if (c->every < 0)
        return lt_fail(LT_E_ARG, "--optim-stats %lld: must be at least 1", (long long)c->every);
    lt_optim_stats *s = lt_alloc(1, sizeof *s);
    bool *chosen = lt_alloc(c->params->count, sizeof *chosen);
    lt_status st = s && chosen ? LT_OK : LT_E_NOMEM;
    if (!st) {
        *s = (lt_optim_stats){.optim = c->optim,
                              .every = c->every,
                              .rank = c->rank,
                              .param = lt_alloc(c->params->count, sizeof *s->param)};
        memcpy(s->table, tables, sizeof tables);
        st = s->param ? make_tables(s, c, chosen) : LT_E_NOMEM;
    }
    lt_free(chosen);
    if (st)
        lt_optim_stats_free(&s);
    else
        *out = s;
    return st;
}

void lt_optim_stats_free(lt_optim_stats **stats)
{
    lt_optim_stats *s = *stats;
    if (!s)
        return;
    for (size_t i = 0; s->param && i < s->params; i++) {
        lt_tensor_free(&s->param[i].before);
        lt_tensor_free(&s->param[i].last);
    }
    lt_free(s->param);
    lt_free(s->region);
    lt_free(s->factor);
    lt_free(s->number);
    lt_free(s);
    *stats = NULL;
}
