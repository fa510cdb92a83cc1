/* The run folder before the run: locks it, finds the checkpoint to resume from, as network and input depend on it,
 * and renames or rejects a run that is already there. */

#include "base/options/options.h"
#include "program.h"
#include "train/checkpoint/checkpoint.h"

#include "lather/ext/fail.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- Access to the folder --- */

static lt_status lock_output(const output_options *o, lt_ranks *ranks, lt_run_lock **out)
{
    lt_run_lock_config c = {.is_new = !o->resume && !o->overwrite, .comm = ranks->comm};
    lt_status st = lt_run_lock_open(out, o->output, &c);
    ranks->same_failure = st != LT_OK && st != LT_E_COMM;
    if (st == LT_E_ARG)
        return lt_fail(st, "%s; --resume auto continues it, --overwrite renames it to old-N",
                       lt_error_message());
    return st;
}

/* Returns true if the checkpoint is in --output. */
static bool is_in_output_folder(const lt_train_state *state, const char *output)
{
    char path[sizeof state->folder + sizeof "/../.."];
    struct stat from, to;
    snprintf(path, sizeof path, "%s/../..", state->folder);
    return !stat(path, &from) && !stat(output, &to) && from.st_ino == to.st_ino
           && from.st_dev == to.st_dev;
}

/* Fails if --output holds another run: --resume PATH may lead from one folder into another. */
static lt_status check_other_run(const output_options *o, const lt_train_state *state)
{
    char id[LT_RUN_ID];
    const char *output = o->output;
    if (o->overwrite || !lt_run_is_used(output) || is_in_output_folder(state, output))
        return LT_OK;
    lt_run_read_id(output, id);
    if (*id && !strcmp(id, state->found.run))
        return LT_OK;
    return lt_fail(LT_E_ARG, "%s: holds another run than %s; --overwrite renames it to old-N",
                   output, state->folder);
}

/* --- The checkpoint to resume from --- */

lt_status lt_folder_find_newest(lt_train_state *state, const char *folder)
{
    lt_status st = lt_checkpoint_newest(folder, state->folder, sizeof state->folder);
    if (st == LT_END)
        state->folder[0] = 0;
    return st == LT_END ? LT_OK : st;
}

static lt_status find_checkpoint(const output_options *o, lt_train_state *state)
{
    const char *resume = o->resume;
    if (!resume)
        return LT_OK;
    bool is_auto = !strcmp(resume, "auto");
    LT_TRY(lt_folder_find_newest(state, is_auto ? o->output : resume));
    if (!state->folder[0] && !is_auto)
        snprintf(state->folder, sizeof state->folder, "%s", resume);
    return LT_OK;
}

lt_status lt_folder_lock_and_find(const output_options *o, lt_ranks *ranks, lt_train_state *state,
                                  lt_run_lock **lock_out)
{
    if (!o->output)
        return LT_OK;
    LT_TRY(lock_output(o, ranks, lock_out));
    LT_TRY(find_checkpoint(o, state));
    LT_TRY(lt_ranks_same_text(ranks, "the checkpoint to resume", state->folder));
    if (!state->folder[0])
        return LT_OK;
    LT_TRY(lt_checkpoint_verify(state->folder, &state->found));
    return check_other_run(o, state);
}

/* --- Flags that changed --- */

/* Returns true for flags that a resume does not compare: of a single start, or determined by the checkpoint. */
static bool is_ignored_on_resume(const family_choice *c, const lt_option *option)
{
    static const char *const names[] = {"output",  "progress",   "log-every", "recipe",
                                        "weights", "reset-head", "plugin"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i], option->name))
            return true;
    return option->once || lt_family_has_fact(c, option->name);
}

/* Returns true if the value before is known: an option of a later version is not in the file, but neither is a
 * text that was "". */
static bool is_old_value_known(const lt_options *before, const lt_option *option)
{
    return option->type == LT_OPTION_STRING || option->type == LT_OPTION_LIST
           || lt_options_is_set(before, option->name);
}

/* Returns true if checkpointed state depends on the option. */
static bool is_in_state(const lt_options *now, const lt_option *option)
{
    return option->in_state
           && (!strcmp(option->in_state, "*")
               || lt_options_has_word(option->in_state, lt_options_choice(now, "optim"), " "));
}

static void append_change(char *list, size_t size, const char *name, const char *was,
                          const char *is)
{
    const size_t used = strlen(list);
    snprintf(list + used, size - used, "%s%s %s -> %s", used ? ", " : "", name,
             *was ? was : "(none)", *is ? is : "(none)");
}

static void list_changes(const family_choice *c, const lt_options *now, const lt_options *before,
                         changed_options *out)
{
    enum { TEXT = 256 };
    char was[TEXT], is[TEXT];
    const lt_option *o;
    for (size_t i = 0; (o = lt_options_at(now, i)); i++) {
        if (is_ignored_on_resume(c, o) || !is_old_value_known(before, o)
            || !lt_options_applies(now, o->name))
            continue;
        lt_options_text(before, o->name, was, TEXT);
        lt_options_text(now, o->name, is, TEXT);
        if (strcmp(was, is) != 0)
            append_change(is_in_state(now, o) ? out->in_state : out->others, sizeof out->others,
                          o->name, was, is);
    }
}

void lt_folder_compare_options(const family_choice *c, const lt_options *now, lt_options *before,
                               const lt_train_state *state, changed_options *out)
{
    char path[sizeof state->folder + sizeof "/../../config.yaml"];
    snprintf(path, sizeof path, "%s/../../config.yaml", state->folder);
    if (access(path, R_OK))
        return;
    if (lt_options_load(before, path))
        snprintf(out->others, sizeof out->others, "unknown: %s", lt_error_message());
    else
        list_changes(c, now, before, out);
}

/* --- Files of an earlier run or start --- */

/* Returns true for a run whose checkpoints were deleted, or that was killed before its first one: `--resume auto`
 * starts it again. */
static bool is_without_checkpoint(const output_options *o, const lt_train_state *state)
{
    return o->resume && !state->folder[0] && lt_run_is_used(o->output);
}

lt_status lt_folder_rename_old_run(const output_options *o, const lt_train_state *state, char *to,
                                   size_t size)
{
    *to = 0;
    if (!o->output || !(o->overwrite || is_without_checkpoint(o, state)))
        return LT_OK;
    lt_checkpoint_clean(o->output); /* removes partial checkpoints of a killed save */
    return lt_run_rename_old(o->output, to, size);
}

lt_status lt_folder_rename_old_file(const lt_train_state *state, const char *path)
{
    enum { MOST = 100000 };
    char aside[1100];
    const char *slash = strrchr(path, '/'), *dot = strrchr(slash ? slash : path, '.');
    int stem = dot ? (int)(dot - path) : (int)strlen(path);
    if (!state->folder[0] || access(path, F_OK))
        return LT_OK;
    for (int n = 1; n < MOST; n++) {
        snprintf(aside, sizeof aside, "%.*s.old-%d%s", stem, path, n, path + stem);
        if (!access(aside, F_OK))
            continue;
        return rename(path, aside) ? lt_fail(LT_E_IO, "%s: %s", path, strerror(errno)) : LT_OK;
    }
    return LT_OK;
}
