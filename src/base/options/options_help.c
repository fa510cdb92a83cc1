/* What the option table says of itself: --help, the manual page, the config file. */

#include "options.h"

#include "lather/device.h"
#include "lather/ext/fail.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

enum { COLUMN = 34, WIDTH = 100 };

static lt_status check(FILE *out)
{
    errno = 0;
    if (!fflush(out) && !ferror(out))
        return LT_OK;
    if (errno == EPIPE) { /* its reader, such as head, had enough */
        clearerr(out);
        return LT_OK;
    }
    return lt_fail(LT_E_IO, "options: the output was refused: %s",
                   errno ? strerror(errno) : "an earlier write failed");
}

static const char *meta(const lt_option *option)
{
    static const char *const names[] = {[LT_OPTION_INT] = "N",
                                        [LT_OPTION_DOUBLE] = "X",
                                        [LT_OPTION_STRING] = "TEXT",
                                        [LT_OPTION_CHOICE] = "",
                                        [LT_OPTION_LIST] = "TEXT"};
    if (option->meta)
        return option->meta;
    return option->type == LT_OPTION_CHOICE ? option->choices : names[option->type];
}

/* "-b, --batch-size N": what stands on the left. */
static void left_side(const lt_option *option, char *text, size_t size)
{
    char alias[8] = "";
    if (option->alias)
        snprintf(alias, sizeof alias, "-%c, ", option->alias);
    if (option->type == LT_OPTION_BOOL)
        snprintf(text, size, "%s--[no-]%s", alias, option->name);
    else
        snprintf(text, size, "%s--%s %s", alias, option->name, meta(option));
}

/* Help, range, default, and who reads it: one paragraph. */
static void right_side(const lt_option *option, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "%s", option->help);
#define APPEND(...)                                                          \
    do {                                                                     \
        if (used < size)                                                     \
            used += (size_t)snprintf(text + used, size - used, __VA_ARGS__); \
    } while (0)
    if (option->type == LT_OPTION_LIST)
        APPEND("; may be repeated");
    for (const char *at = option->also; at && *at; at += strspn(at, " ")) {
        APPEND("%s--%.*s", at == option->also ? "; also " : ", ", (int)strcspn(at, " "), at);
        at += strcspn(at, " ");
    }
    int bytes = 0;
    if (option->defaults)
        APPEND(" [%s]", option->defaults);
    else if (option->type == LT_OPTION_BOOL)
        APPEND(" [%s]", option->value && !strcmp(option->value, "true") ? "on" : "off");
    else if (option->value && *option->value)
        APPEND(" [%s]", option->value);
    else if (option->type == LT_OPTION_CHOICE && lt_options_item(option->choices, 0, &bytes))
        APPEND(" [%.*s]", bytes, option->choices);
    if (option->applies)
        APPEND(" (%s only)", option->applies);
#undef APPEND
}

/* Words of text in lines that begin at column indent; the cursor is at column at. */
static void print_wrapped(FILE *out, const char *text, int at, int indent)
{
    fprintf(out, "%*s", indent > at ? indent - at : 0, "");
    int column = indent > at ? indent : at;
    for (bool first = true; *text; first = false) {
        int bytes = (int)strcspn(text, " ");
        if (!first && column + 1 + bytes > WIDTH) {
            fprintf(out, "\n%*s", indent, "");
            column = indent;
        } else if (!first) {
            fputc(' ', out);
            column++;
        }
        fprintf(out, "%.*s", bytes, text);
        column += bytes;
        text += bytes;
        text += strspn(text, " ");
    }
    fputc('\n', out);
}

static void print_row(FILE *out, const char *left, const char *right)
{
    int at = fprintf(out, "  %s", left);
    if (at + 2 > COLUMN) {
        fputc('\n', out);
        at = 0;
    }
    print_wrapped(out, right, at, COLUMN);
}

/* Installed tools are called lather-NAME: so their help calls them. */
static const char *called(const lt_options *o)
{
    const char *path = lt_options_argument(o, 0), *slash = path ? strrchr(path, '/') : NULL;
    const char *name = slash ? slash + 1 : path;
    return name && !strncmp(name, "lather-", 7) ? name : o->program->name;
}

lt_status lt_options_write_help(const lt_options *o, FILE *out)
{
    const lt_program *p = o->program;
    char left[256], right[1024];
    fprintf(out, "%s: %s\n\nUsage: %s %s\n", called(o), p->summary, called(o), p->usage);
    if (p->description)
        fprintf(out, "\n%s\n", p->description);
    for (size_t i = 0; i < o->count; i++) {
        const lt_option *option = o->row[i].option;
        if (i == 0 || strcmp(option->group, o->row[i - 1].option->group) != 0)
            fprintf(out, "\n%s:\n", option->group);
        left_side(option, left, sizeof left);
        right_side(option, right, sizeof right);
        print_row(out, left, right);
    }
    fprintf(out, "\nGeneral:\n");
    for (size_t i = 0; i < lt_option_builtin_count; i++) {
        const lt_option_builtin *b = &lt_option_builtins[i];
        snprintf(left, sizeof left, "%s--%s%s%s", b->alias ? "-h, " : "", b->name,
                 b->meta ? " " : "", b->meta ? b->meta : "");
        print_row(out, left, b->help);
    }
    if (p->selector)
        fprintf(out, "\nDefaults in [brackets]; name=value: with --%s name.\n", p->selector);
    return check(out);
}

/* roff reads '.' and quotes at the start of a line, '\' anywhere, and '-' as a hyphen. */
static void print_roff(FILE *out, const char *text)
{
    if (*text == '.' || *text == '\'')
        fputs("\\&", out);
    for (; *text; text++) {
        if (*text == '\\')
            fputs("\\e", out);
        else if (*text == '-')
            fputs("\\-", out);
        else
            fputc(*text, out);
    }
    fputc('\n', out);
}

static void print_upper(FILE *out, const char *text)
{
    for (; *text; text++)
        fputc(toupper((unsigned char)*text), out);
}

static void man_row(FILE *out, const char *left, const char *right)
{
    fputs(".TP\n.B ", out);
    print_roff(out, left);
    print_roff(out, right);
}

lt_status lt_options_write_man(const lt_options *o, FILE *out)
{
    const lt_program *p = o->program;
    char left[256], right[1024];
    fputs(".TH ", out);
    print_upper(out, p->name);
    fprintf(out, " 1 \"\" \"lather %s\"\n.SH NAME\n%s \\- %s\n", lt_version(), p->name, p->summary);
    fprintf(out, ".SH SYNOPSIS\n.B %s\n", p->name);
    print_roff(out, p->usage);
    if (p->description) {
        fputs(".SH DESCRIPTION\n", out);
        print_roff(out, p->description);
    }
    fputs(".SH OPTIONS\n", out);
    for (size_t i = 0; i < o->count; i++) {
        const lt_option *option = o->row[i].option;
        if (i == 0 || strcmp(option->group, o->row[i - 1].option->group) != 0) {
            fputs(".SS ", out);
            print_roff(out, option->group);
        }
        left_side(option, left, sizeof left);
        right_side(option, right, sizeof right);
        man_row(out, left, right);
    }
    fputs(".SS General\n", out);
    for (size_t i = 0; i < lt_option_builtin_count; i++) {
        snprintf(left, sizeof left, "--%s", lt_option_builtins[i].name);
        man_row(out, left, lt_option_builtins[i].help);
    }
    return check(out);
}

static int is_plain(const char *value)
{
    if (!isalnum((unsigned char)value[0]) && !strchr("/._-+", value[0]))
        return 0;
    if (value[0] == '-' && !isalnum((unsigned char)value[1]))
        return 0;
    for (const char *c = value; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("/._-+=,", *c))
            return 0;
    return 1;
}

/* A scalar of YAML 1.2, sections 7.3.1 and 7.3.3: plain where nothing can be misread, else double
 * quoted. NULL: "". */
static void put_scalar(FILE *out, const char *value)
{
    if (value && *value && is_plain(value)) {
        fputs(value, out);
        return;
    }
    fputc('"', out);
    for (const char *c = value ? value : ""; *c; c++) {
        if (*c == '"' || *c == '\\')
            fprintf(out, "\\%c", *c);
        else if ((unsigned char)*c < 0x20)
            fprintf(out, "\\x%02x", (unsigned)*c);
        else
            fputc(*c, out);
    }
    fputc('"', out);
}

static void write_list(FILE *out, const char *name, const lt_option_list *list)
{
    if (list->count == 0)
        return;
    fprintf(out, "%s:\n", name);
    for (size_t k = 0; k < list->count; k++) {
        fputs("  - ", out);
        put_scalar(out, list->item[k]);
        fputc('\n', out);
    }
}

static void write_value(const lt_options *o, const lt_option_row *row, FILE *out)
{
    char text[64];
    fprintf(out, "%s: ", row->option->name);
    if (row->option->type == LT_OPTION_STRING)
        put_scalar(out, row->string);
    else
        put_scalar(out, lt_options_text(o, row->option->name, text, sizeof text));
    fputc('\n', out);
}

static lt_status write_options(const lt_options *o, FILE *out, bool with_once)
{
    for (size_t i = 0; i < o->count; i++) {
        const lt_option_row *row = &o->row[i];
        const lt_option *option = row->option;
        if (!lt_options_applies(o, option->name) || (option->once && !with_once))
            continue;
        if (option->type == LT_OPTION_LIST)
            write_list(out, option->name, row->field);
        else if (option->type != LT_OPTION_STRING || row->string) /* else: not given */
            write_value(o, row, out);
    }
    return check(out);
}

lt_status lt_options_write_config(const lt_options *o, FILE *out)
{
    return write_options(o, out, true);
}

lt_status lt_options_write_run(const lt_options *o, FILE *out)
{
    return write_options(o, out, false);
}

static lt_status write_version(const lt_options *o, FILE *out)
{
    fprintf(out, "%s %s\n", o->program->name, lt_version());
    const char *line;
    for (int i = 0; (line = lt_build_info(i)); i++)
        fprintf(out, "%s\n", line);
    return check(out);
}

lt_status lt_options_answer(const lt_options *o, FILE *out)
{
    switch (o->asked) {
    case LT_OPTIONS_HELP:
        return lt_options_write_help(o, out);
    case LT_OPTIONS_MAN:
        return lt_options_write_man(o, out);
    case LT_OPTIONS_VERSION:
        return write_version(o, out);
    case LT_OPTIONS_PRINT_CONFIG:
        return lt_options_write_config(o, out);
    case LT_OPTIONS_RUN:
        break;
    }
    return LT_OK;
}
