/* JSON files, and the members of a parsed document. */

#include "base/alloc.h"
#include "base/file.h"
#include "json.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { MAX_DEPTH = 64 };
#define MAX_FILE ((long)64 << 20)

static lt_status read_opened_file(FILE *file, const char *path, char **text, size_t *bytes)
{
    long size = fseek(file, 0, SEEK_END) ? -1 : ftell(file);
    if (size < 0)
        return lt_fail(LT_E_IO, "%s: %s", path, strerror(errno));
    if (size > MAX_FILE)
        return lt_fail(LT_E_FORMAT, "%s: %ld bytes, at most %ld are allowed", path, size, MAX_FILE);
    rewind(file);
    LT_TRY(LT_ALLOC(text, (size_t)size + 1));
    *bytes = fread(*text, 1, (size_t)size, file);
    return ferror(file) ? lt_fail(LT_E_IO, "%s: %s", path, strerror(errno)) : LT_OK;
}

lt_status lt_json_read_file(const char *path, char **text, size_t *bytes)
{
    FILE *file;
    LT_TRY(lt_file_open(&file, path));
    char *t = NULL;
    lt_status st = read_opened_file(file, path, &t, bytes);
    fclose(file);
    if (st)
        lt_free(t);
    else
        *text = t;
    return st;
}

lt_status lt_json_load(lt_json **out, const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    LT_TRY(lt_json_read_file(path, &text, &bytes));
    lt_status st = lt_json_parse(out, text, bytes, path, MAX_DEPTH);
    lt_free(text);
    return st;
}

const lt_json_value *lt_json_member(const lt_json_value *object, const char *key)
{
    if (!object || object->type != LT_JSON_OBJECT)
        return NULL;
    const lt_json_value *v = object->child;
    while (v && strcmp(v->key, key) != 0)
        v = v->next;
    return v;
}

lt_status lt_json_integer(const lt_json_value *object, const char *key, int64_t *value)
{
    const lt_json_value *v = lt_json_member(object, key);
    if (!v || !v->is_integer)
        return lt_fail(LT_E_FORMAT, "json: '%s' is not an integer", key);
    *value = v->integer;
    return LT_OK;
}

lt_status lt_json_number(const lt_json_value *object, const char *key, double *value)
{
    const lt_json_value *v = lt_json_member(object, key);
    if (!v || v->type != LT_JSON_NUMBER)
        return lt_fail(LT_E_FORMAT, "json: '%s' is not a number", key);
    *value = v->number;
    return LT_OK;
}

lt_status lt_json_string(const lt_json_value *object, const char *key, const char **value)
{
    const lt_json_value *v = lt_json_member(object, key);
    if (!v || v->type != LT_JSON_STRING)
        return lt_fail(LT_E_FORMAT, "json: '%s' is not a string", key);
    *value = v->string;
    return LT_OK;
}
