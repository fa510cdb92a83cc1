/* A data set given by a list of image files. */
#ifndef LT_DATA_FILE_LIST_H
#define LT_DATA_FILE_LIST_H

#include "data/files/paths.h"

#include "lather/ext/dataset.h"

typedef struct lt_file_list {
    lt_dataset base;
    lt_paths files;
    int32_t *label;     /* [count] class of each file; NULL: all 0 */
    char **class_names; /* [classes] names, or NULL without names */
} lt_file_list;

/* Creates an empty list; the caller adds the files and sets base.count. Errors: LT_E_NOMEM. */
lt_status lt_file_list_new(lt_dataset **out, int classes, int channels);

#endif
