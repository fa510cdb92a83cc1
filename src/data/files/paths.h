/* Lists of paths. */
#ifndef LT_DATA_PATHS_H
#define LT_DATA_PATHS_H

#include "lather/status.h"

#include <stdbool.h>
#include <stddef.h>

/* A list of paths that it owns. Starts as {0}; free with lt_free_texts(path, count). */
typedef struct lt_paths {
    char **path;
    size_t count, capacity;
} lt_paths;

/* Appends path and takes ownership of it, even on failure. Errors: LT_E_NOMEM, also if path is NULL. */
lt_status lt_paths_add(lt_paths *list, char *path);

/* Sorts the paths from begin on, bytewise. */
void lt_paths_sort(lt_paths *list, size_t begin);

/* Selects the files below a folder by name (last component of the path). */
typedef struct lt_paths_rule {
    bool (*is_wanted)(const char *name); /* returns true for names of files to list */
    bool (*is_hidden)(
        const char *name); /* called for files and folders; true skips a folder as a whole */
    /* true: lists unreadable folders, and the folder itself if it has no file to list, so that reading them reports the
     * error later. false: an unreadable folder is LT_E_IO. */
    bool keep_empty;
} lt_paths_rule;

/* Appends the files below a folder (or a link to one), sorted bytewise. Links to folders below it are not followed:
 * they may form cycles. Errors: LT_E_IO, LT_E_NOMEM. */
lt_status lt_paths_add_below(lt_paths *list, const char *folder, const lt_paths_rule *rule);

#endif
