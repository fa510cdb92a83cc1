/* state.json of a checkpoint. Its last member is the CRC-32C of the text in front of it, so that a
 * flipped bit is found in this file too. */

#include "base/alloc.h"
#include "base/crc32c.h"
#include "base/file.h"
#include "train/checkpoint.h"
#include "train/machine.h"

#include "lather/log.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { VERSION = 1, READ_BYTES = 1 << 20, TAIL = 22 }; /* TAIL: ,"crc32c":"01234567"}\n */

typedef enum field_type { INT64, INT, UINT64, DOUBLE, NAME } field_type;

typedef struct field {
    const char *key;
    size_t offset;
    field_type type;
    bool later; /* files of earlier versions lack it: it is -1, a name is "" */
} field;

#define FIELD(name, type)                                       \
    {                                                           \
#name, offsetof(lt_checkpoint_state, name), type, false \
    }

static const field fields[] = {
    FIELD(step, INT64),
    FIELD(epoch, INT64),
    FIELD(batch, INT64),
    FIELD(images, INT64),
    FIELD(seed, UINT64),
    FIELD(loss_scale, DOUBLE),
    FIELD(best_top1, DOUBLE),
    FIELD(best_step, INT64),
    FIELD(seconds, DOUBLE),
    FIELD(epoch_loss, DOUBLE),
    FIELD(epoch_correct, DOUBLE),
    FIELD(epoch_seconds, DOUBLE),
    FIELD(epoch_images, INT64),
    FIELD(ema_updates, INT64),
    FIELD(arch, NAME),
    FIELD(optim, NAME),
    FIELD(classes, INT),
    FIELD(ranks, INT),
    FIELD(threads, INT),
    FIELD(global_batch, INT64),
    {"loss_good_steps", offsetof(lt_checkpoint_state, loss_good_steps), INT, true},
    {"epoch_recorded", offsetof(lt_checkpoint_state, epoch_recorded), INT, true},
    {"run", offsetof(lt_checkpoint_state, run), NAME, true},
    {"network", offsetof(lt_checkpoint_state, network), NAME, true},
};

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

static void put_field(lt_json_writer *w, const field *f, const void *state)
{
    const void *at = (const char *)state + f->offset;
    char text[32];
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
    case NAME:
        if (!f->later || lt_json_member(root, f->key))
            LT_TRY(lt_json_string(root, f->key, &text));
        snprintf(at, LT_CHECKPOINT_NAME, "%s", text ? text : "");
        return LT_OK;
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

static lt_status put_all(lt_json_writer *w, const char *folder, const lt_checkpoint_parts *parts,
                         const lt_checkpoint_state *state)
{
    char cpu[128];
    lt_json_begin_object(w, NULL);
    lt_json_put_integer(w, "format", VERSION);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        put_field(w, &fields[i], state);
    lt_json_put_string(w, "version", lt_version());
    lt_json_put_string(w, "cpu", lt_machine_cpu(cpu, sizeof cpu));
    lt_json_begin_object(w, "numbers");
    lt_state_visitor visitor = {.entry = skip_entry, .number = put_number, .context = w};
    if (parts->optim)
        LT_TRY(lt_optim_visit(parts->optim, &visitor));
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
    FILE *file = fopen(path, "wb");
    bool failed = !file || fwrite(text, 1, bytes, file) != bytes
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

static lt_status get_all(const char *folder, const lt_json_value *root, lt_checkpoint_state *state)
{
    int64_t version = 0;
    LT_TRY(lt_json_integer(root, "format", &version));
    if (version != VERSION)
        return lt_fail(LT_E_FORMAT, "format %" PRId64 ", this build reads %d", version, VERSION);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        LT_TRY(get_field(root, &fields[i], state));
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
