/* Prints a run folder in a few lines: model, data set, progress, latest checkpoint. */

#include "inspect.h"
#include "inspect_records.h"

#include "lather/detail/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };

static double last(const run_series *s)
{
    return s->count ? s->y[s->count - 1] : (double)NAN;
}

static double largest(const run_series *s)
{
    double top = (double)NAN;
    for (size_t i = 0; i < s->count; i++)
        top = fmax(top, s->y[i]);
    return top;
}

static void print_text(const char *text)
{
    char line[PATH_BYTES];
    printf("%s\n", lt_text_escape(line, sizeof line, text));
}

/* Returns a YAML scalar without its quotes, or as it is if it contains an escape. */
static const char *unquoted(const char *value, char text[PATH_BYTES])
{
    size_t bytes = strlen(value);
    if (bytes < 2 || value[0] != '"' || value[bytes - 1] != '"' || strchr(value, '\\'))
        return value;
    snprintf(text, PATH_BYTES, "%.*s", (int)bytes - 2, value + 1);
    return text;
}

static const char *const shown[] = {"data", "arch", "optim", "lr", "batch-size"};
enum { SHOWN = sizeof shown / sizeof *shown };

static void print_settings(const run_settings *s, bool json)
{
    char text[PATH_BYTES];
    for (int i = 0; i < SHOWN; i++) {
        const char *value = run_settings_find(s, shown[i]);
        if (!value)
            continue;
        printf(json ? ",\"%s\":" : "  %-12s ", shown[i]);
        (json ? inspect_quoted : print_text)(unquoted(value, text));
    }
}

/* Returns all samples over the seconds of all steps, as report does; for logs without these, the last speed. */
static double speed(const run_metrics *m, const run_series *last_known)
{
    return !last_known->count || !isfinite(last(last_known)) ? (double)NAN
           : m->step_seconds > 0                             ? m->step_samples / m->step_seconds
                                                             : last(last_known);
}

/* Prints a speed as the trainer does, and next to a result of an evaluation how much of the data it used. */
static void print_value(const run_metrics *m, const char *title, double value)
{
    const bool is_part =
        m->val_total > 0 && (!strncmp(title, "val ", 4) || !strcmp(title, "perplexity"));
    if (strstr(title, "/s"))
        printf("  %-12s %.*f\n", title, value < 100, value);
    else if (is_part)
        printf("  %-12s %.6g on %.0f of %.0f samples\n", title, value, m->val_samples,
               m->val_total);
    else
        printf("  %-12s %.6g\n", title, value);
}

static void print_metrics(const run_metrics *m, bool json)
{
    const double epochs = m->epochs > 0 ? m->epochs : (double)m->train_loss.count;
    const struct {
        const char *key, *title;
        double value;
        bool is_optional; /* left out if unknown */
    } rows[] = {
        {"steps", "steps", m->loss.count ? m->loss.x[m->loss.count - 1] : (double)NAN, false},
        {"epochs", "epochs", epochs, false},
        {"seconds", "seconds", m->seconds + m->eval_seconds, false},
        {"images_per_second", "images/s", speed(m, &m->speed), false},
        {"tokens_per_second", "tokens/s", speed(m, &m->tokens), true},
        {"train_loss", "train loss", last(&m->train_loss), false},
        {"val_loss", "val loss", last(&m->val_loss), false},
        {"val_top1", "val top-1 %", last(&m->val_top1), false},
        {"best_val_top1", "best top-1 %", largest(&m->val_top1), false},
        {"val_perplexity", "perplexity", last(&m->val_perplexity), true},
        {"val_samples", NULL, m->val_samples, true},
        {"val_total", NULL, m->val_total, true},
        {"val_is_train", NULL, m->val_is_train, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (json && (!rows[i].is_optional || isfinite(rows[i].value)))
            inspect_number(rows[i].key, rows[i].value);
        else if (!json && rows[i].title && isfinite(rows[i].value))
            print_value(m, rows[i].title, rows[i].value);
    }
    if (!json && m->val_is_train > 0)
        printf("  evaluated on the training images: no measure of others\n");
}

/* A run that has trained nothing yet has no records. */
static lt_status read_metrics(run_metrics *m, const char *folder)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/metrics.jsonl", folder);
    if (access(path, F_OK))
        return LT_OK;
    lt_status st = run_read(m, path);
    return st == LT_E_FORMAT ? LT_OK : st;
}

static lt_status show_latest(const char *folder, bool json)
{
    char path[PATH_BYTES];
    lt_checkpoint_state state;
    snprintf(path, sizeof path, "%s/checkpoints/latest", folder);
    bool missing = access(path, F_OK) != 0;
    lt_status st = missing ? LT_OK : lt_checkpoint_verify(path, &state);
    if (missing || st) {
        printf("%s", json ? ",\"latest\":null}" : missing ? "no checkpoint yet\n" : "");
        return st;
    }
    if (json)
        printf(",\"latest\":{");
    inspect_state(path, &state, json);
    if (json)
        printf("}}");
    return LT_OK;
}

lt_status inspect_run(const char *folder, bool json)
{
    char path[PATH_BYTES];
    run_settings settings = {0};
    run_metrics metrics = {0};
    snprintf(path, sizeof path, "%s/config.yaml", folder);
    lt_status st = run_settings_read(&settings, path);
    if (!st)
        st = read_metrics(&metrics, folder);
    if (!st) {
        printf(json ? "{\"path\":" : "run ");
        (json ? inspect_quoted : print_text)(folder);
        print_settings(&settings, json);
        print_metrics(&metrics, json);
        st = show_latest(folder, json);
    }
    run_clear(&metrics);
    run_settings_clear(&settings);
    return st;
}
