/* Lists of paths, and the files below a folder. */
#ifndef LT_DATA_PATHS_H
#define LT_DATA_PATHS_H

#include "lather/status.h"

#include <stdbool.h>
#include <stddef.h>

/* Starts as {0}; ends with lt_free_texts(path, count). */
typedef struct lt_paths {
    char **path;
    size_t count, capacity;
} lt_paths;

/* Owns path from now on. Errors: LT_E_NOMEM, also where path is NULL. */
lt_status lt_paths_add(lt_paths *list, char *path);

/* Which files below a folder are listed, by the last component of their path. */
typedef struct lt_paths_rule {
    bool (*is_wanted)(const char *name); /* of a file */
    bool (*is_hidden)(const char *name); /* of a file or a folder, with all below it */
    /* Folders that cannot be read are listed themselves, as is one without any file to list: reading
     * them fails with the reason. false: LT_E_IO, or nothing is listed. */
    bool folders;
} lt_paths_rule;

/* Adds the files below a folder, or a link to one, sorted bytewise. Links to folders below it are not
 * followed: they may form cycles or lead out of it. Errors: LT_E_IO, LT_E_NOMEM. */
lt_status lt_paths_below(lt_paths *list, const char *folder, const lt_paths_rule *rule);

#endif
