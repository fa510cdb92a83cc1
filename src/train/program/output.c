/* Records of a run: its folder, compared with that of the run which it resumes, its notes, its trace. */

#include "trainer.h"

#include "lather/ext/dataset.h"
#include "lather/profile.h"

#include <stdio.h>
#include <string.h>

/* Lists the options that differ from the resumed run's; *recompute gets that run's --recompute. */
static lt_status list_changed_options(const command_line *line, const lt_train_state *state,
                                      changed_options *out, int *recompute)
{
    command_line then = {0};
    *out = (changed_options){0};
    if (!state->folder[0])
        return LT_OK;
    lt_status st = lt_command_line_open(&then, line->choice.family, line->program);
    if (!st)
        st = lt_command_line_open_options(&then, NULL);
    if (!st)
        lt_folder_compare_options(&line->choice, line->options, then.options, state, out);
    if (!st)
        *recompute = then.args.training.recompute;
    lt_command_line_close(&then);
    return st;
}

lt_status lt_trainer_settle_recompute(lt_trainer *t)
{
    changed_options changed;
    int before = RECOMPUTE_AUTO;
    if (!t->ranks.rank)
        LT_TRY(list_changed_options(&t->line, &t->state, &changed, &before));
    return lt_trainer_choose_recompute(t, before);
}

lt_status lt_trainer_open_run(lt_trainer *t, lt_train_loop *l)
{
    const output_options *o = &t->line.args.output;
    char aside[sizeof t->state.folder] = "", all[2 * sizeof(changed_options)];
    changed_options changed = {0};
    int recompute;
    lt_run_config c = {
        .options = t->line.options,
        .progress = (lt_progress)o->progress,
        .log_every = o->log_every,
        .no_tensorboard = !o->tensorboard,
    };
    lt_train_fill_run_config(&c, &t->output.labels, l);
    if (!t->ranks.rank) { /* reads files of the earlier start */
        LT_TRY(list_changed_options(&t->line, &t->state, &changed, &recompute));
        LT_TRY(lt_folder_rename_old_run(o, &t->state, aside, sizeof aside));
    }
    LT_TRY(lt_run_open(&t->output.run, o->output, &c));
    l->run = t->output.run;
    if (*aside && !o->overwrite)
        lt_run_warn(
            t->output.run,
            "--resume auto found no checkpoint: starts a new run; moved the previous run from %s to %s",
            o->output, aside);
    else if (*aside)
        lt_run_note(t->output.run, "moved the previous run from %s to %s", o->output, aside);
    snprintf(all, sizeof all, "%s%s%s", changed.in_state,
             *changed.in_state && *changed.others ? ", " : "", changed.others);
    LT_TRY(lt_train_log_resume(l, all));
    if (*changed.in_state)
        lt_run_warn(
            t->output.run,
            "the saved optimizer state was computed with other settings, and continues as if "
            "with the new ones: %s",
            changed.in_state);
    return LT_OK;
}

lt_status lt_trainer_explain_failed_load(const lt_trainer *t, lt_status st)
{
    changed_options changed;
    char text[1024];
    int recompute;
    if (st != LT_E_FORMAT || !t->state.folder[0])
        return st;
    snprintf(text, sizeof text, "%s", lt_error_message());
    if (list_changed_options(&t->line, &t->state, &changed, &recompute))
        changed = (changed_options){0};
    return lt_fail(st, "%s%s%s%s%s", text,
                   *changed.in_state ? "; settings that differ and determine its state: " : "",
                   changed.in_state, *changed.others ? "; others that differ: " : "",
                   changed.others);
}

void lt_trainer_note_limits(const lt_trainer *t)
{
    const arguments *a = &t->line.args;
    const bool evaluates = a->evaluation.eval_every >= 0;
    const int64_t all = lt_dataset_count(t->input.val),
                  batch = a->eval_batch_size ? a->eval_batch_size : a->batch_size,
                  some = a->loader.limit_eval_batches * batch * t->ranks.data_count;
    if (evaluates && some && some < all && !a->loader.overfit_batches)
        lt_run_note(t->output.run,
                    "--limit-eval-batches %lld: evaluations on %lld of %lld %s, evenly spread",
                    (long long)a->loader.limit_eval_batches, (long long)some, (long long)all,
                    t->input.unit);
    if (evaluates && t->input.val->unsplit && !t->ranks.rank)
        lt_run_warn(
            t->output.run,
            "%s has no split: evaluations use the training %s and do not measure how "
            "well others are classified; --val-split 0.1 holds some back, or put others into DATA/val",
            a->data, t->input.unit);
    lt_trainer_log_unused_flags(t->output.run, &a->ranks, t->ranks.count);
    if (!a->output.output)
        lt_run_note(t->output.run, "no --output: this run will not be saved");
}

/* Starts a trace of each rank: "trace.json", "trace.rank1.json", ... */
lt_status lt_trainer_start_profile(const lt_trainer *t)
{
    char path[1024];
    const char *name = t->line.args.output.profile;
    if (!name)
        return LT_OK;
    const char *slash = strrchr(name, '/'), *dot = strrchr(slash ? slash : name, '.');
    int stem = dot ? (int)(dot - name) : (int)strlen(name);
    if (!t->ranks.rank)
        snprintf(path, sizeof path, "%s", name);
    else
        snprintf(path, sizeof path, "%.*s.rank%d%s", stem, name, t->ranks.rank, name + stem);
    LT_TRY(lt_folder_rename_old_file(&t->state, path));
    return lt_profile_start(path, 0);
}
