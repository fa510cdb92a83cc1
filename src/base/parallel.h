/* Data-parallel loops on the calling thread's team of compute threads. The only file of the
 * library with omp pragmas is parallel.c. */
#ifndef LT_BASE_PARALLEL_H
#define LT_BASE_PARALLEL_H

#include <stdint.h>

/* Does the chunk [begin, end) of the work; chunk is begin / grain. */
typedef void lt_chunk_fn(void *context, int64_t begin, int64_t end, int64_t chunk);

/* Cuts [0, count) into chunks of grain, by size alone, and runs them on the team, each once.
 * Sums: a partial result per chunk, combined in chunk order, has the same bits for any number of
 * threads. Inside a chunk, a nested call runs serially. */
void lt_parallel(int64_t count, int64_t grain, lt_chunk_fn *fn, void *context);

/* Threads of the team; set when a device is opened. Also oneDNN's. */
void lt_parallel_set_threads(int threads);
int lt_parallel_threads(void);
/* Index of the calling thread in the team, 0 .. threads-1: for scratch memory. */
int lt_parallel_index(void);

#endif
