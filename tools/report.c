/* report: one self-contained HTML page about a run folder, with curves drawn in place. */

#include "report.h"

#include "lather/ext/fail.h"
#include "lather/ext/file.h"
#include "lather/options.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

typedef struct arguments {
    const char *output, *title;
} arguments;

static const lt_option options[] = {
    {.group = "Page",
     .name = "output",
     .alias = 'o',
     .type = LT_OPTION_STRING,
     .offset = offsetof(arguments, output),
     .meta = "FILE",
     .help = "the page to write; else RUN/report.html, of several runs comparison.html"},
    {.group = "Page",
     .name = "title",
     .type = LT_OPTION_STRING,
     .offset = offsetof(arguments, title),
     .meta = "TEXT",
     .help = "heading of the page"},
};

static const lt_program program = {
    .name = "report",
    .summary = "makes an HTML page with the curves of a training run, or of several",
    .usage = "RUN... [OPTION]...",
    .description =
        "RUN is a folder that train_resnet50 --output wrote. If it holds eval.json, which --eval "
        "--output RUN writes, the page shows the accuracy of each class, which classes are taken for "
        "which, and sample pictures. Several runs are compared: their curves in one chart, the "
        "settings that differ, their last numbers.\n\n"
        "Exit status: 0 done, 1 an error, 2 a wrong command line.",
    .option = options,
    .count = sizeof options / sizeof *options,
    .rest = true,
};

static const char style[] =
    "body{font:16px/1.5 system-ui,sans-serif;max-width:760px;margin:2em auto;padding:0 1em;"
    "color:#1c2430;background:#fff}"
    "svg{width:100%;height:auto;margin:.6em 0}svg text{font-size:12px;fill:#667}"
    "svg .head{font-size:15px;fill:#1c2430;font-weight:600}"
    ".grid{stroke:#8884;stroke-width:1}polyline{fill:none;stroke:currentColor;stroke-width:2}"
    "circle{fill:currentColor}svg text[class^=c]{fill:currentColor}"
    ".c0{color:#2a6fdb}.c1{color:#d9822b}.c2{color:#3a9d5d}.c3{color:#b5403a}.c4{color:#8358c4}"
    ".c5{color:#1793a5}.c6{color:#c2539b}.c7{color:#7d8322}"
    ".big{font-size:3em;font-weight:700;line-height:1.1}"
    "table{border-collapse:collapse}td,th{padding:.15em 1.2em .15em 0;text-align:left;"
    "overflow-wrap:anywhere}.wide{overflow-x:auto}"
    ".matrix td,.matrix th{padding:.1em .45em;text-align:right;font-size:13px;white-space:nowrap}"
    ".matrix .hit{outline:1px solid #3a9d5d}.matrix .up{writing-mode:vertical-rl;text-align:left}"
    ".bar{display:inline-block;height:.7em;background:#2a6fdb;border-radius:2px}"
    ".samples{display:grid;grid-template-columns:repeat(auto-fill,minmax(150px,1fr));gap:1em;"
    "font-size:13px;line-height:1.35;overflow-wrap:anywhere}"
    ".samples img{width:96px;height:96px;image-rendering:pixelated;display:block;"
    "border:3px solid #3a9d5d}.samples .wrong img{border-color:#b5403a}"
    "figure{margin:0}h2{margin:1.4em 0 .3em}"
    "pre{overflow:auto;background:#8881;padding:.8em;border-radius:6px;font-size:13px}"
    "@media(prefers-color-scheme:dark){body{background:#14181f;color:#dde3ea}"
    "svg .head{fill:#dde3ea}svg text{fill:#99a}}";

void report_begin(FILE *out, const char *title)
{
    fputs("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
          "<meta name=\"viewport\" content=\"width=device-width\"><title>",
          out);
    report_escape(out, title);
    fprintf(out, "</title><style>%s</style></head><body>\n<h1>", style);
    report_escape(out, title);
    fputs("</h1>\n", out);
}

void report_end(FILE *out)
{
    fprintf(out, "<p>Written by lather %s.</p>\n</body></html>\n", lt_version());
}

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
    LT_TRY(report_thin(&m->loss, REPORT_POINTS));
    LT_TRY(report_thin(&m->lr, REPORT_POINTS));
    LT_TRY(report_thin(&m->speed, REPORT_POINTS));
    const report_line loss[] = {{"of steps", &m->loss, false}, {"evaluation", &m->val_loss, true}};
    const report_line top1[] = {{"evaluation", &m->val_top1, true},
                                {"training", &m->train_top1, true}};
    const report_line lr[] = {{"of steps", &m->lr, false}};
    const report_line speed[] = {{"of steps", &m->speed, false}};
    const report_chart chart[] = {{"Loss", "", loss, 2, false, false},
                                  {"Top-1 accuracy", "%", top1, 2, false, false},
                                  {"Learning rate", "", lr, 1, true, false},
                                  {"Speed", "images/s", speed, 1, true, false}};
    for (size_t i = 0; i < sizeof chart / sizeof *chart; i++)
        report_draw(out, &chart[i]);
    return LT_OK;
}

/* A file of the run folder, if it is there. */
static void write_file(FILE *out, const char *run, const char *name)
{
    char path[PATH_MAX], text[4096];
    snprintf(path, sizeof path, "%s/%s", run, name);
    FILE *file;
    if (lt_file_open(&file, path))
        return;
    fprintf(out, "<details><summary>%s</summary><pre>", name);
    while (fgets(text, sizeof text, file)) {
        const size_t length = strcspn(text, "\n");
        const bool ended = text[length];
        text[length] = 0;
        report_escape(out, text);
        if (ended)
            fputc('\n', out);
    }
    fputs("</pre></details>\n", out);
    fclose(file);
}

static lt_status write_run(FILE *out, const char *run, report_metrics *m)
{
    char path[PATH_MAX];
    write_numbers(out, m);
    LT_TRY(write_curves(out, m));
    snprintf(path, sizeof path, "%s/eval.json", run);
    LT_TRY(report_evaluation(out, path));
    write_file(out, run, "config.yaml");
    write_file(out, run, "env.json");
    return LT_OK;
}

static lt_status write_page(FILE *out, const arguments *a, const char *const *run, size_t count,
                            report_metrics *m)
{
    bool titled = a->title && *a->title;
    report_begin(out, titled ? a->title : count > 1 ? "Training runs" : "A training run");
    LT_TRY(count > 1 ? report_compare(out, run, count) : write_run(out, *run, m));
    report_end(out);
    return LT_OK;
}

static lt_status make_page(const arguments *a, const char *const *run, size_t count,
                           report_metrics *m)
{
    char page[PATH_MAX], *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return lt_fail(LT_E_NOMEM, "report: no memory for the page");
    lt_status st = write_page(out, a, run, count, m);
    const bool whole = !ferror(out);
    if ((fclose(out) || !whole) && !st)
        st = lt_fail(LT_E_NOMEM, "report: no memory for the page");
    if (a->output && *a->output)
        snprintf(page, sizeof page, "%s", a->output);
    else if (count > 1)
        snprintf(page, sizeof page, "comparison.html");
    else
        snprintf(page, sizeof page, "%s/report.html", *run);
    if (!st)
        st = lt_file_save(page, text, bytes);
    if (!st)
        printf("%s\n", page);
    free(text);
    return st;
}

static lt_status make(const arguments *a, const char *const *run, size_t count)
{
    char metrics[PATH_MAX];
    report_metrics m = {0};
    snprintf(metrics, sizeof metrics, "%s/metrics.jsonl", *run);
    lt_status st = count > 1 ? LT_OK : report_read(&m, metrics);
    if (!st)
        st = make_page(a, run, count, &m);
    report_clear(&m);
    return st;
}

static lt_status answer(const lt_options *parsed, const arguments *values)
{
    const char *run[REPORT_COLOURS];
    size_t count = lt_options_rest_count(parsed);
    if (lt_options_asked(parsed) != LT_OPTIONS_RUN)
        return lt_options_answer(parsed, stdout);
    if (count < 1 || count > REPORT_COLOURS)
        return lt_fail(LT_E_ARG, "%zu run folders, want 1 to %d; report --help says more", count,
                       REPORT_COLOURS);
    for (size_t i = 0; i < count; i++)
        run[i] = lt_options_rest(parsed, i);
    return make(values, run, count);
}

int main(int argc, char **argv)
{
    arguments values = {0};
    lt_options *parsed = NULL;
    lt_status st = lt_options_new(&parsed, &program, &values);
    if (!st && lt_options_parse(parsed, argc, argv))
        st = LT_E_ARG; /* a config file that cannot be read, too */
    if (!st)
        st = answer(parsed, &values);
    if (st)
        fprintf(stderr, "report: %s\n", lt_error_message());
    lt_options_free(&parsed);
    return st == LT_E_ARG ? 2 : st ? 1 : 0;
}
