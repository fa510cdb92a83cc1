/* Waiting, scheduling and affinity of threads. */

#include "base/clock.h"
#include "base/os.h"
#include "base/thread.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

#if LT_LINUX
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#endif

void lt_os_wait_while_equal(_Atomic uint32_t *at, uint32_t value, double seconds)
{
#if LT_LINUX
    const struct timespec timeout = lt_timespec_from_seconds(seconds);
    syscall(SYS_futex, at, FUTEX_WAIT, value, &timeout, NULL, 0);
#else
    const struct timespec tick = {.tv_nsec = 1000000};
    const double end = lt_clock_seconds() + seconds;
    while (atomic_load(at) == value && lt_clock_seconds() < end)
        nanosleep(&tick, NULL);
#endif
}

void lt_os_wake_all(_Atomic uint32_t *at)
{
#if LT_LINUX
    syscall(SYS_futex, at, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
#else
    (void)at;
#endif
}

int lt_os_poll(struct pollfd *fds, size_t count, double seconds, const sigset_t *mask)
{
#if LT_LINUX
    const struct timespec timeout = lt_timespec_from_seconds(seconds);
    return ppoll(fds, count, &timeout, mask);
#else
    const double second_ms = 1000;
    sigset_t before;
    pthread_sigmask(SIG_SETMASK, mask, &before);
    const int ready = poll(fds, (nfds_t)count, (int)(seconds * second_ms));
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return ready;
#endif
}

void lt_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
#if LT_LINUX
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
#endif
    pthread_cond_init(cond, &attributes);
    pthread_condattr_destroy(&attributes);
}

int lt_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *mutex, double time)
{
#if !LT_LINUX
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    time += (double)now.tv_sec + 1e-9 * (double)now.tv_nsec - lt_clock_seconds();
#endif
    const struct timespec t = lt_timespec_from_seconds(time);
    return pthread_cond_timedwait(cond, mutex, &t);
}

#if LT_LINUX
/* The kernel's struct sched_attr, first version; its header conflicts with the C library's. */
typedef struct attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period; /* runtime of a normal thread: slice in ns */
} attributes;

/* Keeps the thread's policy and nice value. */
void lt_sched_slice_shorten(void)
{
    enum { SHORTEST = 100000 }; /* ns; the kernel's minimum */
    attributes a = {.size = sizeof a};
    if (syscall(SYS_sched_getattr, 0, &a, sizeof a, 0))
        return;
    a.runtime = SHORTEST;
    (void)syscall(SYS_sched_setattr, 0, &a, 0);
}
#else
void lt_sched_slice_shorten(void)
{
}
#endif

void lt_os_affinity(uint64_t *mask, int words)
{
    enum { WORD = 64 };
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    memset(mask, 0, (size_t)words * sizeof *mask);
#if LT_LINUX
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set))
        return;
    for (int i = 0; i < words * WORD && i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &set))
            mask[i / WORD] |= UINT64_C(1) << i % WORD;
    (void)online;
#else
    for (int i = 0; i < words * WORD && i < online; i++)
        mask[i / WORD] |= UINT64_C(1) << i % WORD;
#endif
}
