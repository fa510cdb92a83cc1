/* --profile-ranks: processes that take steps while this one measures its own. Ranks of a machine share its memory, caches and
 * clock rates, so that one alone is faster than one of several. */

#include "train/trainer/plan.h"

#include "lather/ext/fail.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* In a child; it ends with its parent. */
static void take_steps(const plan *p, int ready)
{
    lt_trainer t = {0};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    lt_status st = lt_plan_start(p, (int[PLAN_AXES]){0}, &t);
    if (!st)
        st = lt_plan_keep_busy(&t, ready);
    fprintf(stderr, "%s plan: --profile-ranks: %s\n", p->family->program, lt_error_message());
    _exit(1);
}

/* Waits until it is at work. */
static lt_status start(const plan *p, pid_t *pid)
{
    int ends[2];
    char byte;
    ssize_t got;
    if (pipe2(ends, O_CLOEXEC))
        return lt_fail(LT_E_IO, "--profile-ranks: no pipe: %s", strerror(errno));
    fflush(NULL); /* or the child would write it again */
    *pid = fork();
    if (!*pid)
        take_steps(p, ends[1]);
    close(ends[1]);
    do
        got = read(ends[0], &byte, 1);
    while (got < 0 && errno == EINTR);
    close(ends[0]);
    return *pid > 0 && got == 1
               ? LT_OK
               : lt_fail(LT_E_NOMEM, "--profile-ranks %lld: one of them does not work",
                         (long long)p->options.profile_ranks);
}

lt_status lt_plan_crowd_begin(plan_crowd *c, const plan *p)
{
    const int others = (int)p->options.profile_ranks - 1;
    lt_status st = LT_OK;
    *c = (plan_crowd){.pid = calloc((size_t)others + 1, sizeof *c->pid)};
    if (!c->pid)
        return lt_fail(LT_E_NOMEM, "no memory for %d ranks", others);
    for (; !st && c->count < others; c->count++)
        st = start(p, &c->pid[c->count]);
    return st;
}

void lt_plan_crowd_end(plan_crowd *c)
{
    for (int i = 0; i < c->count; i++)
        if (c->pid[i] > 0)
            kill(c->pid[i], SIGKILL);
    for (int i = 0; i < c->count; i++)
        while (c->pid[i] > 0 && waitpid(c->pid[i], NULL, 0) < 0 && errno == EINTR)
            continue;
    free(c->pid);
    *c = (plan_crowd){0};
}
