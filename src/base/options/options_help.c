/* Output from the option table: --help, the manual page, the config file. */

#include "options.h"

#include "lather/device.h"
#include "lather/ext/fail.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <string.h>
#include <strings.h>

enum { COLUMN = 34, WIDTH = 100 };
static const double MOST = 1e15; /* limits of ranges from this on mean unlimited */

static lt_status flush_and_check_output(FILE *out)
{
    errno = 0;
    if (!fflush(out) && !ferror(out))
        return LT_OK;
    if (errno == EPIPE) { /* the reader, such as head, closed the pipe */
        clearerr(out);
        return LT_OK;
    }
    return lt_fail(LT_E_IO, "options: cannot write the output: %s",
                   errno ? strerror(errno) : "an earlier write failed");
}

static const char *value_placeholder(const lt_option *option)
{
    static const char *const names[] = {
        [LT_OPTION_INT] = "N",   [LT_OPTION_DOUBLE] = "X",  [LT_OPTION_STRING] = "TEXT",
        [LT_OPTION_CHOICE] = "", [LT_OPTION_LIST] = "TEXT", [LT_OPTION_PAIR] = "NAME=VALUE"};
    if (option->meta)
        return option->meta;
    return option->type == LT_OPTION_CHOICE ? option->choices : names[option->type];
}

/* Writes the left column: "-b, --batch-size N". */
static void write_left_column(const lt_option *option, char *text, size_t size)
{
    char alias[8] = "";
    if (option->alias)
        snprintf(alias, sizeof alias, "-%c, ", option->alias);
    if (option->through)
        snprintf(text, size, "%s=%s", option->name,
                 option->type == LT_OPTION_BOOL ? "true|false" : value_placeholder(option));
    else if (option->type == LT_OPTION_BOOL)
        snprintf(text, size, "%s--[no-]%s", alias, option->name);
    else
        snprintf(text, size, "%s--%s %s", alias, option->name, value_placeholder(option));
}

/* Writes what makes an option read, " (adam shampoo only)" or " (needs --sched step)", or "". */
static void write_readers(const lt_option *option, char *text, size_t size)
{
    char needs[192];
    text[0] = 0;
    if (lt_options_needs(option)) {
        lt_options_format_needs(option->applies, needs, sizeof needs);
        snprintf(text, size, " (needs %s)", needs);
    } else if (option->applies)
        snprintf(text, size, " (%s only)", option->applies);
}

/* Writes the right column: help, aliases, default, and the options that make it read. */
static void write_right_column(const lt_option *option, char *text, size_t size)
{
    char readers[256];
    size_t used = (size_t)snprintf(text, size, "%s", option->help);
#define APPEND(...)                                                          \
    do {                                                                     \
        if (used < size)                                                     \
            used += (size_t)snprintf(text + used, size - used, __VA_ARGS__); \
    } while (0)
    if (option->type == LT_OPTION_LIST || option->type == LT_OPTION_PAIR)
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
    write_readers(option, readers, sizeof readers);
    APPEND("%s", readers);
#undef APPEND
}

/* Prints text wrapped to lines that begin at column indent; the cursor is at column `at`. */
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

/* Returns the program's name for --help: lather-NAME for installed tools. */
static const char *program_name(const lt_options *o)
{
    const char *path = lt_options_argument(o, 0), *slash = path ? strrchr(path, '/') : NULL;
    const char *name = slash ? slash + 1 : path;
    return name && !strncmp(name, "lather-", 7) ? name : o->program->name;
}

static void print_option(FILE *out, const lt_option *option)
{
    char left[256], right[1024];
    write_left_column(option, left, sizeof left);
    write_right_column(option, right, sizeof right);
    print_row(out, left, right);
}

static void print_builtin(FILE *out, const lt_option_builtin *b)
{
    char left[256];
    snprintf(left, sizeof left, "%s--%s%s%s", b->alias ? "-h, " : "", b->name, b->meta ? " " : "",
             b->meta ? b->meta : "");
    print_row(out, left, b->help);
}

static bool is_listed(const lt_options *o, size_t index)
{
    const lt_option_row *row = &o->row[index];
    if (!strcmp(o->topic, "all"))
        return true;
    return *o->topic ? !strcasecmp(o->topic, row->option->group)
                     : row->common && !row->option->through;
}

/* Prints a group's direct options, or if `through` those set by way of another option. Returns their count. */
static size_t print_group(const lt_options *o, FILE *out, const char *group, bool through)
{
    size_t count = 0;
    for (size_t i = 0; i < o->count; i++) {
        const lt_option *option = o->row[i].option;
        if (!is_listed(o, i) || strcmp(option->group, group) != 0
            || (option->through != NULL) != through)
            continue;
        if (!count++ && through)
            fprintf(out, "\n%s, by --%s NAME=VALUE:\n", group, option->through);
        else if (count == 1)
            fprintf(out, "\n%s:\n", group);
        print_option(out, option);
    }
    return count;
}

/* Prints the options of the topic. Returns their count. */
static size_t print_groups(const lt_options *o, FILE *out)
{
    size_t count = 0;
    for (size_t i = 0; i < o->count; i++) {
        const char *group = o->row[i].option->group;
        if (i > 0 && !strcmp(group, o->row[i - 1].option->group))
            continue;
        count += print_group(o, out, group, false);
        count += print_group(o, out, group, true);
    }
    if (*o->topic && strcmp(o->topic, "all") != 0 && strcasecmp(o->topic, "general") != 0)
        return count;
    fprintf(out, "\nGeneral:\n");
    for (size_t i = 0; i < lt_option_builtin_count; i++)
        print_builtin(out, &lt_option_builtins[i]);
    return count;
}

/* Lists the other topics of --help when only the common options were shown. */
static void print_topics(const lt_options *o, FILE *out, size_t shown)
{
    char text[512];
    size_t used = (size_t)snprintf(
        text, sizeof text,
        "These are %zu of %zu options. --help all lists all; --help SECTION those of", shown,
        o->count);
    for (size_t i = 0; i < o->count && used < sizeof text; i++)
        if (i == 0 || strcmp(o->row[i].option->group, o->row[i - 1].option->group) != 0)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s %s", i ? "," : "",
                                     o->row[i].option->group);
    if (used < sizeof text)
        snprintf(text + used, sizeof text - used,
                 "; --help OPTION one, with its range, as in --help --%s.", o->row[0].option->name);
    fputc('\n', out);
    print_wrapped(out, text, 0, 0);
}

/* Formats the limit of a range; whole numbers as 1000000 rather than 1e+06. */
static void write_limit(double value, char *text, size_t size)
{
    if (!(fabs(value) < MOST) || floor(value) < value)
        lt_options_number(text, size, value);
    else
        snprintf(text, size, "%.0f", value);
}

/* Writes "whole numbers from 1 to 65536". */
static void write_range(const lt_option *option, char *text, size_t size)
{
    char low[32], high[32], limits[80] = "";
    write_limit(option->min, low, sizeof low);
    write_limit(option->max, high, sizeof high);
    if (option->min < option->max && option->max >= MOST)
        snprintf(limits, sizeof limits, " from %s on", low);
    else if (option->min < option->max)
        snprintf(limits, sizeof limits, " from %s to %s%s", low, option->below ? "below " : "",
                 high);
    snprintf(text, size, "%s%s", option->type == LT_OPTION_INT ? "whole numbers" : "numbers",
             limits);
}

static void write_valid_values(const lt_option *option, char *text, size_t size)
{
    static const char *const words[] = {[LT_OPTION_BOOL] = "on or off",
                                        [LT_OPTION_INT] = NULL,
                                        [LT_OPTION_DOUBLE] = NULL,
                                        [LT_OPTION_CHOICE] = NULL,
                                        [LT_OPTION_STRING] = "any text",
                                        [LT_OPTION_LIST] = "any text",
                                        [LT_OPTION_PAIR] = "a setting and its value"};
    char range[128];
    write_range(option, range, sizeof range);
    snprintf(text, size, "; values: %s",
             option->type == LT_OPTION_CHOICE ? option->choices
             : words[option->type]            ? words[option->type]
                                              : range);
}

static bool has_default(const lt_option *option)
{
    return option->value || option->defaults || option->type == LT_OPTION_BOOL
           || option->type == LT_OPTION_CHOICE || option->type == LT_OPTION_PAIR;
}

static void print_details(const lt_options *o, FILE *out)
{
    const lt_option *option = lt_options_topic_option(o, o->topic);
    char text[512];
    if (!option) {
        print_builtin(out, lt_options_topic_builtin(o->topic));
        return;
    }
    print_option(out, option);
    const size_t used = (size_t)snprintf(text, sizeof text, "Section %s", option->group);
    if (!option->meta || option->type == LT_OPTION_INT || option->type == LT_OPTION_DOUBLE)
        write_valid_values(option, text + used, sizeof text - used);
    print_wrapped(out, text, 0, COLUMN);
    if (!has_default(option))
        print_wrapped(out, "no default", 0, COLUMN);
    for (size_t i = 0; i < o->count; i++)
        if (o->row[i].option->through && !strcmp(o->row[i].option->through, option->name))
            print_option(out, o->row[i].option);
}

static lt_status write_help(const lt_options *o, FILE *out)
{
    const lt_program *p = o->program;
    const bool about_all = !*o->topic || !strcmp(o->topic, "all");
    if (about_all) {
        fprintf(out, "%s: %s\n\nUsage: %s %s\n", program_name(o), p->summary, program_name(o),
                p->usage);
        if (p->description)
            fprintf(out, "\n%s\n", p->description);
    } else if (!lt_options_is_group(o, o->topic)) {
        print_details(o, out);
        return flush_and_check_output(out);
    }
    const size_t shown = print_groups(o, out);
    if (p->selector)
        fprintf(out, "\nDefaults in [brackets]; name=value: with --%s name.\n", p->selector);
    if (!*o->topic && shown < o->count)
        print_topics(o, out, shown);
    return flush_and_check_output(out);
}

/* Prints a line of roff: escapes '.' and quotes at its start, '\' anywhere, and '-', which would be a hyphen. */
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

static void print_man_row(FILE *out, const char *left, const char *right)
{
    fputs(".TP\n.B ", out);
    print_roff(out, left);
    print_roff(out, right);
}

static lt_status write_man(const lt_options *o, FILE *out)
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
        write_left_column(option, left, sizeof left);
        write_right_column(option, right, sizeof right);
        print_man_row(out, left, right);
    }
    fputs(".SS General\n", out);
    for (size_t i = 0; i < lt_option_builtin_count; i++) {
        snprintf(left, sizeof left, "--%s", lt_option_builtins[i].name);
        print_man_row(out, left, lt_option_builtins[i].help);
    }
    return flush_and_check_output(out);
}

static int is_plain_yaml_scalar(const char *value)
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

/* Prints a scalar of YAML 1.2, sections 7.3.1 and 7.3.3: plain if unambiguous, else double-quoted; NULL as "". */
static void print_yaml_scalar(FILE *out, const char *value)
{
    if (value && *value && is_plain_yaml_scalar(value)) {
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

static void write_config_list(FILE *out, const char *name, const lt_option_list *list)
{
    if (list->count == 0)
        return;
    fprintf(out, "%s:\n", name);
    for (size_t k = 0; k < list->count; k++) {
        fputs("  - ", out);
        print_yaml_scalar(out, list->item[k]);
        fputc('\n', out);
    }
}

static void write_config_value(const lt_options *o, const lt_option_row *row, FILE *out)
{
    char text[64];
    fprintf(out, "%s: ", row->option->name);
    if (row->option->type == LT_OPTION_STRING)
        print_yaml_scalar(out, row->string);
    else
        print_yaml_scalar(out, lt_options_text(o, row->option->name, text, sizeof text));
    fputc('\n', out);
}

static lt_status write_config_options(const lt_options *o, FILE *out, bool with_once)
{
    for (size_t i = 0; i < o->count; i++) {
        const lt_option_row *row = &o->row[i];
        const lt_option *option = row->option;
        if (!lt_options_applies(o, option->name) || (option->once && !with_once))
            continue;
        if (option->type == LT_OPTION_PAIR)
            continue;
        if (option->type == LT_OPTION_LIST)
            write_config_list(out, option->name, row->field);
        else if (option->type != LT_OPTION_STRING || row->string) /* skips unset strings */
            write_config_value(o, row, out);
    }
    return flush_and_check_output(out);
}

lt_status lt_options_write_config(const lt_options *o, FILE *out)
{
    return write_config_options(o, out, true);
}

lt_status lt_options_write_run(const lt_options *o, FILE *out)
{
    return write_config_options(o, out, false);
}

static lt_status write_version(const lt_options *o, FILE *out)
{
    fprintf(out, "%s %s\n", o->program->name, lt_version());
    const char *line;
    for (int i = 0; (line = lt_build_info(i)); i++)
        fprintf(out, "%s\n", line);
    return flush_and_check_output(out);
}

lt_status lt_options_print_request(const lt_options *o, FILE *out)
{
    switch (o->asked) {
    case LT_OPTIONS_HELP:
        return write_help(o, out);
    case LT_OPTIONS_MAN:
        return write_man(o, out);
    case LT_OPTIONS_VERSION:
        return write_version(o, out);
    case LT_OPTIONS_PRINT_CONFIG:
        return lt_options_write_config(o, out);
    case LT_OPTIONS_RUN:
        break;
    }
    return LT_OK;
}
