/* Hooks of a training run: registration, calls, and their numbers in checkpoints. */

#include "hooks.h"

#include "lather/ext/fail.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MESSAGE = 512 };

static lt_hooks registered;

/* --- The list --- */

static size_t count_numbers(const lt_hooks *h)
{
    size_t count = 0;
    for (int i = 0; i < h->count; i++)
        count += h->item[i]->numbers;
    return count;
}

static lt_status check_numbers(const lt_train_hooks *h, size_t taken)
{
    for (size_t i = 0; i < h->numbers; i++) {
        const lt_train_number *n = &h->number[i];
        if (!n->name || !*n->name || !n->value)
            return lt_fail(LT_E_ARG, "hooks %s: number %zu has no %s", h->name, i,
                           n->value ? "name" : "value");
        if (strlen(h->name) + 1 + strlen(n->name) >= LT_CHECKPOINT_NAME)
            return lt_fail(LT_E_ARG, "hooks %s: the name %s.%s has more than %d bytes", h->name,
                           h->name, n->name, LT_CHECKPOINT_NAME - 1);
        for (size_t k = 0; k < i; k++)
            if (!strcmp(h->number[k].name, n->name))
                return lt_fail(LT_E_ARG, "hooks %s: two numbers are named '%s'", h->name, n->name);
    }
    if (taken + h->numbers > LT_CHECKPOINT_NUMBERS)
        return lt_fail(LT_E_ARG, "hooks %s: %zu numbers after %zu of others; at most %d fit",
                       h->name, h->numbers, taken, LT_CHECKPOINT_NUMBERS);
    return LT_OK;
}

lt_status lt_hooks_add(lt_hooks *h, const lt_train_hooks *more)
{
    if (!more)
        return LT_OK;
    if (!more->name || !*more->name || strlen(more->name) >= LT_CHECKPOINT_NAME)
        return lt_fail(LT_E_ARG, "hooks: a name of 1 to %d bytes is required",
                       LT_CHECKPOINT_NAME - 1);
    for (int i = 0; i < h->count; i++)
        if (!strcmp(h->item[i]->name, more->name))
            return lt_fail(LT_E_ARG, "hooks: the name '%s' is taken", more->name);
    LT_TRY(check_numbers(more, count_numbers(h)));
    if (h->count == LT_MAX_HOOKS)
        return lt_fail(LT_E_NOMEM, "hooks %s: a run has at most %d", more->name, LT_MAX_HOOKS);
    h->item[h->count++] = more;
    return LT_OK;
}

lt_status lt_hooks_add_registered(lt_hooks *h)
{
    for (int i = 0; i < registered.count; i++)
        LT_TRY(lt_hooks_add(h, registered.item[i]));
    return LT_OK;
}

lt_status lt_train_hooks_register(const lt_train_hooks *hooks)
{
    return hooks ? lt_hooks_add(&registered, hooks) : lt_fail(LT_E_ARG, "hooks: NULL");
}

/* --- Calls --- */

static lt_train_hook *find_function(const lt_train_hooks *h, lt_hook_point point)
{
    switch (point) {
    case LT_HOOK_BEFORE_RUN:
        return h->before_run;
    case LT_HOOK_BEFORE_STEP:
        return h->before_step;
    case LT_HOOK_AFTER_STEP:
        return h->after_step;
    case LT_HOOK_AFTER_EVALUATION:
        return h->after_evaluation;
    case LT_HOOK_AFTER_EPOCH:
        return h->after_epoch;
    }
    return NULL;
}

lt_status lt_hooks_call(lt_hooks *h, lt_hook_point point, const lt_train_view *view,
                        lt_ranks *ranks)
{
    double asked[RANK_SUMS] = {0}; /* one per hook: LT_MAX_HOOKS are as many */
    int called = 0;
    for (int i = 0; h && i < h->count; i++) {
        lt_train_hook *call = find_function(h->item[i], point);
        bool stop = false;
        if (!call)
            continue;
        const lt_status st = call(h->item[i]->context, view, &stop);
        if (st)
            return lt_fail(st, "step %lld: hook %s: %s", (long long)view->step, h->item[i]->name,
                           lt_error_message());
        asked[i] = stop;
        called++;
    }
    if (!called)
        return LT_OK;
    LT_TRY(lt_ranks_sum(ranks, asked, h->count));
    for (int i = 0; i < h->count && !h->ended_by; i++)
        if (asked[i] > 0)
            h->ended_by = h->item[i]->name;
    return LT_OK;
}

double lt_train_view_metric(const lt_train_view *view, const char *name)
{
    for (size_t i = 0; i < view->metrics; i++)
        if (!strcmp(view->metric[i].name, name))
            return view->metric[i].value;
    return (double)NAN;
}

void lt_train_note(const lt_train_view *view, const char *format, ...)
{
    char text[MESSAGE];
    va_list args;
    if (view->rank)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    lt_run_note(view->run, "%s", text);
}

static bool is_listed(const char *const *list, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(list[i], name))
            return true;
    return false;
}

lt_status lt_train_record(const lt_train_view *view, const char *event, const lt_metric *value,
                          size_t count)
{
    static const char *const events[] = {
        "step",        "epoch", "evaluation",        "resume",       "ended",
        "optim_stats", "plan",  "checkpoint_failed", "contributors", "micro_batches"};
    static const char *const keys[] = {"event", "step", "run"};
    if (is_listed(events, sizeof events / sizeof *events, event))
        return lt_fail(LT_E_ARG, "lt_train_record: the event '%s' is the library's; choose another",
                       event);
    for (size_t i = 0; i < count; i++)
        if (is_listed(keys, sizeof keys / sizeof *keys, value[i].name))
            return lt_fail(LT_E_ARG,
                           "lt_train_record: event %s: every record has '%s'; choose another name",
                           event, value[i].name);
    return view->rank ? LT_OK : lt_run_event_scalars(view->run, event, view->step, value, count);
}

/* --- Checkpoints --- */

/* Writes "HOOK.NAME" of a number. */
static void format_name(char out[LT_CHECKPOINT_NAME], const lt_train_hooks *h,
                        const lt_train_number *n)
{
    snprintf(out, LT_CHECKPOINT_NAME, "%s.%s", h->name, n->name);
}

void lt_hooks_store(const lt_hooks *h, lt_checkpoint_state *state)
{
    const char *by = h && h->ended_by ? h->ended_by : "";
    snprintf(state->ended_by, sizeof state->ended_by, "%s", by);
    state->numbers = 0;
    for (int i = 0; h && i < h->count; i++)
        for (size_t k = 0; k < h->item[i]->numbers; k++) {
            lt_checkpoint_sum *to = &state->number[state->numbers++];
            format_name(to->name, h->item[i], &h->item[i]->number[k]);
            to->value = *h->item[i]->number[k].value;
        }
}

/* Sets a number if the state has it. */
static void restore_number(const lt_train_hooks *h, const lt_train_number *n,
                           const lt_checkpoint_state *state)
{
    char name[LT_CHECKPOINT_NAME];
    format_name(name, h, n);
    for (int i = 0; i < state->numbers; i++)
        if (!strcmp(state->number[i].name, name))
            *n->value = state->number[i].value;
}

void lt_hooks_restore(const lt_hooks *h, const lt_checkpoint_state *state)
{
    for (int i = 0; h && i < h->count; i++)
        for (size_t k = 0; k < h->item[i]->numbers; k++)
            restore_number(h->item[i], &h->item[i]->number[k], state);
}
