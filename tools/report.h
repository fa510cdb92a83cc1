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
    bool bare;      /* lines are named elsewhere on the page */
} report_chart;

/* The chart as an <svg> element; nothing if no line has a point. */
void report_draw(FILE *out, const report_chart *chart);
/* Text with & < > " as entities. */
void report_escape(FILE *out, const char *text);

enum { REPORT_COLOURS = 8, REPORT_POINTS = 600 };

/* report.c: everything up to the heading, and behind the last part. */
void report_begin(FILE *out, const char *title);
void report_end(FILE *out);

/* report_eval.c: classes, what they are taken for, and sample pictures, of a file that --eval wrote.
 * Nothing if it is not there. Errors: LT_E_FORMAT, LT_E_NOMEM. */
LT_MUST_CHECK lt_status report_evaluation(FILE *out, const char *path);

/* report_compare.c: 2 to REPORT_COLOURS runs on one page. Errors: as report_read(). */
LT_MUST_CHECK lt_status report_compare(FILE *out, const char *const *run, size_t count);

/* report_settings.c: a run's config.yaml: name and value of each setting, in the order of the file. Starts as {0}. */
typedef struct report_settings {
    char **name, **value; /* owned */
    size_t count, capacity;
} report_settings;
/* A file that cannot be read has none. Errors: LT_E_NOMEM. */
LT_MUST_CHECK lt_status report_settings_read(report_settings *out, const char *path);
/* NULL: there is none of that name. */
const char *report_settings_find(const report_settings *settings, const char *name);
void report_settings_clear(report_settings *settings);

#endif
