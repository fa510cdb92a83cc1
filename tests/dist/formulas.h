/* Payload formulas of lather/comm.h, in elements. */
#ifndef LT_TESTS_DIST_FORMULAS_H
#define LT_TESTS_DIST_FORMULAS_H

#include <stdint.h>

/* Returns the elements of chunk number index of `parts` as even as possible, the first ones longer. */
static inline int64_t even_chunk(int64_t elements, int index, int parts)
{
    return elements / parts + (index < elements % parts);
}

/* Returns the elements that a rank sends in an all-reduce. */
static inline int64_t allreduce_sent(int64_t elements, int rank, int ranks)
{
    const int64_t chunk = even_chunk(elements, rank, ranks);
    return elements - chunk + (ranks - 1) * chunk;
}

#endif
