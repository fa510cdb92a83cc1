/* Tables of labels: CSV and JSON lines files with a column of image names and a column of class names. */
#ifndef LT_DATA_LABEL_TABLE_H
#define LT_DATA_LABEL_TABLE_H

#include "data/files/paths.h"

#include "lather/ext/dataset.h"

typedef struct lt_table_row {
    const char *image, *label; /* names as in the file, without surrounding blanks; not empty */
    int line;                  /* number of the line, from 1 */
} lt_table_row;

typedef struct lt_label_table {
    lt_table_row *row;
    size_t count, capacity; /* number of rows, at least 1 after reading */
    lt_record text;         /* contents of a CSV file; rows point into it */
    lt_paths strings;       /* copies of a JSON lines file's strings */
} lt_label_table;

/* Reads a file: JSON lines if it begins with a brace, otherwise CSV with a header, separated by commas, semicolons or
 * tabs. columns: names of the two columns, "IMAGE,LABEL"; NULL: usual names, or the only two columns. out starts as
 * {0}; clear it in any case. Errors: LT_E_IO; LT_E_FORMAT with file and line; LT_E_ARG (no such column). */
lt_status lt_label_table_read(lt_label_table *out, const char *path, const char *columns);
void lt_label_table_clear(lt_label_table *table);

#endif
