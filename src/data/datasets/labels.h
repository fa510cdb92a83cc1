/* Label files: the class of each image in a folder. */
#ifndef LT_DATA_LABELS_H
#define LT_DATA_LABELS_H

#include "lather/ext/fail.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct lt_label {
    char *file;       /* NULL in a file of labels alone: of all lines, or of none */
    const char *text; /* as it was written */
    int32_t label;
    int number; /* of the line */
} lt_label;

typedef struct lt_labels {
    lt_label *line;
    size_t count; /* >= 1 */
    char *text;   /* what the lines point into */
} lt_labels;

/* name: of the classes; NULL, or one of them NULL: they have none. classes 0: any number is a
 * label. Errors: LT_E_IO; LT_E_FORMAT, naming file and line. */
lt_status lt_labels_read(lt_labels *out, const char *path, const char *const *name, int classes);
void lt_labels_clear(lt_labels *labels);

#endif
