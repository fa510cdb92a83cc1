/* Plays a case of cases.h on ranks that are threads of the test program. */
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

/* How many said that something is wrong, and what the first said. */
static inline int count_bad(const played *rank, int size, char *why, size_t bytes)
{
    int bad = 0;
    for (int r = 0; r < size; r++)
        if (!rank[r].good && bad++ == 0)
            snprintf(why, bytes, "%.*s", (int)bytes - 1, rank[r].c.why);
    return bad;
}

/* Runs fn on every rank; gives how many said that something is wrong, and what the first said. */
static inline int play_cases(int size, case_fn *fn, bool spoil, char *why, size_t bytes)
{
    static played rank[MOST_RANKS];
    for (int r = 0; r < size; r++)
        rank[r] = (played){.c = {.spoil = spoil}, .run = fn};
    play_ranks(&(rank_group){RANKS_OF(rank, size), .run = play_case});
    return count_bad(rank, size, why, bytes);
}

#endif
