/* Reads the contributors of steps from the records of a run. */

#include "contributors.h"

#include "base/alloc.h"

#include "lather/detail/json.h"
#include "lather/ext/fail.h"
#include "lather/ext/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct lt_contributors {
    char *path;
    int ranks, needed;
    size_t count, step_capacity, set_capacity;
    int64_t *step; /* [count] */
    bool *set;     /* [count, ranks] */
};

static lt_status bad_set(const lt_contributors *c, int64_t step, const char *text)
{
    return lt_fail(LT_E_FORMAT, "%s: step %lld has ranks '%s'; expected %d different ones of %d",
                   c->path, (long long)step, text, c->needed, c->ranks);
}

static lt_status parse_set(const lt_contributors *c, int64_t step, const char *text, bool *set)
{
    int found = 0;
    memset(set, 0, (size_t)c->ranks * sizeof *set);
    for (const char *at = text; *at;) {
        char *end;
        const long rank = strtol(at, &end, 10);
        if (end == at || rank < 0 || rank >= c->ranks || set[rank])
            return bad_set(c, step, text);
        set[rank] = true;
        found++;
        at = end + strspn(end, " ");
    }
    return found == c->needed ? LT_OK : bad_set(c, step, text);
}

static lt_status add_step_set(lt_contributors *c, int64_t step, const char *text)
{
    const size_t ranks = (size_t)c->ranks;
    LT_TRY(LT_GROW(&c->step, &c->step_capacity, c->count + 1));
    LT_TRY(LT_GROW(&c->set, &c->set_capacity, (c->count + 1) * ranks));
    c->step[c->count] = step;
    LT_TRY(parse_set(c, step, text, c->set + c->count * ranks));
    c->count++;
    return LT_OK;
}

static lt_status read_record(lt_contributors *c, const lt_json_value *record)
{
    const char *event, *ranks;
    int64_t step;
    LT_TRY(lt_json_string(record, "event", &event));
    if (strcmp(event, "contributors") != 0)
        return LT_OK;
    LT_TRY(lt_json_integer(record, "step", &step));
    LT_TRY(lt_json_string(record, "ranks", &ranks));
    return add_step_set(c, step, ranks);
}

/* Reads one line; other records are skipped, as is a last line truncated by a kill. */
static lt_status read_line(lt_contributors *c, const char *line, size_t bytes)
{
    enum { DEPTH = 4 };
    lt_json *json;
    if (!strstr(line, "\"contributors\"") || line[bytes - 1] != '\n')
        return LT_OK;
    LT_TRY(lt_json_parse(&json, line, bytes, c->path, DEPTH));
    lt_status st = read_record(c, lt_json_root(json));
    lt_json_free(&json);
    return st;
}

static lt_status read_lines(lt_contributors *c)
{
    FILE *file;
    char *line = NULL;
    size_t capacity = 0;
    ssize_t bytes;
    LT_TRY(lt_file_open(&file, c->path));
    lt_status st = LT_OK;
    while (!st && (bytes = getline(&line, &capacity, file)) > 0)
        st = read_line(c, line, (size_t)bytes);
    free(line);
    fclose(file);
    if (!st && !c->count)
        st = lt_fail(LT_E_FORMAT,
                     "%s: has no record of contributors; a run with --backup-workers writes them",
                     c->path);
    return st;
}

lt_status lt_contributors_read(lt_contributors **out, const char *path, int ranks, int needed)
{
    lt_contributors *c = NULL;
    LT_TRY(LT_ALLOC(&c, 1));
    c->ranks = ranks;
    c->needed = needed;
    c->path = lt_strdup(path);
    lt_status st = c->path ? read_lines(c) : LT_E_NOMEM;
    if (st)
        lt_contributors_free(&c);
    else
        *out = c;
    return st;
}

void lt_contributors_free(lt_contributors **contributors)
{
    lt_contributors *c = *contributors;
    *contributors = NULL;
    if (!c)
        return;
    lt_free(c->path);
    lt_free(c->step);
    lt_free(c->set);
    lt_free(c);
}

const bool *lt_contributors_of(const lt_contributors *c, int64_t step)
{
    for (size_t i = c->count; i-- > 0;)
        if (c->step[i] == step)
            return c->set + i * (size_t)c->ranks;
    return NULL;
}

const char *lt_contributors_path(const lt_contributors *c)
{
    return c->path;
}
