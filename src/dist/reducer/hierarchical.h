/* Shared by two-level reducers: groups, and a rank's part of a tensor in its node.
 *
 * Means over all ranks that a reducer drives hop by hop: one all-reduce, or, where several nodes have several ranks
 * each, a reduce-scatter in each node, an all-reduce among the ranks with the same place in their nodes, and an
 * all-gather in each node. All calls are the caller's, so their order is that of its steps. */
#ifndef LT_DIST_REDUCER_HIERARCHICAL_H
#define LT_DIST_REDUCER_HIERARCHICAL_H

#include "lather/ext/reducer.h"

/* Groups of three stages that are in flight at once; scatter and gather are of this node's ranks. */
typedef struct lt_level_comms {
    lt_comm *scatter, *peers, *gather;
} lt_level_comms;

/* Collective. What a failure left open is closed by lt_level_comms_close(). */
LT_MUST_CHECK lt_status lt_level_comms_open(lt_level_comms *comms, const lt_nodes *nodes,
                                            lt_comm *comm);
/* Waits for what is in flight. */
void lt_level_comms_close(lt_level_comms *comms);
void lt_level_comms_sent(const lt_level_comms *comms, lt_reducer_bytes *out);

/* A rank's part of a tensor that its node's ranks divide as evenly as possible, the first parts longer. */
typedef struct lt_level_shard {
    int64_t *count;          /* [ranks of the node] elements of each */
    int64_t first, elements; /* of this rank's */
    lt_tensor *tensor;       /* NULL: of 0 elements */
} lt_level_shard;

/* Of the first elements of whole. */
LT_MUST_CHECK lt_status lt_level_shard_open(lt_level_shard *shard, const lt_comm *node,
                                            const lt_tensor *whole, int64_t elements);
void lt_level_shard_close(lt_level_shard *shard);
/* Which elements of a part of the whole are in this shard, counted in the whole; false: none. */
bool lt_level_shard_meets(const lt_level_shard *shard, const lt_reducer_part *part, int64_t *from,
                          int64_t *to);

typedef struct lt_levels {
    const lt_reducer *reducer;
    lt_comm *node, *peers; /* NULL: one level */
    uint64_t sent;         /* of the one level */
} lt_levels;

/* Of the reducer's comm and nodes. Collective. */
LT_MUST_CHECK lt_status lt_levels_open(lt_levels *levels, const lt_reducer *reducer);
void lt_levels_close(lt_levels *levels);
void lt_levels_sent(const lt_levels *levels, lt_reducer_bytes *out);

/* A tensor whose mean is made, again and again. */
typedef struct lt_level_mean {
    lt_levels *levels;
    lt_tensor *what;      /* borrowed */
    lt_level_shard shard; /* of two levels */
    int hop;
    lt_request *request;
} lt_level_mean;

LT_MUST_CHECK lt_status lt_level_mean_open(lt_level_mean *mean, lt_levels *levels, lt_tensor *what);
void lt_level_mean_close(lt_level_mean *mean);
/* Starts the first hop. */
LT_MUST_CHECK lt_status lt_level_mean_begin(lt_level_mean *mean);
/* Waits for a hop and starts the next one; *done: there was none, and the tensor is the mean. */
LT_MUST_CHECK lt_status lt_level_mean_step(lt_level_mean *mean, bool *done);

#endif
