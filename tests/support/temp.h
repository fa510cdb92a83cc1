/* A fresh temporary folder for a test, and files in it. */
#ifndef LT_TESTS_TEMP_H
#define LT_TESTS_TEMP_H

#include "near.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TEMP_PATH = 512 };

/* Makes a folder under TMPDIR or /tmp; its path goes into folder of TEMP_PATH bytes. */
static inline void temp_make(char *folder)
{
    const char *base = getenv("TMPDIR");
    snprintf(folder, TEMP_PATH, "%s/lather-test-XXXXXX", base && *base ? base : "/tmp");
    assert_non_null(mkdtemp(folder));
}

static inline void temp_remove(const char *folder)
{
    char command[TEMP_PATH + 16];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    assert_int_equal(system(command), 0);
}

/* folder/name, into path of TEMP_PATH bytes. Returns path. */
static inline const char *temp_path(char *path, const char *folder, const char *name)
{
    assert_true(snprintf(path, TEMP_PATH, "%s/%s", folder, name) < TEMP_PATH);
    return path;
}

static inline void temp_write(const char *path, const void *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

/* Returns the whole file with a terminating NUL; the caller frees it. */
static inline char *temp_read(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    long size = ftell(file);
    assert_true(size >= 0);
    rewind(file);
    char *text = malloc((size_t)size + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, (size_t)size, file), (size_t)size);
    text[size] = 0;
    fclose(file);
    if (bytes)
        *bytes = (size_t)size;
    return text;
}

/* Returns true if two files have the same bytes. */
static inline bool temp_same(const char *a, const char *b)
{
    size_t bytes, others;
    char *one = temp_read(a, &bytes), *other = temp_read(b, &others);
    const bool same = bytes == others && !memcmp(one, other, bytes);
    free(one);
    free(other);
    return same;
}

/* The same of two files of a folder, as an assertion. */
static inline void temp_assert_same(const char *folder, const char *a, const char *b)
{
    char one[TEMP_PATH], other[TEMP_PATH];
    if (!temp_same(temp_path(one, folder, a), temp_path(other, folder, b)))
        fail_msg("%s and %s differ", one, other);
}

#endif
