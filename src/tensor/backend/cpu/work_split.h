/* How work is cut into pieces: by its sizes alone, so that bits do not depend on threads. */
#ifndef LT_BACKEND_CPU_CUT_H
#define LT_BACKEND_CPU_CUT_H

#include <stdint.h>

static inline int64_t lt_cpu_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t lt_cpu_most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Of at most `piece` each. */
static inline int64_t lt_cpu_pieces(int64_t count, int64_t piece)
{
    return (count + piece - 1) / piece;
}

#endif
