/* Names of options: lookup by any name, suggestions for unknown ones, topics of --help. */

#include "base/text.h"
#include "options.h"

#include "lather/ext/fail.h"

#include <string.h>
#include <strings.h>

const lt_option_builtin lt_option_builtins[] = {
    {"config", "FILE", "read options from a YAML file; the command line takes precedence", 0,
     LT_OPTIONS_RUN},
    {"print-config", NULL, "print the resolved options as a config file, and exit", 0,
     LT_OPTIONS_PRINT_CONFIG},
    {"help", NULL, "print this help, and exit", 'h', LT_OPTIONS_HELP},
    {"help-man", NULL, "print the manual page, and exit", 0, LT_OPTIONS_MAN},
    {"version", NULL, "print versions and CPU features, and exit", 0, LT_OPTIONS_VERSION},
};
const size_t lt_option_builtin_count = sizeof lt_option_builtins / sizeof *lt_option_builtins;

/* Copies word `index` of a list to word; false past the end. */
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

lt_option_row *lt_options_find(const lt_options *o, const char *name, size_t bytes)
{
    char also[LT_OPTION_NAME];
    for (size_t i = 0; i < o->count; i++) {
        const lt_option *option = o->row[i].option;
        if (lt_options_is_named(option->name, name, bytes))
            return &o->row[i];
        for (int k = 0; word_at(option->also, k, also); k++)
            if (lt_options_is_named(also, name, bytes))
                return &o->row[i];
    }
    return NULL;
}

const lt_option_builtin *lt_options_find_builtin(const char *name, size_t bytes)
{
    for (size_t i = 0; i < lt_option_builtin_count; i++)
        if (lt_options_is_named(lt_option_builtins[i].name, name, bytes))
            return &lt_option_builtins[i];
    return NULL;
}

static lt_status check_name_is_unused(const lt_options *o, const lt_option *option,
                                      const char *name)
{
    const lt_option_row *other = lt_options_find(o, name, strlen(name));
    if (!other && !lt_options_find_builtin(name, strlen(name)))
        return LT_OK;
    return lt_fail(LT_E_ARG, "options: duplicate name --%s: --%s (%s) and --%s (%s)", name,
                   option->name, option->group, other ? other->option->name : name,
                   other ? other->option->group : "General");
}

static lt_status check_alias_is_unused(const lt_options *o, const lt_option *option)
{
    const char *other = NULL;
    for (size_t i = 0; i < lt_option_builtin_count; i++)
        if (lt_option_builtins[i].alias == option->alias)
            other = lt_option_builtins[i].name;
    for (size_t i = 0; i < o->count; i++)
        if (o->row[i].option->alias == option->alias)
            other = o->row[i].option->name;
    if (!option->alias || !other)
        return LT_OK;
    return lt_fail(LT_E_ARG, "options: -%c is --%s and --%s", option->alias, other, option->name);
}

lt_status lt_options_check_names(const lt_options *o, const lt_option *option)
{
    char also[LT_OPTION_NAME];
    LT_TRY(check_name_is_unused(o, option, option->name));
    for (int k = 0; word_at(option->also, k, also); k++)
        LT_TRY(check_name_is_unused(o, option, also));
    return check_alias_is_unused(o, option);
}

typedef struct guess {
    const char *typed;
    size_t bytes, distance;
    char text[2 * LT_OPTION_NAME + 8]; /* "wd (--weight-decay)" */
} guess;

/* Keeps name if it is nearer than earlier ones; a name that begins with the typed text has distance 0. */
static void keep_if_nearer(guess *g, const char *name, const char *stands_for)
{
    bool begins = g->bytes > 2 && !strncasecmp(name, g->typed, g->bytes);
    size_t d = begins ? 0 : lt_edit_distance(g->typed, g->bytes, name);
    if (d >= g->distance)
        return;
    g->distance = d;
    snprintf(g->text, sizeof g->text, stands_for ? "%s (--%s)" : "%s", name, stands_for);
}

/* Returns the nearest name of an option; with groups also of a section of --help. */
static guess find_nearest_name(const lt_options *o, const char *name, size_t bytes, bool groups)
{
    char also[LT_OPTION_NAME];
    guess g = {.typed = name, .bytes = bytes, .distance = SIZE_MAX};
    for (size_t i = 0; i < o->count && groups; i++)
        keep_if_nearer(&g, o->row[i].option->group, NULL);
    for (size_t i = 0; i < lt_option_builtin_count; i++)
        keep_if_nearer(&g, lt_option_builtins[i].name, NULL);
    for (size_t i = 0; i < o->count; i++) {
        const lt_option *option = o->row[i].option;
        keep_if_nearer(&g, option->name, NULL);
        for (int k = 0; word_at(option->also, k, also); k++)
            keep_if_nearer(&g, also, option->name);
    }
    return g;
}

static bool is_near(const guess *g)
{
    return g->distance <= 1 + g->bytes / 3; /* distant names do not help */
}

/* Names of other frameworks, and what to write instead if the program has the option. */
static const struct {
    const char *typed, *option, *use;
} foreign[] = {
    {"fp16", "amp", "--amp f16"},
    {"bf16", "amp", "--amp bf16"},
    {"dtype", "amp", "--amp bf16 or --amp f16"},
    {"precision", "amp", "--amp bf16 or --amp f16"},
    {"pretrained", "weights", "--weights FILE"},
    {"valdir", "val-split", "--data DATA with the images in DATA/val"},
    {"gpus", "dist", "mpirun -n N before the command"},
};

lt_status lt_options_unknown_error(const lt_options *o, const char *name, size_t bytes)
{
    LT_TRY(lt_options_check_removed(name, bytes, NULL));
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        if (lt_options_is_named(foreign[i].typed, name, bytes)
            && lt_options_find(o, foreign[i].option, strlen(foreign[i].option)))
            return lt_fail(LT_E_ARG, "--%.*s: no such option; use %s", (int)bytes, name,
                           foreign[i].use);
    const guess g = find_nearest_name(o, name, bytes, false);
    if (!is_near(&g))
        return lt_fail(LT_E_ARG, "--%.*s: no such option; --help all lists them", (int)bytes, name);
    return lt_fail(LT_E_ARG, "--%.*s: no such option; the nearest is --%s", (int)bytes, name,
                   g.text);
}

/* --- Topics of --help --- */

static const char *without_dashes(const char *topic)
{
    return topic + strspn(topic, "-");
}

const lt_option *lt_options_topic_option(const lt_options *o, const char *topic)
{
    const char *name = without_dashes(topic);
    const lt_option_row *row = lt_options_find(o, name, strlen(name));
    if (!row && !strncmp(name, "no-", 3))
        row = lt_options_find(o, name + 3, strlen(name + 3));
    return row ? row->option : NULL;
}

const lt_option_builtin *lt_options_topic_builtin(const char *topic)
{
    const char *name = without_dashes(topic);
    return lt_options_find_builtin(name, strlen(name));
}

bool lt_options_is_group(const lt_options *o, const char *topic)
{
    for (size_t i = 0; i < o->count; i++)
        if (!strcasecmp(o->row[i].option->group, topic))
            return true;
    return !strcasecmp(topic, "general");
}

lt_status lt_options_check_topic(const lt_options *o, const char *topic)
{
    const char *name = without_dashes(topic);
    if (!*topic || !strcmp(topic, "all") || lt_options_is_group(o, topic)
        || lt_options_topic_option(o, topic) || lt_options_topic_builtin(topic))
        return LT_OK;
    LT_TRY(lt_options_check_removed(name, strlen(name), NULL));
    const guess g = find_nearest_name(o, name, strlen(name), true);
    return lt_fail(LT_E_ARG, "--help %s: no such section or option; %s%s", topic,
                   is_near(&g) ? "the nearest is " : "--help all lists them",
                   is_near(&g) ? g.text : "");
}
