/* Incremental JSON writer. */

#include "base/alloc.h"
#include "base/encoding/utf8.h"
#include "json.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static void put_bytes(lt_json_writer *w, const char *text, size_t bytes)
{
    if (!w->status)
        w->status = LT_GROW(&w->text, &w->capacity, w->bytes + bytes + 1);
    if (w->status)
        return;
    memcpy(w->text + w->bytes, text, bytes);
    w->bytes += bytes;
    w->text[w->bytes] = 0;
}

static void put_text(lt_json_writer *w, const char *text)
{
    put_bytes(w, text, strlen(text));
}

static void put_ascii(lt_json_writer *w, char c)
{
    char escape[8];
    if (c == '"' || c == '\\')
        snprintf(escape, sizeof escape, "\\%c", c);
    else if (c == '\n')
        snprintf(escape, sizeof escape, "\\n");
    else if ((unsigned char)c < 0x20)
        snprintf(escape, sizeof escape, "\\u%04x", (unsigned)c);
    else
        snprintf(escape, sizeof escape, "%c", c);
    put_text(w, escape);
}

static void put_quoted(lt_json_writer *w, const char *text)
{
    const char *end = text + strlen(text);
    put_bytes(w, "\"", 1);
    while (text < end) {
        int bytes = lt_utf8_length(text, end);
        if (bytes == 1)
            put_ascii(w, *text);
        else if (bytes)
            put_bytes(w, text, (size_t)bytes);
        else
            put_text(w, "\\ufffd");
        text += bytes ? bytes : 1;
    }
    put_bytes(w, "\"", 1);
}

static void begin_item(lt_json_writer *w, const char *key)
{
    if (w->has_items)
        put_bytes(w, ",", 1);
    w->has_items = true;
    if (key) {
        put_quoted(w, key);
        put_bytes(w, ":", 1);
    }
}

static void begin_container(lt_json_writer *w, const char *key, char open, char close)
{
    LT_ASSERT((size_t)w->depth < sizeof w->close);
    begin_item(w, key);
    put_bytes(w, &open, 1);
    w->close[w->depth++] = close;
    w->has_items = false;
}

void lt_json_begin_object(lt_json_writer *w, const char *key)
{
    begin_container(w, key, '{', '}');
}

void lt_json_begin_array(lt_json_writer *w, const char *key)
{
    begin_container(w, key, '[', ']');
}

void lt_json_end(lt_json_writer *w)
{
    LT_ASSERT(w->depth > 0);
    put_bytes(w, &w->close[--w->depth], 1);
    w->has_items = true;
}

void lt_json_put_string(lt_json_writer *w, const char *key, const char *value)
{
    begin_item(w, key);
    if (value)
        put_quoted(w, value);
    else
        put_text(w, "null");
}

void lt_json_put_integer(lt_json_writer *w, const char *key, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    begin_item(w, key);
    put_text(w, text);
}

void lt_json_put_number(lt_json_writer *w, const char *key, double value)
{
    char text[40] = "null";
    for (int digits = 6; isfinite(value) && digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    char *comma = strchr(text, ','); /* from the program's locale */
    if (comma)
        *comma = '.';
    begin_item(w, key);
    put_text(w, text);
}

void lt_json_put_bool(lt_json_writer *w, const char *key, bool value)
{
    begin_item(w, key);
    put_text(w, value ? "true" : "false");
}

void lt_json_put_raw(lt_json_writer *w, const char *text)
{
    put_text(w, text);
}

lt_status lt_json_text(lt_json_writer *w, const char **text, size_t *bytes)
{
    LT_ASSERT(w->depth == 0);
    lt_status st = w->status;
    if (st)
        return lt_fail(st, "json: no memory for the text");
    *text = w->text ? w->text : "";
    *bytes = w->bytes;
    return LT_OK;
}

lt_status lt_json_save(lt_json_writer *w, const char *path)
{
    const char *text = NULL;
    size_t bytes = 0;
    LT_TRY(lt_json_text(w, &text, &bytes));
    FILE *file = fopen(path, "wb");
    if (!file)
        return lt_fail(LT_E_IO, "%s: %s", path, strerror(errno));
    bool failed = fwrite(text, 1, bytes, file) != bytes || fputc('\n', file) == EOF;
    if (fclose(file) || failed)
        return lt_fail(LT_E_IO, "%s: %s", path, strerror(errno));
    return LT_OK;
}

void lt_json_rewind(lt_json_writer *w)
{
    w->bytes = 0;
    w->status = LT_OK;
    w->depth = 0;
    w->has_items = false;
}

void lt_json_writer_clear(lt_json_writer *w)
{
    lt_free(w->text);
    *w = (lt_json_writer){0};
}
