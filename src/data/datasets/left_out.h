/* Files that no data set reads, counted by their extensions: a user is told of them. */
#ifndef LT_DATA_LEFT_OUT_H
#define LT_DATA_LEFT_OUT_H

#include <stdint.h>

enum { LT_LEFT_OUT_KINDS = 32, LT_LEFT_OUT_BYTES = 16 };

typedef struct lt_left_out_kind {
    char extension[LT_LEFT_OUT_BYTES]; /* with its dot, cut off */
    int64_t count;
} lt_left_out_kind;

/* Starts as {0}. */
typedef struct lt_left_out {
    int64_t files;
    int kinds;
    lt_left_out_kind kind[LT_LEFT_OUT_KINDS];
} lt_left_out;

/* A file by its name. */
void lt_left_out_add(lt_left_out *l, const char *name);
/* One line of the log, if there are any: how many, and the extensions that are most frequent. */
void lt_left_out_tell(lt_left_out *l, const char *folder);

#endif
