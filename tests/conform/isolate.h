/* Rows of a test program in a process that another replaces when a row fails. */
#ifndef LT_TESTS_CONFORM_ISOLATE_H
#define LT_TESTS_CONFORM_ISOLATE_H

#include <stdbool.h>

/* The rows so far. In memory that the processes share, where they are isolated. */
typedef struct rows {
    int first;   /* number of the first row to run */
    int next;    /* of the row that comes next */
    int row;     /* counts rows of the tables, each on several devices */
    int seconds; /* that a row may take; 0: any */
    bool isolated;
    int passed, failed;
    char running[200]; /* the row that runs; "": none */
} rows;

/* Rows that rows_control() spoils. */
enum { ROWS_CONTROLS = 3 };

/* What a process returns so that another goes on from rows.first. */
enum { ROWS_GO_ON = 79 };

/* Runs rows from the beginning; those below rows.first are not its own. */
typedef int rows_fn(void *context, rows *r);

/* Until a process does not return ROWS_GO_ON: what it returned. *out: what came of all. */
int run_isolated(rows *out, int seconds, rows_fn *work, void *context);

/* Whether this row is to run. */
bool rows_begin(rows *r, const char *what, bool verbose);
/* Whether the process can go on: not behind a failure, where rows are isolated. */
bool rows_end(rows *r, bool passed);

/* Controls of isolation: the second row crashes, the fourth hangs, and the sixth leaves a device that is of no use to
 * its process. Why a row fails; NULL: it does not. */
const char *rows_control(int row);

#endif
