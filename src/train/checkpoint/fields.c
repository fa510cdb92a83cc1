/* Fields of state.json and their ranges. Every run has most of them; a task adds fields under names that it
 * chooses: "best_METRIC", "epoch_SUM", facts, and the counts of its unit, UNIT and "epoch_UNIT". A file without
 * "unit" counts images, as all versions before 0.2 do. */

#include "checkpoint.h"
#include "train/run/processor.h"

#include "lather/ext/fail.h"

#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum field_type { INT64, INT, UINT64, DOUBLE, NAME, FLAG, GIVEN } field_type;
/* LATER: absent in files of earlier versions; then -1, or "" for a name. IF_SET: written only if not 0. */
typedef enum presence { ALWAYS, LATER, IF_SET } presence;

/* Fields whose keys the task gives. LATER_FACTS: facts that files of earlier versions lack. */
typedef enum given {
    NOTHING,
    COUNT,
    EPOCH_COUNT,
    BEST,
    SUMS,
    TEXTS,
    NUMBERS,
    LATER_FACTS,
    HOOKS,
    TOP
} given;

typedef struct field {
    const char *key;
    size_t offset;
    field_type type;
    presence presence;
    given given;
    double low, high; /* range, within which later arithmetic cannot overflow */
    size_t limit;     /* offset of the counter that bounds this one; its own offset: high does */
} field;

/* Largest integer up to which a double counts exactly; its products with sizes of one machine fit 64 bits. */
#define MOST 0x1p53

enum { MOST_PROCESSES = 1 << 20 };

#define AT(name) offsetof(lt_checkpoint_state, name)
/* clang-format off */
#define COUNTER(name, presence, limit)    {#name, AT(name), INT64, presence, NOTHING, 0, MOST, AT(limit)}
#define FIELD(name, type, low, high)      {#name, AT(name), type, ALWAYS, NOTHING, low, high, AT(name)}
#define ADDED(name, type, low, high)      {#name, AT(name), type, LATER, NOTHING, low, high, AT(name)}
#define NOISE(name, type, low, high, limit) {"noise_" #name, AT(noise.name), type, IF_SET, NOTHING, low, high, AT(limit)}
#define TASK(given)                       {"", 0, GIVEN, ALWAYS, given, 0, 0, 0}
#define TASK_COUNT(given, name)           {"", AT(name), GIVEN, ALWAYS, given, 0, MOST, AT(samples)}

/* Sums and the best metric are unchecked: a run that diverged may have any value. */
static const field fields[] = {
    COUNTER(step, ALWAYS, step),
    COUNTER(epoch, ALWAYS, step),
    COUNTER(batch, ALWAYS, batch),
    TASK_COUNT(COUNT, samples),
    FIELD(seed, UINT64, 0, 0),
    FIELD(loss_scale, DOUBLE, 0, (double)FLT_MAX),
    TASK(BEST),
    COUNTER(best_step, ALWAYS, step),
    FIELD(seconds, DOUBLE, 0, 1e15),
    TASK(SUMS),
    FIELD(epoch_seconds, DOUBLE, 0, 1e15),
    TASK_COUNT(EPOCH_COUNT, epoch_samples),
    COUNTER(ema_updates, ALWAYS, step),
    TASK(TEXTS),
    FIELD(optim, NAME, 0, 0),
    TASK(NUMBERS),
    FIELD(ranks, INT, 0, MOST_PROCESSES),
    FIELD(threads, INT, 0, MOST_PROCESSES),
    COUNTER(global_batch, ALWAYS, global_batch),
    ADDED(loss_good_steps, INT, -1, INT32_MAX),
    ADDED(epoch_recorded, INT, -1, 1),
    COUNTER(data_samples, IF_SET, data_samples),
    COUNTER(data_hash, IF_SET, data_hash),
    COUNTER(data_bytes, IF_SET, data_bytes),
    ADDED(run, NAME, 0, 0),
    COUNTER(epoch_unused, IF_SET, epoch_unused),
    {"epoch_loss_missing", AT(epoch_loss_missing), DOUBLE, IF_SET, NOTHING, -1e15, 1e15, 0},
    NOISE(square, DOUBLE, -DBL_MAX, DBL_MAX, noise.square),
    NOISE(trace, DOUBLE, -DBL_MAX, DBL_MAX, noise.trace),
    NOISE(count, INT64, 0, MOST, step),
    TASK(LATER_FACTS),
    {"ended_by", AT(ended_by), NAME, IF_SET, NOTHING, 0, 0, 0},
    {"reproducible", AT(reproducible), FLAG, IF_SET, NOTHING, 0, 0, 0},
    TASK(HOOKS),
    TASK(TOP),
};
/* clang-format on */
#undef AT
#undef COUNTER
#undef FIELD
#undef ADDED
#undef NOISE
#undef TASK
#undef TASK_COUNT

enum { FIELDS = sizeof fields / sizeof *fields, KEY = LT_CHECKPOINT_NAME + 8 };

static const char plain_unit[] = "samples", first_unit[] = "images";

/* Keys of state.json that are not fields of the state. */
static const char *const others[] = {"format", "unit",   "version", "numbers",
                                     "files",  "crc32c", "hooks",   "top"};

static bool is_reserved_key(const char *key)
{
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!strcmp(others[i], key))
            return true;
    for (int i = 0; i < FIELDS; i++)
        if (!strcmp(fields[i].key, key))
            return true;
    return lt_processor_has(key) || !strcmp(key, "plugins");
}

static const char *unit_of(const lt_checkpoint_state *state)
{
    return *state->unit ? state->unit : plain_unit;
}

static const char *join_key(char key[KEY], const char *prefix, const char *name)
{
    snprintf(key, KEY, "%s%s", prefix, name);
    return key;
}

/* Returns the key of the sample counter: "images", "epoch_images". */
static const char *count_key(const lt_checkpoint_state *state, given which, char key[KEY])
{
    return join_key(key, which == EPOCH_COUNT ? "epoch_" : "", unit_of(state));
}

const lt_checkpoint_fact *lt_checkpoint_find_fact(const lt_checkpoint_state *state, const char *key)
{
    for (int i = 0; i < state->facts; i++)
        if (!strcmp(state->fact[i].key, key))
            return &state->fact[i];
    return NULL;
}

lt_status lt_checkpoint_check_task(const char *path, const lt_checkpoint_state *found,
                                   const lt_checkpoint_state *now)
{
    if (strcmp(unit_of(found), unit_of(now)) != 0)
        return lt_fail(LT_E_ARG, "%s: counts %s, this run %s: it is of another task", path,
                       unit_of(found), unit_of(now));
    if (strcmp(found->best_name, now->best_name) != 0)
        return lt_fail(LT_E_ARG, "%s: its best checkpoint is by '%s', this run's by '%s'", path,
                       found->best_name, now->best_name);
    for (int i = 0; i < now->sums; i++)
        if (i >= found->sums || strcmp(found->sum[i].name, now->sum[i].name) != 0)
            return lt_fail(LT_E_ARG, "%s: has no sum 'epoch_%s' in place %d: it is of another task",
                           path, now->sum[i].name, i + 1);
    return LT_OK;
}

/* Writes infinity and NaN as text, as JSON has neither. */
static void put_double(lt_json_writer *w, const char *key, double value)
{
    if (isfinite(value))
        lt_json_put_number(w, key, value);
    else
        lt_json_put_string(w, key, isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
}

static lt_status get_double(const lt_json_value *root, const char *key, double *value)
{
    const lt_json_value *v = lt_json_member(root, key);
    if (!v || v->type != LT_JSON_STRING)
        return lt_json_number(root, key, value);
    *value = strtod(v->string, NULL);
    return isfinite(*value) ? lt_fail(LT_E_FORMAT, "'%s' is no number", key) : LT_OK;
}

static void put_sums(lt_json_writer *w, const lt_checkpoint_state *state)
{
    char key[KEY];
    for (int i = 0; i < state->sums; i++)
        put_double(w, join_key(key, "epoch_", state->sum[i].name), state->sum[i].value);
}

static void put_facts(lt_json_writer *w, const lt_checkpoint_state *state, given which)
{
    for (int i = 0; i < state->facts; i++) {
        const lt_checkpoint_fact *f = &state->fact[i];
        if (which != (f->later ? LATER_FACTS : f->is_number ? NUMBERS : TEXTS))
            continue;
        if (f->is_number)
            lt_json_put_integer(w, f->key, f->number);
        else
            lt_json_put_string(w, f->key, f->text);
    }
}

static void put_hook_numbers(lt_json_writer *w, const lt_checkpoint_state *state)
{
    if (!state->numbers)
        return;
    lt_json_begin_object(w, "hooks");
    for (int i = 0; i < state->numbers; i++)
        put_double(w, state->number[i].name, state->number[i].value);
    lt_json_end(w);
}

static void put_top(lt_json_writer *w, const lt_checkpoint_state *state)
{
    if (!state->tops)
        return;
    lt_json_begin_array(w, "top");
    for (int i = 0; i < state->tops; i++) {
        lt_json_begin_object(w, NULL);
        lt_json_put_integer(w, "step", state->top_step[i]);
        put_double(w, "value", state->top_value[i]);
        lt_json_end(w);
    }
    lt_json_end(w);
}

static void put_task_fields(lt_json_writer *w, given which, const lt_checkpoint_state *state)
{
    char key[KEY];
    switch (which) {
    case COUNT:
        lt_json_put_integer(w, count_key(state, which, key), state->samples);
        break;
    case EPOCH_COUNT:
        lt_json_put_integer(w, count_key(state, which, key), state->epoch_samples);
        break;
    case BEST:
        if (*state->best_name)
            put_double(w, join_key(key, "best_", state->best_name), state->best);
        break;
    case SUMS:
        put_sums(w, state);
        break;
    case TEXTS:
    case NUMBERS:
    case LATER_FACTS:
        put_facts(w, state, which);
        break;
    case HOOKS:
        put_hook_numbers(w, state);
        break;
    case TOP:
        put_top(w, state);
        break;
    case NOTHING:
        break;
    }
}

static bool is_zero(const field *f, const void *at)
{
    if (f->type == NAME)
        return !*(const char *)at;
    if (f->type == FLAG)
        return !*(const bool *)at;
    return f->type == INT64 ? *(const int64_t *)at == 0 : *(const double *)at == 0;
}

static void put_field(lt_json_writer *w, const field *f, const lt_checkpoint_state *state)
{
    const void *at = (const char *)state + f->offset;
    char text[32];
    if (f->presence == IF_SET && is_zero(f, at))
        return;
    switch (f->type) {
    case INT64:
        lt_json_put_integer(w, f->key, *(const int64_t *)at);
        break;
    case INT:
        lt_json_put_integer(w, f->key, *(const int *)at);
        break;
    case UINT64: /* as text: many readers of JSON know only doubles */
        snprintf(text, sizeof text, "%" PRIu64, *(const uint64_t *)at);
        lt_json_put_string(w, f->key, text);
        break;
    case DOUBLE:
        put_double(w, f->key, *(const double *)at);
        break;
    case NAME:
        lt_json_put_string(w, f->key, at);
        break;
    case FLAG:
        lt_json_put_bool(w, f->key, *(const bool *)at);
        break;
    case GIVEN:
        put_task_fields(w, f->given, state);
        break;
    }
}

static lt_status read_unsigned(const char *text, uint64_t *out)
{
    char *end;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return *text < '0' || *text > '9' || *end || errno
               ? lt_fail(LT_E_FORMAT, "'%s' is no number", text)
               : LT_OK;
}

static lt_status get_field(const lt_json_value *root, const field *f, void *state)
{
    void *at = (char *)state + f->offset;
    int64_t number = -1;
    const char *text = NULL;
    const bool is_absent = f->presence != ALWAYS && !lt_json_member(root, f->key);
    if (f->presence == IF_SET && is_absent)
        return LT_OK; /* 0 */
    switch (f->type) {
    case INT64:
        return lt_json_integer(root, f->key, at);
    case INT:
        if (!is_absent)
            LT_TRY(lt_json_integer(root, f->key, &number));
        if (number < INT_MIN || number > INT_MAX)
            return lt_fail(LT_E_FORMAT, "'%s' %" PRId64 " is not in [%d,%d]", f->key, number,
                           INT_MIN, INT_MAX);
        *(int *)at = (int)number;
        return LT_OK;
    case UINT64:
        LT_TRY(lt_json_string(root, f->key, &text));
        return read_unsigned(text, at);
    case DOUBLE:
        return get_double(root, f->key, at);
    case NAME:
        if (!is_absent)
            LT_TRY(lt_json_string(root, f->key, &text));
        snprintf(at, LT_CHECKPOINT_NAME, "%s", text ? text : "");
        return LT_OK;
    case FLAG:
        *(bool *)at = lt_json_member(root, f->key)->boolean;
        return LT_OK;
    case GIVEN: /* get_task_fields() */
        return LT_OK;
    }
    return LT_OK;
}

static lt_status get_unit_and_counts(const lt_json_value *root, lt_checkpoint_state *state)
{
    const char *unit = first_unit;
    char key[KEY];
    if (lt_json_member(root, "unit"))
        LT_TRY(lt_json_string(root, "unit", &unit));
    snprintf(state->unit, sizeof state->unit, "%s", unit);
    if (strlen(unit) >= sizeof state->unit || is_reserved_key(unit)
        || is_reserved_key(join_key(key, "epoch_", unit)))
        return lt_fail(LT_E_FORMAT, "'unit' is no name of samples");
    LT_TRY(lt_json_integer(root, unit, &state->samples));
    return lt_json_integer(root, join_key(key, "epoch_", unit), &state->epoch_samples);
}

static lt_status get_fact(const lt_json_value *v, bool later, lt_checkpoint_state *state)
{
    if (state->facts == LT_CHECKPOINT_FACTS
        || (v->type != LT_JSON_STRING && v->type != LT_JSON_NUMBER))
        return LT_OK; /* written by a later version */
    lt_checkpoint_fact *f = &state->fact[state->facts++];
    snprintf(f->key, sizeof f->key, "%s", v->key);
    f->later = later;
    f->is_number = v->type == LT_JSON_NUMBER;
    if (f->is_number && !v->is_integer)
        return lt_fail(LT_E_FORMAT, "'%s' is no integer of 64 bits", f->key);
    if (f->is_number)
        f->number = v->integer;
    else
        snprintf(f->text, sizeof f->text, "%s", v->string);
    return LT_OK;
}

/* Reads the fields of the task, in the order of the file. */
static lt_status get_task_fields(const lt_json_value *root, lt_checkpoint_state *state)
{
    char samples[KEY];
    bool later = false;
    join_key(samples, "epoch_", state->unit);
    for (const lt_json_value *v = root->child; v; v = v->next) {
        later = later || !strcmp(v->key, "ranks"); /* the other facts are before it */
        if (is_reserved_key(v->key) || !strcmp(v->key, state->unit) || !strcmp(v->key, samples))
            continue;
        if (!strncmp(v->key, "best_", 5) && !*state->best_name) {
            snprintf(state->best_name, sizeof state->best_name, "%s", v->key + 5);
            LT_TRY(get_double(root, v->key, &state->best));
        } else if (!strncmp(v->key, "epoch_", 6) && state->sums < LT_CHECKPOINT_SUMS) {
            lt_checkpoint_sum *sum = &state->sum[state->sums++];
            snprintf(sum->name, sizeof sum->name, "%s", v->key + 6);
            LT_TRY(get_double(root, v->key, &sum->value));
        } else {
            LT_TRY(get_fact(v, later, state));
        }
    }
    return LT_OK;
}

static lt_status get_hook_numbers(const lt_json_value *hooks, lt_checkpoint_state *state)
{
    for (const lt_json_value *v = hooks ? hooks->child : NULL; v; v = v->next) {
        if (state->numbers == LT_CHECKPOINT_NUMBERS)
            return lt_fail(LT_E_FORMAT, "'hooks' has more than %d numbers", LT_CHECKPOINT_NUMBERS);
        lt_checkpoint_sum *to = &state->number[state->numbers++];
        snprintf(to->name, sizeof to->name, "%s", v->key);
        LT_TRY(get_double(hooks, v->key, &to->value));
    }
    return LT_OK;
}

static lt_status get_top(const lt_json_value *top, lt_checkpoint_state *state)
{
    for (const lt_json_value *v = top ? top->child : NULL; v; v = v->next) {
        if (state->tops == LT_CHECKPOINT_TOP)
            return lt_fail(LT_E_FORMAT, "'top' has more than %d checkpoints", LT_CHECKPOINT_TOP);
        LT_TRY(lt_json_integer(v, "step", &state->top_step[state->tops]));
        LT_TRY(get_double(v, "value", &state->top_value[state->tops++]));
    }
    return LT_OK;
}

/* Rejects names that the reader would take for another member, or find twice. */
static lt_status check_names(const lt_checkpoint_state *state)
{
    char key[KEY];
    for (int i = 0; i < state->facts; i++) {
        const char *name = state->fact[i].key;
        if (is_reserved_key(name) || !strcmp(name, unit_of(state)) || !strncmp(name, "best_", 5)
            || !strncmp(name, "epoch_", 6)
            || lt_checkpoint_find_fact(state, name) != &state->fact[i])
            return lt_fail(LT_E_ARG, "checkpoint: a fact cannot be named '%s'", name);
    }
    for (int i = 0; i < state->sums; i++)
        if (is_reserved_key(join_key(key, "epoch_", state->sum[i].name))
            || !strcmp(state->sum[i].name, unit_of(state)))
            return lt_fail(LT_E_ARG, "checkpoint: a sum cannot be named '%s'", state->sum[i].name);
    return LT_OK;
}

/* --- Ranges: a checksum finds flipped bits, not numbers that contradict each other --- */

lt_status lt_checkpoint_check_range(const char *key, int64_t value, int64_t low, int64_t high)
{
    if (value >= low && value <= high)
        return LT_OK;
    return lt_fail(LT_E_FORMAT, "'%s' %" PRId64 " is not in [%" PRId64 ",%" PRId64 "]", key, value,
                   low, high);
}

static lt_status check_real(const field *f, double value)
{
    return value >= f->low && value <= f->high
               ? LT_OK
               : lt_fail(LT_E_FORMAT, "'%s' %.17g is not in [%g,%g]", f->key, value, f->low,
                         f->high);
}

static lt_status check_counter(const field *f, const char *key, const char *state)
{
    const int64_t *value = (const void *)(state + f->offset),
                  *limit = (const void *)(state + f->limit);
    return lt_checkpoint_check_range(key, *value, 0, value == limit ? (int64_t)f->high : *limit);
}

static lt_status check_field(const field *f, const lt_checkpoint_state *state)
{
    const char *base = (const char *)state;
    const void *at = base + f->offset;
    char key[KEY];
    switch (f->type) {
    case INT64:
        return check_counter(f, f->key, base);
    case INT:
        return lt_checkpoint_check_range(f->key, *(const int *)at, (int64_t)f->low,
                                         (int64_t)f->high);
    case DOUBLE:
        return check_real(f, *(const double *)at);
    case GIVEN:
        return f->given == COUNT || f->given == EPOCH_COUNT
                   ? check_counter(f, count_key(state, f->given, key), base)
                   : LT_OK;
    case UINT64:
    case NAME:
    case FLAG:
        return LT_OK;
    }
    return LT_OK;
}

lt_status lt_checkpoint_check_state(const lt_checkpoint_state *state)
{
    for (int i = 0; i < FIELDS; i++)
        LT_TRY(check_field(&fields[i], state));
    return isnan(state->best) ? lt_fail(LT_E_FORMAT, "'best_%s' is not a number", state->best_name)
                              : LT_OK;
}

lt_status lt_checkpoint_put_fields(lt_json_writer *w, const lt_checkpoint_state *state)
{
    LT_TRY(check_names(state));
    for (int i = 0; i < FIELDS; i++)
        put_field(w, &fields[i], state);
    if (strcmp(unit_of(state), first_unit) != 0)
        lt_json_put_string(w, "unit", unit_of(state));
    return LT_OK;
}

lt_status lt_checkpoint_get_fields(const lt_json_value *root, lt_checkpoint_state *state)
{
    for (int i = 0; i < FIELDS; i++)
        LT_TRY(get_field(root, &fields[i], state));
    LT_TRY(get_unit_and_counts(root, state));
    LT_TRY(get_task_fields(root, state));
    LT_TRY(get_hook_numbers(lt_json_member(root, "hooks"), state));
    LT_TRY(get_top(lt_json_member(root, "top"), state));
    return lt_checkpoint_check_state(state);
}
