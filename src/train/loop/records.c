/* Records of a run before its first step: labels of metrics, numbers of steps and epochs, and the resume. */

#include "loop.h"

#include <stdio.h>

lt_status lt_train_log_resume(const lt_train_loop *l, const char *changed)
{
    const lt_train_state *state = l->state;
    const lt_checkpoint_state *now = &state->now;
    lt_run *run = l->run;
    char all[4096] = "", data[128] = "";
    size_t used = 0;
    if (!state->folder[0])
        return LT_OK;
    if (l->config->output && !l->ranks->rank)
        LT_TRY(lt_checkpoint_repair(l->config->output, now));
    if (now->step >= l->total_steps && now->epoch_recorded)
        lt_run_note(run,
                    "resumed from %s: step %lld of %lld: all steps are done; to train more, "
                    "raise --epochs or --max-steps",
                    state->folder, (long long)now->step, (long long)l->total_steps);
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
    for (ptrdiff_t i = 0; i < task->metrics; i++) {
        const lt_task_metric *m = &task->metric[i];
        char *train = out->name[2 * i], *val = out->name[2 * i + 1];
        snprintf(train, LT_CHECKPOINT_NAME, "train_%s", m->name);
        snprintf(val, LT_CHECKPOINT_NAME, "val_%s", m->name);
        add_label(out, m->name, m);
        add_label(out, train, m);
        add_label(out, val, m);
    }
}

void lt_train_fill_run_config(lt_run_config *run, lt_task_labels *labels, const lt_train_loop *l)
{
    const lt_task_ops *task = l->config->task.ops;
    const lt_train_state *state = l->state;
    const int64_t per_epoch = l->input->batches_per_epoch / l->config->grad_accum;
    const bool is_rate = task->rate_unit;
    const char *brief = is_rate ? task->rate_unit_short : task->unit_short;
    lt_train_fill_metric_labels(task, labels);
    run->label = labels->label;
    run->labels = labels->count;
    run->unit = is_rate ? task->rate_unit : task->unit;
    run->unit_short = brief ? brief : run->unit;
    run->total_steps = l->total_steps;
    run->steps_per_epoch = per_epoch;
    run->reproducible = state->now.reproducible;
    run->total_epochs = (l->total_steps - state->offset + per_epoch - 1) / per_epoch;
    run->step_offset = state->offset;
    run->resume_step = state->now.step;
    run->redo_epoch = state->now.epoch_recorded == 0;
    run->rank = l->ranks->rank;
    run->ranks = l->ranks->count;
    run->id = state->now.run;
}
