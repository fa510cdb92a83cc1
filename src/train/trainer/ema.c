/* The average of the weights in a run: lather/ema.h, and its tensors under the names that a
 * checkpoint keeps them by. */

#include "train/trainer/session.h"

#include "lather/ext/fail.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char prefix[] = "ema.";

static lt_status name_average(void *context, const lt_state_entry *entry)
{
    session *s = context;
    size_t bytes = sizeof prefix + strlen(entry->param);
    char *name = malloc(bytes);
    if (!name)
        return lt_fail(LT_E_NOMEM, "ema: no memory for a name");
    snprintf(name, bytes, "%s%s", prefix, entry->param);
    s->ema_names[s->ema_count++] = (lt_checkpoint_tensor){name, entry->tensor};
    /* cppcheck-suppress memleak ; it is in ema_names */
    return LT_OK;
}

static lt_status ignore_number(void *context, const char *name, int64_t *value)
{
    (void)context;
    (void)name;
    (void)value;
    return LT_OK;
}

lt_status session_open_ema(session *s)
{
    if (s->args.ema_decay == 0)
        return LT_OK;
    s->ema_names = calloc(s->params.count, sizeof *s->ema_names);
    if (!s->ema_names)
        return lt_fail(LT_E_NOMEM, "ema: no memory for %zu names", s->params.count);
    LT_TRY(lt_ema_new(&s->ema, &s->params, s->args.ema_decay));
    lt_state_visitor visitor = {.entry = name_average, .number = ignore_number, .context = s};
    return lt_ema_visit(s->ema, &visitor);
}

lt_status session_swap_ema(session *s)
{
    return s->ema ? lt_ema_swap(s->ema) : LT_OK;
}

void session_close_ema(session *s)
{
    for (size_t i = 0; i < s->ema_count; i++) {
        union {
            const char *shown;
            char *owned;
        } name = {s->ema_names[i].name};
        free(name.owned);
    }
    free(s->ema_names);
    lt_ema_free(&s->ema);
}
