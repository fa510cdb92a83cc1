/* --profile-ranks: processes that train while this one measures. Ranks of a machine share its memory, caches and clock
 * rate, so that a rank alone is faster than one among several. In measured steps all processes wait for each other
 * before the optimizer, as an all-reduce makes ranks do: updates are bound by memory, and slower during other updates
 * than during other backwards. */

#include "base/alloc.h"
#include "base/os.h"
#include "planner.h"

#include "lather/ext/fail.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Barrier in memory that all processes share; they sleep on the futex `round`. */
struct plan_barrier {
    uint32_t ranks;
    _Atomic uint32_t is_on, arrived, round;
};

/* --- The barrier --- */

static void release_barrier(plan_barrier *b)
{
    atomic_fetch_add(&b->round, 1);
    lt_os_wake_all(&b->round);
}

void lt_plan_workers_set_sync(const plan_workers *w, bool is_on)
{
    if (!w->barrier)
        return;
    atomic_store(&w->barrier->arrived, 0);
    atomic_store(&w->barrier->is_on, is_on);
    if (!is_on)
        release_barrier(w->barrier);
}

/* Fails if a worker has ended, as it would never arrive. */
static lt_status check_workers_alive(const plan_workers *w)
{
    for (int i = 0; i < w->count; i++)
        if (lt_os_child_has_ended(w->pid[i]))
            return lt_fail(LT_E_COMM, "--profile-ranks %d: a process has ended", w->count + 1);
    return LT_OK;
}

lt_status lt_plan_wait_at_barrier(const plan_workers *w)
{
    const double poll = 0.1;
    plan_barrier *b = w->barrier;
    if (!b || !atomic_load(&b->is_on))
        return LT_OK;
    const uint32_t round = atomic_load(&b->round);
    if (atomic_fetch_add(&b->arrived, 1) + 1 == b->ranks) {
        atomic_store(&b->arrived, 0);
        release_barrier(b);
    }
    while (atomic_load(&b->round) == round) {
        lt_os_wait_while_equal(&b->round, round, poll);
        LT_TRY(check_workers_alive(w));
    }
    return LT_OK;
}

/* --- Processes --- */

/* Trains in a forked child, which is killed when its parent ends. */
static _Noreturn void run_worker(const plan *p, const plan_workers *w, int ready,
                                 plan_worker_body *body)
{
    lt_trainer t = {0};
    lt_os_die_with_parent(SIGKILL);
    if (!lt_plan_parse_candidate(p, (int[PLAN_AXES]){0}, &t))
        (void)body(&t, w, ready); /* returns only if it failed */
    fprintf(stderr, "%s plan: --profile-ranks: %s\n", p->family->program, lt_error_message());
    _exit(1);
}

/* Forks a worker and waits until it has taken its warm-up steps. */
static lt_status start_worker(const plan *p, plan_workers *w, plan_worker_body *body)
{
    int ends[2];
    char byte;
    ssize_t got;
    if (lt_os_pipe(ends))
        return lt_fail(LT_E_IO, "--profile-ranks: no pipe: %s", strerror(errno));
    fflush(NULL); /* buffered output must not be written twice */
    const pid_t pid = fork();
    if (!pid)
        run_worker(p, w, ends[1], body);
    close(ends[1]);
    do
        got = read(ends[0], &byte, 1);
    while (got < 0 && errno == EINTR);
    close(ends[0]);
    if (pid > 0)
        w->pid[w->count++] = pid;
    return pid > 0 && got == 1
               ? LT_OK
               : lt_fail(LT_E_NOMEM, "--profile-ranks %lld: a process did not start",
                         (long long)p->options.profile_ranks);
}

lt_status lt_plan_workers_start(plan_workers *w, const plan *p, plan_worker_body *body)
{
    const int ranks = (int)p->options.profile_ranks;
    *w = (plan_workers){0};
    if (ranks == 1)
        return LT_OK;
    plan_barrier *b =
        mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    w->barrier = b == MAP_FAILED ? NULL : b;
    LT_TRY(LT_ALLOC(&w->pid, ranks));
    if (!w->barrier)
        return lt_fail(LT_E_NOMEM, "--profile-ranks %d: no memory", ranks);
    b->ranks = (uint32_t)ranks;
    while (w->count < ranks - 1)
        LT_TRY(start_worker(p, w, body));
    return LT_OK;
}

void lt_plan_workers_stop(plan_workers *w)
{
    for (int i = 0; i < w->count; i++)
        kill(w->pid[i], SIGKILL);
    for (int i = 0; i < w->count; i++)
        lt_os_wait(w->pid[i]);
    lt_free(w->pid);
    if (w->barrier)
        munmap(w->barrier, sizeof *w->barrier);
    *w = (plan_workers){0};
}
