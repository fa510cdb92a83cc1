/* Splits command lines into argv and expands placeholders in them. */

#include "base/alloc.h"
#include "base/text.h"
#include "launch/launch.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Copies one word from *text, which it advances, to `to`. Returns the end of the copy, or NULL for an open quote. */
static char *copy_word(const char **text, char *to)
{
    char quote = 0;
    const char *t = *text;
    for (; *t && (quote || !isspace((unsigned char)*t)); t++) {
        if (*t == '\\' && quote != '\'' && t[1])
            *to++ = *++t;
        else if (quote ? *t == quote : *t == '"' || *t == '\'')
            quote = (char)(quote ? 0 : *t);
        else
            *to++ = *t;
    }
    *to = 0;
    *text = t;
    return quote ? NULL : to + 1;
}

lt_status lt_launch_split_argv(char ***out, const char *text)
{
    const size_t bytes = strlen(text), most = bytes / 2 + 2;
    char **list = lt_alloc(1, most * sizeof *list + bytes + 1);
    if (!list)
        return LT_E_NOMEM;
    char *to = (char *)(list + most);
    const char *t = text;
    for (size_t count = 0;; count++) {
        while (isspace((unsigned char)*t))
            t++;
        if (!*t)
            break;
        list[count] = to;
        to = copy_word(&t, to);
        if (!to) {
            lt_free(list);
            return lt_fail(LT_E_ARG, "launch: unclosed quote: %s", text);
        }
    }
    *out = list;
    return LT_OK;
}

typedef struct buffer {
    char *text;
    size_t bytes, capacity;
} buffer;

static lt_status append_text(buffer *b, const char *text, size_t bytes)
{
    LT_TRY(LT_GROW(&b->text, &b->capacity, b->bytes + bytes + 1));
    memcpy(b->text + b->bytes, text, bytes);
    b->bytes += bytes;
    b->text[b->bytes] = 0;
    return LT_OK;
}

static lt_status unknown_placeholder_error(const lt_launch_values *v, const char *name, int bytes)
{
    enum { KNOWN = 64 };
    static const char *const own[] = {"self.address", "index", "count",
                                      "folder",       "run",   "grad-accum"};
    const char *known[KNOWN];
    char labels[KNOWN][LT_LAUNCH_NAME], wrong[LT_LAUNCH_NAME];
    size_t count = 0;
    for (; count < sizeof own / sizeof *own; count++)
        known[count] = own[count];
    for (const lt_launch_handle *h = v->program->first; h && count < KNOWN; h = h->next)
        if (h->config.kind == LT_LAUNCH_NODE_SERVICE) {
            snprintf(labels[count], LT_LAUNCH_NAME, "%.*s.address", LT_LAUNCH_NAME - 10,
                     h->config.label);
            known[count] = labels[count];
            count++;
        }
    snprintf(wrong, sizeof wrong, "%.*s", bytes, name);
    return lt_fail(LT_E_ARG, "launch: %s: unknown placeholder ${%s}; did you mean ${%s}?",
                   v->group->config.label, wrong, lt_nearest_word(wrong, known, count));
}

/* Parses LABEL.address or LABEL.N.address of a service. */
static lt_status parse_address_placeholder(const lt_launch_values *v, const char *name, int bytes,
                                           lt_placeholder *out)
{
    static const char suffix[] = ".address";
    const int tail = (int)sizeof suffix - 1;
    int label = bytes - tail;
    if (label < 1 || memcmp(name + label, suffix, sizeof suffix - 1) != 0)
        return unknown_placeholder_error(v, name, bytes);
    out->index = -1;
    out->service = label == 4 && !memcmp(name, "self", 4)
                       ? v->group
                       : lt_program_graph_find(v->program, name, (size_t)label);
    if (out->service == v->group)
        out->index = v->index;
    const char *dot = memchr(name, '.', (size_t)label);
    const int digits = dot ? (int)strspn(dot + 1, "0123456789") : 0;
    if (!out->service && digits > 0 && digits < 10 && dot + 1 + digits == name + label) {
        out->index = (int)strtol(dot + 1, NULL, 10);
        out->service = lt_program_graph_find(v->program, name, (size_t)(dot - name));
    }
    if (!out->service)
        return unknown_placeholder_error(v, name, bytes);
    if (out->service->config.kind != LT_LAUNCH_NODE_SERVICE)
        return lt_fail(LT_E_ARG, "launch: %s refers to the address of %s, which is not a service",
                       v->group->config.label, out->service->config.label);
    if (out->index >= out->service->config.count || out->index < -1)
        return lt_fail(LT_E_ARG, "launch: %s: ${%.*s}: %s has %d nodes", v->group->config.label,
                       bytes, name, out->service->config.label, out->service->config.count);
    return LT_OK;
}

static bool name_equals(const char *name, int bytes, const char *word_)
{
    return bytes == (int)strlen(word_) && !memcmp(name, word_, (size_t)bytes);
}

/* Parses the placeholder of that name; text: buffer for its value. */
static lt_status parse_placeholder(const lt_launch_values *v, const char *name, int bytes,
                                   lt_placeholder *out, char *text)
{
    *out = (lt_placeholder){.value = text};
    text[0] = 0;
    if (name_equals(name, bytes, "index"))
        snprintf(text, LT_LAUNCH_PATH, "%d", v->index);
    else if (name_equals(name, bytes, "count"))
        snprintf(text, LT_LAUNCH_PATH, "%d", v->count);
    else if (name_equals(name, bytes, "folder"))
        snprintf(text, LT_LAUNCH_PATH, "%s", v->place ? v->place->folder : "");
    else if (name_equals(name, bytes, "run") && v->group->config.kind == LT_LAUNCH_NODE_GANG)
        snprintf(text, LT_LAUNCH_PATH, "%d", v->run);
    else if (name_equals(name, bytes, "grad-accum") && v->group->config.global_batch)
        snprintf(text, LT_LAUNCH_PATH, "%lld", (long long)v->grad_accum);
    else
        return parse_address_placeholder(v, name, bytes, out);
    return LT_OK;
}

enum { TIMEOUT = 300 }; /* seconds for a service to be bound, also on a busy cluster */

/* Appends the addresses of one placeholder, separated by commas. */
static lt_status append_addresses(const lt_launch_values *v, const lt_placeholder *p, buffer *to)
{
    const int first = p->index < 0 ? 0 : p->index;
    const int end = p->index < 0 ? p->service->config.count : p->index + 1;
    char address[LT_LAUNCH_PATH];
    for (int i = first; i < end; i++) {
        if (p->service == v->group)
            lt_launch_make_listen_address(v->place, v->group->config.label, i, address,
                                          sizeof address);
        else
            LT_TRY(lt_launch_wait_for_address(v->place, p->service->config.label, i, TIMEOUT,
                                              address, sizeof address));
        if (i > first)
            LT_TRY(append_text(to, ",", 1));
        LT_TRY(append_text(to, address, strlen(address)));
    }
    return LT_OK;
}

/* Appends the text up to the next placeholder and parses it; advances *text. */
static lt_status append_and_parse_placeholder(const lt_launch_values *v, const char **text,
                                              buffer *to, lt_placeholder *p, char *value)
{
    const char *begin = strstr(*text, "${"), *end = begin ? strchr(begin, '}') : NULL;
    *p = (lt_placeholder){.value = ""};
    if (begin && !end)
        return lt_fail(LT_E_ARG, "launch: %s: unclosed placeholder: %s", v->group->config.label,
                       begin);
    const size_t before = begin ? (size_t)(begin - *text) : strlen(*text);
    LT_TRY(append_text(to, *text, before));
    *text = end ? end + 1 : *text + before;
    return begin ? parse_placeholder(v, begin + 2, (int)(end - begin - 2), p, value) : LT_OK;
}

static lt_status expand_text(const lt_launch_values *v, const char *text, buffer *to, char *value)
{
    while (*text) {
        lt_placeholder p;
        LT_TRY(append_and_parse_placeholder(v, &text, to, &p, value));
        if (p.service)
            LT_TRY(append_addresses(v, &p, to));
        else
            LT_TRY(append_text(to, p.value, strlen(p.value)));
    }
    return append_text(to, "", 0);
}

lt_status lt_launch_expand_placeholders(const lt_launch_values *values, const char *text,
                                        char **out)
{
    buffer b = {0};
    char value[LT_LAUNCH_PATH];
    const lt_status st = expand_text(values, text, &b, value);
    if (st)
        lt_free(b.text);
    else
        *out = b.text;
    return st;
}

lt_status lt_launch_visit_used_services(const lt_launch_values *values, const char *text,
                                        void (*visit)(void *context,
                                                      const lt_launch_handle *service),
                                        void *context)
{
    buffer b = {0};
    char value[LT_LAUNCH_PATH];
    lt_status st = LT_OK;
    while (!st && *text) {
        lt_placeholder p;
        st = append_and_parse_placeholder(values, &text, &b, &p, value);
        if (!st && p.service)
            visit(context, p.service);
    }
    lt_free(b.text);
    return st;
}
