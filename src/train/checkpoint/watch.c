/* Evaluation while another process trains. The run folder belongs to that process; the files written here have
 * other names.
 *
 * 1. A checkpoint appears complete, by a rename. Its files are then hard-linked into the folder
 *    checkpoints/evaluated, so that they remain readable even if the run removes the checkpoint.
 * 2. A checkpoint counts as evaluated if its evaluation is recorded, by the run (metrics.jsonl) or by this process
 *    (the records of evaluations): a restart continues with the others.
 *
 * 3. A run has ended when no process holds its lock and its weights are not older than its newest checkpoint. */

#include "watch.h"

#include "base/alloc.h"
#include "base/atomic_dir.h"
#include "checkpoint.h"
#include "tensor/safetensors.h"
#include "train/run/metrics.h"
#include "train/weights/weights.h"

#include "lather/log.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Identifies the files of a checkpoint: another one of the same step has other inodes or times. */
typedef struct identity {
    int64_t step;
    ino_t inode[2];
    struct timespec time[2];
} identity;

struct lt_watch {
    char *folder, *records,
        *metrics; /* run folder; its records of evaluations; its metrics.jsonl */
    /* folder of the hard links. It has no process id in its name, as cleaning removes the folders of processes
     * that it does not see */
    char *held;
    char run[LT_RUN_ID];
    lt_run_lock *lock;
    identity *seen; /* checkpoints that need no further look */
    size_t count, capacity;
    bool told_waiting;
};

/* --- The run --- */

lt_status lt_watch_check(const char *folder)
{
    struct stat info;
    char run[LT_RUN_ID];
    if (stat(folder, &info))
        return lt_fail(LT_E_IO, "%s: %s", folder, strerror(errno));
    lt_run_read_id(folder, run);
    return *run || lt_run_is_used(folder) ? LT_OK : lt_fail(LT_E_ARG, "%s: holds no run", folder);
}

/* Removes the links. Their folder has a fixed name, so that a restart after a kill finds the leftovers. */
static void remove_links(const lt_watch *w)
{
    if (w->held && lt_remove_tree(w->held))
        lt_log(LT_LOG_WARN, "train", "%s", lt_error_message());
}

static lt_status open_files(lt_watch *w)
{
    const lt_run_lock_config lock = {.name = "lock-eval", .doing = "evaluated"};
    LT_TRY(lt_run_lock_open(&w->lock, w->folder, &lock));
    remove_links(w);                                              /* links of a killed evaluation */
    return lt_metrics_rewind(w->records, INT64_MAX, false, NULL); /* removes a truncated line */
}

lt_status lt_watch_open(lt_watch **out, const char *folder)
{
    LT_TRY(lt_watch_check(folder));
    lt_watch *w = NULL;
    LT_TRY(LT_ALLOC(&w, 1));
    w->folder = lt_strdup(folder);
    w->records = lt_format("%s/%s", folder, LT_RUN_EVALUATIONS);
    w->metrics = lt_format("%s/metrics.jsonl", folder);
    w->held = lt_format("%s/checkpoints/evaluated", folder);
    lt_run_read_id(folder, w->run);
    lt_status st = w->folder && w->records && w->metrics && w->held ? open_files(w) : LT_E_NOMEM;
    if (st)
        lt_watch_close(&w);
    else
        *out = w;
    return st;
}

void lt_watch_close(lt_watch **watch)
{
    lt_watch *w = *watch;
    if (!w)
        return;
    if (w->lock)
        remove_links(w);
    lt_run_lock_close(&w->lock);
    lt_free(w->seen);
    lt_free(w->held);
    lt_free(w->metrics);
    lt_free(w->records);
    lt_free(w->folder);
    lt_free(w);
    *watch = NULL;
}

const char *lt_watch_run(const lt_watch *w)
{
    return w->run;
}

static bool is_older(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec < b->tv_sec || (a->tv_sec == b->tv_sec && a->tv_nsec < b->tv_nsec);
}

/* Stats FOLDER/NAME; false if absent. */
static bool stat_in_run_folder(const lt_watch *w, const char *name, struct stat *info)
{
    char path[LT_WATCH_PATH];
    return snprintf(path, sizeof path, "%s/%s", w->folder, name) < (int)sizeof path
           && !stat(path, info);
}

static bool has_ended(const lt_watch *w)
{
    struct stat weights, newest;
    if (lt_run_lock_is_held(w->folder) || !stat_in_run_folder(w, "model.safetensors", &weights))
        return false;
    return !stat_in_run_folder(w, "checkpoints/latest/" LT_CHECKPOINT_STATE, &newest)
           || !is_older(&weights.st_mtim, &newest.st_mtim);
}

/* --- Checkpoints --- */

/* Identifies a step's checkpoint; false if it was removed or is not complete yet. */
static bool identify_checkpoint(const lt_watch *w, int64_t step, identity *out)
{
    static const char *const files[][2] = {
        {LT_CHECKPOINT_STATE, LT_CHECKPOINT_STATE},
        {LT_CHECKPOINT_MODEL, LT_CHECKPOINT_MODEL LT_INDEX_ENDING}};
    struct stat info;
    *out = (identity){.step = step};
    for (int i = 0; i < 2; i++) {
        char name[80];
        int k = -1;
        do {
            if (++k == 2)
                return false;
            snprintf(name, sizeof name, "checkpoints/step-%" PRId64 "/%s", step, files[i][k]);
        } while (!stat_in_run_folder(w, name, &info));
        out->inode[i] = info.st_ino;
        out->time[i] = info.st_mtim;
    }
    return true;
}

static bool is_same(const identity *a, const identity *b)
{
    bool same = a->step == b->step;
    for (int i = 0; i < 2; i++)
        same = same && a->inode[i] == b->inode[i] && !is_older(&a->time[i], &b->time[i])
               && !is_older(&b->time[i], &a->time[i]);
    return same;
}

static bool is_seen(const lt_watch *w, const identity *id)
{
    for (size_t i = 0; i < w->count; i++)
        if (is_same(&w->seen[i], id))
            return true;
    return false;
}

static lt_status remember_checkpoint(lt_watch *w, const identity *id)
{
    LT_TRY(LT_GROW(&w->seen, &w->capacity, w->count + 1));
    w->seen[w->count++] = *id;
    return LT_OK;
}

/* Links all files of a folder into the folder of links. */
static lt_status link_files_of(const lt_watch *w, const char *folder, DIR *dir)
{
    char from[LT_WATCH_PATH], to[LT_WATCH_PATH];
    const struct dirent *entry;
    while ((entry = readdir(dir))) {
        if (*entry->d_name == '.')
            continue;
        if (snprintf(from, sizeof from, "%s/%s", folder, entry->d_name) >= (int)sizeof from
            || snprintf(to, sizeof to, "%s/%s", w->held, entry->d_name) >= (int)sizeof to
            || link(from, to))
            return lt_fail(LT_E_IO, "%s: %s", from, strerror(errno));
    }
    return LT_OK;
}

static lt_status link_files(const lt_watch *w, int64_t step)
{
    char folder[LT_WATCH_PATH];
    snprintf(folder, sizeof folder, "%s/checkpoints/step-%" PRId64, w->folder, step);
    DIR *dir = opendir(folder);
    if (!dir)
        return lt_fail(LT_E_IO, "%s: %s", folder, strerror(errno));
    lt_status st = link_files_of(w, folder, dir);
    closedir(dir);
    return st;
}

/* Links the checkpoint's files and returns the folder of the links in path; without hard links, the checkpoint
 * itself. */
static void link_checkpoint(const lt_watch *w, int64_t step, char path[LT_WATCH_PATH])
{
    remove_links(w);
    if (!mkdir(w->held, 0777) && !link_files(w, step)) {
        snprintf(path, LT_WATCH_PATH, "%s", w->held);
        return;
    }
    remove_links(w);
    snprintf(path, LT_WATCH_PATH, "%s/checkpoints/step-%" PRId64, w->folder, step);
}

/* Links and verifies a checkpoint; sets out->path to "" if it was removed or is damaged. */
static lt_status link_and_verify_checkpoint(lt_watch *w, const identity *id, lt_watched *out)
{
    lt_checkpoint_state state;
    link_checkpoint(w, id->step, out->path);
    lt_status st = lt_checkpoint_verify(out->path, &state);
    if (st == LT_E_NOMEM)
        return st;
    if (st) {
        identity now;
        *out->path = 0;
        lt_log(LT_LOG_WARN, "train", "step %" PRId64 " is not evaluated: %s", id->step,
               identify_checkpoint(w, id->step, &now) ? lt_error_message()
                                                      : "its checkpoint was removed");
        return LT_OK;
    }
    out->step = state.step;
    out->epoch = state.batch || !state.epoch ? state.epoch : state.epoch - 1;
    return LT_OK;
}

static lt_status find_evaluation_record(const lt_watch *w, int64_t step, bool *found)
{
    LT_TRY(lt_metrics_has_evaluation(w->records, w->run, step, found));
    return *found ? LT_OK : lt_metrics_has_evaluation(w->metrics, w->run, step, found);
}

/* Sets out->path if the checkpoint of this step is to be evaluated. */
static lt_status link_unless_evaluated(lt_watch *w, int64_t step, lt_watched *out)
{
    identity id;
    bool recorded = false;
    if (!identify_checkpoint(w, step, &id) || is_seen(w, &id))
        return LT_OK;
    LT_TRY(find_evaluation_record(w, step, &recorded));
    if (!recorded)
        LT_TRY(link_and_verify_checkpoint(w, &id, out));
    return remember_checkpoint(w, &id);
}

/* Logs once when the run stops being trained before its end. */
static void tell_waiting(lt_watch *w)
{
    const bool held = lt_run_lock_is_held(w->folder);
    if (!held && !w->told_waiting)
        lt_log(LT_LOG_INFO, "train", "%s: the run has not ended, but no process trains it: waiting",
               w->folder);
    w->told_waiting = !held;
}

lt_status lt_watch_next(lt_watch *w, lt_watched *out)
{
    int64_t *step = NULL;
    size_t count = 0;
    *out = (lt_watched){0};
    const bool ended =
        has_ended(w); /* before the list is read, so that it includes the last checkpoint */
    LT_TRY(lt_watch_check(w->folder));
    lt_status st = lt_checkpoint_list(w->folder, &step, &count);
    for (size_t i = count; i-- && !st && !*out->path;) /* the newest is first */
        st = link_unless_evaluated(w, step[i], out);
    lt_free(step);
    if (st || *out->path)
        return st;
    if (!ended)
        tell_waiting(w);
    return ended ? LT_END : LT_OK;
}

/* --- EMA weights --- */

static lt_status load_average(const lt_safetensors *file, const char *path, const lt_param *p)
{
    char name[256];
    snprintf(name, sizeof name, "ema.%s", p->name);
    const lt_safetensors_entry *e = lt_safetensors_find(file, name);
    if (!e)
        return lt_fail(LT_E_FORMAT, "%s: state '%s' is missing", path, name);
    LT_TRY(lt_entry_load(e, path, p->value, p->spec, false));
    return lt_entry_load(e, path, p->value, p->spec, true);
}

static lt_status load_averages(const lt_safetensors *file, const char *path,
                               const lt_params *params)
{
    bool any = false;
    for (size_t i = 0; i < lt_safetensors_count(file) && !any; i++)
        any = !strncmp(lt_safetensors_at(file, i)->name, "ema.", 4);
    if (!any)
        return LT_END;
    for (size_t i = 0; i < params->count; i++)
        if (params->item[i]->role != LT_PARAM_COUNT) /* counts are not averaged */
            LT_TRY(load_average(file, path, params->item[i]));
    return LT_OK;
}

lt_status lt_watch_load_averages(const char *checkpoint, const lt_params *params)
{
    lt_safetensors *file = NULL;
    char *path = lt_format("%s/%s", checkpoint, LT_CHECKPOINT_OPTIM);
    lt_status st = path ? lt_safetensors_open(&file, path) : LT_E_NOMEM;
    if (!st)
        st = load_averages(file, path, params);
    lt_safetensors_close(&file);
    lt_free(path);
    return st;
}
