/* A data set of listed image files. */
#ifndef LT_DATA_LISTED_H
#define LT_DATA_LISTED_H

#include "data/files/paths.h"

#include "lather/ext/dataset.h"

typedef struct lt_listed {
    lt_dataset base;
    lt_paths files;
    int32_t *label; /* [count]; NULL: all are 0 */
    char **kind;    /* [classes]; NULL: they have no names */
} lt_listed;

/* Without files, whose number the caller sets. Errors: LT_E_NOMEM. */
lt_status lt_listed_new(lt_dataset **out, int classes, int channels);

#endif
