/* --profile-ranks: processes that take steps while this one measures its own. Ranks of a machine share its memory, caches and
 * clock rates, so that one alone is faster than one of several. In the steps that are measured all wait for each other in front
 * of the optimizer, as the mean of gradients makes ranks do: an update is bound by memory, and slower beside updates than
 * beside others' backward. */

#include "planner.h"

#include "lather/ext/fail.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Of all processes. Who waits sleeps on `round`. */
struct plan_meeting {
    uint32_t ranks;
    _Atomic uint32_t is_on, arrived, round;
};

/* --- A meeting --- */

static void end_round(plan_meeting *m)
{
    atomic_fetch_add(&m->round, 1);
    syscall(SYS_futex, &m->round, FUTEX_WAKE, m->ranks, NULL, NULL, 0);
}

void lt_plan_crowd_in_step(const plan_crowd *c, bool is_on)
{
    if (!c->meeting)
        return;
    atomic_store(&c->meeting->arrived, 0);
    atomic_store(&c->meeting->is_on, is_on);
    if (!is_on)
        end_round(c->meeting);
}

/* One that is gone would be waited for without an end. WNOWAIT: lt_plan_crowd_end() takes it. */
static lt_status check_others(const plan_crowd *c)
{
    siginfo_t ended = {0};
    for (int i = 0; i < c->count; i++)
        if (!waitid(P_PID, (id_t)c->pid[i], &ended, WEXITED | WNOHANG | WNOWAIT) && ended.si_pid)
            return lt_fail(LT_E_COMM, "--profile-ranks %d: one of them has ended", c->count + 1);
    return LT_OK;
}

lt_status lt_plan_crowd_meet(const plan_crowd *c)
{
    const struct timespec look = {.tv_nsec = 100000000};
    plan_meeting *m = c->meeting;
    if (!m || !atomic_load(&m->is_on))
        return LT_OK;
    const uint32_t round = atomic_load(&m->round);
    if (atomic_fetch_add(&m->arrived, 1) + 1 == m->ranks) {
        atomic_store(&m->arrived, 0);
        end_round(m);
    }
    while (atomic_load(&m->round) == round) {
        syscall(SYS_futex, &m->round, FUTEX_WAIT, round, &look, NULL, 0);
        LT_TRY(check_others(c));
    }
    return LT_OK;
}

/* --- Processes --- */

/* In a child; it ends with its parent. */
static void take_steps(const plan *p, const plan_crowd *c, int ready, plan_crowd_work *work)
{
    lt_trainer t = {0};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    lt_status st = lt_plan_start(p, (int[PLAN_AXES]){0}, &t);
    if (!st)
        st = work(&t, c, ready);
    fprintf(stderr, "%s plan: --profile-ranks: %s\n", p->family->program, lt_error_message());
    _exit(1);
}

/* Waits until it is at work. */
static lt_status start(const plan *p, const plan_crowd *c, pid_t *pid, plan_crowd_work *work)
{
    int ends[2];
    char byte;
    ssize_t got;
    if (pipe2(ends, O_CLOEXEC))
        return lt_fail(LT_E_IO, "--profile-ranks: no pipe: %s", strerror(errno));
    fflush(NULL); /* or the child would write it again */
    *pid = fork();
    if (!*pid)
        take_steps(p, c, ends[1], work);
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

/* Memory that children share. */
static lt_status open_meeting(plan_crowd *c, int ranks)
{
    plan_meeting *m =
        mmap(NULL, sizeof *m, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (m == MAP_FAILED)
        return lt_fail(LT_E_NOMEM, "no memory that %d ranks share: %s", ranks, strerror(errno));
    m->ranks = (uint32_t)ranks;
    c->meeting = m;
    return LT_OK;
}

lt_status lt_plan_crowd_begin(plan_crowd *c, const plan *p, plan_crowd_work *work)
{
    const int others = (int)p->options.profile_ranks - 1;
    *c = (plan_crowd){0};
    if (!others)
        return LT_OK;
    c->pid = calloc((size_t)others, sizeof *c->pid);
    if (!c->pid)
        return lt_fail(LT_E_NOMEM, "no memory for %d ranks", others);
    lt_status st = open_meeting(c, others + 1);
    for (; !st && c->count < others; c->count++)
        st = start(p, c, &c->pid[c->count], work);
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
    if (c->meeting)
        munmap(c->meeting, sizeof *c->meeting);
    *c = (plan_crowd){0};
}
