/* Clocks for durations and deadlines: the monotonic one, which never jumps and says nothing about dates, and those of
 * processors. */
#ifndef LT_BASE_CLOCK_H
#define LT_BASE_CLOCK_H

#include "base/inline.h"

#include <stdint.h>
#include <time.h>

/* Nanoseconds of CLOCK_MONOTONIC. */
LT_PURE int64_t lt_clock_nanoseconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* The same in seconds; a double holds a year of them to 4 ns. */
LT_PURE double lt_clock_seconds(void)
{
    return 1e-9 * (double)lt_clock_nanoseconds();
}

/* Of this thread, the seconds that it had a processor. */
LT_PURE double lt_clock_thread_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Of all threads of this process together. */
LT_PURE double lt_clock_core_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
