/* Choosing checkpoints: the newest intact one, the links `latest` and `best`, and which to remove. */

#include "base/alloc.h"
#include "base/atomic_dir.h"
#include "checkpoint.h"

#include "lather/log.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int newest_first(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

/* Lists the steps of the checkpoints in a folder, newest first; a missing folder has none. */
static lt_status list_steps(const char *checkpoints, lt_numbers *list)
{
    DIR *dir = opendir(checkpoints);
    if (!dir)
        return errno == ENOENT ? LT_OK : lt_fail(LT_E_IO, "%s: %s", checkpoints, strerror(errno));
    lt_status st = LT_OK;
    const struct dirent *entry;
    while (!st && (entry = readdir(dir))) {
        int64_t step = lt_run_step_of(entry->d_name);
        if (step >= 0)
            st = lt_numbers_append(list, NULL, &step);
    }
    closedir(dir);
    if (list->count)
        qsort(list->item, list->count, sizeof *list->item, newest_first);
    return st;
}

/* Returns the step that a link points to, or -1. */
static int64_t read_link_step(const char *checkpoints, const char *name)
{
    char target[128], path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", checkpoints, name);
    const ssize_t bytes = readlink(path, target, sizeof target - 1);
    if (bytes < 0)
        return -1;
    target[bytes] = 0;
    return lt_run_step_of(target);
}

static lt_status point_link_to_step(const char *checkpoints, const char *name, int64_t step)
{
    char target[32];
    char *path = lt_format("%s/%s", checkpoints, name);
    if (!path)
        return LT_E_NOMEM;
    snprintf(target, sizeof target, "step-%" PRId64, step);
    lt_status st = lt_atomic_symlink(path, target);
    lt_free(path);
    return st;
}

/* Renames a real folder in place of a link, as a copied run folder has, to its step-N and makes the link again;
 * removes it if step-N exists. */
static lt_status replace_folder_by_link_at(const char *checkpoints, const char *name,
                                           const char *path)
{
    lt_checkpoint_state state;
    struct stat info;
    if (lstat(path, &info) || !S_ISDIR(info.st_mode))
        return LT_OK;
    LT_TRY(lt_checkpoint_verify(path, &state));
    char *own = lt_format("%s/step-%" PRId64, checkpoints, state.step);
    lt_status st = own ? LT_OK : LT_E_NOMEM;
    if (!st && !stat(own, &info))
        st = lt_atomic_dir_remove(path);
    else if (!st && rename(path, own))
        st = lt_fail(LT_E_IO, "%s: %s", path, strerror(errno));
    lt_free(own);
    return st ? st : point_link_to_step(checkpoints, name, state.step);
}

static lt_status replace_folder_by_link(const char *checkpoints, const char *name)
{
    char *path = lt_format("%s/%s", checkpoints, name);
    lt_status st = path ? replace_folder_by_link_at(checkpoints, name, path) : LT_E_NOMEM;
    lt_free(path);
    return st;
}

/* Reads the id of the run that saved this step; "" if unknown. */
static lt_status run_of(const char *checkpoints, int64_t step, char run[LT_RUN_ID])
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/step-%" PRId64, checkpoints, step);
    return lt_run_read_id_of_file(path, LT_CHECKPOINT_STATE, run);
}

/* Drops the steps of other runs from the list, and those after `last`: they belong to a part that was trained
 * again from an earlier checkpoint. A checkpoint without an id may belong to any run. */
static lt_status filter_steps_of_run(const char *checkpoints, lt_numbers *list, int64_t last,
                                     const char *run)
{
    size_t count = 0;
    for (size_t i = 0; i < list->count; i++) {
        char found[LT_RUN_ID];
        if (last >= 0 && list->item[i] > last)
            continue;
        LT_TRY(run_of(checkpoints, list->item[i], found));
        if (!*run || !*found || !strcmp(found, run))
            list->item[count++] = list->item[i];
    }
    list->count = count;
    return LT_OK;
}

static bool is_top(const lt_checkpoint_state *state, int64_t step)
{
    for (int i = 0; i < state->tops; i++)
        if (state->top_step[i] == step)
            return true;
    return false;
}

static lt_status remove_old(const char *checkpoints, const lt_numbers *list, int keep,
                            const lt_checkpoint_state *state)
{
    int64_t best = read_link_step(checkpoints, "best");
    for (size_t i = (size_t)keep; i < list->count; i++) {
        const int64_t step = list->item[i];
        if (step == best || step == state->step || is_top(state, step))
            continue;
        char *path = lt_format("%s/step-%" PRId64, checkpoints, step);
        if (!path)
            return LT_E_NOMEM;
        lt_status st = lt_atomic_dir_remove(path);
        lt_free(path);
        LT_TRY(st);
    }
    return LT_OK;
}

lt_status lt_checkpoint_link_and_prune(const char *checkpoints, const lt_checkpoint_state *state,
                                       const lt_checkpoint_policy *policy)
{
    LT_TRY(replace_folder_by_link(checkpoints, "latest"));
    LT_TRY(replace_folder_by_link(checkpoints, "best"));
    LT_TRY(point_link_to_step(checkpoints, "latest", state->step));
    if (policy->is_best)
        LT_TRY(point_link_to_step(checkpoints, "best", state->step));
    if (policy->keep <= 0)
        return LT_OK;
    lt_numbers list = {0};
    lt_status st = list_steps(checkpoints, &list);
    if (!st)
        st = filter_steps_of_run(checkpoints, &list, state->step, state->run);
    if (!st)
        st = remove_old(checkpoints, &list, policy->keep, state);
    lt_free(list.item);
    return st;
}

static lt_status choose_newest_intact(const char *checkpoints, const lt_numbers *list, char *path,
                                      size_t size)
{
    char last[512] = "";
    for (size_t i = 0; i < list->count; i++) {
        lt_checkpoint_state state;
        if (snprintf(path, size, "%s/step-%" PRId64, checkpoints, list->item[i]) >= (int)size)
            return lt_fail(LT_E_ARG, "checkpoint: a path of %zu bytes is too small", size);
        lt_status st = lt_checkpoint_verify(path, &state);
        if (!st)
            return LT_OK;
        if (st == LT_E_NOMEM)
            return st;
        snprintf(last, sizeof last, "%s", lt_error_message());
        lt_log(LT_LOG_WARN, "train", "DAMAGED CHECKPOINT, trying the one before: %s", last);
    }
    return list->count ? lt_fail(LT_E_FORMAT, "%s: every checkpoint is damaged; the oldest: %s",
                                 checkpoints, last)
                       : LT_END;
}

static bool has_step(const lt_numbers *list, int64_t step)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->item[i] == step)
            return true;
    return false;
}

/* Keeps the steps that the run in the folder may resume from: `latest` and those before it. A dangling link is
 * ignored. */
static lt_status filter_resumable_steps(const char *folder, const char *checkpoints,
                                        lt_numbers *list)
{
    char run[LT_RUN_ID];
    int64_t latest = read_link_step(checkpoints, "latest");
    if (!list->count)
        return LT_OK;
    if (!has_step(list, latest))
        latest = -1;
    LT_TRY(lt_run_read_id_of_file(folder, "env.json", run));
    if (!*run)
        LT_TRY(run_of(checkpoints, latest < 0 ? list->item[0] : latest, run));
    LT_TRY(filter_steps_of_run(checkpoints, list, latest, run));
    return list->count ? LT_OK
                       : lt_fail(LT_E_FORMAT, "%s: none is of run %s, which env.json names",
                                 checkpoints, run);
}

lt_status lt_checkpoint_newest(const char *folder, char *path, size_t size)
{
    char *checkpoints = lt_format("%s/checkpoints", folder);
    lt_numbers list = {0};
    lt_status st = checkpoints ? list_steps(checkpoints, &list) : LT_E_NOMEM;
    if (!st)
        st = filter_resumable_steps(folder, checkpoints, &list);
    if (!st)
        st = choose_newest_intact(checkpoints, &list, path, size);
    lt_free(list.item);
    lt_free(checkpoints);
    return st;
}

lt_status lt_checkpoint_list(const char *folder, int64_t **out, size_t *count)
{
    char *checkpoints = lt_format("%s/checkpoints", folder);
    lt_numbers list = {0};
    lt_status st = checkpoints ? list_steps(checkpoints, &list) : LT_E_NOMEM;
    if (!st)
        st = filter_resumable_steps(folder, checkpoints, &list);
    if (st == LT_E_FORMAT) { /* all belong to other runs */
        list.count = 0;
        st = LT_OK;
    }
    lt_free(checkpoints);
    if (st)
        lt_free(list.item);
    *out = st ? NULL : list.item;
    *count = st ? 0 : list.count;
    return st;
}

void lt_checkpoint_clean_in(const char *checkpoints)
{
    static const char *const names[] = {"step-[0-9]*/", "latest",    "best",
                                        "latest.old/",  "best.old/", NULL};
    lt_remove_stale_temps(checkpoints, names,
                          true); /* the process that saves holds the run's lock */
}

void lt_checkpoint_clean(const char *folder)
{
    char *checkpoints = lt_format("%s/checkpoints", folder);
    if (checkpoints)
        lt_checkpoint_clean_in(checkpoints);
    lt_free(checkpoints);
}

/* Repairs a link whose checkpoint exists; a kill may have come before the link was made. A folder in its place
 * remains until the next save. */
static lt_status repair_link(const char *checkpoints, const char *name, int64_t step)
{
    struct stat info;
    char *path = lt_format("%s/step-%" PRId64, checkpoints, step);
    char *link = lt_format("%s/%s", checkpoints, name);
    lt_status st = path && link ? LT_OK : LT_E_NOMEM;
    bool is_folder = link && !lstat(link, &info) && !S_ISLNK(info.st_mode);
    if (!st && !is_folder && read_link_step(checkpoints, name) != step && !access(path, F_OK))
        st = point_link_to_step(checkpoints, name, step);
    lt_free(link);
    lt_free(path);
    return st;
}

lt_status lt_checkpoint_repair(const char *folder, const lt_checkpoint_state *state)
{
    char *checkpoints = lt_format("%s/checkpoints", folder);
    if (!checkpoints)
        return LT_E_NOMEM;
    lt_checkpoint_clean_in(checkpoints);
    lt_status st = repair_link(checkpoints, "latest", state->step);
    if (!st && state->best_step > 0)
        st = repair_link(checkpoints, "best", state->best_step);
    lt_free(checkpoints);
    return st;
}
