/* The run folder before the run: it is locked, a run that is in it is gone on with, set aside or refused, and the
 * checkpoint to go on from is found, as network and input come from it. */

#include "train/trainer/session.h"

#include "lather/ext/fail.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- Whose folder it is --- */

static lt_status lock(session *s)
{
    const arguments *a = &s->args;
    lt_run_lock_config c = {.is_new = !a->resume && !a->overwrite, .comm = s->ranks.comm};
    lt_status st = lt_run_lock_open(&s->lock, a->output, &c);
    s->ranks.same_failure = st != LT_OK && st != LT_E_COMM;
    if (st == LT_E_ARG)
        return lt_fail(st, "%s; --resume auto goes on with it, --overwrite sets it aside",
                       lt_error_message());
    return st;
}

/* Whether the checkpoint lies in --output. */
static bool is_own(const session *s)
{
    char path[sizeof s->state.folder + sizeof "/../.."];
    struct stat from, to;
    snprintf(path, sizeof path, "%s/../..", s->state.folder);
    return !stat(path, &from) && !stat(s->args.output, &to) && from.st_ino == to.st_ino
           && from.st_dev == to.st_dev;
}

/* --resume PATH leads from one folder into another, which must not hold a third run. */
static lt_status check_other_run(const session *s)
{
    char id[LT_RUN_ID];
    const char *output = s->args.output;
    if (s->args.overwrite || !lt_run_is_used(output) || is_own(s))
        return LT_OK;
    lt_run_read_id(output, id);
    if (*id && !strcmp(id, s->state.found.run))
        return LT_OK;
    return lt_fail(LT_E_ARG, "%s: holds another run than %s; --overwrite sets it aside", output,
                   s->state.folder);
}

/* --- The checkpoint to go on from --- */

/* A run folder stands for its newest checkpoint. */
static lt_status find_newest(session *s, const char *folder)
{
    lt_status st = lt_checkpoint_newest(folder, s->state.folder, sizeof s->state.folder);
    if (st == LT_END)
        s->state.folder[0] = 0;
    return st == LT_END ? LT_OK : st;
}

static lt_status find_checkpoint(session *s)
{
    const char *resume = s->args.resume;
    if (!resume)
        return LT_OK;
    bool is_auto = !strcmp(resume, "auto");
    LT_TRY(find_newest(s, is_auto ? s->args.output : resume));
    if (!s->state.folder[0] && !is_auto)
        snprintf(s->state.folder, sizeof s->state.folder, "%s", resume);
    return LT_OK;
}

static lt_status agree(session *s)
{
    if (!s->ranks.comm)
        return LT_OK;
    lt_status st = lt_comm_same(s->ranks.comm, "the checkpoint to resume", s->state.folder);
    s->ranks.same_failure = st == LT_E_ARG;
    return st;
}

lt_status session_open_folder(session *s)
{
    const arguments *a = &s->args;
    if (a->weights)
        snprintf(s->weights, sizeof s->weights, "%s", a->weights);
    if (!a->output || a->eval)
        return LT_OK;
    LT_TRY(lock(s));
    LT_TRY(find_checkpoint(s));
    LT_TRY(agree(s));
    if (!s->state.folder[0])
        return LT_OK;
    LT_TRY(lt_checkpoint_verify(s->state.folder, &s->state.found));
    snprintf(s->weights, sizeof s->weights, "%s/model.safetensors", s->state.folder);
    return check_other_run(s);
}

/* --- Flags that changed --- */

/* Flags of one start; and those of the network, as the checkpoint loads into the same one only. */
static bool is_passed_over(const lt_option *option)
{
    static const char *const names[] = {"output",     "progress", "log-every", "recipe", "weights",
                                        "reset-head", "arch",     "depths",    "width",  "stem"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i], option->name))
            return true;
    return option->once;
}

/* What is not in the file: an option of a later version, whose value then is not known, or a text that was not
 * given, which is "". */
static bool is_known(const lt_options *before, const lt_option *option)
{
    return option->type == LT_OPTION_STRING || option->type == LT_OPTION_LIST
           || lt_options_is_set(before, option->name);
}

static void list_changes(session *s, const lt_options *before)
{
    enum { TEXT = 256 };
    char was[TEXT], is[TEXT];
    size_t used = 0, size = sizeof s->changed;
    const lt_option *o;
    for (size_t i = 0; (o = lt_options_at(s->options, i)); i++) {
        if (is_passed_over(o) || !is_known(before, o) || !lt_options_applies(s->options, o->name))
            continue;
        lt_options_text(before, o->name, was, TEXT);
        lt_options_text(s->options, o->name, is, TEXT);
        if (strcmp(was, is) != 0 && used < size)
            used +=
                (size_t)snprintf(s->changed + used, size - used, "%s%s %s -> %s", used ? ", " : "",
                                 o->name, *was ? was : "(none)", *is ? is : "(none)");
    }
}

lt_status session_compare_flags(session *s)
{
    arguments values = {0};
    family_choice choice = {0};
    lt_options *before = NULL;
    char path[sizeof s->state.folder + sizeof "/../../config.yaml"];
    snprintf(path, sizeof path, "%s/../../config.yaml", s->state.folder);
    if (!s->state.folder[0] || s->ranks.rank || access(path, R_OK))
        return LT_OK;
    LT_TRY(family_open(&choice, s->choice.family));
    lt_status st = arguments_open(&before, &values, choice.family, choice.config);
    if (!st && lt_options_load(before, path))
        snprintf(s->changed, sizeof s->changed, "unknown: %s", lt_error_message());
    else if (!st)
        list_changes(s, before);
    arguments_close(&before, &values);
    family_close(&choice);
    return st;
}

/* --- What an earlier start left --- */

/* The weights of a run that ended, whose checkpoints were deleted since: there is nothing to go on from, and
 * `--resume auto` begins anew. */
static bool is_only_weights(const session *s)
{
    char path[sizeof s->state.folder];
    snprintf(path, sizeof path, "%s/model.safetensors", s->args.output);
    return s->args.resume && !s->state.folder[0] && !access(path, F_OK);
}

lt_status session_set_aside(const session *s, char *to, size_t size)
{
    *to = 0;
    if (!s->args.output || s->ranks.rank || !(s->args.overwrite || is_only_weights(s)))
        return LT_OK;
    return lt_run_set_aside(s->args.output, to, size);
}

lt_status session_keep_file(const session *s, const char *path)
{
    enum { MOST = 100000 };
    char aside[1100];
    const char *slash = strrchr(path, '/'), *dot = strrchr(slash ? slash : path, '.');
    int stem = dot ? (int)(dot - path) : (int)strlen(path);
    if (!s->state.folder[0] || access(path, F_OK))
        return LT_OK;
    for (int n = 1; n < MOST; n++) {
        snprintf(aside, sizeof aside, "%.*s.old-%d%s", stem, path, n, path + stem);
        if (!access(aside, F_OK))
            continue;
        return rename(path, aside) ? lt_fail(LT_E_IO, "%s: %s", path, strerror(errno)) : LT_OK;
    }
    return LT_OK;
}
