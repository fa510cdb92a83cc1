/* state.json of a checkpoint: the fields of a run, the optimizer's numbers, and the checksums of the other files.
 * Its last member is the CRC-32C of the text before it, so that a flipped bit in this file is found too. */

#include "base/alloc.h"
#include "base/encoding/crc32c.h"
#include "base/file.h"
#include "base/shared_file.h"
#include "checkpoint.h"
#include "entry.h"
#include "optim/slots.h"
#include "tensor/safetensors.h"
#include "train/run/plugins.h"
#include "train/run/processor.h"

#include "lather/detail/text.h"
#include "lather/ext/fail.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { WHOLE = 1, IN_PARTS };             /* format: all files are whole; a file is in parts */
enum { READ_BYTES = 1 << 20, TAIL = 22 }; /* TAIL: ,"crc32c":"01234567"}\n */

/* --- Checksums of files --- */

lt_status lt_checkpoint_sum_file(const char *path, int64_t *bytes, uint32_t *crc)
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

void lt_checkpoint_put_sum(lt_json_writer *w, const char *name, int64_t bytes, uint32_t crc)
{
    char text[16];
    snprintf(text, sizeof text, "%08x", crc);
    lt_json_begin_object(w, name);
    lt_json_put_integer(w, "bytes", bytes);
    lt_json_put_string(w, "crc32c", text);
    lt_json_end(w);
}

/* The names that a file may have: whole, or the index of its parts. */
static const char *const file_names[2][2] = {
    {LT_CHECKPOINT_MODEL, LT_CHECKPOINT_MODEL LT_INDEX_ENDING},
    {LT_CHECKPOINT_OPTIM, LT_CHECKPOINT_OPTIM LT_INDEX_ENDING}};

static bool is_in_parts(const char *folder, int file)
{
    char path[PATH_MAX];
    return snprintf(path, sizeof path, "%s/%s", folder, file_names[file][1]) < PATH_MAX
           && !access(path, F_OK);
}

static lt_status put_file_checksum(lt_json_writer *w, const char *folder, int file)
{
    const char *name = file_names[file][is_in_parts(folder, file)];
    char *path = lt_format("%s/%s", folder, name);
    int64_t bytes = 0;
    uint32_t crc = 0;
    lt_status st = path ? lt_checkpoint_sum_file(path, &bytes, &crc) : LT_E_NOMEM;
    lt_free(path);
    if (!st)
        lt_checkpoint_put_sum(w, name, bytes, crc);
    return st;
}

static lt_status check_file_checksum(const char *folder, const lt_json_value *v)
{
    if (strchr(v->key, '/'))
        return lt_fail(LT_E_FORMAT, "%s: file name '%s'", folder, v->key);
    int64_t want = 0, have = 0;
    uint32_t crc = 0;
    const char *want_crc = NULL;
    LT_TRY(lt_json_integer(v, "bytes", &want));
    LT_TRY(lt_json_string(v, "crc32c", &want_crc));
    char *path = lt_format("%s/%s", folder, v->key);
    lt_status st = path ? lt_checkpoint_sum_file(path, &have, &crc) : LT_E_NOMEM;
    char text[16];
    snprintf(text, sizeof text, "%08x", crc);
    if (!st && have != want)
        st = lt_fail(LT_E_FORMAT, "%s: %" PRId64 " bytes, expected %" PRId64 ": damaged", path,
                     have, want);
    else if (!st && strcmp(text, want_crc) != 0)
        st = lt_fail(LT_E_FORMAT, "%s: checksum %s, expected %s: damaged", path, text, want_crc);
    lt_free(path);
    return st;
}

/* Checks the parts of an index: which checkpoint they are of, then their checksums. */
static lt_status check_parts(const char *folder, const char *name)
{
    lt_json *json = NULL;
    lt_safetensors *parts = NULL;
    char *index = lt_format("%s/%s", folder, name);
    lt_status st = index ? lt_safetensors_open(&parts, index) : LT_E_NOMEM;
    lt_safetensors_close(&parts);
    if (!st)
        st = lt_json_load(&json, index);
    const lt_json_value *metadata = st ? NULL : lt_json_member(lt_json_root(json), "metadata"),
                        *files = lt_json_member(metadata, LT_PART_FILES);
    for (const lt_json_value *v = files ? files->child : NULL; v && !st; v = v->next)
        st = check_file_checksum(folder, v);
    lt_json_free(&json);
    lt_free(index);
    return st;
}

/* --- Writing state.json --- */

static lt_status put_number(void *context, const char *name, int64_t *value)
{
    lt_json_put_integer(context, name, *value);
    return LT_OK;
}

static lt_status put_state(lt_json_writer *w, const char *folder,
                           const lt_checkpoint_contents *parts, const lt_checkpoint_state *state)
{
    lt_json_begin_object(w, NULL);
    lt_json_put_integer(w, "format",
                        is_in_parts(folder, 0) || is_in_parts(folder, 1) ? IN_PARTS : WHOLE);
    LT_TRY(lt_checkpoint_put_fields(w, state));
    lt_json_put_string(w, "version", lt_version());
    lt_processor_write_json(w, state->reproducible);
    lt_plugins_write_json(w);
    lt_json_begin_object(w, "numbers");
    lt_state_visitor visitor = {.entry = lt_skip_entry, .number = put_number, .context = w};
    if (parts->optim)
        LT_TRY(lt_optim_visit(parts->optim, &visitor));
    if (parts->local)
        LT_TRY(lt_local_steps_visit(parts->local, &visitor));
    lt_json_end(w);
    lt_json_begin_object(w, "files");
    LT_TRY(put_file_checksum(w, folder, 0));
    LT_TRY(put_file_checksum(w, folder, 1));
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
    bool failed = lt_shared_open_stream(&file, path, 'w') || fwrite(text, 1, bytes, file) != bytes
                  || fprintf(file, ",\"crc32c\":\"%08x\"}\n", lt_crc32c(0, text, bytes)) != TAIL;
    if ((file && fclose(file)) || failed)
        failed = true;
    lt_status st = failed ? lt_fail(LT_E_IO, "%s: %s", path, strerror(errno)) : LT_OK;
    lt_free(path);
    return st;
}

lt_status lt_checkpoint_write_state(const char *folder, const lt_checkpoint_contents *parts,
                                    const lt_checkpoint_state *state)
{
    lt_json_writer w = {0};
    const char *text = NULL;
    size_t bytes = 0;
    lt_status st = put_state(&w, folder, parts, state);
    if (!st)
        st = lt_json_text(&w, &text, &bytes);
    if (!st)
        st = write_text(folder, text, bytes - 1); /* the closing brace comes after the sum */
    lt_json_writer_clear(&w);
    return st;
}

/* --- Reading state.json --- */

static lt_status check_state_checksum(const char *path, const char *text, size_t bytes)
{
    char tail[TAIL + 1];
    if (bytes < TAIL)
        return lt_fail(LT_E_FORMAT, "%s: %zu bytes: truncated", path, bytes);
    snprintf(tail, sizeof tail, ",\"crc32c\":\"%08x\"}\n", lt_crc32c(0, text, bytes - TAIL));
    if (memcmp(tail, text + bytes - TAIL, TAIL) != 0)
        return lt_fail(LT_E_FORMAT, "%s: its checksum does not match: damaged", path);
    return LT_OK;
}

static lt_status fail_other_format(const lt_json_value *root, int64_t format)
{
    const char *version = "an unknown version";
    char shown[128];
    if (lt_json_member(root, "version"))
        LT_TRY(lt_json_string(root, "version", &version));
    return lt_fail(LT_E_FORMAT,
                   "format %" PRId64
                   ", written by lather %s; this build, %s, reads %d: resume with the "
                   "version that wrote it, or start from the checkpoint's weights with --weights",
                   format, lt_text_escape(shown, sizeof shown, version), lt_version(), IN_PARTS);
}

/* Checks the ranges of the optimizer's numbers after `step` steps; numbers may be NULL. */
static lt_status check_numbers(const lt_json_value *numbers, int64_t step)
{
    for (const lt_json_value *v = numbers ? numbers->child : NULL; v; v = v->next) {
        char name[256];
        int64_t low, high;
        lt_text_escape(name, sizeof name, v->key);
        if (!v->is_integer)
            return lt_fail(LT_E_FORMAT, "'%s' is not a 64-bit integer", name);
        lt_optim_counter_range(v->key, step, &low, &high);
        LT_TRY(lt_checkpoint_check_range(name, v->integer, low, high));
    }
    return LT_OK;
}

static lt_status get_state(const char *folder, const lt_json_value *root,
                           lt_checkpoint_state *state)
{
    int64_t format = 0;
    LT_TRY(lt_json_integer(root, "format", &format));
    if (format != WHOLE && format != IN_PARTS)
        return fail_other_format(root, format);
    LT_TRY(lt_checkpoint_get_fields(root, state));
    LT_TRY(check_numbers(lt_json_member(root, "numbers"), state->step));
    const lt_json_value *files = lt_json_member(root, "files");
    for (int f = 0; f < 2; f++)
        if (!lt_json_member(files, file_names[f][0]) && !lt_json_member(files, file_names[f][1]))
            return lt_fail(LT_E_FORMAT, "the checksums of both files are missing");
    for (const lt_json_value *v = files->child; v; v = v->next) {
        LT_TRY(check_file_checksum(folder, v));
        if (strstr(v->key, LT_INDEX_ENDING))
            LT_TRY(check_parts(folder, v->key));
    }
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
        st = check_state_checksum(path, text, bytes);
    if (!st)
        st = lt_json_parse(&j, text, bytes, path, 8);
    if (!st) {
        st = get_state(folder, lt_json_root(j), &s);
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
