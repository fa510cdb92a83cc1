/* Reads metrics.jsonl: one flat object a line, as the trainer writes it. */

#include "inspect_records.h"

#include "lather/ext/fail.h"
#include "lather/ext/file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static lt_status push(run_series *s, double x, double y)
{
    if (!isfinite(x) || !isfinite(y))
        return LT_OK;
    if (s->count == s->capacity) {
        size_t capacity = s->capacity ? 2 * s->capacity : 256;
        double *xs = realloc(s->x, capacity * sizeof *xs);
        if (xs)
            s->x = xs;
        double *ys = realloc(s->y, capacity * sizeof *ys);
        if (ys)
            s->y = ys;
        if (!xs || !ys)
            return lt_fail(LT_E_NOMEM, "inspect: no memory for %zu points", capacity);
        s->capacity = capacity;
    }
    s->x[s->count] = x;
    s->y[s->count++] = y;
    return LT_OK;
}

/* Sorts the points by x, stably: a separate evaluation process appends its records after the run's. */
static void sort(run_series *s)
{
    for (size_t i = 1; i < s->count; i++)
        for (size_t k = i; k && s->x[k - 1] > s->x[k]; k--) {
            const double x = s->x[k], y = s->y[k];
            s->x[k] = s->x[k - 1];
            s->y[k] = s->y[k - 1];
            s->x[k - 1] = x;
            s->y[k - 1] = y;
        }
}

/* Returns the number after "key": in a line, or NaN if absent. */
static double number(const char *line, const char *key)
{
    char quoted[64];
    int bytes = snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *at = strstr(line, quoted);
    if (!at)
        return (double)NAN;
    char *end;
    double value = strtod(at + bytes, &end);
    return end == at + bytes ? (double)NAN : value;
}

static bool is_event(const char *line, const char *event)
{
    const char *at = strstr(line, "\"event\"");
    if (!at)
        return false;
    at += strlen("\"event\"");
    at += strspn(at, ": \"");
    size_t bytes = strlen(event);
    return !strncmp(at, event, bytes) && at[bytes] == '"';
}

static lt_status read_step(run_metrics *m, const char *line)
{
    double step = number(line, "step");
    LT_TRY(push(&m->loss, step, number(line, "loss")));
    LT_TRY(push(&m->lr, step, number(line, "lr")));
    const double images = number(line, "images_per_second"),
                 tokens = number(line, "tokens_per_second"), seconds = number(line, "seconds");
    LT_TRY(push(&m->speed, step, images));
    LT_TRY(push(&m->tokens, step, tokens));
    if (seconds > 0 && (images > 0 || tokens > 0)) {
        m->step_samples += seconds * (images > 0 ? images : tokens);
        m->step_seconds += seconds;
    }
    return push(&m->wait, step, number(line, "data_seconds"));
}

static lt_status read_epoch(run_metrics *m, const char *line, bool is_separate)
{
    double step = number(line, "step");
    if (isnan(step)) /* an epoch ends where the last step was */
        step = m->loss.count ? m->loss.x[m->loss.count - 1] : number(line, "epoch") + 1;
    LT_TRY(push(&m->train_loss, step, number(line, "train_loss")));
    LT_TRY(push(&m->val_loss, step, number(line, "val_loss")));
    LT_TRY(push(&m->train_top1, step, number(line, "train_top1")));
    LT_TRY(push(&m->val_top1, step, number(line, "val_top1")));
    LT_TRY(push(&m->val_top5, step, number(line, "val_top5")));
    LT_TRY(push(&m->val_perplexity, step, number(line, "val_perplexity")));
    m->val_samples = number(line, "val_samples");
    m->val_total = number(line, "val_total");
    m->val_is_train = number(line, "val_is_train");
    if (is_separate)
        return LT_OK;                                       /* not part of the run's time */
    m->epochs = fmax(m->epochs, number(line, "epoch") + 1); /* a resumed run has an epoch twice */
    double seconds = number(line, "seconds"), eval_seconds = number(line, "eval_seconds");
    m->seconds += isnan(seconds) ? 0 : seconds;
    m->eval_seconds += isnan(eval_seconds) ? 0 : eval_seconds;
    return LT_OK;
}

static lt_status read_file(run_metrics *out, const char *path)
{
    FILE *file;
    LT_TRY(lt_file_open(&file, path));

    lt_status st = LT_OK;
    char *line = NULL;
    size_t bytes = 0;
    while (!st && getline(&line, &bytes, file) >= 0) {
        out->lines++;
        if (is_event(line, "step"))
            st = read_step(out, line);
        else if (is_event(line, "epoch"))
            st = read_epoch(out, line, false);
        else if (is_event(line, "evaluation"))
            st = read_epoch(out, line, true);
        else
            out->unread++;
    }
    free(line);
    fclose(file);
    return st;
}

/* Reads metrics-eval.jsonl from the folder of metrics.jsonl, if it exists. */
static lt_status read_evaluations(run_metrics *out, const char *path)
{
    enum { PATH = 4096 };
    static const char own[] = "metrics.jsonl";
    char evaluations[PATH];
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (strcmp(name, own) != 0)
        return LT_OK;
    snprintf(evaluations, sizeof evaluations, "metrics-eval.jsonl");
    if (slash)
        snprintf(evaluations, sizeof evaluations, "%.*s/metrics-eval.jsonl", (int)(slash - path),
                 path);
    if (access(evaluations, F_OK))
        return LT_OK;
    LT_TRY(read_file(out, evaluations));
    run_series *const evaluated[] = {&out->val_loss, &out->val_top1, &out->val_top5,
                                     &out->val_perplexity};
    for (size_t i = 0; i < sizeof evaluated / sizeof(run_series *); i++)
        sort(evaluated[i]);
    return LT_OK;
}

lt_status run_read(run_metrics *out, const char *path)
{
    out->val_samples = out->val_total = out->val_is_train = (double)NAN;
    LT_TRY(read_file(out, path));
    lt_status st = read_evaluations(out, path);
    if (!st && !out->loss.count && !out->val_top1.count)
        st = lt_fail(LT_E_FORMAT, "%s: no steps and no epochs in %zu lines", path, out->lines);
    return st;
}

static void clear(run_series *s)
{
    free(s->x);
    free(s->y);
    *s = (run_series){0};
}

void run_clear(run_metrics *m)
{
    run_series *const all[] = {&m->tokens,     &m->val_perplexity, &m->loss,       &m->lr,
                               &m->speed,      &m->wait,           &m->train_loss, &m->val_loss,
                               &m->train_top1, &m->val_top1,       &m->val_top5};
    for (size_t i = 0; i < sizeof all / sizeof(run_series *); i++)
        clear(all[i]);
}
