/* Rows of a test program in a process that is replaced when a row fails. */
#ifndef LT_TESTS_CONFORM_ISOLATE_H
#define LT_TESTS_CONFORM_ISOLATE_H

#include <stdbool.h>

/* Progress of the rows, in memory shared by the processes if they are isolated. */
typedef struct rows {
    int first;   /* number of the first row to run */
    int next;    /* number of the next row */
    int row;     /* counts rows of the tables, each on several devices */
    int seconds; /* time limit per row; 0: none */
    bool isolated;
    int passed, failed;
    char running[200]; /* the running row; "": none */
} rows;

/* Number of rows that rows_control() spoils. */
enum { ROWS_CONTROLS = 3 };

/* Exit code of a process after which another continues from rows.first. */
enum { ROWS_GO_ON = 79 };

/* Runs all rows from rows.first on; earlier ones are skipped. */
typedef int rows_fn(void *context, rows *r);

/* Runs processes until one does not return ROWS_GO_ON; returns its exit code. *out: the results of all. */
int run_isolated(rows *out, int seconds, rows_fn *work, void *context);

/* Returns true if this row must run. */
bool rows_begin(rows *r, const char *what, bool verbose);
/* Returns true if the process can continue: not after a failure, if rows are isolated. */
bool rows_end(rows *r, bool passed);

/* Controls of isolation: the second row crashes, the fourth hangs, and the sixth makes the device unusable
 * for its process. Returns the reason for which a row fails, or NULL. */
const char *rows_control(int row);

#endif
