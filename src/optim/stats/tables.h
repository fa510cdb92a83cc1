/* Tables of --optim-stats: which parameters, blocks and factors are measured, and their numbers in an event. */
#ifndef LT_OPTIM_STATS_TABLES_H
#define LT_OPTIM_STATS_TABLES_H

#include "norms.h"

#include "lather/ext/optim.h"

/* Columns of the tables in optim_stats.bin; the optimizer's own numbers follow those of a parameter. */
typedef enum lt_param_stat {
    LT_PARAM_RULE,
    LT_PARAM_WEIGHT_NORM,
    LT_PARAM_GRADIENT_NORM,
    LT_PARAM_UPDATE_NORM,
    LT_PARAM_UPDATE_RATIO,
    LT_PARAM_UPDATE_COSINE,
    LT_PARAM_CONSECUTIVE_COSINE,
    LT_PARAM_ZERO_ROWS,
    LT_PARAM_STATS
} lt_param_stat;
typedef enum lt_block_stat {
    LT_BLOCK_RULE,
    LT_BLOCK_GRAFT_RATIO,
    LT_BLOCK_WEIGHT_NORM,
    LT_BLOCK_GRADIENT_NORM,
    LT_BLOCK_UPDATE_NORM,
    LT_BLOCK_UPDATE_COSINE,
    LT_BLOCK_STATS
} lt_block_stat;
typedef enum lt_factor_stat {
    LT_FACTOR_MIN,
    LT_FACTOR_MAX,
    LT_FACTOR_CONDITION,
    LT_FACTOR_EFFECTIVE_RANK,
    LT_FACTOR_BELOW_EPSILON,
    LT_FACTOR_OFF_DIAGONAL,
    LT_FACTOR_EPSILON,
    LT_FACTOR_ROOT_AGE,
    LT_FACTOR_RESIDUAL,
    LT_FACTOR_FAILURES,
    LT_FACTOR_SPECTRUM_AGE,
    LT_FACTOR_QUANTILE,
    LT_FACTOR_STATS = LT_FACTOR_QUANTILE + 9
} lt_factor_stat;

/* The tables in their order in a record. */
typedef enum lt_stats_table {
    LT_TABLE_PARAMETER,
    LT_TABLE_BLOCK,
    LT_TABLE_FACTOR,
    LT_STATS_TABLES
} lt_stats_table;

/* A row of the table of parameters. */
typedef struct lt_stat_param {
    const lt_param *param;
    lt_slot *slot;          /* NULL: frozen */
    size_t region, regions; /* its regions: blocks, or one that is all of it */
    size_t blocks;
    size_t rows; /* index of its counters of rows */
    bool mine;   /* this rank measures some of it */
    lt_tensor *before,
        *last; /* weights before this step and before the previous one; NULL: no copy */
} lt_stat_param;

/* Elements that are measured together. */
typedef struct lt_stat_region {
    size_t param;
    lt_optim_block block;
    bool mine; /* this rank measures it */
} lt_stat_region;

typedef struct lt_stat_factor {
    size_t region; /* region of its block, which is the same as that of the table's row */
    int dim;
    int64_t n;
    int64_t group;    /* event in which its spectrum is measured, modulo the number of groups */
    int64_t measured; /* step of the last spectrum; 0: none yet */
} lt_stat_factor;

typedef struct lt_optim_stats {
    lt_optim *optim;
    int64_t every;
    int rank; /* number of this rank; rank 0 has the results */
    lt_stat_param *param;
    lt_stat_region *region;
    lt_stat_factor *factor;
    size_t params, regions, blocks, factors, rows;
    int64_t groups;
    double grad_scale;
    bool skipped; /* the last measured step changed nothing */
    int own;      /* numbers per parameter that only this optimizer has */
    /* The numbers of an event, summed over ranks: see stats.c for their order. kept: numbers of this rank's factors. */
    double *number, *kept;
    size_t numbers;
} lt_optim_stats;

typedef struct lt_optim_stats_config {
    lt_optim *optim;
    const lt_params *params;    /* all parameters, in network order */
    int64_t every;              /* steps between events, at least 1 */
    const char *const *pattern; /* parameters that match one; all if NULL */
    size_t patterns;
    int rank;
} lt_optim_stats_config;

/* Lists the tables. optim: before its first step, its state sharded already. Errors: LT_E_ARG (a pattern that is
 * invalid or matches no parameter; every below 1), LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_optim_stats_new(lt_optim_stats **out,
                                           const lt_optim_stats_config *config);
void lt_optim_stats_free(lt_optim_stats **stats);

/* --- Where an event's numbers are --- */

enum { LT_BLOCK_NUMBERS = 2, LT_PARAM_NUMBERS = 1 + LT_MAX_STATS };

static inline double *lt_stats_sums(const lt_optim_stats *s, size_t region)
{
    return s->number + region * LT_SUMS;
}
/* Rule and graft ratio. */
static inline double *lt_stats_block(const lt_optim_stats *s, size_t region)
{
    return lt_stats_sums(s, s->regions) + region * LT_BLOCK_NUMBERS;
}
/* Rule, and LT_MAX_STATS numbers of the optimizer's own. */
static inline double *lt_stats_param(const lt_optim_stats *s, size_t param)
{
    return lt_stats_block(s, s->regions) + param * LT_PARAM_NUMBERS;
}
static inline double *lt_stats_factor(const lt_optim_stats *s, size_t factor)
{
    return lt_stats_param(s, s->params) + factor * LT_FACTOR_STATS;
}
/* Per row along dimension 0: number of regions with a gradient there. */
static inline double *lt_stats_nonzero(const lt_optim_stats *s, size_t param)
{
    return lt_stats_factor(s, s->factors) + s->param[param].rows;
}

#endif
