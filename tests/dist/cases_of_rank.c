/* Runs the cases of cases.h in a program with one rank per process. */

#include "cases.h"

#include <stdio.h>
#include <string.h>

int rank_complains(const rank_case *c, const char *what)
{
    fprintf(stderr, "rank %d of %d: %s\n", lt_comm_rank(c->comm), lt_comm_size(c->comm), what);
    return 1;
}

int rank_fails_with(const rank_case *c, lt_status got, const char *words)
{
    if (got == LT_E_COMM && strstr(lt_error_message(), words))
        return 0;
    fprintf(stderr, "%s: %s; ", lt_status_name(got), lt_error_message());
    return rank_complains(c, words);
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
