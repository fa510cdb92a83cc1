/* Strict JSON parser (RFC 8259) for untrusted text: depth and numbers are bounded, memory is proportional to the text,
 * duplicate keys are errors. */

#include "json.h"

#include "base/alloc.h"
#include "base/encoding/utf8.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NODES_PER_CHUNK = 256, MAX_DEPTH = 64, MAX_NUMBER = 320 };

typedef struct chunk {
    struct chunk *next;
    size_t used;
    lt_json_value value[NODES_PER_CHUNK];
} chunk;

struct lt_json {
    chunk *chunks;
    char *strings; /* decoded strings; never longer than the text */
    lt_json_value *root;
};

typedef struct parser {
    lt_json *json;
    const char *name, *text, *at, *end;
    char *string; /* destination of the next decoded string */
    int depth;
    size_t left;                    /* number of values still allowed in the current member */
    const lt_json_visitor *visitor; /* NULL: keeps all values */
} parser;

static lt_status syntax_error_at(const parser *p, const char *at, const char *what)
{
    size_t line = 1, column = 1;
    for (const char *c = p->text; c < at; c++) {
        column = *c == '\n' ? 1 : column + 1;
        line += *c == '\n';
    }
    return lt_fail(LT_E_FORMAT, "%s: line %zu, column %zu: %s", p->name, line, column, what);
}

static lt_status syntax_error(const parser *p, const char *what)
{
    return syntax_error_at(p, p->at, p->at == p->end ? "unexpected end of the text" : what);
}

static void skip_space(parser *p)
{
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\t' || *p->at == '\n' || *p->at == '\r'))
        p->at++;
}

static bool accept_char(parser *p, char c)
{
    if (p->at == p->end || *p->at != c)
        return false;
    p->at++;
    return true;
}

static lt_json_value *new_value(parser *p)
{
    chunk *c = p->json->chunks;
    if (!c || c->used == NODES_PER_CHUNK) {
        c = lt_alloc(1, sizeof *c);
        if (!c)
            return NULL;
        c->next = p->json->chunks;
        p->json->chunks = c;
    }
    lt_json_value *v = &c->value[c->used++];
    v->offset = (size_t)(p->at - p->text);
    return v;
}

/* --- Strings --- */

static int hex_digit(char c)
{
    const char *digits = "0123456789abcdef", *found = c ? strchr(digits, c | 0x20) : NULL;
    return found && (c >= 'A' || c <= '9') ? (int)(found - digits) : -1;
}

static lt_status parse_hex4(parser *p, uint32_t *out)
{
    *out = 0;
    for (int i = 0; i < 4; i++, p->at++) {
        int digit = p->at < p->end ? hex_digit(*p->at) : -1;
        if (digit < 0)
            return syntax_error(p, "\\u needs four hexadecimal digits");
        *out = *out * 16 + (uint32_t)digit;
    }
    return LT_OK;
}

static lt_status parse_unicode(parser *p)
{
    uint32_t code, low;
    LT_TRY(parse_hex4(p, &code));
    if (code == 0)
        return syntax_error(p, "NUL inside a string");
    if (code >= 0xdc00 && code <= 0xdfff)
        return syntax_error(p, "a low surrogate without a high one");
    if (code >= 0xd800 && code <= 0xdbff) {
        if (!accept_char(p, '\\') || !accept_char(p, 'u'))
            return syntax_error(p, "a high surrogate without a low one");
        LT_TRY(parse_hex4(p, &low));
        if (low < 0xdc00 || low > 0xdfff)
            return syntax_error(p, "a high surrogate without a low one");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    p->string += lt_utf8_encode(p->string, code);
    return LT_OK;
}

static lt_status parse_escape(parser *p)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (accept_char(p, 'u'))
        return parse_unicode(p);
    const char *found = p->at < p->end && *p->at ? strchr(from, *p->at) : NULL;
    if (!found)
        return syntax_error(p, "an unknown escape");
    p->at++;
    *p->string++ = to[found - from];
    return LT_OK;
}

static lt_status parse_multibyte(parser *p)
{
    int bytes = lt_utf8_length(p->at, p->end);
    if (!bytes)
        return syntax_error(p, "bytes that are not UTF-8");
    memcpy(p->string, p->at, (size_t)bytes);
    p->string += bytes;
    p->at += bytes;
    return LT_OK;
}

static lt_status parse_string(parser *p, const char **out)
{
    const char *begin = p->at;
    if (!accept_char(p, '"'))
        return syntax_error(p, "expected a string");
    *out = p->string;
    while (p->at < p->end) {
        unsigned char c = (unsigned char)*p->at;
        if (c == '"') {
            p->at++;
            *p->string++ = 0;
            return LT_OK;
        }
        if (c < 0x20)
            return syntax_error(p, "a control character inside a string");
        if (c >= 0x80) {
            LT_TRY(parse_multibyte(p));
        } else if (c == '\\') {
            p->at++;
            LT_TRY(parse_escape(p));
        } else {
            *p->string++ = (char)c;
            p->at++;
        }
    }
    return syntax_error_at(p, begin, "unterminated string");
}

/* --- Numbers --- */

static const char *skip_digits(const char *c, const char *end)
{
    while (c < end && *c >= '0' && *c <= '9')
        c++;
    return c;
}

/* Returns the end of the number at c by RFC 8259, section 6, or NULL if it is invalid. */
static const char *number_end(const char *c, const char *end, bool *is_integer)
{
    *is_integer = true;
    c += c < end && *c == '-';
    const char *digits = skip_digits(c, end);
    if (digits == c || (*c == '0' && digits > c + 1))
        return NULL;
    c = digits;
    if (c < end && *c == '.') {
        *is_integer = false;
        digits = skip_digits(c + 1, end);
        if (digits == c + 1)
            return NULL;
        c = digits;
    }
    if (c < end && (*c == 'e' || *c == 'E')) {
        *is_integer = false;
        c++;
        c += c < end && (*c == '+' || *c == '-');
        digits = skip_digits(c, end);
        if (digits == c)
            return NULL;
        c = digits;
    }
    return c;
}

static lt_status parse_number(parser *p, lt_json_value *v)
{
    bool is_integer;
    const char *stop = number_end(p->at, p->end, &is_integer);
    if (!stop)
        return syntax_error(p, "not a value");
    size_t bytes = (size_t)(stop - p->at);
    char text[MAX_NUMBER + 1];
    if (bytes > MAX_NUMBER)
        return syntax_error(p, "a number with too many digits");
    memcpy(text, p->at, bytes);
    text[bytes] = 0;
    if (is_integer) {
        errno = 0;
        v->integer = strtoll(text, NULL, 10);
        v->is_integer = !errno;
    }
    char *point = strchr(text, '.');
    if (point)
        *point = *localeconv()->decimal_point; /* strtod uses the program's locale */
    v->type = LT_JSON_NUMBER;
    v->number = strtod(text, NULL);
    if (!isfinite(v->number))
        return syntax_error(p, "a number outside the range of double");
    p->at = stop;
    return LT_OK;
}

/* --- Values --- */

static int compare_keys(const void *a, const void *b)
{
    const lt_json_value *const *x = a, *const *y = b;
    int order = strcmp((*x)->key, (*y)->key);
    return order ? order : ((*x)->offset > (*y)->offset) - ((*x)->offset < (*y)->offset);
}

/* Finds duplicate keys by sorting, so that large files do not take quadratic time. */
static lt_status check_duplicates(const parser *p, const lt_json_value *object)
{
    if (object->count < 2)
        return LT_OK;
    const lt_json_value **sorted = lt_alloc(object->count, sizeof(lt_json_value *));
    if (!sorted)
        return LT_E_NOMEM;
    size_t n = 0;
    for (const lt_json_value *v = object->child; v; v = v->next)
        sorted[n++] = v;
    qsort(sorted, n, sizeof(lt_json_value *), compare_keys);
    lt_status st = LT_OK;
    for (size_t i = 1; i < n && !st; i++)
        if (!strcmp(sorted[i - 1]->key, sorted[i]->key)) {
            char what[160];
            snprintf(what, sizeof what, "duplicate key '%.100s'", sorted[i]->key);
            st = syntax_error_at(p, p->text + sorted[i]->offset, what);
        }
    lt_free(sorted);
    return st;
}

static lt_status parse_value(parser *p, const char *key, lt_json_value **out);

static lt_status parse_member(parser *p, bool object, lt_json_value **out)
{
    const char *key = NULL;
    if (object) {
        skip_space(p);
        LT_TRY(parse_string(p, &key));
        skip_space(p);
        if (!accept_char(p, ':'))
            return syntax_error(p, "expected ':'");
    }
    return parse_value(p, key, out);
}

/* Visits a member of the root, then reuses its memory for the next one. */
static lt_status visit_member(parser *p, const lt_json_value *member)
{
    lt_json *j = p->json;
    LT_TRY(p->visitor->visit(p->visitor->context, member));
    for (chunk *c = j->chunks; c->next; c = j->chunks) {
        j->chunks = c->next;
        lt_free(c);
    }
    memset(&j->chunks->value[1], 0, (j->chunks->used - 1) * sizeof(lt_json_value));
    j->chunks->used = 1; /* the root */
    p->left = p->visitor->most;
    return LT_OK;
}

static lt_status parse_children(parser *p, lt_json_value *v)
{
    char close = *p->at == '{' ? '}' : ']';
    v->type = close == '}' ? LT_JSON_OBJECT : LT_JSON_ARRAY;
    if (p->depth == 0)
        return syntax_error(p, "arrays and objects are nested too deeply");
    p->depth--;
    p->at++;
    skip_space(p);
    lt_json_value **tail = &v->child;
    if (!accept_char(p, close))
        for (;;) {
            LT_TRY(parse_member(p, close == '}', tail));
            if (p->visitor && v == p->json->root && close == '}') {
                LT_TRY(visit_member(p, *tail));
                *tail = NULL;
            } else {
                v->count++;
                tail = &(*tail)->next;
            }
            skip_space(p);
            if (accept_char(p, close))
                break;
            if (!accept_char(p, ','))
                return syntax_error(p,
                                    close == '}' ? "expected ',' or '}'" : "expected ',' or ']'");
        }
    p->depth++;
    return close == '}' ? check_duplicates(p, v) : LT_OK;
}

static bool accept_word(parser *p, const char *word)
{
    size_t bytes = strlen(word);
    if ((size_t)(p->end - p->at) < bytes || memcmp(p->at, word, bytes) != 0)
        return false;
    p->at += bytes;
    return true;
}

static lt_status parse_literal_or_number(parser *p, lt_json_value *v)
{
    if (accept_word(p, "null"))
        return LT_OK;
    v->boolean = accept_word(p, "true");
    if (!v->boolean && !accept_word(p, "false"))
        return parse_number(p, v);
    v->type = LT_JSON_BOOL;
    return LT_OK;
}

static lt_status parse_value(parser *p, const char *key, lt_json_value **out)
{
    skip_space(p);
    if (p->at == p->end)
        return syntax_error(p, "");
    if (!p->left--)
        return syntax_error(p, "too many values in one member");
    lt_json_value *v = new_value(p);
    if (!v)
        return LT_E_NOMEM;
    v->key = key;
    *out = v;
    if (*p->at == '{' || *p->at == '[')
        return parse_children(p, v);
    if (*p->at == '"') {
        v->type = LT_JSON_STRING;
        return parse_string(p, &v->string);
    }
    return parse_literal_or_number(p, v);
}

static lt_status parse_document(lt_json **out, size_t bytes, parser p)
{
    if (p.depth < 1 || p.depth > MAX_DEPTH)
        return lt_fail(LT_E_ARG, "json: depth %d is not in 1..%d", p.depth, MAX_DEPTH);
    lt_json *json = NULL;
    LT_TRY(LT_ALLOC(&json, 1));
    json->strings = lt_alloc(bytes + 1, 1);
    p.json = json;
    p.at = p.text;
    p.end = p.text + bytes;
    p.string = json->strings;
    lt_status st = json->strings ? parse_value(&p, NULL, &json->root) : LT_E_NOMEM;
    if (!st) {
        skip_space(&p);
        if (p.at != p.end)
            st = syntax_error(&p, "unexpected text after the value");
    }
    if (st)
        lt_json_free(&(lt_json *){json});
    else
        *out = json;
    return st;
}

lt_status lt_json_parse(lt_json **out, const char *text, size_t bytes, const char *name, int depth)
{
    return parse_document(out, bytes,
                          (parser){.name = name, .text = text, .depth = depth, .left = SIZE_MAX});
}

lt_status lt_json_parse_members(lt_json **out, const char *text, size_t bytes,
                                const lt_json_visitor *visitor)
{
    return parse_document(out, bytes,
                          (parser){.name = visitor->name,
                                   .text = text,
                                   .depth = visitor->depth,
                                   .left = visitor->most,
                                   .visitor = visitor});
}

void lt_json_free(lt_json **json)
{
    if (!*json)
        return;
    for (chunk *c = (*json)->chunks, *next; c; c = next) {
        next = c->next;
        lt_free(c);
    }
    lt_free((*json)->strings);
    lt_free(*json);
    *json = NULL;
}

const lt_json_value *lt_json_root(const lt_json *json)
{
    return json->root;
}
