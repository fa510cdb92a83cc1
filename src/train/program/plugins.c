/* --plugin and --allow-plugin. Plugins add choices and flags, so they are loaded before options are composed, from the
 * words of the command line. */

#include "base/encoding/yaml.h"
#include "base/options/options.h"
#include "program.h"
#include "train/checkpoint/checkpoint.h"
#include "train/loop/option_rows.h"

#include "lather/ext/fail.h"
#include "lather/plugin.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#define OF plugin_options
/* clang-format off */
static const lt_option rows[] = {
{"Plugins", LIST("plugin", plugin), .meta = "FILE.so", .common = true, .help = "load a shared object that adds optimizers, data sets, communicators, reducers or hooks, whose flags this help then lists"},
{"Plugins", BOOL("allow-plugin", allow_plugin), .once = true, .help = "load plugins that a --config or --recipe file names; without --plugin on the command line, which replaces them"},
};
/* clang-format on */
OPTION_TABLE(lt_plugin_option_table, plugin_options, rows)

enum { MESSAGE = 2048 };

typedef struct reading {
    const char *program;
    bool is_allowed;
    bool failed; /* by a plugin, not by the file */
} reading;

static lt_status load_line(void *context, const char *key, const char *value, int line)
{
    reading *r = context;
    lt_status st = LT_OK;
    if (strcmp(key, "plugin") != 0)
        return LT_OK;
    if (r->is_allowed)
        st = lt_plugin_load(value, r->program);
    else
        st = lt_fail(LT_E_ARG,
                     "plugin %s is code that this file would run: --allow-plugin permits it, "
                     "--plugin FILE.so on the command line replaces it",
                     value);
    r->failed = st != LT_OK;
    return st ? lt_fail(st, "line %d: %s", line, lt_error_message()) : LT_OK;
}

/* Loads the plugins of a config file. The parser reports files that are absent or damaged. */
static lt_status load_file(reading *r, const char *path)
{
    const lt_status st = lt_yaml_read(path, load_line, r);
    return r->failed ? st : LT_OK;
}

static bool has_flag(const char *name, int argc, char *const *argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (!strncmp(argv[i], "--", 2)
            && lt_options_is_named(name, argv[i] + 2, strlen(argv[i] + 2)))
            return true;
    return false;
}

lt_status lt_plugins_load(int argc, char *const *argv, const char *program, const char *recipes)
{
    reading r = {program, has_flag("allow-plugin", argc, argv), false};
    char path[PATH_MAX];
    const char *value = lt_options_last_value("recipe", argc, argv);
    LT_TRY(lt_plugin_load_arguments(argc, argv, program));
    if (lt_options_last_value("plugin", argc, argv))
        return LT_OK;
    if (value && !lt_recipe_find(path, sizeof path, recipes, value))
        LT_TRY(load_file(&r, path));
    for (int at = 1; (value = lt_options_next_value("config", argc, argv, &at));)
        LT_TRY(load_file(&r, value));
    return LT_OK;
}

lt_status lt_plugins_advise_resume(lt_status st, int argc, char *const *argv)
{
    char why[MESSAGE], folder[PATH_MAX];
    const char *path = lt_options_last_value("resume", argc, argv);
    if (path && !strcmp(path, "auto"))
        path = lt_options_last_value("output", argc, argv);
    if (!path)
        return st;
    snprintf(why, sizeof why, "%s", lt_error_message());
    if (lt_checkpoint_newest(path, folder, sizeof folder))
        snprintf(folder, sizeof folder, "%s", path);
    return lt_plugins_advise(lt_fail(st, "%s", why), folder);
}
