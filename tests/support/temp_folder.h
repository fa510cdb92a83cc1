/* The temporary folder of a row: made by temp_setup, removed by temp_teardown. */
#ifndef LT_TESTS_TEMP_FOLDER_H
#define LT_TESTS_TEMP_FOLDER_H

#include "temp.h"

#include <dirent.h>
#include <stdbool.h>
#include <sys/stat.h>

static char folder[TEMP_PATH];

static inline int temp_setup(void **state)
{
    (void)state;
    temp_make(folder);
    return 0;
}

static inline int temp_teardown(void **state)
{
    (void)state;
    temp_remove(folder);
    return 0;
}

/* Returns true if FOLDER/name exists, even as a dangling link. */
static inline bool temp_exists(const char *name)
{
    char path[TEMP_PATH];
    struct stat info;
    return !lstat(temp_path(path, folder, name), &info);
}

/* Entries of PARENT/name, which must be there. */
static inline int temp_count(const char *parent, const char *name)
{
    char path[TEMP_PATH];
    int count = 0;
    DIR *dir = opendir(temp_path(path, parent, name));
    assert_non_null(dir);
    while (readdir(dir))
        count++;
    closedir(dir);
    return count - 2; /* . and .. */
}

#endif
