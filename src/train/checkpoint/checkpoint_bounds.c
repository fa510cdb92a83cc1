/* What a checkpoint's counters may be. Its checksum tells a flipped bit, not whether the numbers make
 * sense: each has a range, by itself and beside the others, so that what is computed from them does
 * not overflow. */

#include "checkpoint.h"
#include "optim/optim.h"

#include "lather/ext/fail.h"
#include "lather/text.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>

/* A double counts so far without a gap, and products with what one machine holds fit 64 bits. */
static const int64_t most = INT64_C(1) << 53;

typedef struct counter {
    const char *key;
    size_t offset, limit; /* not above that other counter; itself: MOST */
} counter;

#define AT(name) offsetof(lt_checkpoint_state, name)
#define COUNTER(name, limit)       \
    {                              \
#name, AT(name), AT(limit) \
    }
#define NUMBER(name, from, to)    \
    {                             \
#name, AT(name), from, to \
    }

/* A limit stands in front of what it limits. */
static const counter counters[] = {
    COUNTER(step, step),
    COUNTER(epoch, step),
    COUNTER(batch, batch),
    COUNTER(samples, samples),
    COUNTER(best_step, step),
    COUNTER(epoch_samples, samples),
    COUNTER(ema_updates, step),
    COUNTER(global_batch, global_batch),
    COUNTER(epoch_unused, epoch_unused),
    COUNTER(data_samples, data_samples),
    COUNTER(data_hash, data_hash),
    COUNTER(data_bytes, data_bytes),
    {"noise_count", AT(noise.count), AT(step)},
};

typedef struct small {
    const char *key;
    size_t offset;
    int low, high;
} small;

enum { MOST_PROCESSES = 1 << 20 };

static const small smalls[] = {
    NUMBER(ranks, 0, MOST_PROCESSES),
    NUMBER(threads, 0, MOST_PROCESSES),
    NUMBER(loss_good_steps, -1, INT32_MAX),
    NUMBER(epoch_recorded, -1, 1),
};

typedef struct real {
    const char *key;
    size_t offset;
    double low, high;
} real;

/* The sums and the best metric are a task's, and may be anything: a run that diverged has it. */
static const real reals[] = {
    NUMBER(loss_scale, 0, (double)FLT_MAX),
    NUMBER(seconds, 0, 1e15),
    NUMBER(epoch_seconds, 0, 1e15),
    NUMBER(epoch_loss_missing, -1e15, 1e15),
    {"noise_square", AT(noise.square), -DBL_MAX, DBL_MAX},
    {"noise_trace", AT(noise.trace), -DBL_MAX, DBL_MAX},
};
#undef COUNTER
#undef NUMBER
#undef AT

const char *lt_checkpoint_count_key(const lt_checkpoint_state *state, bool of_epoch,
                                    char key[LT_CHECKPOINT_KEY])
{
    snprintf(key, LT_CHECKPOINT_KEY, "%s%s", of_epoch ? "epoch_" : "",
             *state->unit ? state->unit : "samples");
    return key;
}

static lt_status check_integer(const char *key, int64_t value, int64_t low, int64_t high)
{
    if (value >= low && value <= high)
        return LT_OK;
    return lt_fail(LT_E_FORMAT, "'%s' %" PRId64 " is not in [%" PRId64 ",%" PRId64 "]", key, value,
                   low, high);
}

/* As state.json has it: the two counts of samples are named by their unit. */
static const char *name_of(const counter *c, const lt_checkpoint_state *state,
                           char key[LT_CHECKPOINT_KEY])
{
    const bool of_epoch = c->offset == offsetof(lt_checkpoint_state, epoch_samples);
    if (of_epoch || c->offset == offsetof(lt_checkpoint_state, samples))
        return lt_checkpoint_count_key(state, of_epoch, key);
    return c->key;
}

lt_status lt_checkpoint_check_state(const lt_checkpoint_state *state)
{
    const char *base = (const char *)state;
    char key[LT_CHECKPOINT_KEY];
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++) {
        const counter *c = &counters[i];
        const int64_t limit = *(const int64_t *)(const void *)(base + c->limit);
        LT_TRY(check_integer(name_of(c, state, key),
                             *(const int64_t *)(const void *)(base + c->offset), 0,
                             c->limit == c->offset ? most : limit));
    }
    for (size_t i = 0; i < sizeof smalls / sizeof *smalls; i++)
        LT_TRY(check_integer(smalls[i].key, *(const int *)(const void *)(base + smalls[i].offset),
                             smalls[i].low, smalls[i].high));
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        const real *r = &reals[i];
        const double value = *(const double *)(const void *)(base + r->offset);
        if (!(value >= r->low && value <= r->high))
            return lt_fail(LT_E_FORMAT, "'%s' %.17g is not in [%g,%g]", r->key, value, r->low,
                           r->high);
    }
    return isnan(state->best) ? lt_fail(LT_E_FORMAT, "'best_%s' is not a number", state->best_name)
                              : LT_OK;
}

lt_status lt_checkpoint_check_numbers(const lt_json_value *numbers, int64_t step)
{
    for (const lt_json_value *v = numbers ? numbers->child : NULL; v; v = v->next) {
        char name[256];
        int64_t low, high;
        lt_text_escape(name, sizeof name, v->key);
        if (!v->is_integer)
            return lt_fail(LT_E_FORMAT, "'%s' is no integer of 64 bits", name);
        lt_optim_number_range(v->key, step, &low, &high);
        LT_TRY(check_integer(name, v->integer, low, high));
    }
    return LT_OK;
}
