/* What the parts of `report` share: numbers of a run, and a chart of them. */
#ifndef TOOLS_REPORT_H
#define TOOLS_REPORT_H

#include "lather/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Points in the order of x. Starts as {0}. */
typedef struct report_series {
    double *x, *y;
    size_t count, capacity;
} report_series;

/* What metrics.jsonl says, over the step number. */
typedef struct report_metrics {
    report_series loss, lr, speed, wait;          /* of steps */
    report_series train_loss, val_loss;           /* of epochs */
    report_series train_top1, val_top1, val_top5; /* percent */
    double seconds, eval_seconds;                 /* of all epochs */
    size_t lines, unread;                         /* unread: not an object of ours */
} report_metrics;

/* Errors: LT_E_IO, LT_E_NOMEM, LT_E_FORMAT (no line of metrics in it). */
LT_MUST_CHECK lt_status report_read(report_metrics *out, const char *path);
void report_clear(report_metrics *metrics);
/* Means of at most `most` stretches of equal length, so that a curve of a million steps stays small.
 * Errors: LT_E_NOMEM. */
LT_MUST_CHECK lt_status report_thin(report_series *series, size_t most);

typedef struct report_line {
    const char *label;
    const report_series *series;
    bool dots; /* a mark at every point */
} report_line;

typedef struct report_chart {
    const char *title, *unit;
    const report_line *line;
    size_t count;
    bool from_zero; /* the axis begins at 0 */
} report_chart;

/* The chart as an <svg> element; nothing if no line has a point. */
void report_draw(FILE *out, const report_chart *chart);
/* Text with & < > " as entities. */
void report_escape(FILE *out, const char *text);

#endif
