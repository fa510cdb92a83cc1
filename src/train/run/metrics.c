/* metrics.jsonl: of a resumed run, what it will do again is dropped; and what it says of evaluations. */

#include "metrics.h"

#include "base/alloc.h"
#include "base/encoding/json.h"
#include "base/file.h"
#include "base/shared_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Whether a line is a whole record of a step up to this one; redo: an epoch's record behind it is
 * written again. */
static bool is_kept(const char *line, size_t bytes, int64_t step, bool redo)
{
    const char *event = "";
    lt_json *json = NULL;
    int64_t at = 0;
    if (lt_json_parse(&json, line, bytes, "metrics.jsonl", 8))
        return false; /* cut off by a kill */
    const lt_json_value *root = lt_json_root(json);
    bool kept = lt_json_integer(root, "step", &at) || at <= step;
    if (redo && at == step && !lt_json_string(root, "event", &event) && !strcmp(event, "epoch"))
        kept = false;
    lt_json_free(&json);
    return kept;
}

static lt_status copy_kept(const char *path, const char *text, FILE *out, int64_t step, bool redo)
{
    for (const char *line = text; *line;) {
        size_t bytes = strcspn(line, "\n");
        if (line[bytes] && is_kept(line, bytes, step, redo)
            && (fwrite(line, 1, bytes, out) != bytes || fputc('\n', out) == EOF))
            return lt_fail(LT_E_IO, "%s: %s", path, strerror(errno));
        line += bytes + (line[bytes] == '\n');
    }
    return LT_OK;
}

static lt_status rewrite(const char *path, const char *text, int64_t step, bool redo)
{
    lt_replacement r;
    LT_TRY(lt_replacement_open(&r, path));
    return lt_replacement_close(&r, copy_kept(path, text, r.file, step, redo), true);
}

static lt_status read_text(const char *path, char **text)
{
    FILE *file;
    if (access(path, F_OK) && errno == ENOENT)
        return LT_END;
    LT_TRY(lt_file_open(&file, path));
    long size = fseek(file, 0, SEEK_END) ? -1 : ftell(file);
    rewind(file);
    *text = size < 0 ? NULL : lt_alloc((size_t)size + 1, 1);
    lt_status st = size < 0 ? lt_fail(LT_E_IO, "%s: %s", path, strerror(errno))
                   : *text  ? LT_OK
                            : LT_E_NOMEM;
    if (!st && fread(*text, 1, (size_t)size, file) != (size_t)size)
        st = lt_fail(LT_E_IO, "%s: %s", path, strerror(errno));
    fclose(file);
    return st;
}

lt_status lt_metrics_rewind(const char *path, int64_t step, bool redo)
{
    char *text = NULL;
    lt_status st = read_text(path, &text);
    if (!st)
        st = rewrite(path, text, step, redo);
    lt_free(text);
    return st == LT_END ? LT_OK : st;
}

/* --- Evaluations --- */

/* Whether a line is the record of an evaluation of this step and run. */
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
    if (access(path, F_OK) && errno == ENOENT)
        return LT_OK;
    LT_TRY(lt_file_open(&file, path));
    while (!*found && (bytes = getline(&line, &capacity, file)) > 0)
        *found = line[bytes - 1] == '\n' && is_evaluation(line, (size_t)bytes - 1, run, step);
    lt_status st = ferror(file) ? lt_fail(LT_E_IO, "%s: %s", path, strerror(errno)) : LT_OK;
    free(line); /* getline()'s */
    fclose(file);
    return st;
}
