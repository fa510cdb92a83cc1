/* Runs rows in a separate process: if one crashes or hangs, or leaves a device that no longer responds, the
 * next process continues after it. A forked process has the device to itself, because its parent never opens
 * it. */

#include "isolate.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static void say_how_it_ended(const rows *r, int status, int seconds)
{
    printf("FAIL %s: ", r->running);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
        printf("did not end within %d seconds\n", seconds);
    else if (WIFSIGNALED(status))
        printf("killed by signal %d, %s\n", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        printf("the process ended with %d\n", WEXITSTATUS(status));
}

/* Returns true if another process must continue; *code: exit code of the last one. */
static bool one_process(rows *r, int seconds, rows_fn *work, void *context, int *code)
{
    int status = 0;
    r->running[0] = '\0';
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        *code = work(context, r);
        fflush(stdout);
        _exit(*code);
    }
    if (child < 0 || waitpid(child, &status, 0) != child) {
        perror("conform: fork");
        *code = 1;
        return false;
    }
    *code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    if (WIFEXITED(status) && (*code == ROWS_GO_ON || !r->running[0]))
        return *code == ROWS_GO_ON;
    say_how_it_ended(r, status, seconds);
    r->failed++;
    r->first = r->next;
    return r->running[0];
}

int run_isolated(rows *out, int seconds, rows_fn *work, void *context)
{
    enum { MOST = 200 }; /* limit of processes: with more failures the device is unusable */
    rows *r = mmap(NULL, sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int code = 1;
    if (r == MAP_FAILED)
        return 1;
    *r = (rows){.seconds = seconds, .isolated = true};
    for (int i = 0; one_process(r, seconds, work, context, &code); i++)
        if (i == MOST) {
            printf("FAIL: %d processes failed, the rows from number %d on were left out\n", MOST,
                   r->first);
            r->failed++;
            break;
        }
    *out = *r;
    munmap(r, sizeof *r);
    return code;
}

bool rows_begin(rows *r, const char *what, bool verbose)
{
    if (r->next++ < r->first)
        return false;
    snprintf(r->running, sizeof r->running, "%s", what);
    if (verbose)
        printf("RUN  %s\n", what);
    if (r->seconds)
        alarm((unsigned)r->seconds);
    return true;
}

bool rows_end(rows *r, bool passed)
{
    alarm(0);
    *(passed ? &r->passed : &r->failed) += 1;
    r->running[0] = '\0';
    r->first = r->next;
    return passed || !r->isolated;
}

const char *rows_control(int row)
{
    static bool is_lost;
    if (row == 2)
        abort();
    if (row == 4)
        for (;;)
            pause();
    is_lost |= row == 6;
    return is_lost ? "the device is lost" : NULL;
}
