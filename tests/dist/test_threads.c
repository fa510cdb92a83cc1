/* All cases of collectives on ranks that are threads. */

#include "case_ranks.h"

#include <stdlib.h>

static const int sizes[] = {1, 2, 3, 4, 8};

static void run_case(void **state)
{
    const case_job *j = *state;
    expect_cases(j->size, j->row->run);
}

/* Control: the cases must find a wrong value on every rank that has one. */
static void reject_wrong(void **state)
{
    char why[512];
    (void)state;
    for (int i = 0; i < case_count; i++)
        if (case_rows[i].run != case_messages && case_rows[i].run != case_reducescatter)
            assert_int_equal(play_cases(3, case_rows[i].run, true, why, sizeof why), 3);
}

int main(void)
{
    struct CMUnitTest tests[MOST_JOBS + 1] = {cmocka_unit_test(reject_wrong)};
    const int count = 1 + list_case_jobs(tests + 1, run_case, sizes, COUNT_OF(sizes));
    tests[0].name = "wrong sums, copies, groups and texts are found";
    return _cmocka_run_group_tests("threads", tests, (size_t)count, NULL, NULL);
}
