/* INI parser, compatible with Python's configparser without interpolation (ADR 0018). */

#include "launch/ini.h"

#include "base/alloc.h"

#include "lather/ext/fail.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

typedef struct reader {
    const char *path;
    int line, key_line; /* current line; line of the current key */
    char *section, *key, *value;
    lt_ini_visit visit;
    void *context;
} reader;

static char *trim_spaces(char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    for (size_t n = strlen(text); n && isspace((unsigned char)text[n - 1]); n--)
        text[n - 1] = 0;
    return text;
}

/* Calls the callback; prefixes its error message by path and line. */
static lt_status call_visitor(reader *r, const char *key, const char *value, int line)
{
    const lt_status st = r->visit(r->context, r->section, key, value);
    char *why = st ? lt_strdup(lt_error_message()) : NULL;
    if (st)
        (void)lt_fail(st, "%s:%d: %s", r->path, line, why ? why : "");
    lt_free(why);
    return st;
}

/* Passes the current key, if any, to the callback. */
static lt_status flush_key(reader *r)
{
    const lt_status st = r->key ? call_visitor(r, r->key, r->value, r->key_line) : LT_OK;
    lt_free(r->key);
    lt_free(r->value);
    r->key = r->value = NULL;
    return st;
}

static lt_status continue_value(reader *r, const char *text)
{
    if (!r->key)
        return lt_fail(LT_E_FORMAT, "%s:%d: an indented line must follow a value", r->path,
                       r->line);
    char *longer = lt_format("%s %s", r->value, text);
    if (!longer)
        return LT_E_NOMEM;
    lt_free(r->value);
    r->value = longer;
    return LT_OK;
}

static lt_status begin_section(reader *r, char *text)
{
    char *end = strchr(text, ']');
    if (!end || end[1] || end == text + 1)
        return lt_fail(LT_E_FORMAT, "%s:%d: want [NAME]", r->path, r->line);
    *end = 0;
    lt_free(r->section);
    r->section = lt_strdup(text + 1);
    return r->section ? call_visitor(r, NULL, NULL, r->line) : LT_E_NOMEM;
}

static lt_status begin_key(reader *r, char *text)
{
    char *equal = strchr(text, '=');
    if (!equal || equal == text || !r->section)
        return lt_fail(LT_E_FORMAT, "%s:%d: want KEY = VALUE in a section", r->path, r->line);
    *equal = 0;
    r->key = lt_strdup(trim_spaces(text));
    r->value = lt_strdup(trim_spaces(equal + 1));
    r->key_line = r->line;
    return r->key && r->value ? LT_OK : LT_E_NOMEM;
}

static lt_status parse_line(reader *r, char *line)
{
    const bool continues = isspace((unsigned char)*line) != 0;
    char *text = trim_spaces(line);
    r->line++;
    if (!*text || *text == '#' || *text == ';')
        return LT_OK;
    if (continues)
        return continue_value(r, text);
    LT_TRY(flush_key(r));
    return *text == '[' ? begin_section(r, text) : begin_key(r, text);
}

lt_status lt_ini_read(FILE *file, const char *path, lt_ini_visit visit, void *context)
{
    enum { LINE = 8192 };
    char line[LINE];
    reader r = {.path = path, .visit = visit, .context = context};
    lt_status st = LT_OK;
    while (!st && fgets(line, sizeof line, file)) {
        if (strlen(line) == sizeof line - 1 && line[LINE - 2] != '\n')
            st = lt_fail(LT_E_FORMAT, "%s:%d: line too long, at most %d bytes are allowed", path,
                         r.line + 1, LINE - 2);
        else
            st = parse_line(&r, line);
    }
    if (!st)
        st = flush_key(&r);
    lt_free(r.section);
    lt_free(r.key);
    lt_free(r.value);
    return st;
}
