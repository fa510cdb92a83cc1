/* Records of a run before its first step: labels of metrics, numbers of steps and epochs, and the resume. */

#include "loop.h"

#include <stdio.h>

lt_status lt_train_log_resume(lt_run *run, const lt_train_state *state, int64_t total_steps,
                              const lt_ranks *ranks, const char *output, const char *changed)
{
    const lt_checkpoint_state *now = &state->now;
    char all[4096] = "", data[128] = "";
    size_t used = 0;
    if (output && !ranks->rank)
        LT_TRY(lt_checkpoint_repair(output, now));
    if (now->step >= total_steps && now->epoch_recorded)
        lt_run_note(run,
                    "resumed from %s: step %lld of %lld: all steps are done; to train more, "
                    "raise --epochs or --max-steps",
                    state->folder, (long long)now->step, (long long)total_steps);
    else
        lt_run_note(run, "resumed from %s: step %lld, epoch %lld", state->folder,
                    (long long)now->step, (long long)now->epoch + 1);
    if (*changed)
        lt_run_note(run, "flags that changed: %s", changed);
    if (state->data_changed) {
        const int64_t before = state->found.data_samples;
        snprintf(data, sizeof data, "%lld -> %lld %s%s", (long long)before,
                 (long long)now->data_samples, now->unit,
                 before == now->data_samples ? " (other names, contents or order)" : "");
        lt_run_note(run, "data that changed: %s; epoch %lld begins with it", data,
                    (long long)now->epoch + 1);
    }
    if (*state->plugins)
        lt_run_note(run, "plugins that changed: %s", state->plugins);
    /* another processor is a warning in the log */
    const char *const list[] = {"",        changed,        "data ", data,
                                "plugin ", state->plugins, "",      state->processor};
    for (size_t i = 0; i < sizeof list / sizeof *list; i += 2)
        if (*list[i + 1])
            used += (size_t)snprintf(all + used, sizeof all - used, "%s%s%s", used ? ", " : "",
                                     list[i], list[i + 1]);
    return lt_run_event(run, "resume", now->step, *all ? "changed" : NULL, all);
}

static void add_label(lt_task_labels *out, const char *name, const lt_task_metric *m)
{
    out->label[out->count++] = (lt_metric_label){name, m->label, m->unit};
}

void lt_train_fill_metric_labels(const lt_task_ops *task, lt_task_labels *out)
{
    out->count = 0;
    out->label[out->count++] = (lt_metric_label){"train_loss", "train loss", NULL};
    out->label[out->count++] = (lt_metric_label){"val_loss", "| val loss", NULL};
    for (int i = 0; i < task->metrics; i++) {
        const lt_task_metric *m = &task->metric[i];
        char *train = out->name[2 * i], *val = out->name[2 * i + 1];
        snprintf(train, LT_CHECKPOINT_NAME, "train_%s", m->name);
        snprintf(val, LT_CHECKPOINT_NAME, "val_%s", m->name);
        add_label(out, m->name, m);
        add_label(out, train, m);
        add_label(out, val, m);
    }
}

void lt_train_fill_run_config(lt_run_config *run, lt_task_labels *labels, const lt_task_ops *task,
                              const lt_train_state *state, const lt_ranks *ranks,
                              int64_t steps_per_epoch, int64_t total_steps)
{
    const bool is_rate = task->rate_unit;
    const char *brief = is_rate ? task->rate_unit_short : task->unit_short;
    lt_train_fill_metric_labels(task, labels);
    run->label = labels->label;
    run->labels = labels->count;
    run->unit = is_rate ? task->rate_unit : task->unit;
    run->unit_short = brief ? brief : run->unit;
    run->total_steps = total_steps;
    run->steps_per_epoch = steps_per_epoch;
    run->reproducible = state->now.reproducible;
    run->total_epochs = (total_steps - state->offset + steps_per_epoch - 1) / steps_per_epoch;
    run->step_offset = state->offset;
    run->resume_step = state->now.step;
    run->redo_epoch = state->now.epoch_recorded == 0;
    run->rank = ranks->rank;
    run->ranks = ranks->count;
    run->id = state->now.run;
}
