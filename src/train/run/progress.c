/* The progress bar, and its plain lines for files and pipes. */

#include "progress.h"

#include "base/clock.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { DEFAULT_WIDTH = 80, MAX_WIDTH = 400, BAR_CELLS = 20, LOG_EVERY = 50 };

static const double REDRAW_SECONDS = 0.1;
/* Weight of a step in the smoothed numbers, which begin as plain means. */
static const double NEWEST = 0.05;

/* Returns the terminal's width, read at each drawing, so that a resized window needs no signal handler. */
static int terminal_width(FILE *out)
{
    const char *text = getenv("COLUMNS");
    long width = text ? strtol(text, NULL, 10) : 0;
    struct winsize size;
    if (width <= 0 && !ioctl(fileno(out), TIOCGWINSZ, &size))
        width = size.ws_col;
    return width <= 0 ? DEFAULT_WIDTH : width > MAX_WIDTH ? MAX_WIDTH : (int)width;
}

void lt_bar_begin(lt_bar *bar, FILE *out, const lt_run_config *config)
{
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
    bool is_terminal = isatty(fileno(out)) && !(term && !strcmp(term, "dumb"));
    *bar = (lt_bar){.out = out,
                    .is_on = config->progress != LT_PROGRESS_OFF && config->rank == 0,
                    .is_bar = config->progress == LT_PROGRESS_BAR
                              || (config->progress == LT_PROGRESS_AUTO && is_terminal),
                    .color = is_terminal && !(no_color && *no_color),
                    .log_every = config->log_every > 0 ? config->log_every : LOG_EVERY,
                    .total_steps = config->total_steps,
                    .steps_per_epoch = config->steps_per_epoch,
                    .step_offset = config->step_offset,
                    .total_epochs = config->total_epochs,
                    .label = config->label,
                    .labels = config->labels,
                    .unit = config->unit_short ? config->unit_short : "samples",
                    .step_wait = (double)NAN};
    for (int i = 0; i < LT_BAR_METRICS; i++)
        bar->metric[i] = (double)NAN;
}

const char *lt_duration_text(double seconds, char *text)
{
    int64_t s = isfinite(seconds) && seconds > 0 ? (int64_t)fmin(seconds + 0.5, 1e9) : 0;
    if (s >= 3600)
        snprintf(text, 32, "%" PRId64 ":%02d:%02d", s / 3600, (int)(s / 60 % 60), (int)(s % 60));
    else
        snprintf(text, 32, "%d:%02d", (int)(s / 60), (int)(s % 60));
    return text;
}

size_t lt_bar_format_metric(const lt_bar *bar, const char *name, double value, char *text,
                            size_t size)
{
    const lt_metric_label plain = {.name = name, .label = name}, *l = &plain;
    for (size_t i = 0; i < bar->labels; i++)
        if (!strcmp(bar->label[i].name, name))
            l = &bar->label[i];
    *text = 0;
    if (isnan(value) || !l->label)
        return 0;
    int bytes = snprintf(text, size, " %s %.*f%s%s", l->label, l->unit ? 2 : 4, value,
                         l->unit ? " " : "", l->unit ? l->unit : "");
    return bytes < 0 ? 0 : (size_t)bytes < size ? (size_t)bytes : size - 1;
}

static void update_moving_average(double *mean, double value, double weight)
{
    if (!isfinite(value)) /* a skipped step's loss */
        return;
    *mean = isnan(*mean) ? value : *mean + weight * (value - *mean);
}

static void update_averages(lt_bar *bar, const lt_run_step_record *r)
{
    const double weight = fmax(NEWEST, 1.0 / (double)++bar->smoothed);
    for (size_t i = 0; i < r->metrics && i < LT_BAR_METRICS; i++)
        update_moving_average(&bar->metric[i], r->metric[i].value, weight);
    if (r->seconds > 0) {
        update_moving_average(&bar->step_samples, (double)r->samples, weight);
        update_moving_average(&bar->step_seconds, r->seconds, weight);
        update_moving_average(&bar->step_wait, r->data_seconds, weight);
    }
}

/* Formats "loss 2.31  top-1 41.2 %  310 img/s  data 3 %  eta 4:10". */
static void format_metrics_and_eta(const lt_bar *bar, const lt_run_step_record *r, char *text,
                                   size_t size)
{
    char eta[32], one[64];
    size_t used = 0;
    text[0] = 0;
#define APPEND(...)                                                          \
    do {                                                                     \
        if (used < size)                                                     \
            used += (size_t)snprintf(text + used, size - used, __VA_ARGS__); \
    } while (0)
    for (size_t i = 0; i < r->metrics && i < LT_BAR_METRICS; i++)
        if (lt_bar_format_metric(bar, r->metric[i].name, bar->metric[i], one, sizeof one))
            APPEND("%s  ", one + 1);
    const double rate = bar->step_samples / bar->step_seconds;
    if (bar->step_seconds > 0)
        APPEND("%.*f %s/s  ", rate < 100 ? 1 : 0, rate, bar->unit);
    if (bar->step_seconds > 0 && !isnan(bar->step_wait))
        APPEND("data %.0f %%  ", 100 * bar->step_wait / bar->step_seconds);
    if (bar->total_steps > r->step)
        APPEND("eta %s",
               lt_duration_text((double)(bar->total_steps - r->step) * bar->step_seconds, eta));
#undef APPEND
    for (size_t end = strlen(text); end && text[end - 1] == ' ';)
        text[--end] = 0;
}

/* Erases the drawn bar. */
static void erase_bar(lt_bar *bar)
{
    if (bar->is_drawn)
        fputs("\r\033[K", bar->out);
    bar->is_drawn = false;
}

/* Draws one line, cut to the window, as a wrapped line could not be erased. */
static void draw_bar(lt_bar *bar, const char *head, double share, const char *tail)
{
    char cells[BAR_CELLS + 1] = "", line[1024];
    int full = (int)(share * BAR_CELLS + 0.5), width = terminal_width(bar->out) - 1;
    for (int i = 0; i < BAR_CELLS; i++)
        cells[i] = i < full ? '#' : '.';
    int bytes = snprintf(line, sizeof line, "%s [%s] %3.0f %%  %s", head, cells, 100 * share, tail);
    if (bytes > width)
        line[width > 0 ? width : 0] = 0;
    erase_bar(bar);
    fprintf(bar->out, bar->color ? "\033[36m%s\033[0m" : "%s", line);
    fflush(bar->out);
    bar->is_drawn = true;
    bar->drawn = lt_clock_seconds();
}

static void head_text(const lt_bar *bar, const lt_run_step_record *r, char *text, size_t size)
{
    if (bar->total_epochs)
        snprintf(text, size, "epoch %" PRId64 "/%" PRId64, r->epoch + 1, bar->total_epochs);
    else
        snprintf(text, size, "epoch %" PRId64, r->epoch + 1);
}

static double epoch_share(const lt_bar *bar, const lt_run_step_record *r)
{
    if (bar->steps_per_epoch > 0)
        return (double)((r->step - bar->step_offset - 1) % bar->steps_per_epoch + 1)
               / (double)bar->steps_per_epoch;
    return bar->total_steps > 0 ? fmin(1, (double)r->step / (double)bar->total_steps) : 0;
}

void lt_bar_step(lt_bar *bar, const lt_run_step_record *r)
{
    if (!bar->is_on)
        return;
    char head[64], tail[256];
    update_averages(bar, r);
    bool is_last = r->step == bar->total_steps;
    if (bar->is_bar && !is_last && lt_clock_seconds() - bar->drawn < REDRAW_SECONDS)
        return;
    if (!bar->is_bar && r->step != 1 && r->step % bar->log_every != 0 && !is_last)
        return;
    head_text(bar, r, head, sizeof head);
    format_metrics_and_eta(bar, r, tail, sizeof tail);
    if (bar->is_bar) {
        draw_bar(bar, head, epoch_share(bar, r), tail);
        return;
    }
    if (bar->total_steps)
        fprintf(bar->out, "%s  step %" PRId64 "/%" PRId64 "  %s\n", head, r->step, bar->total_steps,
                tail);
    else
        fprintf(bar->out, "%s  step %" PRId64 "  %s\n", head, r->step, tail);
    fflush(bar->out);
}

void lt_bar_draw_part(lt_bar *bar, const char *name, int64_t done, int64_t total)
{
    if (!bar->is_on || !bar->is_bar
        || (done < total && lt_clock_seconds() - bar->drawn < REDRAW_SECONDS))
        return;
    draw_bar(bar, name, total > 0 ? fmin(1, (double)done / (double)total) : 0, "");
}

void lt_bar_line(lt_bar *bar, const char *text)
{
    if (!bar->is_on)
        return;
    erase_bar(bar);
    fprintf(bar->out, "%s\n", text);
    fflush(bar->out);
}

void lt_bar_clear(lt_bar *bar)
{
    erase_bar(bar);
    fflush(bar->out);
}

void lt_bar_end(lt_bar *bar)
{
    if (bar->is_on && bar->is_drawn)
        fputc('\n', bar->out);
    bar->is_drawn = false;
}
