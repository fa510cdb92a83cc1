/* The emulator under ThreadSanitizer (emulate_races.h) reports the races of small kernels, and none in kernels
 * without a race. */

#include "races.h"

#include "near.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { REPORTED = 66, TEXT = 16384 };

/* Runs the row in a child process; returns its exit status and writes its stderr to text. */
static int run(const race_row *row, char text[TEXT])
{
    int status = 0;
    FILE *said = tmpfile();
    assert_non_null(said);
    fflush(stdout);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(fileno(said), STDERR_FILENO);
        row->run();
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    rewind(said);
    text[fread(text, 1, TEXT - 1, said)] = '\0';
    fclose(said);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void check_row(void **state)
{
    const race_row *row = *state;
    char text[TEXT];
    const int status = run(row, text);
    if (status != (row->races ? REPORTED : 0))
        fail_msg("exit status %d: %s", status, text);
    if (row->races && (!strstr(text, "data race") || !strstr(text, row->kernel)))
        fail_msg("no data race of %s: %s", row->kernel, text);
}

int main(void)
{
    struct CMUnitTest tests[RACE_ROWS];
    for (size_t i = 0; i < RACE_ROWS; i++)
        tests[i] = row_test(race_rows[i].name, check_row, &race_rows[i]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
