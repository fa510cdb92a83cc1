/* Profiling spans, for lather/profile.h: one atomic load when profiling is off. */
#ifndef LT_BASE_TRACE_H
#define LT_BASE_TRACE_H

#include "base/clock.h"

#include "lather/profile.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

extern atomic_bool lt_trace_on;

void lt_trace_record(int64_t begin, lt_profile_kind kind, const char *name, int64_t bytes);

/* Returns the start of a span, for lt_trace_end(); 0 when profiling is off. */
static inline int64_t lt_trace_begin(void)
{
    return atomic_load_explicit(&lt_trace_on, memory_order_relaxed) ? lt_clock_nanoseconds() : 0;
}

/* Records a span. name must outlive the profile. bytes: read and written; 0 if unknown. */
static inline void lt_trace_end(int64_t begin, lt_profile_kind kind, const char *name,
                                int64_t bytes)
{
    if (begin)
        lt_trace_record(begin, kind, name, bytes);
}

#endif
