/* Settings with lower priority than --config and flags: of --recipe NAME, from a file of recipes/, and of the run of
 * --watch. And the command reproduce. */

#include "base/clock.h"
#include "base/options/options.h"
#include "base/os.h"
#include "program.h"
#include "train/checkpoint/watch.h"

#include "lather/ext/fail.h"
#include "lather/ext/file.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

lt_status lt_recipe_find(char *path, size_t size, const char *folder, const char *name)
{
    char source[PATH_MAX], installed[PATH_MAX];
    snprintf(path, size, "%s", name);
    if (!folder || strchr(name, '/') || strchr(name, '.'))
        return LT_OK;
    snprintf(source, sizeof source, "%s/%s.yaml", folder, name);
    snprintf(installed, sizeof installed, "share/lather/recipes/%s.yaml", name);
    if (lt_file_find_near_program(path, size, source, installed))
        return lt_fail(LT_E_ARG, "--recipe: unknown recipe '%s': %s", name, lt_error_message());
    return LT_OK;
}

static lt_status load_recipe(lt_options *options, const char *folder, const char *name)
{
    char path[PATH_MAX];
    LT_TRY(lt_recipe_find(path, sizeof path, folder, name));
    lt_status st = lt_options_load(options, path);
    return st ? lt_fail(st, "--recipe: %s", lt_error_message()) : LT_OK;
}

/* Returns true if an option is taken from the run's config.yaml, which another user may have written: options that
 * determine the model and the results of its evaluation, but none that names a file to write, a device or a limit. */
static bool is_taken_from_watched_run(const lt_option *option)
{
    static const char not_of_model[] = "weights reset-head freeze freeze-bn";
    static const char others[] =
        "data val-labels val-split val-split-seed labels labels-columns exif mean std image-size "
        "interpolation "
        "image-size-schedule crop-pct max-bad-images seq-len block-size tokenizer documents "
        "val-fraction limit-eval-batches batch-size eval-batch-size amp overfit-batches seed "
        "label-smoothing tta deterministic reproducible";
    return !strcmp(option->group, "Model") ? !lt_options_has_word(not_of_model, option->name, " ")
                                           : lt_options_has_word(others, option->name, " ");
}

/* Waits for the run to begin: a launcher of both may start the evaluation first. */
static lt_status wait_for_run(const char *folder, const char *seconds)
{
    const struct timespec pause = {.tv_nsec = 100000000};
    const double end = lt_clock_seconds() + (seconds ? strtod(seconds, NULL) : 0);
    lt_status st;
    while ((st = lt_watch_check(folder)) && lt_clock_seconds() < end)
        nanosleep(&pause, NULL);
    return st ? lt_fail(LT_E_ARG, "--watch: %s", lt_error_message()) : LT_OK;
}

/* Loads the settings of the run in a folder; waits up to `seconds` (NULL: 0) for the run to begin. */
static lt_status load_watched(lt_options *options, const char *folder, const char *seconds)
{
    enum { PATH = 1200 };
    char path[PATH];
    struct stat info;
    snprintf(path, sizeof path, "%s/config.yaml", folder);
    LT_TRY(wait_for_run(folder, seconds));
    if (stat(path, &info))
        return LT_OK; /* the command line has all settings */
    lt_status st = lt_options_load_some(options, path, is_taken_from_watched_run);
    return st ? lt_fail(st, "--watch: %s", lt_error_message()) : LT_OK;
}

lt_status lt_recipe_parse_command_line(lt_options *options, const char *folder, int argc,
                                       char *const *argv)
{
    char given[8];
    const char *name = lt_options_last_value("recipe", argc, argv);
    const char *run = lt_options_last_value("watch", argc, argv);
    if (name)
        LT_TRY(load_recipe(options, folder, name));
    if (run)
        LT_TRY(load_watched(options, run, lt_options_last_value("watch-wait", argc, argv)));
    LT_TRY(lt_options_parse(options, argc, argv));
    if (run)
        LT_TRY(lt_options_set(options, "eval", "true"));
    if (!name && *lt_options_text(options, "recipe", given, sizeof given))
        return lt_fail(LT_E_ARG, "--recipe: only on the command line, not in a config file");
    return name ? lt_options_set(options, "recipe", "") : LT_OK;
}

int lt_command_reproduce(char **argv, const char *program)
{
    char tool[PATH_MAX], self[PATH_MAX];
    if (!lt_os_program_path(self, sizeof self)
        || lt_file_find_near_program(tool, sizeof tool, "tools/reproduce",
                                     "libexec/lather/reproduce")) {
        fprintf(stderr, "%s: %s\n", program, lt_error_message());
        return 1;
    }
    setenv("LATHER_TRAIN", self, 1);
    argv[1] = tool;
    execv(tool, argv + 1);
    fprintf(stderr, "%s: %s: %s\n", program, tool, strerror(errno));
    return 1;
}
