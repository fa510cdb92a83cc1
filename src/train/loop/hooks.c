/* Hooks of a training run: registration, calls, and their numbers in checkpoints. */

#include "hooks.h"

#include "base/options/options.h"
#include "train/run/metrics.h"

#include "lather/ext/fail.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MESSAGE = 512 };

static lt_hooks registered;

/* --- The list --- */

static lt_status check_numbers(const lt_train_hooks *h, size_t taken)
{
    for (size_t i = 0; i < h->numbers; i++) {
        const lt_train_number *n = &h->number[i];
        if (!n->name || !n->value || strlen(h->name) + strlen(n->name) + 1 >= LT_CHECKPOINT_NAME)
            return lt_fail(LT_E_ARG, "hooks %s: number %zu has no value, or no name below %d bytes",
                           h->name, i, LT_CHECKPOINT_NAME);
        for (size_t k = 0; k < i; k++)
            if (!strcmp(h->number[k].name, n->name))
                return lt_fail(LT_E_ARG, "hooks %s: two numbers are named '%s'", h->name, n->name);
    }
    return taken + h->numbers <= LT_CHECKPOINT_NUMBERS
               ? LT_OK
               : lt_fail(LT_E_ARG, "hooks %s: %zu numbers after %zu of others; at most %d fit",
                         h->name, h->numbers, taken, LT_CHECKPOINT_NUMBERS);
}

lt_status lt_hooks_add(lt_hooks *h, const lt_train_hooks *more)
{
    if (!more)
        return LT_OK;
    if (!more->name || !*more->name || strlen(more->name) >= LT_CHECKPOINT_NAME)
        return lt_fail(LT_E_ARG, "hooks: a name of 1 to %d bytes is required",
                       LT_CHECKPOINT_NAME - 1);
    size_t numbers = 0;
    for (int i = 0; i < h->count; i++) {
        numbers += h->item[i]->numbers;
        if (!strcmp(h->item[i]->name, more->name))
            return lt_fail(LT_E_ARG, "hooks: the name '%s' is taken", more->name);
    }
    LT_TRY(check_numbers(more, numbers));
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

lt_status lt_hooks_call(lt_hooks *h, lt_hook_point point, const lt_train_view *view,
                        lt_ranks *ranks)
{
    double asked[RANK_SUMS] = {0}; /* one per hook: LT_MAX_HOOKS are as many */
    int called = 0;
    for (int i = 0; h && i < h->count; i++) {
        lt_train_hook *call;
        memcpy(&call, (const char *)h->item[i] + point, sizeof call);
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
    return lt_metric_value(view->metric, view->metrics, name);
}

void lt_train_note(const lt_train_view *view, const char *format, ...)
{
    char text[MESSAGE];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    lt_run_note(view->run, "%s", text);
}

lt_status lt_train_record(const lt_train_view *view, const char *event, const lt_metric *value,
                          size_t count)
{
    static const char events[] = "step epoch evaluation resume ended optim_stats plan "
                                 "checkpoint_failed contributors micro_batches";
    if (lt_options_has_word(events, event, " "))
        return lt_fail(LT_E_ARG, "lt_train_record: the event '%s' is the library's; choose another",
                       event);
    for (size_t i = 0; i < count; i++)
        if (lt_options_has_word("event step run", value[i].name, " "))
            return lt_fail(LT_E_ARG,
                           "lt_train_record: event %s: every record has '%s'; choose another name",
                           event, value[i].name);
    return lt_run_event_scalars(view->run, event, view->step, value, count);
}

/* --- Checkpoints --- */

void lt_hooks_store(const lt_hooks *h, lt_checkpoint_state *state)
{
    const char *by = h && h->ended_by ? h->ended_by : "";
    snprintf(state->ended_by, sizeof state->ended_by, "%s", by);
    state->numbers = 0;
    for (int i = 0; h && i < h->count; i++)
        for (size_t k = 0; k < h->item[i]->numbers; k++) {
            const lt_train_number *n = &h->item[i]->number[k];
            lt_checkpoint_sum *to = &state->number[state->numbers++];
            snprintf(to->name, sizeof to->name, "%s.%s", h->item[i]->name, n->name);
            to->value = *n->value;
        }
}

void lt_hooks_restore(const lt_hooks *h, const lt_checkpoint_state *state)
{
    lt_checkpoint_state now = {0};
    lt_hooks_store(h, &now);
    int at = 0;
    for (int i = 0; h && i < h->count; i++)
        for (size_t k = 0; k < h->item[i]->numbers; k++, at++)
            for (int from = 0; from < state->numbers; from++)
                if (!strcmp(state->number[from].name, now.number[at].name))
                    *h->item[i]->number[k].value = state->number[from].value;
}
