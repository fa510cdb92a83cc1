/* Helpers for the library's threads. */
#ifndef LT_BASE_THREAD_H
#define LT_BASE_THREAD_H

#include <pthread.h>
#include <signal.h>
#include <time.h>

/* pthread_create() with all signals blocked in the new thread, so that the program's threads get them. Returns 0 or an
 * error number. */
static inline int lt_thread_start(pthread_t *thread, void *(*run)(void *), void *context)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    const int failed = pthread_create(thread, NULL, run, context);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

/* Initialises a condition variable for lt_cond_wait_until(). */
void lt_cond_init(pthread_cond_t *cond);
/* pthread_cond_timedwait() until a time of lt_clock_seconds(). */
int lt_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *mutex, double time);

/* Converts seconds to a timespec. */
static inline struct timespec lt_timespec_from_seconds(double seconds)
{
    struct timespec t = {.tv_sec = (time_t)seconds};
    t.tv_nsec = (long)(1e9 * (seconds - (double)t.tv_sec));
    return t;
}

#endif
