/* Runs a case of cases.h on ranks that are threads of the test program. */
#ifndef LT_TESTS_DIST_CASE_RANKS_H
#define LT_TESTS_DIST_CASE_RANKS_H

#include "cases.h"
#include "ranks.h"

typedef struct played {
    test_rank at;
    rank_case c;
    case_fn *run;
    bool good;
} played;

static inline lt_status play_case(void *context)
{
    played *p = context;
    p->c.comm = p->at.comm;
    p->c.device = p->at.device;
    p->good = p->run(&p->c);
    return LT_OK;
}

/* Returns the number of ranks whose case failed, and the first one's reason. */
static inline int count_bad(const played *rank, int size, char *why, size_t bytes)
{
    int bad = 0;
    for (int r = 0; r < size; r++)
        if (!rank[r].good && bad++ == 0)
            snprintf(why, bytes, "%.*s", (int)bytes - 1, rank[r].c.why);
    return bad;
}

/* Runs fn on every rank; returns the number of ranks where it failed, and the first one's reason. */
static inline int play_cases(int size, case_fn *fn, bool spoil, char *why, size_t bytes)
{
    static played rank[MOST_RANKS];
    for (int r = 0; r < size; r++)
        rank[r] = (played){.c = {.spoil = spoil}, .run = fn};
    play_ranks(&(rank_group){RANKS_OF(rank, size), .run = play_case});
    return count_bad(rank, size, why, bytes);
}

/* Runs fn on every rank, where it must succeed. */
static inline void expect_cases(int size, case_fn *fn)
{
    char why[512];
    if (play_cases(size, fn, false, why, sizeof why))
        fail_msg("%d ranks: %s", size, why);
}

/* A case on a number of ranks, as the state of a cmocka test. */
typedef struct case_job {
    const case_row *row;
    int size;
    char name[64];
} case_job;
enum { MOST_JOBS = 64 };

/* Fills tests with a test `run` for each of case_rows and sizes; returns their number. */
static inline int list_case_jobs(struct CMUnitTest *tests, CMUnitTestFunction run, const int *sizes,
                                 size_t count)
{
    static case_job jobs[MOST_JOBS];
    int listed = 0;
    for (int i = 0; i < case_count; i++)
        for (size_t s = 0; s < count; s++, listed++) {
            case_job *j = &jobs[listed];
            *j = (case_job){.row = &case_rows[i], .size = sizes[s]};
            snprintf(j->name, sizeof j->name, "%s on %d ranks", j->row->name, j->size);
            tests[listed] =
                (struct CMUnitTest){.name = j->name, .test_func = run, .initial_state = j};
        }
    return listed;
}

#endif
