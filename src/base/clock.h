/* Clocks for durations and deadlines: monotonic time and CPU time. */
#ifndef LT_BASE_CLOCK_H
#define LT_BASE_CLOCK_H

#include "base/inline.h"

#include <stdint.h>
#include <time.h>

/* Returns CLOCK_MONOTONIC in nanoseconds. */
LT_PURE int64_t lt_clock_nanoseconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Returns CLOCK_MONOTONIC in seconds; a double resolves a year to 4 ns. */
LT_PURE double lt_clock_seconds(void)
{
    return 1e-9 * (double)lt_clock_nanoseconds();
}

/* Returns the CPU seconds of this thread. */
LT_PURE double lt_clock_thread_cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Returns the CPU seconds of all threads of this process. */
LT_PURE double lt_clock_process_cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
