/* optim_stats.bin: writing, and truncation by a resumed run. */

#include "stats_file.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/shared_file.h"

#include "lather/detail/json.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { MAGIC = 8, PREFIX = 16, ALIGNED = 8 };
static const char magic[MAGIC + 1] = "LTSTATS1";

/* Returns the path of the file, or of the one that was moved aside as the number-th; NULL without memory. */
static char *path_of(const char *folder, int number)
{
    return number ? lt_format("%s/" LT_STATS_FILE ".%d.bin", folder, number)
                  : lt_format("%s/" LT_STATS_FILE ".bin", folder);
}

static lt_status io_error(const char *path)
{
    return lt_fail(LT_E_IO, "%s: %s", path, strerror(errno));
}

/* Reads the header's JSON with its padding, which the caller frees; NULL if it is cut off, as a kill leaves it. */
static lt_status read_header(FILE *file, const char *path, char **json, size_t *bytes)
{
    char prefix[PREFIX];
    uint64_t size = 0;
    const uint64_t most = (uint64_t)1 << 30;
    const size_t got = fread(prefix, 1, PREFIX, file);
    if (ferror(file))
        return io_error(path);
    memcpy(&size, prefix + MAGIC, got == PREFIX ? sizeof size : 0);
    if (memcmp(prefix, magic, got < MAGIC ? got : MAGIC) != 0 || size > most)
        return lt_fail(LT_E_FORMAT, "%s: not a file of --optim-stats; move it away", path);
    *bytes = size;
    *json = lt_alloc(1, size + 1);
    if (!*json)
        return LT_E_NOMEM;
    if (got < PREFIX || fread(*json, 1, size, file) < size) {
        lt_free(*json);
        *json = NULL;
    }
    return ferror(file) ? io_error(path) : LT_OK;
}

/* --- Truncation --- */

/* Returns the bytes of a record by a header's tables: rows times columns. */
static lt_status record_bytes_of(const char *json, size_t bytes, const char *path, size_t *out)
{
    lt_json *parsed;
    size_t width = 0;
    LT_TRY(lt_json_parse(&parsed, json, bytes, path, 8));
    const lt_json_value *tables = lt_json_member(lt_json_root(parsed), "tables");
    for (const lt_json_value *t = tables ? tables->child : NULL; t; t = t->next) {
        const lt_json_value *columns = lt_json_member(t, "columns"),
                            *rows = lt_json_member(t, "rows");
        width += columns && rows ? columns->count * rows->count : 0;
    }
    lt_json_free(&parsed);
    *out = sizeof(int64_t) + width * sizeof(float);
    return LT_OK;
}

/* Sets *end to the end of the last whole record up to step; 0: without a whole header. */
static lt_status find_end(FILE *file, const char *path, int64_t step, int64_t *end)
{
    size_t bytes, record = 0;
    int64_t number;
    char *json;
    *end = 0;
    LT_TRY(read_header(file, path, &json, &bytes));
    if (!json)
        return LT_OK;
    lt_status st = record_bytes_of(json, bytes, path, &record);
    lt_free(json);
    if (!st && fseek(file, 0, SEEK_END))
        st = io_error(path);
    const size_t size = (size_t)ftell(file);
    size_t at = PREFIX + bytes;
    for (; !st && at + record <= size; at += record) {
        if (fseek(file, (long)at, SEEK_SET) || fread(&number, sizeof number, 1, file) != 1)
            st = io_error(path);
        else if (number > step)
            break;
    }
    *end = (int64_t)at;
    return st;
}

/* Truncates a file after the records up to step; removes it at step 0 and without a whole header. */
static lt_status rewind_file(const char *path, int64_t step)
{
    FILE *file;
    int64_t end = 0;
    LT_TRY(lt_file_open(&file, path));
    lt_status st = find_end(file, path, step, &end);
    fclose(file);
    if (!st && (end && step ? truncate(path, (off_t)end) : unlink(path)))
        st = io_error(path);
    return st;
}

lt_status lt_stats_file_rewind(const char *folder, int64_t step)
{
    lt_status st = LT_OK;
    for (int n = 0, more = 1; more && !st; n++) {
        char *path = path_of(folder, n);
        if (!path)
            return LT_E_NOMEM;
        const int exists = !access(path, F_OK);
        if (exists)
            st = rewind_file(path, step);
        more = exists || n == 0;
        lt_free(path);
    }
    return st;
}

/* --- Writing --- */

/* Determines if the file has this header. */
static lt_status has_header(const char *path, const char *json, bool *same)
{
    FILE *file;
    char *found = NULL;
    const size_t length = strlen(json);
    size_t bytes;
    LT_TRY(lt_file_open(&file, path));
    const lt_status st = read_header(file, path, &found, &bytes);
    *same = found && !strncmp(found, json, length) && !found[length + strspn(found + length, " ")];
    fclose(file);
    lt_free(found);
    return st;
}

static bool write_header(FILE *file, const char *json)
{
    const uint64_t size = (strlen(json) + ALIGNED - 1) / ALIGNED * ALIGNED;
    return fwrite(magic, 1, MAGIC, file) == MAGIC && fwrite(&size, sizeof size, 1, file) == 1
           && fprintf(file, "%-*s", (int)size, json) == (int)size && !fflush(file);
}

/* Renames the file to the first free optim_stats.N.bin. */
static lt_status move_aside(const char *folder, const char *path)
{
    lt_status st = LT_OK;
    for (int n = 1, done = 0; !done && !st; n++) {
        char *to = path_of(folder, n);
        if (!to)
            return LT_E_NOMEM;
        done = access(to, F_OK) != 0;
        if (done && rename(path, to))
            st = io_error(to);
        lt_free(to);
    }
    return st;
}

lt_status lt_stats_file_open(FILE **out, const char *folder, const char *json)
{
    bool same = false;
    char *path = path_of(folder, 0);
    lt_status st = path ? LT_OK : LT_E_NOMEM;
    const bool exists = !st && !access(path, F_OK);
    if (exists)
        st = has_header(path, json, &same);
    if (!st && exists && !same)
        st = move_aside(folder, path);
    if (!st)
        st = lt_shared_open_stream(out, path, 'a');
    if (!st && !same && !write_header(*out, json)) {
        st = io_error(path);
        fclose(*out);
        *out = NULL;
    }
    lt_free(path);
    return st;
}

lt_status lt_stats_file_write(FILE *file, int64_t step, const float *value, size_t count)
{
    const bool ok = fwrite(&step, sizeof step, 1, file) == 1
                    && fwrite(value, sizeof *value, count, file) == count && !fflush(file);
    return ok ? LT_OK : lt_fail(LT_E_IO, LT_STATS_FILE ".bin: %s", strerror(errno));
}
