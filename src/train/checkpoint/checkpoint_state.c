/* state.json of a checkpoint. Its last member is the CRC-32C of the text in front of it, so that a
 * flipped bit is found in this file too. Besides the fields of every run it has those of a task, by
 * names that the task gives: "best_METRIC", "epoch_SUM", facts, and the counts of its unit, UNIT and
 * "epoch_UNIT". A file without "unit" counts images, as those of all versions before 0.2 do. */

#include "base/alloc.h"
#include "base/encoding/crc32c.h"
#include "base/file.h"
#include "base/shared_file.h"
#include "checkpoint.h"
#include "train/run/processor.h"

#include "lather/log.h"
#include "lather/text.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { VERSION = 1, READ_BYTES = 1 << 20, TAIL = 22 }; /* TAIL: ,"crc32c":"01234567"}\n */

/* INT64_OR_0, DOUBLE_OR_0: 0 where it is missing, and missing where it is 0. */
typedef enum field_type {
    INT64,
    INT64_OR_0,
    INT,
    UINT64,
    DOUBLE,
    DOUBLE_OR_0,
    NAME,
    GIVEN
} field_type;

/* What a task gives, without a key of its own. LATER: facts that files of earlier versions lack. */
typedef enum given { NOTHING, COUNT, EPOCH_COUNT, BEST, SUMS, TEXTS, NUMBERS, LATER } given;

typedef struct field {
    const char *key;
    size_t offset;
    field_type type;
    bool later; /* files of earlier versions lack it: it is -1, a name is "" */
    given given;
} field;

#define FIELD(name, type)                                                \
    {                                                                    \
#name, offsetof(lt_checkpoint_state, name), type, false, NOTHING \
    }
#define ADDED(name, type)                                               \
    {                                                                   \
#name, offsetof(lt_checkpoint_state, name), type, true, NOTHING \
    }
#define NOISE(name, type)                                                              \
    {                                                                                  \
        "noise_" #name, offsetof(lt_checkpoint_state, noise.name), type, true, NOTHING \
    }
#define TASK(given)                \
    {                              \
        "", 0, GIVEN, false, given \
    }

static const field fields[] = {
    FIELD(step, INT64),
    FIELD(epoch, INT64),
    FIELD(batch, INT64),
    TASK(COUNT),
    FIELD(seed, UINT64),
    FIELD(loss_scale, DOUBLE),
    TASK(BEST),
    FIELD(best_step, INT64),
    FIELD(seconds, DOUBLE),
    TASK(SUMS),
    FIELD(epoch_seconds, DOUBLE),
    TASK(EPOCH_COUNT),
    FIELD(ema_updates, INT64),
    TASK(TEXTS),
    FIELD(optim, NAME),
    TASK(NUMBERS),
    FIELD(ranks, INT),
    FIELD(threads, INT),
    FIELD(global_batch, INT64),
    ADDED(loss_good_steps, INT),
    ADDED(epoch_recorded, INT),
    FIELD(data_samples, INT64_OR_0),
    FIELD(data_hash, INT64_OR_0),
    FIELD(data_bytes, INT64_OR_0),
    ADDED(run, NAME),
    FIELD(epoch_unused, INT64_OR_0),
    FIELD(epoch_loss_missing, DOUBLE_OR_0),
    NOISE(square, DOUBLE_OR_0),
    NOISE(trace, DOUBLE_OR_0),
    NOISE(count, INT64_OR_0),
    TASK(LATER),
};
#undef FIELD
#undef ADDED
#undef NOISE
#undef TASK

enum { FIELDS = sizeof fields / sizeof *fields, KEY = LT_CHECKPOINT_KEY };

static const char plain_unit[] = "samples", first_unit[] = "images";

/* Members that are no state. */
static const char *const others[] = {"format", "unit", "version", "numbers", "files", "crc32c"};

static bool is_fixed(const char *key)
{
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!strcmp(others[i], key))
            return true;
    for (int i = 0; i < FIELDS; i++)
        if (!strcmp(fields[i].key, key))
            return true;
    return lt_processor_has(key);
}

static const char *unit_of(const lt_checkpoint_state *state)
{
    return *state->unit ? state->unit : plain_unit;
}

static const char *join(char key[KEY], const char *prefix, const char *name)
{
    snprintf(key, KEY, "%s%s", prefix, name);
    return key;
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

/* JSON has no infinity and no NaN, a run that diverged has: as text. */
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
        put_double(w, join(key, "epoch_", state->sum[i].name), state->sum[i].value);
}

static void put_facts(lt_json_writer *w, const lt_checkpoint_state *state, given which)
{
    for (int i = 0; i < state->facts; i++) {
        const lt_checkpoint_fact *f = &state->fact[i];
        if (which != (f->later ? LATER : f->is_number ? NUMBERS : TEXTS))
            continue;
        if (f->is_number)
            lt_json_put_integer(w, f->key, f->number);
        else
            lt_json_put_string(w, f->key, f->text);
    }
}

static void put_given(lt_json_writer *w, given which, const lt_checkpoint_state *state)
{
    char key[KEY];
    switch (which) {
    case COUNT:
        lt_json_put_integer(w, unit_of(state), state->samples);
        break;
    case EPOCH_COUNT:
        lt_json_put_integer(w, join(key, "epoch_", unit_of(state)), state->epoch_samples);
        break;
    case BEST:
        if (*state->best_name)
            put_double(w, join(key, "best_", state->best_name), state->best);
        break;
    case SUMS:
        put_sums(w, state);
        break;
    case TEXTS:
    case NUMBERS:
    case LATER:
        put_facts(w, state, which);
        break;
    case NOTHING:
        break;
    }
}

static void put_field(lt_json_writer *w, const field *f, const lt_checkpoint_state *state)
{
    const void *at = (const char *)state + f->offset;
    char text[32];
    switch (f->type) {
    case INT64:
        lt_json_put_integer(w, f->key, *(const int64_t *)at);
        break;
    case INT64_OR_0:
        if (*(const int64_t *)at)
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
    case DOUBLE_OR_0:
        if (*(const double *)at != 0)
            put_double(w, f->key, *(const double *)at);
        break;
    case NAME:
        lt_json_put_string(w, f->key, at);
        break;
    case GIVEN:
        put_given(w, f->given, state);
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
    switch (f->type) {
    case INT64:
        return lt_json_integer(root, f->key, at);
    case INT64_OR_0:
        *(int64_t *)at = 0;
        return lt_json_member(root, f->key) ? lt_json_integer(root, f->key, at) : LT_OK;
    case INT:
        if (!f->later || lt_json_member(root, f->key))
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
    case DOUBLE_OR_0:
        *(double *)at = 0;
        return lt_json_member(root, f->key) ? get_double(root, f->key, at) : LT_OK;
    case NAME:
        if (!f->later || lt_json_member(root, f->key))
            LT_TRY(lt_json_string(root, f->key, &text));
        snprintf(at, LT_CHECKPOINT_NAME, "%s", text ? text : "");
        return LT_OK;
    case GIVEN: /* get_given() */
        return LT_OK;
    }
    return LT_OK;
}

static lt_status get_unit(const lt_json_value *root, lt_checkpoint_state *state)
{
    const char *unit = first_unit;
    char key[KEY];
    if (lt_json_member(root, "unit"))
        LT_TRY(lt_json_string(root, "unit", &unit));
    snprintf(state->unit, sizeof state->unit, "%s", unit);
    if (strlen(unit) >= sizeof state->unit || is_fixed(unit) || is_fixed(join(key, "epoch_", unit)))
        return lt_fail(LT_E_FORMAT, "'unit' is no name of samples");
    LT_TRY(lt_json_integer(root, unit, &state->samples));
    return lt_json_integer(root, join(key, "epoch_", unit), &state->epoch_samples);
}

static lt_status get_fact(const lt_json_value *v, bool later, lt_checkpoint_state *state)
{
    if (state->facts == LT_CHECKPOINT_FACTS
        || (v->type != LT_JSON_STRING && v->type != LT_JSON_NUMBER))
        return LT_OK; /* of a later version */
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

/* What the task gave, in the order of the file. */
static lt_status get_given(const lt_json_value *root, lt_checkpoint_state *state)
{
    char samples[KEY];
    bool later = false;
    join(samples, "epoch_", state->unit);
    for (const lt_json_value *v = root->child; v; v = v->next) {
        later = later || !strcmp(v->key, "ranks"); /* in front of which the other facts are */
        if (is_fixed(v->key) || !strcmp(v->key, state->unit) || !strcmp(v->key, samples))
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

/* Checksums of files. */

static lt_status sum_file(const char *path, int64_t *bytes, uint32_t *crc)
{
    FILE *file;
    LT_TRY(lt_file_open(&file, path));
    unsigned char *buffer = lt_alloc(READ_BYTES, 1);
    lt_status st = buffer ? LT_OK : LT_E_NOMEM;
    *bytes = 0;
    *crc = 0;
    for (size_t got = 1; !st && got;) {
        got = fread(buffer, 1, READ_BYTES, file);
        *crc = lt_crc32c(*crc, buffer, got);
        *bytes += (int64_t)got;
    }
    if (!st && ferror(file))
        st = lt_fail(LT_E_IO, "%s: %s", path, strerror(errno));
    lt_free(buffer);
    fclose(file);
    return st;
}

static lt_status put_file(lt_json_writer *w, const char *folder, const char *name)
{
    char *path = lt_format("%s/%s", folder, name);
    if (!path)
        return LT_E_NOMEM;
    int64_t bytes = 0;
    uint32_t crc = 0;
    char text[16];
    lt_status st = sum_file(path, &bytes, &crc);
    lt_free(path);
    LT_TRY(st);
    snprintf(text, sizeof text, "%08x", crc);
    lt_json_begin_object(w, name);
    lt_json_put_integer(w, "bytes", bytes);
    lt_json_put_string(w, "crc32c", text);
    lt_json_end(w);
    return LT_OK;
}

static lt_status check_file(const char *folder, const lt_json_value *v)
{
    if (strchr(v->key, '/'))
        return lt_fail(LT_E_FORMAT, "%s: file name '%s'", folder, v->key);
    int64_t want = 0, have = 0;
    uint32_t crc = 0;
    const char *want_crc = NULL;
    LT_TRY(lt_json_integer(v, "bytes", &want));
    LT_TRY(lt_json_string(v, "crc32c", &want_crc));
    char *path = lt_format("%s/%s", folder, v->key);
    lt_status st = path ? sum_file(path, &have, &crc) : LT_E_NOMEM;
    char text[16];
    snprintf(text, sizeof text, "%08x", crc);
    if (!st && have != want)
        st = lt_fail(LT_E_FORMAT, "%s: %" PRId64 " bytes, want %" PRId64 ": damaged", path, have,
                     want);
    else if (!st && strcmp(text, want_crc) != 0)
        st = lt_fail(LT_E_FORMAT, "%s: checksum %s, want %s: damaged", path, text, want_crc);
    lt_free(path);
    return st;
}

/* Writing. */

static lt_status skip_entry(void *context, const lt_state_entry *entry)
{
    (void)context;
    (void)entry;
    return LT_OK;
}

static lt_status put_number(void *context, const char *name, int64_t *value)
{
    lt_json_put_integer(context, name, *value);
    return LT_OK;
}

/* A name that the reader would take for something else, or find twice. */
static lt_status check_names(const lt_checkpoint_state *state)
{
    char key[KEY];
    for (int i = 0; i < state->facts; i++) {
        const char *name = state->fact[i].key;
        if (is_fixed(name) || !strcmp(name, unit_of(state)) || !strncmp(name, "best_", 5)
            || !strncmp(name, "epoch_", 6)
            || lt_checkpoint_find_fact(state, name) != &state->fact[i])
            return lt_fail(LT_E_ARG, "checkpoint: a fact cannot be named '%s'", name);
    }
    for (int i = 0; i < state->sums; i++)
        if (is_fixed(join(key, "epoch_", state->sum[i].name))
            || !strcmp(state->sum[i].name, unit_of(state)))
            return lt_fail(LT_E_ARG, "checkpoint: a sum cannot be named '%s'", state->sum[i].name);
    return LT_OK;
}

static lt_status put_all(lt_json_writer *w, const char *folder, const lt_checkpoint_parts *parts,
                         const lt_checkpoint_state *state)
{
    LT_TRY(check_names(state));
    lt_json_begin_object(w, NULL);
    lt_json_put_integer(w, "format", VERSION);
    for (int i = 0; i < FIELDS; i++)
        put_field(w, &fields[i], state);
    if (strcmp(unit_of(state), first_unit) != 0)
        lt_json_put_string(w, "unit", unit_of(state));
    lt_json_put_string(w, "version", lt_version());
    lt_processor_put(w);
    lt_json_begin_object(w, "numbers");
    lt_state_visitor visitor = {.entry = skip_entry, .number = put_number, .context = w};
    if (parts->optim)
        LT_TRY(lt_optim_visit(parts->optim, &visitor));
    if (parts->local)
        LT_TRY(lt_local_steps_visit(parts->local, &visitor));
    lt_json_end(w);
    lt_json_begin_object(w, "files");
    LT_TRY(put_file(w, folder, LT_CHECKPOINT_MODEL));
    LT_TRY(put_file(w, folder, LT_CHECKPOINT_OPTIM));
    lt_json_end(w);
    lt_json_end(w);
    return LT_OK;
}

static lt_status write_text(const char *folder, const char *text, size_t bytes)
{
    char *path = lt_format("%s/%s", folder, LT_CHECKPOINT_STATE);
    if (!path)
        return LT_E_NOMEM;
    FILE *file = NULL;
    bool failed = lt_shared_stream(&file, path, 'w') || fwrite(text, 1, bytes, file) != bytes
                  || fprintf(file, ",\"crc32c\":\"%08x\"}\n", lt_crc32c(0, text, bytes)) != TAIL;
    if ((file && fclose(file)) || failed)
        failed = true;
    lt_status st = failed ? lt_fail(LT_E_IO, "%s: %s", path, strerror(errno)) : LT_OK;
    lt_free(path);
    return st;
}

lt_status lt_checkpoint_write_state(const char *folder, const lt_checkpoint_parts *parts,
                                    const lt_checkpoint_state *state)
{
    lt_json_writer w = {0};
    const char *text = NULL;
    size_t bytes = 0;
    lt_status st = put_all(&w, folder, parts, state);
    if (!st)
        st = lt_json_text(&w, &text, &bytes);
    if (!st)
        st = write_text(folder, text, bytes - 1); /* the closing brace comes behind the sum */
    lt_json_writer_clear(&w);
    return st;
}

/* Reading. */

static lt_status check_tail(const char *path, const char *text, size_t bytes)
{
    char tail[TAIL + 1];
    if (bytes < TAIL)
        return lt_fail(LT_E_FORMAT, "%s: %zu bytes: truncated", path, bytes);
    snprintf(tail, sizeof tail, ",\"crc32c\":\"%08x\"}\n", lt_crc32c(0, text, bytes - TAIL));
    if (memcmp(tail, text + bytes - TAIL, TAIL) != 0)
        return lt_fail(LT_E_FORMAT, "%s: its checksum does not fit: damaged", path);
    return LT_OK;
}

static lt_status other_format(const lt_json_value *root, int64_t format)
{
    const char *version = "an unknown version";
    char shown[128];
    if (lt_json_member(root, "version"))
        LT_TRY(lt_json_string(root, "version", &version));
    return lt_fail(LT_E_FORMAT,
                   "format %" PRId64
                   ", written by lather %s; this build, %s, reads %d: go on with the "
                   "version that wrote it, or take the weights of the checkpoint with --weights",
                   format, lt_text_escape(shown, sizeof shown, version), lt_version(), VERSION);
}

static lt_status get_all(const char *folder, const lt_json_value *root, lt_checkpoint_state *state)
{
    int64_t format = 0;
    LT_TRY(lt_json_integer(root, "format", &format));
    if (format != VERSION)
        return other_format(root, format);
    for (int i = 0; i < FIELDS; i++)
        LT_TRY(get_field(root, &fields[i], state));
    LT_TRY(get_unit(root, state));
    LT_TRY(get_given(root, state));
    LT_TRY(lt_checkpoint_check_state(state));
    LT_TRY(lt_checkpoint_check_numbers(lt_json_member(root, "numbers"), state->step));
    const lt_json_value *files = lt_json_member(root, "files");
    if (!lt_json_member(files, LT_CHECKPOINT_MODEL) || !lt_json_member(files, LT_CHECKPOINT_OPTIM))
        return lt_fail(LT_E_FORMAT, "no checksums of both files");
    for (const lt_json_value *v = files->child; v; v = v->next)
        LT_TRY(check_file(folder, v));
    return LT_OK;
}

lt_status lt_checkpoint_read_state(const char *folder, lt_json **json, lt_checkpoint_state *state)
{
    char *path = lt_format("%s/%s", folder, LT_CHECKPOINT_STATE);
    char *text = NULL;
    size_t bytes = 0;
    lt_json *j = NULL;
    lt_checkpoint_state s = {0};
    lt_status st = path ? lt_json_read_file(path, &text, &bytes) : LT_E_NOMEM;
    if (!st)
        st = check_tail(path, text, bytes);
    if (!st)
        st = lt_json_parse(&j, text, bytes, path, 8);
    if (!st) {
        st = get_all(folder, lt_json_root(j), &s);
        if (st && !strstr(lt_error_message(), folder))
            st = lt_fail(st, "%s: %s", path, lt_error_message());
    }
    lt_free(text);
    lt_free(path);
    if (st) {
        lt_json_free(&j);
        return st;
    }
    *json = j;
    *state = s;
    return LT_OK;
}

lt_status lt_checkpoint_verify(const char *path, lt_checkpoint_state *state)
{
    lt_json *json = NULL;
    LT_TRY(lt_checkpoint_read_state(path, &json, state));
    lt_json_free(&json);
    return LT_OK;
}
