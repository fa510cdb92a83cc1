/* Options removed since earlier versions. Rows are permanent: the name of a removed option is not reused. */

#include "options.h"

#include "lather/ext/fail.h"

#include <string.h>

typedef struct gone {
    const char *name;
    const char *since; /* first version without the option or value */
    const char *use;   /* replacement, as in "use --other" */
    const char *value; /* removed value of an existing option; NULL: the option was removed */
    const char *was;   /* former defaults "a|b" in config files of older versions; NULL: none */
} gone;

/* clang-format off */
static const gone table[] = {
{"balance-min-cost", "0.2", "--balance polynomial:C0,C1,..:LEAST", .was = "0"},
{"balance-polynomial", "0.2", "--balance polynomial:C0,C1,..", .was = NULL},
{"cache-dir", "0.2", "lather-pack --mode original DIR LOCAL, then --data LOCAL", .was = NULL},
{"cache-dir-limit", "0.2", "lather-pack --mode resized, whose packs are smaller", .was = NULL},
{"color-jitter-hue", "0.2", "--color-jitter, which changes brightness, contrast and saturation", .was = "0"},
{"outer-decay", "0.2", "--outer-compress, whose error feedback decays by 0.95", .was = "0.95"},
{"precondition-budget", "0.2", "--precondition-frequency", .was = "0"},
{"precondition-frequency", "0.2", "a number of updates, for example 50", .value = "auto"},
{"ra-magnitude", "0.2", "--auto-augment ra:N:M", .was = "9"},
{"ra-ops", "0.2", "--auto-augment ra:N:M", .was = "2"},
{"read-ahead", "0.2", "--workers: more threads wait for a slow disk at once", .was = "64"},
{"refresh-tolerance", "0.2", "--precondition-frequency", .was = "0"},
{"root-solver", "0.2", "eigh, or qr", .value = "tracked"},
};
/* clang-format on */

static const gone *find_removed(const char *name, size_t bytes, const char *value)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const gone *g = &table[i];
        if (lt_options_is_named(g->name, name, bytes)
            && (!g->value || (value && !strcmp(g->value, value))))
            return g;
    }
    return NULL;
}

lt_status lt_options_check_removed(const char *name, size_t bytes, const char *value)
{
    const bool negated = bytes > 3 && !strncmp(name, "no-", 3);
    const gone *g = find_removed(name, bytes, value);
    if (!g && negated)
        g = find_removed(name + 3, bytes - 3, value);
    if (!g)
        return LT_OK;
    return lt_fail(LT_E_ARG, "--%s%s%s is gone since %s: use %s", g->name, g->value ? " " : "",
                   g->value ? g->value : "", g->since, g->use);
}

bool lt_options_is_removed_default(const char *name, const char *value)
{
    const gone *g = find_removed(name, strlen(name), NULL);
    return g && g->was && lt_options_has_word(g->was, value, "|");
}

bool lt_options_list_removed(size_t index, const char **name, const char **value)
{
    if (index >= sizeof table / sizeof *table)
        return false;
    *name = table[index].name;
    *value = table[index].value;
    return true;
}
