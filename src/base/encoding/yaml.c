/* Flat config files by libyaml's event interface. The only file that uses libyaml. */

#include "yaml.h"

#include "base/alloc.h"
#include "base/file.h"

#include <stdbool.h>
#include <string.h>
#include <yaml.h>

enum { MAX_KEYS = 1024 };

typedef struct reader {
    const char *path;
    yaml_parser_t parser;
    yaml_event_t event;
    bool has_event;
    lt_yaml_fn *fn;
    void *context;
    char *key[MAX_KEYS];
    int keys;
} reader;

static int line_of(const reader *r)
{
    return (int)r->event.start_mark.line + 1;
}

static lt_status next_event(reader *r)
{
    if (r->has_event)
        yaml_event_delete(&r->event);
    r->has_event = yaml_parser_parse(&r->parser, &r->event) != 0;
    if (r->has_event)
        return LT_OK;
    return lt_fail(LT_E_FORMAT, "%s: line %zu: %s", r->path, r->parser.problem_mark.line + 1,
                   r->parser.problem ? r->parser.problem : "not YAML");
}

static lt_status expect_event(reader *r, yaml_event_type_t type, const char *what)
{
    LT_TRY(next_event(r));
    if (r->event.type != type)
        return lt_fail(LT_E_FORMAT, "%s: line %d: expected %s", r->path, line_of(r), what);
    return LT_OK;
}

static const char *scalar_text(const reader *r)
{
    return (const char *)r->event.data.scalar.value;
}

static lt_status pass_value_to_callback(reader *r, const char *key)
{
    if (strlen(scalar_text(r)) != r->event.data.scalar.length)
        return lt_fail(LT_E_FORMAT, "%s: line %d: a NUL in a value", r->path, line_of(r));
    lt_status st = r->fn(r->context, key, scalar_text(r), line_of(r));
    return st ? lt_fail(st, "%s: %s", r->path, lt_error_message()) : LT_OK;
}

static lt_status read_list(reader *r, const char *key)
{
    for (;;) {
        LT_TRY(next_event(r));
        if (r->event.type == YAML_SEQUENCE_END_EVENT)
            return LT_OK;
        if (r->event.type != YAML_SCALAR_EVENT)
            return lt_fail(LT_E_FORMAT, "%s: line %d: %s: a list may contain plain values only",
                           r->path, line_of(r), key);
        LT_TRY(pass_value_to_callback(r, key));
    }
}

static lt_status record_unique_key(reader *r)
{
    for (int i = 0; i < r->keys; i++)
        if (!strcmp(r->key[i], scalar_text(r)))
            return lt_fail(LT_E_FORMAT, "%s: line %d: duplicate key %s", r->path, line_of(r),
                           scalar_text(r));
    if (r->keys == MAX_KEYS)
        return lt_fail(LT_E_FORMAT, "%s: more than %d keys", r->path, MAX_KEYS);
    r->key[r->keys] = lt_strdup(scalar_text(r));
    return r->key[r->keys] ? (r->keys++, LT_OK) : LT_E_NOMEM;
}

static lt_status read_pair(reader *r)
{
    if (r->event.type != YAML_SCALAR_EVENT)
        return lt_fail(LT_E_FORMAT, "%s: line %d: expected a key", r->path, line_of(r));
    LT_TRY(record_unique_key(r));
    const char *key = r->key[r->keys - 1];
    LT_TRY(next_event(r));
    if (r->event.type == YAML_SEQUENCE_START_EVENT)
        return read_list(r, key);
    if (r->event.type != YAML_SCALAR_EVENT)
        return lt_fail(LT_E_FORMAT, "%s: line %d: %s: expected a value or a list", r->path,
                       line_of(r), key);
    return pass_value_to_callback(r, key);
}

static lt_status read_stream(reader *r)
{
    LT_TRY(expect_event(r, YAML_STREAM_START_EVENT, "a stream"));
    LT_TRY(next_event(r));
    if (r->event.type == YAML_STREAM_END_EVENT)
        return LT_OK; /* an empty file: no options */
    LT_TRY(expect_event(r, YAML_MAPPING_START_EVENT, "key: value"));
    for (;;) {
        LT_TRY(next_event(r));
        if (r->event.type == YAML_MAPPING_END_EVENT)
            break;
        LT_TRY(read_pair(r));
    }
    LT_TRY(expect_event(r, YAML_DOCUMENT_END_EVENT, "the end of the file"));
    return expect_event(r, YAML_STREAM_END_EVENT, "the end of the file");
}

lt_status lt_yaml_read(const char *path, lt_yaml_fn *fn, void *context)
{
    FILE *file;
    LT_TRY(lt_file_open(&file, path));
    reader *r = lt_alloc(1, sizeof *r);
    lt_status st = r ? LT_OK : LT_E_NOMEM;
    if (r && !yaml_parser_initialize(&r->parser))
        st = lt_fail(LT_E_NOMEM, "%s: no memory for a parser", path);
    if (!st) {
        r->path = path;
        r->fn = fn;
        r->context = context;
        yaml_parser_set_input_file(&r->parser, file);
        st = read_stream(r);
        if (r->has_event)
            yaml_event_delete(&r->event);
        yaml_parser_delete(&r->parser);
        for (int i = 0; i < r->keys; i++)
            lt_free(r->key[i]);
    }
    lt_free(r);
    fclose(file);
    return st;
}
