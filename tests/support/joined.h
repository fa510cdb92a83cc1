/* Comparison of checkpoints whose files may be in parts. */
#ifndef LT_TESTS_JOINED_H
#define LT_TESTS_JOINED_H

#include "temp_folder.h"

#include "lather/safetensors.h"

/* Writes RUN/checkpoints/latest/NAME, joined, to a file of the row's folder; returns its path. */
static inline const char *joined(char *path, const char *run, const char *name, const char *to)
{
    char under[64], from[TEMP_PATH];
    snprintf(under, sizeof under, "checkpoints/latest/%s", name);
    assert_ok(lt_safetensors_join(temp_path(from, run, under), temp_path(path, folder, to)));
    return path;
}

/* Returns true if the latest checkpoints of two runs have the same bytes in a file, once its parts are joined. */
static inline bool joined_same(const char *a, const char *b, const char *name)
{
    char x[TEMP_PATH], y[TEMP_PATH];
    return temp_same(joined(x, a, name, "joined-a"), joined(y, b, name, "joined-b"));
}

/* Returns true if they have the same numbers in state.json, apart from format, sizes and checksums. */
static inline bool joined_same_state(const char *a, const char *b)
{
    const char *const runs[] = {a, b}, *from[2], *to[2];
    char *text[2], path[TEMP_PATH];
    size_t bytes;
    for (int i = 0; i < 2; i++) {
        text[i] = temp_read(temp_path(path, runs[i], "checkpoints/latest/state.json"), &bytes);
        from[i] = strchr(text[i], ',');
        to[i] = strstr(text[i], "\"files\"");
        assert_true(from[i] && to[i] && from[i] < to[i]);
    }
    const bool same =
        to[0] - from[0] == to[1] - from[1] && !memcmp(from[0], from[1], (size_t)(to[0] - from[0]));
    free(text[0]);
    free(text[1]);
    return same;
}

/* Returns true if a file of the latest checkpoint is in parts. */
static inline bool is_in_parts(const char *run, const char *name)
{
    char under[80], path[TEMP_PATH];
    struct stat info;
    snprintf(under, sizeof under, "checkpoints/latest/%s.index.json", name);
    return !stat(temp_path(path, run, under), &info);
}

#endif
