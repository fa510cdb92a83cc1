/* Several runs on one page: a curve of each in every chart, what of their settings differs, their last numbers. */

#include "report.h"

#include "lather/ext/fail.h"
#include "lather/text.h"

#include <limits.h>
#include <math.h>
#include <string.h>

typedef struct runs {
    const char *name[REPORT_COLOURS];
    report_metrics metrics[REPORT_COLOURS];
    report_settings settings[REPORT_COLOURS];
    size_t count;
} runs;

static lt_status read_runs(runs *r, const char *const *run, size_t count)
{
    char path[PATH_MAX];
    for (size_t i = 0; i < count; i++) {
        r->name[i] = run[i];
        r->count = i + 1;
        snprintf(path, sizeof path, "%s/metrics.jsonl", run[i]);
        LT_TRY(report_read(&r->metrics[i], path));
        snprintf(path, sizeof path, "%s/config.yaml", run[i]);
        LT_TRY(report_settings_read(&r->settings[i], path));
    }
    return LT_OK;
}

static void write_name(FILE *out, const runs *r, size_t i)
{
    char shown[PATH_MAX];
    fprintf(out, "<span class=\"c%zu\">&#9632;</span> ", i);
    report_escape(out, lt_text_escape(shown, sizeof shown, r->name[i]));
}

static void write_heads(FILE *out, const runs *r)
{
    fputs("<div class=\"wide\"><table>\n<tr><th>", out);
    for (size_t i = 0; i < r->count; i++) {
        fputs("<th>", out);
        write_name(out, r, i);
    }
    fputs("</tr>\n", out);
}

/* A value of each run, or nothing where a run has none. */
typedef double value_fn(const report_metrics *m);

static double last(const report_series *s)
{
    return s->count ? s->y[s->count - 1] : (double)NAN;
}

static double best(const report_series *s)
{
    double value = (double)NAN;
    for (size_t i = 0; i < s->count; i++)
        value = fmax(value, s->y[i]); /* a NaN gives way */
    return value;
}

static double last_step(const report_metrics *m)
{
    return m->loss.count ? m->loss.x[m->loss.count - 1] : (double)NAN;
}

static double epochs(const report_metrics *m)
{
    return (double)m->train_loss.count;
}

static double last_top1(const report_metrics *m)
{
    return last(&m->val_top1);
}

static double best_top1(const report_metrics *m)
{
    return best(&m->val_top1);
}

static double last_top5(const report_metrics *m)
{
    return last(&m->val_top5);
}

static double last_val_loss(const report_metrics *m)
{
    return last(&m->val_loss);
}

static double last_train_loss(const report_metrics *m)
{
    return last(&m->train_loss);
}

static double seconds(const report_metrics *m)
{
    return m->seconds;
}

static double speed(const report_metrics *m)
{
    double sum = 0;
    for (size_t i = 0; i < m->speed.count; i++)
        sum += m->speed.y[i];
    return m->speed.count ? sum / (double)m->speed.count : (double)NAN;
}

static void write_numbers(FILE *out, const runs *r)
{
    static const struct {
        const char *name, *unit;
        int digits;
        value_fn *value;
    } row[] = {{"top-1 accuracy, last", " %", 2, last_top1},
               {"top-1 accuracy, best", " %", 2, best_top1},
               {"top-5 accuracy, last", " %", 2, last_top5},
               {"evaluation loss, last", "", 4, last_val_loss},
               {"training loss, last epoch", "", 4, last_train_loss},
               {"steps", "", 0, last_step},
               {"epochs", "", 0, epochs},
               {"training", " s", 1, seconds},
               {"speed, mean of steps", " images/s", 0, speed}};
    fputs("<h2>Last numbers</h2>\n", out);
    write_heads(out, r);
    for (size_t k = 0; k < sizeof row / sizeof *row; k++) {
        fprintf(out, "<tr><td>%s", row[k].name);
        for (size_t i = 0; i < r->count; i++) {
            const double value = row[k].value(&r->metrics[i]);
            fputs("<td>", out);
            if (isfinite(value))
                fprintf(out, "%.*f%s", row[k].digits, value, row[k].unit);
        }
        fputs("</tr>\n", out);
    }
    fputs("</table></div>\n", out);
}

static bool same(const char *a, const char *b)
{
    return a && b ? !strcmp(a, b) : a == b;
}

static bool differs(const runs *r, const char *name)
{
    const char *first = report_settings_find(&r->settings[0], name);
    for (size_t i = 1; i < r->count; i++)
        if (!same(first, report_settings_find(&r->settings[i], name)))
            return true;
    return false;
}

static void write_setting(FILE *out, const runs *r, const char *name)
{
    fputs("<tr><td>", out);
    report_escape(out, name);
    for (size_t i = 0; i < r->count; i++) {
        const char *value = report_settings_find(&r->settings[i], name);
        fputs("<td>", out);
        report_escape(out, value ? value : "–");
    }
    fputs("</tr>\n", out);
}

/* Of the first run, then those that only later ones have. */
static void write_settings(FILE *out, const runs *r)
{
    size_t written = 0;
    fputs("<h2>Settings that differ</h2>\n", out);
    for (size_t i = 0; i < r->count; i++)
        for (size_t k = 0; k < r->settings[i].count; k++) {
            const char *name = r->settings[i].name[k];
            bool known = !strcmp(name, "output");
            for (size_t before = 0; before < i && !known; before++)
                known = report_settings_find(&r->settings[before], name);
            if (known || !differs(r, name))
                continue;
            if (!written++)
                write_heads(out, r);
            write_setting(out, r, name);
        }
    fputs(written ? "</table></div>\n" : "<p>None.</p>\n", out);
}

static lt_status write_charts(FILE *out, runs *r)
{
    report_line line[REPORT_COLOURS];
    const struct {
        const char *title, *unit;
        size_t offset; /* of the series in report_metrics */
        bool dots, from_zero;
    } row[] = {
        {"Loss of steps", "", offsetof(report_metrics, loss), false, false},
        {"Evaluation loss", "", offsetof(report_metrics, val_loss), true, false},
        {"Top-1 accuracy of evaluations", "%", offsetof(report_metrics, val_top1), true, false},
        {"Top-1 accuracy in training", "%", offsetof(report_metrics, train_top1), true, false},
        {"Learning rate", "", offsetof(report_metrics, lr), false, true},
        {"Speed", "images/s", offsetof(report_metrics, speed), false, true}};
    for (size_t k = 0; k < sizeof row / sizeof *row; k++) {
        for (size_t i = 0; i < r->count; i++) {
            char *metrics = (char *)&r->metrics[i];
            report_series *s = (report_series *)(void *)(metrics + row[k].offset);
            LT_TRY(report_thin(s, REPORT_POINTS));
            line[i] = (report_line){r->name[i], s, row[k].dots};
        }
        const report_chart chart = {row[k].title, row[k].unit,      line,
                                    r->count,     row[k].from_zero, true};
        report_draw(out, &chart);
    }
    return LT_OK;
}

static lt_status write_all(FILE *out, runs *r)
{
    fputs("<p>", out);
    for (size_t i = 0; i < r->count; i++) {
        write_name(out, r, i);
        fputs("<br>\n", out);
    }
    fputs("</p>\n", out);
    write_numbers(out, r); /* before the curves are thinned */
    write_settings(out, r);
    return write_charts(out, r);
}

lt_status report_compare(FILE *out, const char *const *run, size_t count)
{
    runs r = {0};
    lt_status st = read_runs(&r, run, count);
    if (!st)
        st = write_all(out, &r);
    for (size_t i = 0; i < r.count; i++) {
        report_clear(&r.metrics[i]);
        report_settings_clear(&r.settings[i]);
    }
    return st;
}
