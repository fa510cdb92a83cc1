/* Names of options: finding a row by any of its names, and what an unknown one was meant to be. */

#include "base/nearest.h"
#include "base/options.h"

#include "lather/ext/fail.h"

#include <string.h>

/* Whether name is this one; '_' counts as '-', which is how Python's names are often typed. */
static bool is_named(const char *known, const char *name, size_t bytes)
{
    size_t i = 0;
    while (i < bytes && known[i] && (known[i] == name[i] || (known[i] == '-' && name[i] == '_')))
        i++;
    return i == bytes && !known[i];
}

/* Item number index of a list of words, in word; false past the end. */
static bool word_at(const char *list, int index, char word[LT_OPTION_NAME])
{
    const char *at = list ? list : "";
    for (; index > 0 && *at; index--) {
        at += strcspn(at, " ");
        at += strspn(at, " ");
    }
    snprintf(word, LT_OPTION_NAME, "%.*s", (int)strcspn(at, " "), at);
    return *word;
}

const lt_option *lt_options_find(const lt_options *o, const char *name, size_t bytes)
{
    char also[LT_OPTION_NAME];
    for (size_t i = 0; i < o->program->count; i++) {
        const lt_option *row = &o->program->option[i];
        if (is_named(row->name, name, bytes))
            return row;
        for (int k = 0; word_at(row->also, k, also); k++)
            if (is_named(also, name, bytes))
                return row;
    }
    return NULL;
}

const lt_option_builtin *lt_options_find_builtin(const char *name, size_t bytes)
{
    for (size_t i = 0; i < lt_option_builtin_count; i++)
        if (is_named(lt_option_builtins[i].name, name, bytes))
            return &lt_option_builtins[i];
    return NULL;
}

typedef struct guess {
    const char *typed;
    size_t bytes, distance;
    char text[2 * LT_OPTION_NAME + 8]; /* "wd (--weight-decay)" */
} guess;

/* A name that goes on where the typed one ends is what was meant, however long it is. */
static void try_name(guess *g, const char *name, const char *stands_for)
{
    bool begins = g->bytes > 2 && !strncmp(name, g->typed, g->bytes);
    size_t d = begins ? 0 : lt_edit_distance(g->typed, g->bytes, name);
    if (d >= g->distance)
        return;
    g->distance = d;
    snprintf(g->text, sizeof g->text, stands_for ? "%s (--%s)" : "%s", name, stands_for);
}

lt_status lt_options_unknown(const lt_options *o, const char *name, size_t bytes)
{
    char also[LT_OPTION_NAME];
    guess g = {.typed = name, .bytes = bytes, .distance = SIZE_MAX};
    for (size_t i = 0; i < lt_option_builtin_count; i++)
        try_name(&g, lt_option_builtins[i].name, NULL);
    for (size_t i = 0; i < o->program->count; i++) {
        const lt_option *row = &o->program->option[i];
        try_name(&g, row->name, NULL);
        for (int k = 0; word_at(row->also, k, also); k++)
            try_name(&g, also, row->name);
    }
    return lt_fail(LT_E_ARG, "--%.*s: no such option; the nearest is --%s", (int)bytes, name,
                   g.text);
}
