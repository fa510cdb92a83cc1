/* lt_parallel() on an OpenMP team, or serially without OpenMP. */

#include "base/parallel.h"

/* LT_NO_OPENMP: for ThreadSanitizer, which does not understand libgomp's synchronisation. */
#if defined _OPENMP && !defined LT_NO_OPENMP
#include <omp.h>

void lt_parallel(int64_t count, int64_t grain, lt_chunk_fn *fn, void *context)
{
    int64_t chunks = (count + grain - 1) / grain;
    if (chunks <= 1 || omp_in_parallel() || omp_get_max_threads() == 1) {
        for (int64_t i = 0; i < chunks; i++)
            fn(context, i * grain, (i + 1) * grain < count ? (i + 1) * grain : count, i);
        return;
    }
#pragma omp parallel for schedule(dynamic)
    for (int64_t i = 0; i < chunks; i++)
        fn(context, i * grain, (i + 1) * grain < count ? (i + 1) * grain : count, i);
}

void lt_parallel_set_threads(int threads)
{
    omp_set_num_threads(threads);
}

int lt_parallel_threads(void)
{
    return omp_get_max_threads();
}

int lt_parallel_index(void)
{
    return omp_get_thread_num();
}

#else

void lt_parallel(int64_t count, int64_t grain, lt_chunk_fn *fn, void *context)
{
    for (int64_t begin = 0; begin < count; begin += grain)
        fn(context, begin, begin + grain < count ? begin + grain : count, begin / grain);
}

void lt_parallel_set_threads(int threads)
{
    (void)threads;
}

int lt_parallel_threads(void)
{
    return 1;
}

int lt_parallel_index(void)
{
    return 0;
}

#endif

typedef struct range {
    lt_range_fn *fn;
    void *context;
} range;

static void run_range(void *context, int64_t begin, int64_t end, int64_t chunk)
{
    const range *r = context;
    (void)chunk;
    r->fn(r->context, begin, end);
}

void lt_parallel_range(int64_t count, int64_t grain, lt_range_fn *fn, void *context)
{
    lt_parallel(count, grain, run_range, &(range){fn, context});
}
