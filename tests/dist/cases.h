/* The collectives on one rank, against values computed from what every rank is known to send. For
 * any communicator: cmocka runs it on threads, mpirun on processes. */
#ifndef LT_TESTS_DIST_CASES_H
#define LT_TESTS_DIST_CASES_H

#include "lather/comm.h"

typedef struct rank_case {
    lt_comm *comm;
    lt_device *device;
    bool spoil; /* controls: expect something wrong */
    char why[512];
} rank_case;

/* Each checks one collective over dtypes, reductions and sizes, results and counted bytes; false:
 * why says what was wrong. Collective. */
typedef bool case_fn(rank_case *c);
case_fn case_allreduce, case_reducescatter, case_allgather, case_broadcast, case_alltoall,
    case_messages, case_long, case_many, case_split, case_same, case_host;

typedef struct case_row {
    const char *name;
    case_fn *run;
} case_row;
extern const case_row case_rows[];
extern const int case_count;

/* For programs that are a rank each: exit statuses. Says what, and which rank it is; 1. */
int rank_complains(const rank_case *c, const char *what);
/* All rows. */
int rank_cases(rank_case *c);
/* The checkers must find a wrong value on every rank. */
int rank_wrong(rank_case *c);

/* Sets why; false. */
bool case_fails(rank_case *c, const char *format, ...) LT_PRINTF(2, 3);

#endif
