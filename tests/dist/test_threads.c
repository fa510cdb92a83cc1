/* Every collective over dtypes, reductions and sizes, on ranks that are threads. */

#include "case_ranks.h"

#include <stdlib.h>

static const int sizes[] = {1, 2, 3, 4, 8};

typedef struct job {
    const case_row *row;
    int size;
} job;

static void run_case(void **state)
{
    const job *j = *state;
    char why[512];
    if (play_cases(j->size, j->row->run, false, why, sizeof why))
        fail_msg("%s on %d ranks: %s", j->row->name, j->size, why);
}

/* The checkers must notice a wrong value on every rank that has one. */
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
    enum { NAME = 64 };
    static job jobs[64];
    static char names[64][NAME];
    struct CMUnitTest tests[64] = {cmocka_unit_test(reject_wrong)};
    int count = 1;
    for (int i = 0; i < case_count; i++)
        for (size_t s = 0; s < COUNT_OF(sizes); s++, count++) {
            jobs[count] = (job){&case_rows[i], sizes[s]};
            snprintf(names[count], NAME, "%s on %d ranks", case_rows[i].name, sizes[s]);
            tests[count] = (struct CMUnitTest){
                .name = names[count], .test_func = run_case, .initial_state = &jobs[count]};
        }
    tests[0].name = "a wrong sum, copy, group or text is rejected";
    return _cmocka_run_group_tests("threads", tests, (size_t)count, NULL, NULL);
}
