/* report: one self-contained HTML page about a run folder, with curves drawn in place. */

#include "report.h"

#include "lather/ext/fail.h"
#include "lather/options.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

enum { POINTS = 600 };

typedef struct arguments {
    const char *output, *title;
} arguments;

static const lt_option options[] = {
    {.name = "output",
     .alias = 'o',
     .type = LT_OPTION_STRING,
     .offset = offsetof(arguments, output),
     .meta = "FILE",
     .help = "the page to write; else RUN/report.html"},
    {.name = "title",
     .type = LT_OPTION_STRING,
     .offset = offsetof(arguments, title),
     .value = "A training run",
     .meta = "TEXT",
     .help = "heading of the page"},
};

static const lt_program program = {
    .name = "report",
    .summary = "makes an HTML page with the curves of a training run",
    .usage = "RUN [OPTION]...",
    .description = "RUN is a folder that train_resnet50 --output wrote.",
    .option = options,
    .count = sizeof options / sizeof *options,
    .rest = true,
};

static const char style[] =
    "body{font:16px/1.5 system-ui,sans-serif;max-width:760px;margin:2em auto;padding:0 1em;"
    "color:#1c2430;background:#fff}"
    "svg{width:100%;height:auto;margin:.6em 0}svg text{font-size:12px;fill:#667}"
    "svg .head{font-size:15px;fill:#1c2430;font-weight:600}"
    ".grid{stroke:#8884;stroke-width:1}polyline{fill:none;stroke-width:2}"
    "polyline.c0{stroke:#2a6fdb}polyline.c1{stroke:#d9822b}polyline.c2{stroke:#3a9d5d}"
    "circle.c0,svg text.c0{fill:#2a6fdb}circle.c1,svg text.c1{fill:#d9822b}"
    "circle.c2,svg text.c2{fill:#3a9d5d}"
    ".big{font-size:3em;font-weight:700;line-height:1.1}"
    "table{border-collapse:collapse}td{padding:.15em 1.2em .15em 0}"
    "pre{overflow:auto;background:#8881;padding:.8em;border-radius:6px;font-size:13px}"
    "@media(prefers-color-scheme:dark){body{background:#14181f;color:#dde3ea}"
    "svg .head{fill:#dde3ea}svg text{fill:#99a}}";

static double last(const report_series *s)
{
    return s->count ? s->y[s->count - 1] : 0;
}

static double mean(const report_series *s)
{
    double sum = 0;
    for (size_t i = 0; i < s->count; i++)
        sum += s->y[i];
    return s->count ? sum / (double)s->count : 0;
}

static void write_numbers(FILE *out, const report_metrics *m)
{
    if (m->val_top1.count)
        fprintf(out,
                "<p><span class=\"big\">%.2f %%</span><br>top-1 accuracy on the pictures held "
                "back for evaluation</p>\n",
                last(&m->val_top1));
    fputs("<table>\n", out);
    if (m->loss.count)
        fprintf(out, "<tr><td>steps<td>%.0f</tr>\n", m->loss.x[m->loss.count - 1]);
    fprintf(out, "<tr><td>epochs<td>%zu</tr>\n", m->train_loss.count);
    fprintf(out, "<tr><td>training<td>%.1f s</tr>\n", m->seconds);
    fprintf(out, "<tr><td>evaluation<td>%.1f s</tr>\n", m->eval_seconds);
    fprintf(out, "<tr><td>speed, mean of steps<td>%.0f images/s</tr>\n", mean(&m->speed));
    if (m->val_top5.count)
        fprintf(out, "<tr><td>top-5 accuracy<td>%.2f %%</tr>\n", last(&m->val_top5));
    fputs("</table>\n", out);
}

static lt_status write_curves(FILE *out, report_metrics *m)
{
    LT_TRY(report_thin(&m->loss, POINTS));
    LT_TRY(report_thin(&m->lr, POINTS));
    LT_TRY(report_thin(&m->speed, POINTS));
    const report_line loss[] = {{"of steps", &m->loss, false}, {"evaluation", &m->val_loss, true}};
    const report_line top1[] = {{"evaluation", &m->val_top1, true},
                                {"training", &m->train_top1, true}};
    const report_line lr[] = {{"of steps", &m->lr, false}};
    const report_line speed[] = {{"of steps", &m->speed, false}};
    const report_chart chart[] = {{"Loss", "", loss, 2, false},
                                  {"Top-1 accuracy", "%", top1, 2, false},
                                  {"Learning rate", "", lr, 1, true},
                                  {"Speed", "images/s", speed, 1, true}};
    for (size_t i = 0; i < sizeof chart / sizeof *chart; i++)
        report_draw(out, &chart[i]);
    return LT_OK;
}

/* A file of the run folder, if it is there. */
static void write_file(FILE *out, const char *run, const char *name)
{
    char path[PATH_MAX], text[4096];
    snprintf(path, sizeof path, "%s/%s", run, name);
    FILE *file = fopen(path, "r");
    if (!file)
        return;
    fprintf(out, "<details><summary>%s</summary><pre>", name);
    while (fgets(text, sizeof text, file))
        report_escape(out, text);
    fputs("</pre></details>\n", out);
    fclose(file);
}

static lt_status write_page(FILE *out, const arguments *a, const char *run, report_metrics *m)
{
    fputs("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
          "<meta name=\"viewport\" content=\"width=device-width\"><title>",
          out);
    report_escape(out, a->title);
    fprintf(out, "</title><style>%s</style></head><body>\n<h1>", style);
    report_escape(out, a->title);
    fputs("</h1>\n", out);
    write_numbers(out, m);
    LT_TRY(write_curves(out, m));
    write_file(out, run, "config.yaml");
    write_file(out, run, "env.json");
    fprintf(out, "<p>Written by lather %s.</p>\n</body></html>\n", lt_version());
    return LT_OK;
}

/* The page appears whole or not at all. */
static lt_status make(const arguments *a, const char *run)
{
    char metrics[PATH_MAX], page[PATH_MAX], part[PATH_MAX + 8];
    snprintf(metrics, sizeof metrics, "%s/metrics.jsonl", run);
    if (a->output && *a->output)
        snprintf(page, sizeof page, "%s", a->output);
    else
        snprintf(page, sizeof page, "%s/report.html", run);
    snprintf(part, sizeof part, "%s.part", page);

    report_metrics m = {0};
    lt_status st = report_read(&m, metrics);
    FILE *out = st ? NULL : fopen(part, "w");
    if (!st && !out)
        st = lt_fail(LT_E_IO, "%s: %s", part, strerror(errno));
    if (out) {
        st = write_page(out, a, run, &m);
        bool bad = ferror(out), late = fclose(out);
        if (!st && (bad || late || rename(part, page)))
            st = lt_fail(LT_E_IO, "%s: %s", page, strerror(errno));
        if (st)
            unlink(part);
        else
            printf("%s\n", page);
    }
    report_clear(&m);
    return st;
}

static lt_status answer(lt_options *parsed, const arguments *values, int argc, char **argv)
{
    LT_TRY(lt_options_parse(parsed, argc, argv));
    if (lt_options_asked(parsed) != LT_OPTIONS_RUN)
        return lt_options_answer(parsed, stdout);
    if (lt_options_rest_count(parsed) != 1)
        return lt_fail(LT_E_ARG, "name one run folder; report --help says more");
    return make(values, lt_options_rest(parsed, 0));
}

int main(int argc, char **argv)
{
    arguments values = {0};
    lt_options *parsed = NULL;
    lt_status st = lt_options_new(&parsed, &program, &values);
    st = st ? st : answer(parsed, &values, argc, argv);
    if (st)
        fprintf(stderr, "report: %s\n", lt_error_message());
    lt_options_free(&parsed);
    return st ? 1 : 0;
}
