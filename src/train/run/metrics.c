/* metrics.jsonl: drops the records that a resumed run will repeat, and finds records of evaluations. */

#include "metrics.h"

#include "base/encoding/json.h"
#include "base/file.h"
#include "base/shared_file.h"

#include "lather/ext/fail.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

double lt_metric_value(const lt_metric *metric, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(metric[i].name, name))
            return metric[i].value;
    return (double)NAN;
}

static void add_step(lt_metrics_speed *sum, const lt_json_value *root)
{
    double rate, seconds;
    if (lt_json_number(root, sum->key, &rate) || lt_json_number(root, "seconds", &seconds))
        return;
    sum->samples += rate * seconds;
    sum->seconds += seconds;
}

/* Returns true if a line is a complete record of a step up to this one. redo: drops an epoch's record at that
 * step, as it is repeated. */
static bool is_kept(const char *line, size_t bytes, int64_t step, bool redo, lt_metrics_speed *sum)
{
    const char *event = "";
    lt_json *json = NULL;
    int64_t at = 0;
    if (lt_json_parse(&json, line, bytes, "metrics.jsonl", 8))
        return false; /* truncated by a kill */
    const lt_json_value *root = lt_json_root(json);
    bool kept = lt_json_integer(root, "step", &at) || at <= step;
    const bool has_event = !lt_json_string(root, "event", &event);
    if (redo && at == step && has_event && !strcmp(event, "epoch"))
        kept = false;
    if (kept && sum && !strcmp(event, "step"))
        add_step(sum, root);
    lt_json_free(&json);
    return kept;
}

/* Opens a file of records; LT_END if absent. */
static lt_status open_records(FILE **out, const char *path)
{
    return access(path, F_OK) && errno == ENOENT ? LT_END : lt_file_open(out, path);
}

static lt_status copy_kept(const char *path, FILE *in, FILE *out, int64_t step, bool redo,
                           lt_metrics_speed *sum)
{
    char *line = NULL;
    size_t capacity = 0;
    lt_status st = LT_OK;
    for (ssize_t bytes; !st && (bytes = getline(&line, &capacity, in)) > 0;)
        if (line[bytes - 1] == '\n' && is_kept(line, (size_t)bytes - 1, step, redo, sum)
            && fwrite(line, 1, (size_t)bytes, out) != (size_t)bytes)
            st = lt_fail(LT_E_IO, "%s: %s", path, strerror(errno));
    if (!st && ferror(in))
        st = lt_fail(LT_E_IO, "%s: %s", path, strerror(errno));
    free(line); /* getline()'s */
    return st;
}

lt_status lt_metrics_rewind(const char *path, int64_t step, bool redo, lt_metrics_speed *sum)
{
    FILE *file;
    lt_replacement r;
    lt_status st = open_records(&file, path);
    if (st)
        return st == LT_END ? LT_OK : st;
    st = lt_replacement_open(&r, path);
    if (!st)
        st = lt_replacement_close(&r, copy_kept(path, file, r.file, step, redo, sum), true);
    fclose(file);
    return st;
}

/* --- Evaluations --- */

/* Returns true if a line records an evaluation of this step and run. */
static bool is_evaluation(const char *line, size_t bytes, const char *run, int64_t step)
{
    const char *event = "", *of = "";
    int64_t at = -1;
    lt_json *json = NULL;
    if (!strstr(line, "\"val_") || lt_json_parse(&json, line, bytes, "metrics.jsonl", 8))
        return false;
    const lt_json_value *root = lt_json_root(json);
    bool is = !lt_json_integer(root, "step", &at) && at == step
              && !lt_json_string(root, "event", &event)
              && (!strcmp(event, "evaluation") || !strcmp(event, "epoch"));
    if (is && *run && lt_json_member(root, "run"))
        is = !lt_json_string(root, "run", &of) && !strcmp(of, run);
    lt_json_free(&json);
    return is;
}

lt_status lt_metrics_has_evaluation(const char *path, const char *run, int64_t step, bool *found)
{
    char *line = NULL;
    size_t capacity = 0;
    ssize_t bytes;
    FILE *file;
    *found = false;
    lt_status st = open_records(&file, path);
    if (st)
        return st == LT_END ? LT_OK : st;
    while (!*found && (bytes = getline(&line, &capacity, file)) > 0)
        *found = line[bytes - 1] == '\n' && is_evaluation(line, (size_t)bytes - 1, run, step);
    if (ferror(file))
        st = lt_fail(LT_E_IO, "%s: %s", path, strerror(errno));
    free(line); /* getline()'s */
    fclose(file);
    return st;
}
