/* Progress of a run on stderr: a bar on a terminal, otherwise lines. */
#ifndef LT_TRAIN_PROGRESS_H
#define LT_TRAIN_PROGRESS_H

#include "lather/detail/run.h"

#include <stdio.h>

enum { LT_BAR_METRICS = 8 }; /* largest number of metrics shown; further ones are not */

typedef struct lt_bar {
    FILE *out;
    bool is_on, is_bar, color, is_drawn;
    int64_t log_every, total_steps, steps_per_epoch, step_offset, total_epochs;
    const char *unit;
    const lt_metric_label *label;
    size_t labels;
    double drawn; /* time at which the bar was last drawn, in seconds */
    /* Smoothed values: metrics; per step, samples, seconds, and seconds waited for data. */
    double metric[LT_BAR_METRICS], step_samples, step_seconds, step_wait;
    int64_t smoothed; /* number of steps that were smoothed */
} lt_bar;

/* Starts the bar, by the terminal and the environment: NO_COLOR, COLUMNS. */
void lt_bar_begin(lt_bar *bar, FILE *out, const lt_run_config *config);
void lt_bar_step(lt_bar *bar, const lt_run_step_record *record);
void lt_bar_draw_part(lt_bar *bar, const char *name, int64_t done, int64_t total);
/* Prints a separate line above the bar. */
void lt_bar_line(lt_bar *bar, const char *text);
/* Erases the bar, so that others can print. */
void lt_bar_clear(lt_bar *bar);
void lt_bar_end(lt_bar *bar);

/* Writes " top-1 71.30 %" or " loss 2.3100" into text of size bytes; "" if the value is unknown. Returns the
 * number of characters. */
size_t lt_bar_format_metric(const lt_bar *bar, const char *name, double value, char *text,
                            size_t size);

/* Formats "1:02:03" or "4:05". Returns text, of 32 bytes. */
const char *lt_duration_text(double seconds, char *text);

#endif
