/* The record of an event: its tables, from the sums over ranks. */

#include "stats.h"

#include <math.h>
#include <string.h>

/* Returns the cosine of an inner product, NaN if a norm is 0. */
static double cosine(double product, double xx, double yy)
{
    return xx > 0 && yy > 0 ? product / sqrt(xx * yy) : (double)NAN;
}

/* Returns the rule of a parameter or block: one that the library knows, or the one that was found. */
static double rule_of(const lt_optim_stats *s, const lt_stat_param *p, double found)
{
    return !p->slot                     ? LT_RULE_FROZEN
           : s->skipped                 ? LT_RULE_SKIPPED
           : !lt_stats_is_updated(s, p) ? LT_RULE_NO_GRADIENT
                                        : found;
}

static double share_of_zero_rows(const lt_optim_stats *s, size_t param)
{
    const lt_shape shape = lt_tensor_shape(s->param[param].param->value);
    const int64_t rows = shape.ndim ? shape.dim[0] : 1;
    int64_t zero = 0;
    for (int64_t i = 0; i < rows; i++)
        zero += !(s->of_row[s->param[param].row + (size_t)i] > 0);
    return (double)zero / (double)rows;
}

static void write_param(const lt_optim_stats *s, size_t index, double *out)
{
    const lt_stat_param *p = &s->param[index];
    const lt_param_numbers *number = &s->of_param[index];
    double sum[LT_SUMS] = {0};
    for (size_t i = p->region; i < p->region + p->regions; i++)
        for (int k = 0; k < LT_SUMS; k++)
            sum[k] += s->of_region[i].sum[k];
    out[LT_PARAM_RULE] = rule_of(s, p, number->rule);
    out[LT_PARAM_WEIGHT_NORM] = sqrt(sum[LT_SUM_WW]);
    if (!lt_stats_is_updated(s, p))
        return;
    out[LT_PARAM_GRADIENT_NORM] = s->grad_scale * sqrt(sum[LT_SUM_GG]);
    out[LT_PARAM_UPDATE_NORM] = sqrt(sum[LT_SUM_UU]);
    if (sum[LT_SUM_WW] > 0)
        out[LT_PARAM_UPDATE_RATIO] = sqrt(sum[LT_SUM_UU] / sum[LT_SUM_WW]);
    out[LT_PARAM_UPDATE_COSINE] = cosine(-sum[LT_SUM_UG], sum[LT_SUM_UU], sum[LT_SUM_GG]);
    out[LT_PARAM_CONSECUTIVE_COSINE] = cosine(sum[LT_SUM_UV], sum[LT_SUM_UU], sum[LT_SUM_VV]);
    out[LT_PARAM_ZERO_ROWS] = share_of_zero_rows(s, index);
    for (int k = 0; k < LT_MAX_STATS; k++)
        out[LT_PARAM_STATS + k] = number->own[k];
}

static void write_block(const lt_optim_stats *s, size_t region, double *out)
{
    const lt_stat_param *p = &s->param[s->region[region].param];
    const lt_region_numbers *number = &s->of_region[region];
    const double *sum = number->sum;
    out[LT_BLOCK_RULE] = rule_of(s, p, number->rule);
    out[LT_BLOCK_WEIGHT_NORM] = sqrt(sum[LT_SUM_WW]);
    if (!lt_stats_is_updated(s, p))
        return;
    out[LT_BLOCK_GRAFT_RATIO] = number->graft_ratio;
    out[LT_BLOCK_GRADIENT_NORM] = s->grad_scale * sqrt(sum[LT_SUM_GG]);
    out[LT_BLOCK_UPDATE_NORM] = sqrt(sum[LT_SUM_UU]);
    out[LT_BLOCK_UPDATE_COSINE] = cosine(-sum[LT_SUM_UG], sum[LT_SUM_UU], sum[LT_SUM_GG]);
}

static void write_factor(const lt_optim_stats *s, size_t factor, double *out)
{
    memcpy(out, s->of_factor[factor], sizeof *s->of_factor);
}

/* Writes a row of a table to the record. index: number of its parameter, region or factor. */
static void write_row(const lt_optim_stats *s, lt_stats_table table, size_t row, size_t index,
                      float *record)
{
    static void (*const write[LT_STATS_TABLES])(const lt_optim_stats *, size_t, double *) = {
        write_param, write_block, write_factor};
    const lt_stat_table *t = &s->table[table];
    double value[LT_FACTOR_STATS];
    for (int k = 0; k < LT_FACTOR_STATS; k++)
        value[k] = (double)NAN;
    write[table](s, index, value);
    for (size_t k = 0; k < t->columns; k++)
        record[t->first + row * t->columns + k] = (float)value[k];
}

void lt_optim_stats_record(const lt_optim_stats *s, float *out)
{
    for (size_t i = 0; i < s->params; i++)
        write_row(s, LT_TABLE_PARAMETER, i, i, out);
    for (size_t i = 0; i < s->regions; i++)
        if (s->param[s->region[i].param].has_blocks)
            write_row(s, LT_TABLE_BLOCK, s->region[i].row, i, out);
    for (size_t i = 0; i < s->factors; i++)
        write_row(s, LT_TABLE_FACTOR, i, i, out);
}
