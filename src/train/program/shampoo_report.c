/* Statistics of Shampoo's last step, the table of its blocks (their number, shapes, state, modelled cost and balance over
 * ranks), and the rule of each parameter. */

#include "lather/detail/shampoo_report.h"

#include "base/alloc.h"
#include "base/shared_file.h"
#include "program.h"

#include "lather/ext/fail.h"
#include "lather/ext/optim.h"
#include "lather/shard.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double mib = 0x1p20, per_ms = 1e-6; /* milliseconds of a nanosecond */

/* Blocks of one shape, or all blocks. */
typedef struct group {
    lt_shape shape;
    int64_t count, factors, factor_bytes, state_bytes;
    double step_ns, refresh_ns;
} group;

/* Destination of lines. */
typedef struct sink {
    lt_run *run; /* shows them; NULL: not shown */
    FILE *file;  /* NULL: not written */
} sink;

static void write_report_line(const sink *out, const char *fmt, ...) LT_PRINTF(2, 3);
static void write_report_line(const sink *out, const char *fmt, ...)
{
    char line[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    if (out->run)
        lt_run_note(out->run, "%s", line);
    if (out->file)
        fprintf(out->file, "%s\n", line);
}

static void add_block_to_group(group *g, const lt_shampoo_block *b)
{
    g->shape = b->shape;
    g->count++;
    g->factors += b->factors;
    g->factor_bytes += b->factor_bytes;
    g->state_bytes += b->state_bytes;
    g->step_ns += b->step_ns;
    g->refresh_ns += b->refresh_ns;
}

static int by_cost(const void *x, const void *y)
{
    const group *a = x, *b = y;
    double left = a->refresh_ns + a->step_ns, right = b->refresh_ns + b->step_ns;
    return left > right ? -1 : left < right;
}

static size_t count_blocks(const lt_optim *optim)
{
    lt_shampoo_block b;
    size_t count = 0;
    while (!lt_shampoo_block_at(optim, count, &b))
        count++;
    return count;
}

/* Groups blocks by shape, the most expensive first; returns the number of shapes. */
static size_t group_blocks_by_shape(const lt_optim *optim, size_t blocks, group *list, group *total)
{
    size_t count = 0;
    for (size_t i = 0; i < blocks; i++) {
        lt_shampoo_block b;
        size_t k = 0;
        if (lt_shampoo_block_at(optim, i, &b))
            break;
        while (k < count && !lt_shape_equal(list[k].shape, b.shape))
            k++;
        count += k == count;
        add_block_to_group(&list[k], &b);
        add_block_to_group(total, &b);
    }
    qsort(list, count, sizeof *list, by_cost);
    return count;
}

static void show_groups(const sink *out, const group *list, size_t count)
{
    char shape[LT_SHAPE_TEXT];
    write_report_line(out, "  %-18s %6s %8s %12s %10s %12s", "shape", "blocks", "factors",
                      "factors MiB", "step ms", "refresh ms");
    for (size_t i = 0; i < count; i++)
        write_report_line(out, "  %-18s %6lld %8lld %12.2f %10.3f %12.2f",
                          lt_shape_text(list[i].shape, shape), (long long)list[i].count,
                          (long long)list[i].factors, (double)list[i].factor_bytes / mib,
                          per_ms * list[i].step_ns, per_ms * list[i].refresh_ns);
}

/* Shows one line per rank, if the state is sharded. */
static void show_owners(const sink *out, const lt_optim *optim)
{
    double sum = 0, most = 0;
    lt_shard_load load;
    int ranks = 0;
    for (; !lt_optim_shard_load(optim, ranks, &load); ranks++) {
        if (!ranks)
            write_report_line(out, "  %-18s %6s %12s %20s %12s", "owner", "blocks", "state MiB",
                              "modelled ms a step", "gathers MiB");
        write_report_line(out, "  rank %-13d %6lld %12.2f %20.3f %12.2f", ranks,
                          (long long)load.parts, (double)load.state_bytes / mib, per_ms * load.cost,
                          (double)load.gather_bytes / mib);
        sum += load.cost;
        most = load.cost > most ? load.cost : most;
    }
    if (ranks && sum > 0)
        write_report_line(out, "  the busiest rank has %.3f times the mean", most * ranks / sum);
}

/* --- Rules of parameters --- */

/* Parameters that one rule updates. */
typedef struct rule_count {
    const char *rule;
    int params;
    int64_t elements;
} rule_count;

/* Counts the parameters of each rule in the order in which rules occur; returns the number of rules. */
static int count_rules(const lt_optim *optim, rule_count count[LT_RULES])
{
    lt_param_rule p;
    int rules = 0;
    for (size_t i = 0; !lt_optim_param_rule(optim, i, &p); i++) {
        int k = 0;
        while (k < rules && strcmp(count[k].rule, p.rule) != 0)
            k++;
        LT_ASSERT(k < LT_RULES);
        if (k == rules)
            count[rules++] = (rule_count){.rule = p.rule};
        count[k].params++;
        count[k].elements += lt_shape_count(p.shape);
    }
    return rules;
}

static void show_rules(const sink *out, const lt_optim *optim)
{
    rule_count count[LT_RULES];
    char line[200] = "";
    const int rules = count_rules(optim, count);
    for (int k = 0, at = 0; k < rules && at < (int)sizeof line; k++)
        at += snprintf(line + at, sizeof line - (size_t)at, "%s%s %d parameters of %.2f M elements",
                       k ? ", " : "", count[k].rule, count[k].params,
                       1e-6 * (double)count[k].elements);
    write_report_line(out, "rules: %s", line);
}

static void list_rules(const sink *out, const lt_optim *optim)
{
    char shape[LT_SHAPE_TEXT], block[LT_SHAPE_TEXT], blocks[LT_SHAPE_TEXT + 32];
    lt_param_rule p;
    write_report_line(out, "  %-48s %-18s %-12s %-22s %8s", "parameter", "shape", "rule", "blocks",
                      "lr scale");
    for (size_t i = 0; !lt_optim_param_rule(optim, i, &p); i++) {
        snprintf(blocks, sizeof blocks, "%lld of %s", (long long)p.blocks,
                 lt_shape_text(p.block, block));
        write_report_line(out, "  %-48s %-18s %-12s %-22s %8g", p.param,
                          lt_shape_text(p.shape, shape), p.rule, p.blocks ? blocks : "-",
                          p.lr_scale);
    }
}

/* --- The report --- */

static void show_blocks(const sink *out, const sink *table, const lt_optim *optim,
                        const group *total, const group *list, size_t count)
{
    double f = (double)lt_shampoo_settings(optim)->precondition_frequency;
    write_report_line(
        out,
        "blocks: %lld with %lld factors, %.1f MiB of factors and inverse roots in %.1f MiB of state; "
        "modelled on one core: %.1f ms a step, %.1f ms a refresh, %.1f ms a step with 1/%g of it",
        (long long)total->count, (long long)total->factors, (double)total->factor_bytes / mib,
        (double)total->state_bytes / mib, per_ms * total->step_ns, per_ms * total->refresh_ns,
        per_ms * (total->step_ns + total->refresh_ns / f), f);
    show_groups(table, list, count);
    show_owners(table, optim);
}

static lt_status open_file(const char *folder, FILE **file)
{
    char path[1200];
    *file = NULL;
    if (!folder)
        return LT_OK;
    snprintf(path, sizeof path, "%s/blocks.txt", folder);
    return lt_shared_open_stream(file, path, 'w');
}

static lt_status report_blocks(const sink *out, const sink *table, const lt_optim *optim)
{
    size_t blocks = count_blocks(optim);
    group total = {0}, *list;
    LT_TRY(LT_ALLOC(&list, blocks));
    size_t count = group_blocks_by_shape(optim, blocks, list, &total);
    show_blocks(out, table, optim, &total, list, count);
    lt_free(list);
    return LT_OK;
}

lt_status lt_rules_report(const lt_optim *optim, lt_run *run, int rank, bool is_verbose)
{
    if (!optim->ops->describe)
        return LT_OK;
    sink out = {.run = run};
    LT_TRY(open_file(rank ? NULL : lt_run_folder(run), &out.file));
    const sink table = {is_verbose ? run : NULL, out.file};
    lt_status st = lt_shampoo_settings(optim) ? report_blocks(&out, &table, optim) : LT_OK;
    if (!st) {
        show_rules(&out, optim);
        list_rules(&table, optim);
    }
    if (out.file && fclose(out.file) && !st)
        st = lt_fail(LT_E_IO, "%s/blocks.txt: %s", lt_run_folder(run), strerror(errno));
    return st;
}

void lt_shampoo_step_metrics(const lt_optim *optim, bool is_divided, lt_metric out[SHAMPOO_VALUES])
{
    const double unknown = (double)NAN;
    const lt_shampoo_config *shampoo = lt_shampoo_settings(optim);
    const bool async = shampoo && shampoo->refresh_timing == LT_REFRESH_ASYNC;
    const lt_shampoo_stats got = lt_shampoo_statistics(optim);
    const lt_metric value[SHAMPOO_VALUES] = {
        {"shampoo_factor_seconds", got.factor_seconds},
        {"shampoo_root_seconds", got.root_seconds},
        {"shampoo_apply_seconds", got.apply_seconds},
        {"shampoo_roots", (double)got.roots},
        {"shampoo_root_retries", (double)got.retries},
        {"shampoo_root_failures", (double)got.failures},
        {"shampoo_root_age", (double)got.root_age},
        {"shampoo_gather_seconds", is_divided ? got.gather_seconds : unknown},
        {"shampoo_wait_seconds", async ? got.wait_seconds : unknown},
        {"shampoo_worker_seconds", async ? got.worker_seconds : unknown},
    };
    for (int i = 0; i < SHAMPOO_VALUES; i++)
        out[i] = (lt_metric){value[i].name, shampoo ? value[i].value : unknown};
}
