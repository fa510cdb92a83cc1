/* What the last step did, and what its statements took. On a device with a queue these are the
 * times of putting work into it. */

#include "base/trace.h"
#include "optim/shampoo/shampoo.h"

void lt_shampoo_start_stats(lt_shampoo *s)
{
    s->stats = (lt_shampoo_stats){0};
    s->stats_step = s->base.attempt;
}

int64_t lt_shampoo_took(int64_t begin, double *seconds, const char *name)
{
    int64_t now = lt_clock_nanoseconds();
    *seconds += (double)(now - begin) * 1e-9;
    if (atomic_load_explicit(&lt_trace_on, memory_order_relaxed))
        lt_trace_record(begin, LT_PROFILE_OPTIM, name, 0);
    return now;
}

/* Steps since the factors of the oldest root in use. */
static int64_t age_of_roots(const lt_shampoo *s)
{
    int64_t age = 0;
    for (size_t i = 0; i < s->count; i++) {
        int64_t rooted = s->block[i].rooted;
        if (rooted && s->base.attempt - rooted > age)
            age = s->base.attempt - rooted;
    }
    return age;
}

lt_shampoo_stats lt_shampoo_statistics(const lt_optim *optim)
{
    lt_shampoo_stats stats = {0};
    if (!lt_is_shampoo(optim))
        return stats;
    const lt_shampoo *s = (const lt_shampoo *)optim;
    if (s->stats_step == s->base.attempt) /* else the step was skipped */
        stats = s->stats;
    if (s->base.shard)
        stats.gather_seconds = s->base.shard->seconds;
    stats.root_age = age_of_roots(s);
    return stats;
}
