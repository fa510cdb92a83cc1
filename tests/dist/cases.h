/* Test cases of collectives on one rank, compared with values computed from every rank's known input. For any
 * communicator: run on threads by cmocka, on processes by mpirun. */
#ifndef LT_TESTS_DIST_CASES_H
#define LT_TESTS_DIST_CASES_H

#include "lather/comm.h"

typedef struct rank_case {
    lt_comm *comm;
    lt_device *device;
    bool spoil; /* control: expect wrong values */
    char why[512];
} rank_case;

/* Checks one collective over dtypes, reductions and sizes: results and counted bytes. On failure returns false with the
 * reason in why. Collective. */
typedef bool case_fn(rank_case *c);
case_fn case_allreduce, case_reducescatter, case_allgather, case_broadcast, case_broadcast_large,
    case_alltoall, case_messages, case_long, case_many, case_split, case_same, case_host;
/* Not in case_rows: the last rank aborts the group; on 4 ranks rank 3 aborts a split one, which aborts the other too. */
case_fn case_abort, case_abort_split;

typedef struct case_row {
    const char *name;
    case_fn *run;
} case_row;
extern const case_row case_rows[];
extern const int case_count;

/* For programs with one rank per process; they return exit statuses. Prints what with the rank; returns 1. */
int rank_complains(const rank_case *c, const char *what);
/* Returns 0 if got is LT_E_COMM with these words in its message. */
int rank_fails_with(const rank_case *c, lt_status got, const char *words);
/* Runs all case_rows. */
int rank_cases(rank_case *c);
/* Control: every case must find a wrong value. */
int rank_wrong(rank_case *c);

/* Sets why and returns false. */
bool case_fails(rank_case *c, const char *format, ...) LT_PRINTF(2, 3);
/* Returns true if status is LT_OK, else sets why. */
bool case_ok(rank_case *c, lt_status status, const char *what);
/* Returns true if got is LT_E_COMM with these words in its message, else sets why. */
bool case_fails_with(rank_case *c, lt_status got, const char *words);
/* Sums a tensor of count f32 over all ranks. */
lt_status case_sum(const rank_case *c, int count);

#endif
