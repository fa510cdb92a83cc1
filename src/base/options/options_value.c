/* Values of options: conversion between text and the program's struct. */

#include "base/alloc.h"
#include "options.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

static lt_status out_of_range_error(const lt_option *option, const char *value)
{
    if (option->type == LT_OPTION_INT)
        return lt_fail(LT_E_ARG, "--%s: %s is not in %.0f..%.0f", option->name, value, option->min,
                       option->max);
    return lt_fail(LT_E_ARG, "--%s: %s is not in [%g, %g%c", option->name, value, option->min,
                   option->max, option->below || isinf(option->max) ? ')' : ']');
}

/* Returns true if value is out of range; min == max means no range. */
static bool is_outside(const lt_option *option, double value)
{
    const bool below = option->below ? value < option->max : value <= option->max;
    return option->min < option->max && !(value >= option->min && below);
}

static lt_status parse_int(const lt_option *option, const char *value, int64_t *out)
{
    char *end;
    errno = 0;
    *out = 0;
    long long number = strtoll(value, &end, 10);
    if (end == value || *end || errno) {
        LT_TRY(lt_options_check_removed(option->name, strlen(option->name), value));
        return lt_fail(LT_E_ARG, "--%s: '%s' is not an integer", option->name, value);
    }
    if (is_outside(option, (double)number))
        return out_of_range_error(option, value);
    *out = number;
    return LT_OK;
}

static lt_status parse_double(const lt_option *option, const char *value, double *out)
{
    char *end;
    double number = strtod(value, &end);
    if (end == value || *end || isnan(number))
        return lt_fail(LT_E_ARG, "--%s: '%s' is not a number", option->name, value);
    if (is_outside(option, number) || isinf(number))
        return out_of_range_error(option, value);
    *out = number;
    return LT_OK;
}

static lt_status parse_bool(const lt_option *option, const char *value, bool *out)
{
    bool yes = lt_options_has_word("true yes on 1", value, " ");
    if (!yes && !lt_options_has_word("false no off 0", value, " "))
        return lt_fail(LT_E_ARG, "--%s: '%s' is neither true nor false", option->name, value);
    *out = yes;
    return LT_OK;
}

static lt_status parse_choice(const lt_option *option, const char *value, int *out)
{
    int bytes;
    const char *item;
    for (int i = 0; (item = lt_options_item(option->choices, i, &bytes)); i++)
        if ((size_t)bytes == strlen(value) && !strncmp(item, value, (size_t)bytes)) {
            *out = i;
            return LT_OK;
        }
    LT_TRY(lt_options_check_removed(option->name, strlen(option->name), value));
    return lt_fail(LT_E_ARG, "--%s: unknown value '%s'; valid: %s%s%s", option->name, value,
                   option->choices, option->hint ? "; " : "", option->hint ? option->hint : "");
}

static lt_status append_to_list(lt_option_list *list, const char *value)
{
    LT_TRY(LT_RESIZE(&list->item, list->count + 1));
    list->item[list->count] = lt_strdup(value);
    return list->item[list->count] ? (list->count++, LT_OK) : LT_E_NOMEM;
}

/* Appends to a list, or replaces it if it comes from a weaker source. */
static lt_status append_to_or_replace_list(lt_option_list *list, const char *value, bool replace)
{
    for (; replace && list->count; list->count--)
        lt_free(list->item[list->count - 1]);
    return append_to_list(list, value);
}

/* Target of a value that is only validated. */
typedef union scratch {
    bool flag;
    int64_t integer;
    double real;
    int choice;
} scratch;

/* Parses a value; accepts any text for string types. */
static lt_status parse_value(const lt_option *option, const char *value, void *to)
{
    switch (option->type) {
    case LT_OPTION_BOOL:
        return parse_bool(option, value, to);
    case LT_OPTION_INT:
        return parse_int(option, value, to);
    case LT_OPTION_DOUBLE:
        return parse_double(option, value, to);
    case LT_OPTION_CHOICE:
        return parse_choice(option, value, to);
    case LT_OPTION_STRING:
    case LT_OPTION_LIST:
    case LT_OPTION_PAIR:
        break;
    }
    return LT_OK;
}

lt_status lt_options_check_value(const lt_option *option, const char *value)
{
    scratch unused;
    return parse_value(option, value, &unused);
}

static lt_status set_string(lt_option_row *row, const char *value)
{
    char *copy = lt_strdup(value);
    if (!copy)
        return LT_E_NOMEM;
    lt_free(row->string);
    row->string = copy;
    *(const char **)row->field = copy;
    return LT_OK;
}

lt_status lt_options_assign(lt_option_row *row, const char *value, lt_option_source source)
{
    if (row->source > source)
        return lt_options_check_value(row->option, value);
    if (row->option->type == LT_OPTION_STRING)
        LT_TRY(set_string(row, value));
    else if (row->option->type == LT_OPTION_LIST)
        LT_TRY(append_to_or_replace_list(row->field, value, row->source != source));
    else
        LT_TRY(parse_value(row->option, value, row->field));
    row->source = source;
    return LT_OK;
}

/* Returns the default of a choice in "sgd=0.1 shampoo=0.05", or NULL. */
static const char *default_for_choice(const char *defaults, const char *choice, char *text,
                                      size_t size)
{
    size_t bytes = strlen(choice);
    for (const char *at = defaults; *at; at += strspn(at, " ")) {
        size_t span = strcspn(at, " ");
        if (span > bytes && !strncmp(at, choice, bytes) && at[bytes] == '=') {
            snprintf(text, size, "%.*s", (int)(span - bytes - 1), at + bytes + 1);
            return text;
        }
        at += span;
    }
    return NULL;
}

const char *lt_options_default(const lt_options *o, const lt_option *option, char *text,
                               size_t size)
{
    const char *found = NULL;
    if (option->defaults && o->program->selector)
        found = default_for_choice(option->defaults, lt_options_choice(o, o->program->selector),
                                   text, size);
    return found ? found : option->value;
}

const char *lt_options_choice(const lt_options *o, const char *name)
{
    static _Thread_local char text[64];
    return lt_options_text(o, name, text, sizeof text);
}

static void join_list(const lt_option_list *list, char *text, size_t size)
{
    size_t used = 0;
    for (size_t i = 0; i < list->count && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? " " : "", list->item[i]);
}

void lt_options_number(char *text, size_t size, double value)
{
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, size, "%.*g", digits, value);
        if (!(strtod(text, NULL) < value) && !(strtod(text, NULL) > value))
            break;
    }
}

const char *lt_options_text(const lt_options *o, const char *name, char *text, size_t size)
{
    const lt_option_row *row = lt_options_find(o, name, strlen(name));
    LT_ASSERT(row);
    const lt_option *option = row->option;
    const void *from = row->field;
    const char *string;
    int bytes = 0;
    text[0] = 0;
    switch (option->type) {
    case LT_OPTION_BOOL:
        snprintf(text, size, "%s", *(const bool *)from ? "true" : "false");
        break;
    case LT_OPTION_INT:
        snprintf(text, size, "%" PRId64, *(const int64_t *)from);
        break;
    case LT_OPTION_DOUBLE:
        lt_options_number(text, size, *(const double *)from);
        break;
    case LT_OPTION_CHOICE:
        string = lt_options_item(option->choices, *(const int *)from, &bytes);
        snprintf(text, size, "%.*s", bytes, string ? string : "");
        break;
    case LT_OPTION_STRING:
        string = *(const char *const *)from;
        snprintf(text, size, "%s", string ? string : "");
        break;
    case LT_OPTION_LIST:
        join_list(from, text, size);
        break;
    case LT_OPTION_PAIR: /* its settings are separate rows */
        break;
    }
    return text;
}
