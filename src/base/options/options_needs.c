/* Options that another option's value makes meaningful: lt_option.applies with dashes. */

#include "options.h"

#include "lather/ext/fail.h"

#include <stdlib.h>
#include <string.h>

enum { VALUE = 256 };

/* One alternative of what an option needs: an option, and choices of it; no choices: any value but its default. */
typedef struct need {
    char name[LT_OPTION_NAME], choices[VALUE];
} need;

/* Reads the alternative at *at and advances past it; false at the end. */
static bool next_need(const char **at, need *out)
{
    *at += strspn(*at, "-");
    const size_t bytes = strcspn(*at, " "), name = strcspn(*at, " =");
    snprintf(out->name, sizeof out->name, "%.*s", (int)name, *at);
    snprintf(out->choices, sizeof out->choices, "%.*s", name < bytes ? (int)(bytes - name - 1) : 0,
             *at + name + (name < bytes));
    *at += bytes;
    *at += strspn(*at, " ");
    return bytes > 0;
}

const char *lt_options_needs(const lt_option *option)
{
    return option->applies && option->applies[0] == '-' ? option->applies : NULL;
}

void lt_options_format_needs(const char *needs, char *text, size_t size)
{
    need n;
    size_t used = 0;
    for (const char *at = needs; next_need(&at, &n) && used < size;) {
        used += (size_t)snprintf(text + used, size - used, "%s--%s", used ? " or " : "", n.name);
        for (char *word = n.choices; *word && used < size;) {
            const size_t bytes = strcspn(word, "|");
            const char *between = word == n.choices ? " " : word[bytes] ? ", " : " or ";
            used += (size_t)snprintf(text + used, size - used, "%s%.*s", between, (int)bytes, word);
            word += bytes + (word[bytes] == '|');
        }
    }
}

lt_status lt_options_check_needs_row(const lt_options *o, const lt_option *option)
{
    need n;
    for (const char *at = lt_options_needs(option); at && next_need(&at, &n);) {
        const lt_option_row *other = lt_options_find(o, n.name, strlen(n.name));
        if (!other)
            return lt_fail(LT_E_ARG, "options: --%s needs --%s, which does not exist", option->name,
                           n.name);
        for (char *rest = n.choices, *word; (word = strtok_r(rest, "|", &rest));)
            if (other->option->type != LT_OPTION_CHOICE
                || !lt_options_has_word(other->option->choices, word, "|"))
                return lt_fail(LT_E_ARG, "options: --%s needs --%s %s, which does not exist",
                               option->name, n.name, word);
    }
    return LT_OK;
}

static bool has_default(const lt_options *o, const lt_option_row *row)
{
    char text[VALUE], buffer[VALUE];
    const lt_option *option = row->option;
    const char *value = lt_options_text(o, option->name, text, sizeof text),
               *usual = lt_options_default(o, option, buffer, sizeof buffer);
    int bytes = 0;
    if (option->type == LT_OPTION_INT || option->type == LT_OPTION_DOUBLE) {
        const double difference = strtod(value, NULL) - (usual ? strtod(usual, NULL) : 0);
        return !(difference < 0) && !(difference > 0);
    }
    if (option->type == LT_OPTION_BOOL)
        return !strcmp(value, usual ? usual : "false");
    if (option->type == LT_OPTION_CHOICE && !usual) {
        usual = lt_options_item(option->choices, 0, &bytes);
        return strlen(value) == (size_t)bytes && !strncmp(value, usual, (size_t)bytes);
    }
    return !strcmp(value, usual ? usual : "");
}

/* Returns true if an alternative is met, or chosen by a stronger source than the option: a command line's --sched
 * makes a file's settings of another one meaningless, but not wrong. */
static bool is_met_or_overridden(const lt_options *o, const lt_option_row *row, const need *n)
{
    char text[VALUE];
    const lt_option_row *other = lt_options_find(o, n->name, strlen(n->name));
    if (other->source > row->source)
        return true;
    return *n->choices ? lt_options_has_word(n->choices,
                                             lt_options_text(o, n->name, text, sizeof text), "|")
                       : !has_default(o, other);
}

/* Returns true if a row's value counts as given: it is not the default, which config files of runs list too. A default
 * on the command line counts where a choice is needed, as it is a value like others and not "off". */
static bool is_given(const lt_options *o, const lt_option_row *row)
{
    return row->source != LT_OPTION_FROM_TABLE
           && ((row->source == LT_OPTION_FROM_USER && strchr(row->option->applies, '='))
               || !has_default(o, row));
}

lt_status lt_options_check_needs(const lt_options *o)
{
    for (size_t i = 0; i < o->count; i++) {
        char text[VALUE], now[VALUE] = "", value[VALUE];
        need n;
        const lt_option_row *row = &o->row[i];
        const char *needs = lt_options_needs(row->option);
        bool met = !needs || !is_given(o, row);
        for (const char *at = needs; !met && next_need(&at, &n);) {
            met = is_met_or_overridden(o, row, &n);
            if (*n.choices)
                snprintf(now, sizeof now, ", but it is %s",
                         lt_options_text(o, n.name, value, sizeof value));
        }
        if (met)
            continue;
        lt_options_format_needs(needs, text, sizeof text);
        return lt_fail(LT_E_ARG, "--%s: needs %s%s", row->option->name, text, now);
    }
    return LT_OK;
}
