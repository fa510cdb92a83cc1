/* The rows of cases.h in a program that is one rank. */

#include "cases.h"

#include <stdio.h>

int rank_complains(const rank_case *c, const char *what)
{
    fprintf(stderr, "rank %d of %d: %s\n", lt_comm_rank(c->comm), lt_comm_size(c->comm), what);
    return 1;
}

int rank_cases(rank_case *c)
{
    for (int i = 0; i < case_count; i++)
        if (!case_rows[i].run(c)) {
            fprintf(stderr, "%s: ", case_rows[i].name);
            return rank_complains(c, c->why);
        }
    return 0;
}

int rank_wrong(rank_case *c)
{
    c->spoil = true;
    for (int i = 0; i < case_count; i++)
        if (case_rows[i].run != case_messages && case_rows[i].run != case_reducescatter
            && case_rows[i].run(c))
            return rank_complains(c, case_rows[i].name);
    return 0;
}
