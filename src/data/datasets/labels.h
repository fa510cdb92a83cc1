/* Label files: the class of each image in a folder. */
#ifndef LT_DATA_LABELS_H
#define LT_DATA_LABELS_H

#include "lather/ext/fail.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct lt_label {
    char *file;       /* file name; NULL in all lines of a file that has labels only */
    const char *text; /* the label as text, as in the file */
    int32_t label;
    int line; /* number of the line, from 1 */
} lt_label;

typedef struct lt_labels {
    lt_label *line;
    size_t count; /* number of lines, at least 1 */
    char *text;   /* contents of the file; lines point into it */
} lt_labels;

/* Reads a label file. name: class names; not used if NULL or if one of them is NULL. classes: number of classes; 0
 * accepts any number as a label. Errors: LT_E_IO; LT_E_FORMAT with file and line. */
lt_status lt_labels_read(lt_labels *out, const char *path, const char *const *name, int classes);
void lt_labels_clear(lt_labels *labels);

#endif
