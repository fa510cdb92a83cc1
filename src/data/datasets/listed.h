/* A data set of listed image files. */
#ifndef LT_DATA_LISTED_H
#define LT_DATA_LISTED_H

#include "lather/ext/dataset.h"

typedef struct lt_listed {
    lt_dataset base;
    char **path; /* [count] */
    size_t capacity;
    int32_t *label; /* [count]; NULL: all are 0 */
    char **kind;    /* [classes]; NULL: they have no names */
} lt_listed;

/* Without files. Errors: LT_E_NOMEM. */
lt_status lt_listed_new(lt_dataset **out, int classes, int channels);
/* Adds a file; owns path from now on. Errors: LT_E_NOMEM, also where path is NULL. */
lt_status lt_listed_add(lt_listed *list, char *path);

#endif
