/* The record of an event: its tables, from the sums over ranks. */

#include "stats.h"

#include <math.h>

static const char *const param_columns[LT_PARAM_STATS] = {
    "rule",         "weight_norm",   "gradient_norm",      "update_norm",
    "update_ratio", "update_cosine", "consecutive_cosine", "zero_gradient_rows"};
static const char *const block_columns[LT_BLOCK_STATS] = {
    "rule", "graft_ratio", "weight_norm", "gradient_norm", "update_norm", "update_cosine"};
static const char *const factor_columns[LT_FACTOR_STATS] = {"eigenvalue_min",
                                                            "eigenvalue_max",
                                                            "condition",
                                                            "effective_rank",
                                                            "below_epsilon",
                                                            "off_diagonal",
                                                            "epsilon",
                                                            "root_age",
                                                            "residual",
                                                            "failures",
                                                            "spectrum_age",
                                                            "q0",
                                                            "q1",
                                                            "q2",
                                                            "q3",
                                                            "q4",
                                                            "q5",
                                                            "q6",
                                                            "q7",
                                                            "q8"};

size_t lt_optim_stats_rows(const lt_optim_stats *s, lt_stats_table table)
{
    const size_t rows[LT_STATS_TABLES] = {s->params, s->blocks, s->factors};
    return rows[table];
}

size_t lt_optim_stats_columns(const lt_optim_stats *s, lt_stats_table table)
{
    const size_t columns[LT_STATS_TABLES] = {LT_PARAM_STATS + (size_t)s->own, LT_BLOCK_STATS,
                                             LT_FACTOR_STATS};
    return columns[table];
}

const char *lt_optim_stats_column(const lt_optim_stats *s, lt_stats_table table, size_t column)
{
    if (table == LT_TABLE_PARAMETER && column >= LT_PARAM_STATS)
        return s->optim->ops->stat_name[column - LT_PARAM_STATS];
    const char *const *const names[LT_STATS_TABLES] = {param_columns, block_columns,
                                                       factor_columns};
    return names[table][column];
}

size_t lt_optim_stats_width(const lt_optim_stats *s)
{
    size_t width = 0;
    for (int t = 0; t < LT_STATS_TABLES; t++)
        width += lt_optim_stats_rows(s, (lt_stats_table)t)
                 * lt_optim_stats_columns(s, (lt_stats_table)t);
    return width;
}

/* Returns the cosine of an inner product, NaN if a norm is 0. */
static double cosine(double product, double xx, double yy)
{
    return xx > 0 && yy > 0 ? product / sqrt(xx * yy) : (double)NAN;
}

/* Sets rules that the library knows; returns true if the parameter was updated. */
static bool updated_rule(const lt_optim_stats *s, const lt_stat_param *p, double found,
                         double *rule)
{
    const bool gradient = p->slot && p->param->has_grad;
    *rule = !p->slot     ? LT_RULE_FROZEN
            : s->skipped ? LT_RULE_SKIPPED
            : !gradient  ? LT_RULE_NO_GRADIENT
                         : found;
    return gradient && !s->skipped;
}

static double share_of_zero_rows(const lt_optim_stats *s, size_t param)
{
    const lt_shape shape = lt_tensor_shape(s->param[param].param->value);
    const int64_t rows = shape.ndim ? shape.dim[0] : 1;
    int64_t zero = 0;
    for (int64_t i = 0; i < rows; i++)
        zero += !(lt_stats_nonzero(s, param)[i] > 0);
    return (double)zero / (double)rows;
}

static void write_param(const lt_optim_stats *s, size_t index, double *out)
{
    const lt_stat_param *p = &s->param[index];
    const double *number = lt_stats_param(s, index);
    double sum[LT_SUMS] = {0};
    for (size_t i = p->region; i < p->region + p->regions; i++)
        for (int k = 0; k < LT_SUMS; k++)
            sum[k] += lt_stats_sums(s, i)[k];
    const bool updated = updated_rule(s, p, number[0], &out[LT_PARAM_RULE]);
    out[LT_PARAM_WEIGHT_NORM] = sqrt(sum[LT_SUM_WW]);
    for (int k = LT_PARAM_GRADIENT_NORM; k < LT_PARAM_STATS + s->own; k++)
        out[k] = (double)NAN;
    if (!updated)
        return;
    out[LT_PARAM_GRADIENT_NORM] = s->grad_scale * sqrt(sum[LT_SUM_GG]);
    out[LT_PARAM_UPDATE_NORM] = sqrt(sum[LT_SUM_UU]);
    out[LT_PARAM_UPDATE_RATIO] =
        sum[LT_SUM_WW] > 0 ? sqrt(sum[LT_SUM_UU] / sum[LT_SUM_WW]) : (double)NAN;
    out[LT_PARAM_UPDATE_COSINE] = cosine(-sum[LT_SUM_UG], sum[LT_SUM_UU], sum[LT_SUM_GG]);
    out[LT_PARAM_CONSECUTIVE_COSINE] = cosine(sum[LT_SUM_UV], sum[LT_SUM_UU], sum[LT_SUM_VV]);
    out[LT_PARAM_ZERO_ROWS] = share_of_zero_rows(s, index);
    for (int k = 0; k < s->own; k++)
        out[LT_PARAM_STATS + k] = number[1 + k];
}

static void write_block(const lt_optim_stats *s, size_t region, double *out)
{
    const double *sum = lt_stats_sums(s, region), *number = lt_stats_block(s, region);
    const bool updated =
        updated_rule(s, &s->param[s->region[region].param], number[0], &out[LT_BLOCK_RULE]);
    const double unknown = (double)NAN;
    out[LT_BLOCK_GRAFT_RATIO] = updated ? number[1] : unknown;
    out[LT_BLOCK_WEIGHT_NORM] = sqrt(sum[LT_SUM_WW]);
    out[LT_BLOCK_GRADIENT_NORM] = updated ? s->grad_scale * sqrt(sum[LT_SUM_GG]) : unknown;
    out[LT_BLOCK_UPDATE_NORM] = updated ? sqrt(sum[LT_SUM_UU]) : unknown;
    out[LT_BLOCK_UPDATE_COSINE] =
        updated ? cosine(-sum[LT_SUM_UG], sum[LT_SUM_UU], sum[LT_SUM_GG]) : unknown;
}

void lt_optim_stats_values(const lt_optim_stats *s, float *out)
{
    double row[LT_PARAM_STATS + LT_MAX_STATS];
    for (size_t i = 0; i < s->params; i++) {
        write_param(s, i, row);
        for (int k = 0; k < LT_PARAM_STATS + s->own; k++)
            *out++ = (float)row[k];
    }
    for (size_t i = 0; i < s->regions; i++) {
        if (!s->param[s->region[i].param].blocks)
            continue;
        write_block(s, i, row);
        for (int k = 0; k < LT_BLOCK_STATS; k++)
            *out++ = (float)row[k];
    }
    for (size_t i = 0; i < s->factors; i++)
        for (int k = 0; k < LT_FACTOR_STATS; k++)
            *out++ = (float)lt_stats_factor(s, i)[k];
}
