/* Integer helpers for splitting work. Splits depend on sizes only, so that results do not depend on thread counts. */
#ifndef LT_BACKEND_CPU_WORK_SPLIT_H
#define LT_BACKEND_CPU_WORK_SPLIT_H

#include <stdint.h>

static inline int64_t lt_cpu_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t lt_cpu_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline int64_t lt_cpu_ceil_div(int64_t count, int64_t divisor)
{
    return (count + divisor - 1) / divisor;
}

/* Returns count rounded up to a multiple of step. */
static inline int64_t lt_cpu_round_up(int64_t count, int64_t step)
{
    return (count + step - 1) / step * step;
}

#endif
