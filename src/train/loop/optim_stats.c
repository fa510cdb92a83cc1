/* Header, records and summary of --optim-stats. */

#include "optim_stats.h"

#include "base/alloc.h"
#include "train/run/stats_file.h"

#include "lather/detail/json.h"

#include <math.h>
#include <stdlib.h>

/* --- The header of optim_stats.bin --- */

static void put_shape(lt_json_writer *w, lt_shape shape)
{
    lt_json_begin_array(w, "shape");
    for (int d = 0; d < shape.ndim; d++)
        lt_json_put_integer(w, NULL, shape.dim[d]);
    lt_json_end(w);
}

static void put_param_rows(lt_json_writer *w, const lt_optim_stats *s)
{
    for (size_t i = 0; i < s->params; i++) {
        lt_json_begin_object(w, NULL);
        lt_json_put_string(w, "name", s->param[i].param->name);
        put_shape(w, lt_tensor_shape(s->param[i].param->value));
        lt_json_end(w);
    }
}

static void put_block_rows(lt_json_writer *w, const lt_optim_stats *s)
{
    for (size_t i = 0; i < s->regions; i++) {
        const lt_stat_region *r = &s->region[i];
        if (!s->param[r->param].has_blocks)
            continue;
        lt_json_begin_object(w, NULL);
        lt_json_put_integer(w, "parameter", (int64_t)r->param);
        put_shape(w, r->block.shape);
        lt_json_end(w);
    }
}

static void put_factor_rows(lt_json_writer *w, const lt_optim_stats *s)
{
    for (size_t i = 0; i < s->factors; i++) {
        const lt_stat_factor *f = &s->factor[i];
        lt_json_begin_object(w, NULL);
        lt_json_put_integer(w, "block", (int64_t)s->region[f->region].row);
        lt_json_put_integer(w, "dim", f->dim);
        lt_json_put_integer(w, "size", f->n);
        lt_json_end(w);
    }
}

static void put_tables(lt_json_writer *w, const lt_optim_stats *s)
{
    static void (*const put_rows[LT_STATS_TABLES])(lt_json_writer *, const lt_optim_stats *) = {
        put_param_rows, put_block_rows, put_factor_rows};
    lt_json_begin_array(w, "tables");
    for (int t = 0; t < LT_STATS_TABLES; t++) {
        lt_json_begin_object(w, NULL);
        lt_json_put_string(w, "name", s->table[t].name);
        lt_json_begin_array(w, "columns");
        for (size_t c = 0; c < s->table[t].columns; c++)
            lt_json_put_string(w, NULL, s->table[t].column[c]);
        lt_json_end(w);
        lt_json_begin_array(w, "rows");
        put_rows[t](w, s);
        lt_json_end(w);
        lt_json_end(w);
    }
    lt_json_end(w);
}

lt_status lt_train_stats_open_file(lt_train_stats *t, const lt_run *run, const char *id)
{
    lt_json_writer w = {0};
    const char *text;
    size_t bytes;
    if (!t->optim || !lt_run_folder(run) || t->optim->rank)
        return LT_OK;
    lt_json_begin_object(&w, NULL);
    lt_json_put_integer(&w, "format", 1);
    lt_json_put_string(&w, "lather", lt_version());
    lt_json_put_string(&w, "run", id);
    lt_json_put_integer(&w, "every", t->optim->every);
    lt_json_put_string(&w, "optim", lt_optim_name(t->optim->optim));
    lt_json_begin_array(&w, "rules");
    for (int r = 0; r < LT_RULES; r++)
        lt_json_put_string(&w, NULL, lt_optim_rule_name((lt_optim_rule)r));
    lt_json_end(&w);
    put_tables(&w, t->optim);
    lt_json_end(&w);
    lt_status st = lt_json_text(&w, &text, &bytes);
    if (!st)
        st = lt_stats_file_open(&t->file, lt_run_folder(run), text);
    lt_json_writer_clear(&w);
    return st;
}

void lt_train_stats_close(lt_train_stats *t)
{
    if (t->file)
        fclose(t->file);
    lt_optim_stats_free(&t->optim);
    *t = (lt_train_stats){0};
}

/* --- The summary --- */

static int by_value(const void *x, const void *y)
{
    const double *a = x, *b = y;
    return (*a > *b) - (*a < *b);
}

/* Writes the finite values of a column of a record, ascending, to sorted; returns their number. */
static size_t sort_finite(const lt_stat_table *table, int column, const float *record,
                          double *sorted)
{
    const float *value = record + table->first + column;
    size_t count = 0;
    for (size_t i = 0; i < table->rows; i++, value += table->columns)
        if (isfinite(*value))
            sorted[count++] = (double)*value;
    qsort(sorted, count, sizeof *sorted, by_value);
    return count;
}

typedef enum pick { PICK_MIN, PICK_MEDIAN, PICK_MAX, PICK_SUM } pick;

static double pick_of(const double *sorted, size_t count, pick which)
{
    double sum = 0;
    if (!count)
        return (double)NAN;
    for (size_t i = 0; i < count; i++)
        sum += sorted[i];
    return which == PICK_MIN   ? sorted[0]
           : which == PICK_MAX ? sorted[count - 1]
           : which == PICK_SUM ? sum
                               : (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
}

/* Numbers of an event. histogram: TensorBoard shows the column's distribution, too. */
static const struct summary {
    const char *name;
    lt_stats_table table;
    int column;
    pick pick;
    const char *histogram;
} summaries[] = {
    {"update_ratio_min", LT_TABLE_PARAMETER, LT_PARAM_UPDATE_RATIO, PICK_MIN, "update_ratio"},
    {"update_ratio_median", LT_TABLE_PARAMETER, LT_PARAM_UPDATE_RATIO, PICK_MEDIAN, NULL},
    {"update_ratio_max", LT_TABLE_PARAMETER, LT_PARAM_UPDATE_RATIO, PICK_MAX, NULL},
    {"update_cosine_min", LT_TABLE_PARAMETER, LT_PARAM_UPDATE_COSINE, PICK_MIN, "update_cosine"},
    {"update_cosine_median", LT_TABLE_PARAMETER, LT_PARAM_UPDATE_COSINE, PICK_MEDIAN, NULL},
    {"gradient_norm_max", LT_TABLE_PARAMETER, LT_PARAM_GRADIENT_NORM, PICK_MAX, NULL},
    {"condition_max", LT_TABLE_FACTOR, LT_FACTOR_CONDITION, PICK_MAX, "condition"},
    {"below_epsilon_max", LT_TABLE_FACTOR, LT_FACTOR_BELOW_EPSILON, PICK_MAX, NULL},
    {"effective_rank_min", LT_TABLE_FACTOR, LT_FACTOR_EFFECTIVE_RANK, PICK_MIN, NULL},
    {"root_age_max", LT_TABLE_FACTOR, LT_FACTOR_ROOT_AGE, PICK_MAX, NULL},
    {"failures", LT_TABLE_FACTOR, LT_FACTOR_FAILURES, PICK_SUM, NULL},
};
enum { SUMMARIES = sizeof summaries / sizeof *summaries, NAME = 32 };

static size_t count_rules(const lt_stat_table *params, const float *record, lt_metric *metric,
                          char name[LT_RULES][NAME])
{
    int found[LT_RULES] = {0};
    size_t count = 0;
    for (size_t i = 0; i < params->rows; i++)
        found[(int)record[params->first + i * params->columns + LT_PARAM_RULE]]++;
    for (int r = 0; r < LT_RULES; r++) {
        if (!found[r])
            continue;
        snprintf(name[r], NAME, "rule_%s", lt_optim_rule_name((lt_optim_rule)r));
        metric[count++] = (lt_metric){name[r], found[r]};
    }
    return count;
}

static lt_status write_summary(const lt_optim_stats *stats, lt_run *run, int64_t step,
                               const float *record, double *sorted)
{
    lt_metric metric[SUMMARIES + LT_RULES + 1];
    char name[LT_RULES][NAME];
    size_t count = 0;
    for (int i = 0; i < SUMMARIES; i++) {
        const struct summary *s = &summaries[i];
        const size_t values = sort_finite(&stats->table[s->table], s->column, record, sorted);
        metric[count++] = (lt_metric){s->name, pick_of(sorted, values, s->pick)};
        if (s->histogram)
            LT_TRY(lt_run_histogram(run, "optim_stats", s->histogram, step, sorted, values));
    }
    count += count_rules(&stats->table[LT_TABLE_PARAMETER], record, metric + count, name);
    metric[count++] = (lt_metric){"skipped", stats->skipped ? 1 : (double)NAN};
    return lt_run_event_scalars(run, "optim_stats", step, metric, count);
}

lt_status lt_train_stats_write(const lt_train_stats *t, lt_run *run, int64_t step)
{
    const lt_optim_stats *s = t->optim;
    lt_status st = LT_OK;
    if (s->rank)
        return LT_OK;
    float *record = lt_alloc(s->width, sizeof *record);
    double *sorted = lt_alloc(s->params + s->factors, sizeof *sorted);
    if (!record || !sorted)
        st = LT_E_NOMEM;
    if (!st)
        lt_optim_stats_record(s, record);
    if (!st && t->file)
        st = lt_stats_file_write(t->file, step, record, s->width);
    if (!st)
        st = write_summary(s, run, step, record, sorted);
    lt_free(record);
    lt_free(sorted);
    return st;
}
