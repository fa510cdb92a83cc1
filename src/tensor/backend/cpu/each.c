/* Lists of jobs on the team, a job a thread. */

#include "base/parallel.h"
#include "tensor/backend/cpu/internal.h"

#include <stdatomic.h>

typedef struct list {
    lt_cpu_job_fn *fn;
    void *context;
    atomic_int status; /* of the first job that failed */
} list;

static void run(void *context, int64_t begin, int64_t end, int64_t chunk)
{
    (void)chunk;
    list *l = context;
    for (int64_t i = begin; i < end; i++) {
        const lt_status st = l->fn(l->context, i);
        int ok = LT_OK;
        if (st)
            atomic_compare_exchange_strong(&l->status, &ok, (int)st);
    }
}

lt_status lt_cpu_each(const char *what, size_t count, lt_cpu_job_fn *fn, void *context)
{
    list l = {.fn = fn, .context = context};
    lt_parallel((int64_t)count, 1, run, &l);
    const lt_status st = (lt_status)atomic_load(&l.status);
    return st ? lt_fail(st, "cpu: %s failed", what) : LT_OK;
}
