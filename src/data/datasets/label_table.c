/* Reads tables of labels. CSV follows RFC 4180: fields may be quoted, quotes are doubled, lines end with LF or CRLF; a
 * byte order mark is skipped. JSON lines has an object per line; a label is a string or an integer. */

#include "data/datasets/label_table.h"

#include "base/alloc.h"
#include "data/datasets/datasets.h"
#include "data/files/files.h"

#include "lather/detail/json.h"
#include "lather/detail/text.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { COLUMNS = 1024, LISTED = 256, IMAGE = 0, LABEL = 1, JSON_DEPTH = 16 };

static const char *const image_names[] = {
    "image",    "image_name", "image_path", "image_id", "img", "filename", "file_name",
    "filepath", "file",       "path",       "name",     "id",  NULL};
static const char *const label_names[] = {"label",     "labels",   "class",  "class_name",
                                          "classname", "category", "target", "species",
                                          "breed",     NULL};
static const char *const *const usual_names[] = {image_names, label_names};

static lt_status add_row(lt_label_table *t, const char *path, const char *image, const char *label,
                         int line)
{
    LT_TRY(LT_GROW(&t->row, &t->capacity, t->count + 1));
    if (!*image || !*label)
        return lt_fail(LT_E_FORMAT, "%s:%d: no %s in this line", path, line,
                       *image ? "label" : "image");
    t->row[t->count++] = (lt_table_row){.image = image, .label = label, .line = line};
    return LT_OK;
}

/* --- Columns --- */

/* Returns the column with this name of `bytes` bytes, in any case, or -1 if absent. */
static int find_column(const char *const *column, int count, const char *name, size_t bytes)
{
    for (int i = 0; i < count; i++)
        if (strlen(column[i]) == bytes && !strncasecmp(column[i], name, bytes))
            return i;
    return -1;
}

static int find_usual_column(const char *const *column, int count, const char *const *names)
{
    int found = -1;
    for (; *names && found < 0; names++)
        found = find_column(column, count, *names, strlen(*names));
    return found;
}

static lt_status fail_column(const char *path, const char *const *column, int count,
                             const char *missing)
{
    char list[LISTED] = "", shown[LISTED];
    size_t used = 0;
    for (int i = 0; i < count && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "",
                                 lt_text_escape(shown, sizeof shown, column[i]));
    return lt_fail(LT_E_ARG,
                   "%s: no column %s; its columns are: %s; --labels-columns IMAGE,LABEL names them",
                   path, missing, list);
}

/* Finds the columns that `columns`, "IMAGE,LABEL", names. */
static lt_status find_named_columns(const char *path, const char *columns,
                                    const char *const *column, int count, int chosen[2])
{
    const char *comma = strchr(columns, ',');
    if (!comma || comma == columns || !comma[1])
        return lt_fail(
            LT_E_ARG, "--labels-columns '%s': want IMAGE,LABEL, the names of two columns", columns);
    chosen[IMAGE] = find_column(column, count, columns, (size_t)(comma - columns));
    chosen[LABEL] = find_column(column, count, comma + 1, strlen(comma + 1));
    if (chosen[IMAGE] < 0)
        return fail_column(path, column, count, "with the first of these names");
    return chosen[LABEL] < 0 ? fail_column(path, column, count, comma + 1) : LT_OK;
}

/* Finds columns with usual names, or the only two. */
static lt_status find_usual_columns(const char *path, const char *const *column, int count,
                                    int chosen[2])
{
    static const char *const what[] = {"of images (image, filename, id, ...)",
                                       "of labels (label, class, category, ...)"};
    for (int i = 0; i < 2; i++)
        chosen[i] = find_usual_column(column, count, usual_names[i]);
    if (count == 2 && chosen[IMAGE] < 0)
        chosen[IMAGE] = chosen[LABEL] == 0;
    if (count == 2 && chosen[LABEL] < 0)
        chosen[LABEL] = 1 - chosen[IMAGE];
    for (int i = 0; i < 2; i++)
        if (chosen[i] < 0)
            return fail_column(path, column, count, what[i]);
    return LT_OK;
}

static lt_status choose_columns(const char *path, const char *columns, const char *const *column,
                                int count, int chosen[2])
{
    LT_TRY(columns ? find_named_columns(path, columns, column, count, chosen)
                   : find_usual_columns(path, column, count, chosen));
    if (lt_is_image(column[chosen[IMAGE]]))
        return lt_fail(LT_E_FORMAT,
                       "%s: its first line has the image %s; want a header such as image,label",
                       path, column[chosen[IMAGE]]);
    return LT_OK;
}

/* --- CSV --- */

typedef struct csv {
    const char *path;
    char *at;
    char separator;
    int line; /* number of the line at `at`, from 1 */
    int count;
    const char *field[COLUMNS]; /* fields of the last record */
} csv;

static char *trim(char *text, char *end)
{
    while (*text == ' ' || *text == '\t')
        text++;
    while (end > text && (end[-1] == ' ' || end[-1] == '\t' || end[-1] == '\r'))
        end--;
    *end = 0;
    return text;
}

/* Unquotes the field that begins at c->at in place, and advances c->at to its separator. */
static lt_status read_quoted(csv *c, char **field)
{
    const int line = c->line;
    char *to = *field = ++c->at;
    while (*c->at && (*c->at != '"' || c->at[1] == '"')) {
        c->line += *c->at == '\n';
        c->at += *c->at == '"';
        *to++ = *c->at++;
    }
    if (!*c->at)
        return lt_fail(LT_E_FORMAT, "%s:%d: a quoted field does not end", c->path, line);
    c->at++;
    c->at += strspn(c->at, " \r");
    if (*c->at && *c->at != c->separator && *c->at != '\n')
        return lt_fail(LT_E_FORMAT, "%s:%d: text after a quoted field", c->path, c->line);
    *to = 0; /* at or before the closing quote */
    return LT_OK;
}

/* Reads the fields of a record; *more: false at the end of the text. */
static lt_status read_record(csv *c, bool *more)
{
    char next = c->separator;
    c->count = 0;
    *more = *c->at;
    while (*more && next == c->separator) {
        char *field = c->at, *end = NULL;
        if (*field == '"') {
            LT_TRY(read_quoted(c, &field));
        } else {
            const char stops[] = {c->separator, '\n', 0};
            end = c->at += strcspn(c->at, stops);
        }
        next = *c->at;
        c->at += next != 0;
        c->field[c->count++] = end ? trim(field, end) : field;
        if (c->count == COLUMNS)
            return lt_fail(LT_E_FORMAT, "%s:%d: %d or more columns", c->path, c->line, COLUMNS);
    }
    return LT_OK;
}

/* Returns the separator that is most frequent in the first line. */
static char guess_separator(const char *text)
{
    static const char separators[] = ",;\t";
    const size_t bytes = strcspn(text, "\n");
    size_t most = 0;
    char best = ',';
    for (const char *s = separators; *s; s++) {
        size_t count = 0;
        for (size_t i = 0; i < bytes; i++)
            count += text[i] == *s;
        if (count > most) {
            most = count;
            best = *s;
        }
    }
    return best;
}

static lt_status read_csv(lt_label_table *t, const char *path, char *text, const char *columns)
{
    csv c = {.path = path, .at = text, .separator = guess_separator(text), .line = 1};
    int chosen[2] = {-1, -1}, header;
    bool more;
    LT_TRY(read_record(&c, &more));
    LT_TRY(choose_columns(path, columns, c.field, c.count, chosen));
    for (header = c.count; *c.at;) {
        const int line = ++c.line;
        LT_TRY(read_record(&c, &more));
        if (c.count == 1 && !*c.field[0]) /* an empty line */
            continue;
        if (c.count != header)
            return lt_fail(LT_E_FORMAT, "%s:%d: %d fields, but the header has %d", path, line,
                           c.count, header);
        LT_TRY(add_row(t, path, c.field[chosen[IMAGE]], c.field[chosen[LABEL]], line));
    }
    return LT_OK;
}

/* --- JSON lines --- */

/* Copies a string, or an integer as text, into the table's strings. */
static lt_status copy_text(lt_label_table *t, const lt_json_value *v, const char *path, int line,
                           const char **out)
{
    if (!v || (v->type != LT_JSON_STRING && !(v->type == LT_JSON_NUMBER && v->is_integer)))
        return lt_fail(LT_E_FORMAT, "%s:%d: '%s' is no string and no integer", path, line,
                       v ? v->key : "a missing member");
    LT_TRY(lt_paths_add(&t->strings, v->type == LT_JSON_STRING
                                         ? lt_strdup(v->string)
                                         : lt_format("%lld", (long long)v->integer)));
    *out = t->strings.path[t->strings.count - 1];
    return LT_OK;
}

static lt_status add_object(lt_label_table *t, const char *path, const lt_json_value *object,
                            int line, char *key[2], const char *columns)
{
    const char *column[COLUMNS], *text[2];
    int chosen[2] = {-1, -1}, count = 0;
    if (object->type != LT_JSON_OBJECT)
        return lt_fail(LT_E_FORMAT, "%s:%d: not an object; want JSON lines, an object per line",
                       path, line);
    for (const lt_json_value *v = object->child; v && count < COLUMNS; v = v->next)
        column[count++] = v->key;
    if (!key[0]) { /* the first line */
        LT_TRY(choose_columns(path, columns, column, count, chosen));
        for (int i = 0; i < 2; i++)
            if (!(key[i] = lt_strdup(column[chosen[i]])))
                return LT_E_NOMEM;
    }
    for (int i = 0; i < 2; i++)
        LT_TRY(copy_text(t, lt_json_member(object, key[i]), path, line, &text[i]));
    return add_row(t, path, text[IMAGE], text[LABEL], line);
}

static lt_status read_json_lines(lt_label_table *t, const char *path, const char *text,
                                 const char *columns)
{
    char *key[2] = {NULL, NULL};
    lt_status st = LT_OK;
    for (int line = 1; *text && !st; line++) {
        const size_t bytes = strcspn(text, "\n");
        lt_json *json = NULL;
        if (strspn(text, " \t\r") < bytes)
            st = lt_json_parse(&json, text, bytes, path, JSON_DEPTH);
        if (st)
            st = lt_fail(st, "%s:%d: %s", path, line, lt_error_message());
        else if (json)
            st = add_object(t, path, lt_json_root(json), line, key, columns);
        lt_json_free(&json);
        text += bytes + (text[bytes] == '\n');
    }
    lt_free(key[0]);
    lt_free(key[1]);
    return st;
}

/* --- Either --- */

lt_status lt_label_table_read(lt_label_table *out, const char *path, const char *columns)
{
    static const char mark[] = "\xEF\xBB\xBF"; /* UTF-8's byte order mark */
    LT_TRY(lt_file_read(path, &out->text));
    char *text = (char *)out->text.bytes;
    text[out->text.size] = 0; /* in the record's padding */
    if (strlen(text) != out->text.size)
        return lt_fail(LT_E_FORMAT, "%s: not a text file: it has a zero byte", path);
    if (!strncmp(text, mark, sizeof mark - 1))
        text += sizeof mark - 1;
    const char *first = text + strspn(text, " \t\r\n");
    if (*first == '[')
        return lt_fail(LT_E_FORMAT,
                       "%s: begins with '['; want CSV with a header, or JSON lines, an object per "
                       "line",
                       path);
    LT_TRY(*first == '{' ? read_json_lines(out, path, text, columns)
                         : read_csv(out, path, text, columns));
    return out->count ? LT_OK : lt_fail(LT_E_FORMAT, "%s: no label in this file", path);
}

void lt_label_table_clear(lt_label_table *t)
{
    lt_free(t->row);
    lt_free(t->text.bytes);
    lt_free_texts(t->strings.path, t->strings.count);
    *t = (lt_label_table){0};
}
