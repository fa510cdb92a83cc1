/* Tables of --optim-stats: which parameters, blocks and factors there are. Numbers of an event, in this order: LT_SUMS per region; rule and graft ratio per
 * region; rule and own numbers per parameter; LT_FACTOR_STATS per factor; and per row of each parameter along
 * dimension 0 the regions in which it has a gradient. */

#include "tables.h"

#include "base/alloc.h"
#include "base/pattern.h"
#include "optim/sharding/shard.h"
#include "tensor/tensor.h"

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

/* Describes block number `block`; a slot without blocks has one region. */
static bool describe_region(const lt_optim *o, const lt_stat_param *p, size_t block,
                            lt_optim_block *out)
{
    *out = (lt_optim_block){.graft_ratio = (double)NAN};
    if (p->slot && o->ops->stat_block && o->ops->stat_block(o, p->slot, block, out))
        return true;
    out->offset.ndim = lt_tensor_shape(p->param->value).ndim;
    out->extent = lt_tensor_shape(p->param->value);
    out->owner = p->slot ? p->slot->owner : 0;
    return block == 0;
}

/* Returns true if this rank measures what `owner` owns: without sharded state rank 0 does. */
static bool is_mine(const lt_optim_stats *s, int owner)
{
    return s->optim->shard ? s->optim->shard->rank == owner : s->rank == 0;
}

static lt_status add_factors(lt_optim_stats *s, size_t region, size_t *capacity)
{
    const lt_optim_block *b = &s->region[region].block;
    lt_stat_factor *grown = lt_grow(s->factor, capacity, s->factors + LT_MAX_DIMS, sizeof *grown);
    if (!grown)
        return LT_E_NOMEM;
    s->factor = grown;
    for (int d = 0; d < b->shape.ndim; d++)
        if (b->has_factor[d])
            s->factor[s->factors++] =
                (lt_stat_factor){.region = region, .dim = d, .n = b->shape.dim[d]};
    return LT_OK;
}

static lt_status add_regions(lt_optim_stats *s, size_t param, size_t capacity[2])
{
    lt_stat_param *p = &s->param[param];
    const lt_optim_ops *ops = s->optim->ops;
    lt_stat_region r = {.param = param};
    p->region = s->regions;
    for (size_t k = 0; describe_region(s->optim, p, k, &r.block); k++) {
        lt_stat_region *grown = lt_grow(s->region, &capacity[0], s->regions + 1, sizeof *grown);
        if (!grown)
            return LT_E_NOMEM;
        s->region = grown;
        r.mine = is_mine(s, r.block.owner);
        p->mine = p->mine || r.mine;
        s->region[s->regions++] = r;
        LT_TRY(add_factors(s, s->regions - 1, &capacity[1]));
    }
    lt_optim_block first;
    p->regions = s->regions - p->region;
    p->blocks = p->slot && ops->stat_block && ops->stat_block(s->optim, p->slot, 0, &first)
                    ? p->regions
                    : 0;
    s->blocks += p->blocks;
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

static lt_status make_tables(lt_optim_stats *s, const lt_optim_stats_config *c, bool *chosen)
{
    size_t capacity[2] = {0};
    for (size_t i = 0; i < c->patterns; i++)
        LT_TRY(mark_matching(c->params, c->pattern[i], chosen));
    for (size_t i = 0; i < c->params->count; i++) {
        const lt_param *param = c->params->item[i];
        if (!is_parameter(param) || (c->patterns && !chosen[i]))
            continue;
        const lt_shape shape = lt_tensor_shape(param->value);
        s->param[s->params] =
            (lt_stat_param){.param = param, .slot = find_slot(c->optim, param), .rows = s->rows};
        s->rows += shape.ndim ? (size_t)shape.dim[0] : 1;
        LT_TRY(add_regions(s, s->params++, capacity));
    }
    group_factors(s);
    while (s->own < LT_MAX_STATS && c->optim->ops->stat_name[s->own])
        s->own++;
    s->numbers = s->regions * (LT_SUMS + LT_BLOCK_NUMBERS) + s->params * LT_PARAM_NUMBERS
                 + s->factors * LT_FACTOR_STATS + s->rows;
    s->number = lt_alloc(s->numbers, sizeof *s->number);
    s->kept = lt_alloc(s->factors * LT_FACTOR_STATS + 1, sizeof *s->kept);
    for (size_t i = 0; s->kept && i < s->factors * LT_FACTOR_STATS; i++)
        s->kept[i] = (double)NAN;
    return s->number && s->kept ? LT_OK : LT_E_NOMEM;
}

lt_status lt_optim_stats_new(lt_optim_stats **out, const lt_optim_stats_config *c)
{
    if (c->every < 1)
        return lt_fail(LT_E_ARG, "--optim-stats %lld: must be at least 1", (long long)c->every);
    lt_optim_stats *s = lt_alloc(1, sizeof *s);
    bool *chosen = lt_alloc(c->params->count, sizeof *chosen);
    lt_status st = s && chosen ? LT_OK : LT_E_NOMEM;
    if (!st) {
        s->optim = c->optim;
        s->every = c->every;
        s->rank = c->rank;
        s->param = lt_alloc(c->params->count, sizeof *s->param);
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
    lt_free(s->kept);
    lt_free(s);
    *stats = NULL;
}
