/* Merges a program's option tables to one ordered list and validates them. */

#include "base/alloc.h"
#include "options.h"

#include <string.h>

/* Returns the index after the last row of the group, or the end for a new group. */
static size_t end_of_group(const lt_options *o, const char *group)
{
    for (size_t i = o->count; i > 0; i--)
        if (!strcmp(o->row[i - 1].option->group, group))
            return i;
    return o->count;
}

static lt_status insert_row(lt_options *o, const lt_option_table *table, const lt_option *option,
                            bool common)
{
    size_t at = end_of_group(o, option->group);
    LT_TRY(lt_options_check_names(o, option));
    const lt_option_row *before =
        option->after ? lt_options_find(o, option->after, strlen(option->after)) : NULL;
    if (before)
        at = (size_t)(before - o->row) + 1;
    memmove(o->row + at + 1, o->row + at, (o->count - at) * sizeof *o->row);
    o->row[at] = (lt_option_row){
        .option = option, .field = (char *)table->values + option->offset, .common = common};
    o->count++;
    return LT_OK;
}

/* Returns true if the table marks common rows; otherwise (a small or user program) all rows are listed. */
static bool has_common(const lt_option_table *table)
{
    for (size_t i = 0; i < table->count; i++)
        if (table->option[i].common)
            return true;
    return false;
}

/* Inserts rows with `after` last, as the row that they follow may be in a later table. */
static lt_status insert_all(lt_options *o, const lt_option_table *table, size_t count)
{
    for (int pass = 0; pass < 2; pass++)
        for (size_t t = 0; t < count; t++)
            for (size_t i = 0; i < table[t].count; i++)
                if ((table[t].option[i].after != NULL) == (pass == 1))
                    LT_TRY(insert_row(o, &table[t], &table[t].option[i],
                                      table[t].option[i].common || o->program->lists_all
                                          || !has_common(&table[t])));
    return LT_OK;
}

static lt_status check_default(const lt_option *option, const char *value)
{
    if (!lt_options_check_value(option, value))
        return LT_OK;
    char why[256];
    snprintf(why, sizeof why, "%s", lt_error_message());
    return lt_fail(LT_E_ARG, "options: invalid default of %s", why);
}

/* Checks words, "sgd=0.1 adam=0.001" or choices only, against the selector's choices. */
static lt_status check_selector_words(const lt_options *o, const lt_option *option,
                                      const char *words, const char *choices)
{
    for (const char *at = words; at && *at; at += strspn(at, " ")) {
        char word[256];
        snprintf(word, sizeof word, "%.*s", (int)strcspn(at, " "), at);
        at += strcspn(at, " ");
        char *equal = strchr(word, '=');
        if (equal)
            *equal = 0;
        if (!lt_options_has_word(choices, word, "|"))
            return lt_fail(LT_E_ARG, "options: --%s: refers to --%s %s; valid: %s", option->name,
                           o->program->selector, word, choices);
        if (equal)
            LT_TRY(check_default(option, equal + 1));
    }
    return LT_OK;
}

static lt_status check_row(const lt_options *o, const lt_option *option, const char *choices)
{
    if (option->value)
        LT_TRY(check_default(option, option->value));
    LT_TRY(lt_options_check_needs_row(o, option));
    if (!choices)
        return LT_OK;
    if (!lt_options_needs(option))
        LT_TRY(check_selector_words(o, option, option->applies, choices));
    return check_selector_words(o, option, option->defaults, choices);
}

lt_status lt_options_gather(lt_options *o, const lt_option_table *table, size_t count)
{
    size_t rows = 0;
    const char *selector = o->program->selector;
    for (size_t t = 0; t < count; t++)
        rows += table[t].count;
    if (!(o->row = lt_alloc(rows, sizeof *o->row)))
        return LT_E_NOMEM;
    LT_TRY(insert_all(o, table, count));
    const lt_option_row *chosen = selector ? lt_options_find(o, selector, strlen(selector)) : NULL;
    if (selector && !chosen)
        return lt_fail(LT_E_ARG, "options: there is no selector --%s", selector);
    for (size_t i = 0; i < o->count; i++)
        LT_TRY(check_row(o, o->row[i].option, chosen ? chosen->option->choices : NULL));
    return LT_OK;
}
