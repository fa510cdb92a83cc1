/** Collectives for operations, as a table of functions: the tensor library does not depend on communicators. */
#ifndef LATHER_DETAIL_PROCESS_GROUP_H
#define LATHER_DETAIL_PROCESS_GROUP_H

/* Not a stable interface: may change in any release. */

#include "lather/detail/view.h"

typedef enum lt_collective_kind {
    LT_COLLECTIVE_ALLREDUCE,     /**< all-reduce in place: out becomes the sum over ranks */
    LT_COLLECTIVE_ALLREDUCE_MAX, /**< all-reduce in place: out becomes the maximum over ranks */
    LT_COLLECTIVE_ALLGATHER,     /**< all-gather: out is `in` of every rank, in rank order */
    LT_COLLECTIVE_REDUCESCATTER, /**< reduce-scatter: out is this rank's shard of the sum over ranks of in */
    LT_COLLECTIVE_BROADCAST, /**< broadcast in place: out becomes the root's */
    LT_COLLECTIVE_REDUCE     /**< reduce: out on the root is the sum over ranks of in */
} lt_collective_kind;

/** Dense views of one dtype, borrowed until the wait. */
typedef struct lt_collective_call {
    lt_collective_kind what;
    int root;        /**< root of a broadcast or reduce */
    lt_view in, out; /**< in is unused if in place; out is used on the root only in a reduce */
    const int64_t *
        count; /**< [size] elements of each rank's shard in an all-gather or reduce-scatter, else NULL;
                               borrowed until begin returns */
} lt_collective_call;

/** A group of ranks, which all begin the same calls in the same order. Both functions are required. */
typedef struct lt_process_group lt_process_group;
struct lt_process_group {
    int rank, size;
    lt_status (*begin)(lt_process_group *self, const lt_collective_call *call, void **request);
    /** Waits and sets *request to NULL; no-op if it is NULL. */
    lt_status (*wait)(lt_process_group *self, void **request);
};

/** Begins a call and waits for it. */
LT_API LT_MUST_CHECK lt_status lt_collective_run(lt_process_group *self,
                                                 const lt_collective_call *call);

/** Returns the size of shard number index when `whole` elements are split as evenly as possible, the first shards
 *  longer. */
LT_API int64_t lt_even_shard_size(int64_t whole, int parts, int index);
/** Returns the offset of shard number index of lt_even_shard_size(); `whole` if index == parts. */
LT_API int64_t lt_even_shard_offset(int64_t whole, int parts, int index);

#endif
