/* Statistics of the running step. On a device with a stream they measure the time to queue the work. */

#include "base/trace.h"
#include "optim/shampoo/shampoo.h"

void lt_shampoo_start_stats(lt_shampoo *s)
{
    s->stats = (lt_shampoo_stats){0};
    s->stats_step = s->base.attempt;
}

int64_t lt_shampoo_add_time(int64_t begin, double *seconds, const char *name)
{
    int64_t now = lt_clock_nanoseconds();
    *seconds += (double)(now - begin) * 1e-9;
    if (atomic_load_explicit(&lt_trace_on, memory_order_relaxed))
        lt_trace_record(begin, LT_PROFILE_OPTIM, name, 0);
    return now;
}
