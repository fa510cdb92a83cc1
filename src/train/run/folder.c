/* Names and ids in a run folder, and renaming an old run in it. */

#include "folder.h"

#include "base/alloc.h"
#include "base/encoding/json.h"
#include "base/os.h"
#include "base/text.h"
#include "stats_file.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

lt_status lt_run_new_id(char id[LT_RUN_ID])
{
    unsigned char bits[(LT_RUN_ID - 1) / 2];
    if (!lt_os_random(bits, sizeof bits))
        return lt_fail(LT_E_IO, "run: no random numbers: %s", strerror(errno));
    lt_text_hex(id, bits, sizeof bits);
    return LT_OK;
}

lt_status lt_run_read_id_of_file(const char *folder, const char *file, char id[LT_RUN_ID])
{
    lt_json *json = NULL;
    const char *found = NULL;
    char *path = lt_format("%s/%s", folder, file);
    const lt_status st = path ? lt_json_load(&json, path) : LT_E_NOMEM;
    const bool is_found = !st && !lt_json_string(lt_json_root(json), "run", &found)
                          && strlen(found) == LT_RUN_ID - 1
                          && strspn(found, "0123456789abcdef") == LT_RUN_ID - 1;
    snprintf(id, LT_RUN_ID, "%s", is_found ? found : "");
    lt_json_free(&json);
    lt_free(path);
    return st == LT_E_NOMEM ? st : LT_OK;
}

void lt_run_read_id(const char *folder, char id[LT_RUN_ID])
{
    if (lt_run_read_id_of_file(folder, "env.json", id))
        *id = 0;
}

int64_t lt_run_step_of(const char *name)
{
    char own[32];
    if (strncmp(name, "step-", 5) != 0 || name[5] < '0' || name[5] > '9')
        return -1;
    const int64_t step = strtoll(name + 5, NULL, 10);
    snprintf(own, sizeof own, "step-%" PRId64, step);
    return strcmp(name, own) != 0 ? -1 : step; /* "step-01" is never written by a save */
}

/* Joins a path; false, with errno set, if it is too long. */
static bool join_path(char path[PATH_MAX], const char *folder, const char *name)
{
    errno = ENAMETOOLONG;
    return snprintf(path, PATH_MAX, "%s/%s", folder, name) < PATH_MAX;
}

/* Returns the size of a file in bytes, or -1 if absent. */
static int64_t size_of(const char *folder, const char *name)
{
    char path[PATH_MAX];
    struct stat info;
    return join_path(path, folder, name) && !stat(path, &info) ? (int64_t)info.st_size : -1;
}

static bool has_checkpoints(const char *folder)
{
    char path[PATH_MAX];
    DIR *dir = join_path(path, folder, "checkpoints") ? opendir(path) : NULL;
    const struct dirent *entry;
    bool found = false;
    while (dir && !found && (entry = readdir(dir)))
        found = lt_run_step_of(entry->d_name) >= 0;
    if (dir)
        closedir(dir);
    return found;
}

/* config.yaml does not count, as the user may have written it, nor an empty metrics.jsonl, as of a run without a
 * step. */
bool lt_run_is_used(const char *folder)
{
    return size_of(folder, "metrics.jsonl") > 0 || size_of(folder, "model.safetensors") >= 0
           || has_checkpoints(folder);
}

static bool is_run_file_name(const char *name)
{
    static const char *const names[] = {
        "config.yaml", "env.json",           "metrics.jsonl",     "bad_images.txt",
        "blocks.txt",  "checkpoints",        "model.safetensors", "report.html",
        "eval.json",   "metrics-eval.jsonl", "hashes.jsonl",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i]))
            return true;
    return !strncmp(name, "events.out.tfevents.", strlen("events.out.tfevents."))
           || !strncmp(name, LT_STATS_FILE ".", strlen(LT_STATS_FILE "."));
}

/* Makes the first free folder OLD-N. */
static lt_status make_old_folder(const char *folder, char *to, size_t size)
{
    enum { MOST = 100000 };
    for (int n = 1; n < MOST; n++) {
        if (snprintf(to, size, "%s/old-%d", folder, n) >= (int)size)
            return lt_fail(LT_E_ARG, "run: a path of %zu bytes is too small", size);
        if (!mkdir(to, 0777))
            return LT_OK;
        if (errno != EEXIST)
            break;
    }
    return lt_fail(LT_E_IO, "%s: %s", to, strerror(errno));
}

static lt_status move_to_old_folder(const char *folder, const char *name, char *to, size_t size)
{
    char from[PATH_MAX], there[PATH_MAX];
    if (!*to)
        LT_TRY(make_old_folder(folder, to, size));
    if (join_path(from, folder, name) && join_path(there, to, name) && !rename(from, there))
        return LT_OK;
    return lt_fail(LT_E_IO, "%s: %s", from, strerror(errno));
}

lt_status lt_run_rename_old(const char *folder, char *to, size_t size)
{
    *to = 0;
    DIR *dir = opendir(folder);
    if (!dir)
        return errno == ENOENT ? LT_OK : lt_fail(LT_E_IO, "%s: %s", folder, strerror(errno));
    lt_status st = LT_OK;
    const struct dirent *entry;
    while (!st && (entry = readdir(dir)))
        if (is_run_file_name(entry->d_name))
            st = move_to_old_folder(folder, entry->d_name, to, size);
    closedir(dir);
    return st;
}
