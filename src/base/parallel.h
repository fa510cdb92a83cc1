/* Data-parallel loops on the calling thread's OpenMP team. Only parallel.c contains omp pragmas. */
#ifndef LT_BASE_PARALLEL_H
#define LT_BASE_PARALLEL_H

#include <stdint.h>

/* Callback that processes items [begin, end); chunk is begin / grain. */
typedef void lt_chunk_fn(void *context, int64_t begin, int64_t end, int64_t chunk);

/* Splits [0, count) into chunks of grain, by size only, and runs each once on the team. Sums that combine partial
 * results in chunk order do not depend on the number of threads. Nested calls run serially. */
void lt_parallel(int64_t count, int64_t grain, lt_chunk_fn *fn, void *context);

/* Does the same for callbacks that do not need the chunk's number. */
typedef void lt_range_fn(void *context, int64_t begin, int64_t end);
void lt_parallel_range(int64_t count, int64_t grain, lt_range_fn *fn, void *context);

/* Sets (or returns) the number of threads of the team; set when a device is opened, also for oneDNN. */
void lt_parallel_set_threads(int threads);
int lt_parallel_threads(void);
/* Returns the calling thread's index in the team, 0 .. threads-1, for per-thread workspaces. */
int lt_parallel_index(void);

#endif
