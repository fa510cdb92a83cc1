/* The exponential moving average of the weights, evaluated in their place.
 * Polyak & Juditsky, "Acceleration of stochastic approximation by averaging", 1992; here with
 * exponential weights. Running statistics are averaged too; counters are copied. */

#include "session.h"

#include "lather/ext/fail.h"
#include "lather/ext/vec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char prefix[] = "ema.";

static lt_status add_average(session *s, size_t i)
{
    const lt_param *p = s->params.item[i];
    size_t bytes = sizeof prefix + strlen(p->name);
    char *name = malloc(bytes);
    if (!name)
        return lt_fail(LT_E_NOMEM, "ema: no memory for a name");
    snprintf(name, bytes, "%s%s", prefix, p->name);
    s->ema_names[i].name = name;
    s->ema_count = i + 1;
    LT_TRY(
        lt_tensor_new(&s->ema[i], s->device, lt_tensor_dtype(p->value), lt_tensor_shape(p->value)));
    s->ema_names[i].tensor = s->ema[i];
    return lt_tensor_copy(s->ema[i], p->value);
}

lt_status session_open_ema(session *s)
{
    if (s->args.ema_decay == 0)
        return LT_OK;
    s->ema = calloc(s->params.count, sizeof *s->ema);
    s->ema_names = calloc(s->params.count, sizeof *s->ema_names);
    if (!s->ema || !s->ema_names)
        return lt_fail(LT_E_NOMEM, "ema: no memory for %zu averages", s->params.count);
    for (size_t i = 0; i < s->params.count; i++)
        LT_TRY(add_average(s, i));
    return LT_OK;
}

/* The decay rises to its value, so that the start is forgotten soon (as in TensorFlow's
 * ExponentialMovingAverage with num_updates). */
static double decay_now(const session *s)
{
    double n = (double)s->state.ema_updates, rising = (1 + n) / (10 + n);
    return rising < s->args.ema_decay ? rising : s->args.ema_decay;
}

lt_status session_update_ema(session *s)
{
    if (!s->ema)
        return LT_OK;
    double weight = 1 - decay_now(s);
    for (size_t i = 0; i < s->ema_count; i++) {
        const lt_param *p = s->params.item[i];
        if (p->role == LT_ROLE_COUNT)
            LT_TRY(lt_tensor_copy(s->ema[i], p->value));
        else
            LT_TRY(lt_vec_lerp(s->ema[i], p->value, weight, NULL));
    }
    s->state.ema_updates++;
    return LT_OK;
}

lt_status session_swap_ema(session *s)
{
    for (size_t i = 0; i < s->ema_count; i++) {
        lt_tensor *old = NULL;
        lt_tensor *value = s->params.item[i]->value;
        LT_TRY(lt_tensor_new(&old, s->device, lt_tensor_dtype(value), lt_tensor_shape(value)));
        lt_status st = lt_tensor_copy(old, value);
        if (!st)
            st = lt_tensor_copy(value, s->ema[i]);
        if (!st)
            st = lt_tensor_copy(s->ema[i], old);
        lt_tensor_free(&old);
        LT_TRY(st);
    }
    s->ema_is_in = s->ema_count && !s->ema_is_in;
    return LT_OK;
}

void session_close_ema(session *s)
{
    for (size_t i = 0; i < s->ema_count; i++) {
        union {
            const char *shown;
            char *owned;
        } name = {s->ema_names[i].name};
        free(name.owned);
        lt_tensor_free(&s->ema[i]);
    }
    free(s->ema);
    free(s->ema_names);
}
