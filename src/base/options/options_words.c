/* Matching of names and of words in lists. */

#include "options.h"

#include <string.h>

/* Compares names; '_' counts as '-', as Python's names are often typed so. */
bool lt_options_is_named(const char *known, const char *name, size_t bytes)
{
    size_t i = 0;
    while (i < bytes && known[i] && (known[i] == name[i] || (known[i] == '-' && name[i] == '_')))
        i++;
    return i == bytes && !known[i];
}

const char *lt_options_next_value(const char *name, int argc, char *const *argv, int *at)
{
    while (*at < argc && strcmp(argv[*at], "--") != 0) {
        const char *word = argv[(*at)++];
        const size_t bytes = strcspn(word, "=");
        if (strncmp(word, "--", 2) != 0 || !lt_options_is_named(name, word + 2, bytes - 2))
            continue;
        if (word[bytes])
            return word + bytes + 1;
        if (*at < argc)
            return argv[(*at)++];
    }
    return NULL;
}

const char *lt_options_last_value(const char *name, int argc, char *const *argv)
{
    const char *found = NULL, *value;
    for (int at = 1; (value = lt_options_next_value(name, argc, argv, &at));)
        found = value;
    return found;
}

bool lt_options_has_word(const char *list, const char *word, const char *separators)
{
    size_t bytes = strlen(word);
    for (const char *at = list; *at;) {
        size_t span = strcspn(at, separators);
        if (span == bytes && !strncmp(at, word, bytes))
            return true;
        at += span;
        at += strspn(at, separators);
    }
    return false;
}

const char *lt_options_item(const char *choices, int index, int *bytes)
{
    for (const char *at = choices;; at++) {
        *bytes = (int)strcspn(at, "|");
        if (index-- == 0)
            return at;
        at += *bytes;
        if (!*at)
            return NULL;
    }
}
