/* Tables of --optim-stats: which parameters, blocks and factors are measured, and their numbers in an event. */
#ifndef LT_OPTIM_STATS_TABLES_H
#define LT_OPTIM_STATS_TABLES_H

#include "norms.h"

#include "lather/detail/spectrum.h"
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

typedef struct lt_stat_table {
    const char *name, *column[LT_FACTOR_STATS]; /* no table has more columns than that of factors */
    size_t rows, columns;
    size_t first; /* index of its first number in a record */
} lt_stat_table;

/* A row of the table of parameters. */
typedef struct lt_stat_param {
    const lt_param *param;
    lt_slot *slot;          /* NULL: frozen */
    size_t region, regions; /* its regions: blocks, or one that is all of it */
    bool has_blocks;
    size_t row; /* index of its first row among the rows of all parameters */
    bool mine;  /* this rank measures some of it */
    lt_tensor *before,
        *last; /* weights before this step and before the previous one; NULL: no copy */
} lt_stat_param;

/* Elements that are measured together. */
typedef struct lt_stat_region {
    size_t param;
    size_t row; /* row of the table of blocks, if the parameter has blocks */
    lt_optim_block block;
    bool mine; /* this rank measures it */
} lt_stat_region;

typedef struct lt_stat_factor {
    size_t region; /* its block's */
    int dim;
    int64_t n;
    int64_t group;        /* event in which its spectrum is measured, modulo the number of groups */
    int64_t measured;     /* step of the last spectrum; 0: none yet */
    lt_spectrum spectrum; /* the last one that was measured */
} lt_stat_factor;

/* Numbers of an event, which are summed over ranks. */
typedef struct lt_region_numbers {
    double sum[LT_SUMS], rule, graft_ratio;
} lt_region_numbers;
typedef struct lt_param_numbers {
    double rule, own[LT_MAX_STATS];
} lt_param_numbers;

typedef struct lt_optim_stats {
    lt_optim *optim;
    int64_t every;
    int rank; /* number of this rank; rank 0 has the results */
    lt_stat_param *param;
    lt_stat_region *region;
    lt_stat_factor *factor;
    size_t params, regions, factors, rows;
    lt_stat_table table[LT_STATS_TABLES];
    size_t width; /* numbers of a record */
    int64_t groups;
    double grad_scale;
    bool skipped;   /* the last measured step changed nothing */
    double *number; /* all numbers of an event, which those below point into */
    lt_region_numbers *of_region;
    lt_param_numbers *of_param;
    double (*of_factor)[LT_FACTOR_STATS];
    double *of_row; /* per row of each parameter along dimension 0: regions with a gradient there */
    size_t numbers;
} lt_optim_stats;

typedef struct lt_optim_stats_config {
    lt_optim *optim;
    const lt_params *params;    /* all parameters, in network order */
    int64_t every;              /* steps between events; 0: off */
    const char *const *pattern; /* parameters that match one; all if NULL */
    size_t patterns;
    int rank;
} lt_optim_stats_config;

/* Lists the tables; if off, *out is unchanged. optim: before its first step, its state sharded already. Errors: LT_E_ARG
 * (a pattern that is invalid or matches no parameter; every below 0), LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_optim_stats_new(lt_optim_stats **out,
                                           const lt_optim_stats_config *config);
void lt_optim_stats_free(lt_optim_stats **stats);

/* Returns true if the last measured step updated the parameter. */
static inline bool lt_stats_is_updated(const lt_optim_stats *s, const lt_stat_param *p)
{
    return p->slot && p->param->has_grad && !s->skipped;
}

#endif
