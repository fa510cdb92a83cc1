/* Hierarchical (two-level) reduction: communicators, and a rank's shard of a tensor within its node.
 *
 * lt_hier_mean is a mean over all ranks that its reducer advances phase by phase: one all-reduce; or, if several nodes
 * have several ranks each, a reduce-scatter within each node, an all-reduce among peers (ranks with the same local rank)
 * and an all-gather within each node. The caller determines the order of all calls. */
#ifndef LT_DIST_REDUCER_HIERARCHICAL_H
#define LT_DIST_REDUCER_HIERARCHICAL_H

#include "lather/ext/reducer.h"

/* Communicators of three concurrent pipeline stages; scatter and gather connect this node's ranks. */
typedef struct lt_hier_comms {
    lt_comm *scatter, *peers, *gather;
} lt_hier_comms;

/* Opens the stages' communicators. Collective. After a failure call lt_hier_comms_close(). */
LT_MUST_CHECK lt_status lt_hier_comms_open(lt_hier_comms *comms, const lt_nodes *nodes,
                                           lt_comm *comm);
/* Closes the stages' communicators; waits for requests in flight. */
void lt_hier_comms_close(lt_hier_comms *comms);
void lt_hier_comms_bytes_sent(const lt_hier_comms *comms, lt_reducer_bytes *out);

/* A rank's shard of a tensor that its node's ranks split as evenly as possible, the first shards longer. */
typedef struct lt_hier_shard {
    int64_t *count;          /* [ranks of the node] elements of each shard */
    int64_t first, elements; /* offset and elements of this rank's shard */
    lt_tensor *tensor;       /* elements of this rank's shard; NULL if it has 0 elements */
} lt_hier_shard;

/* Makes the shard of the first `elements` elements of whole. */
LT_MUST_CHECK lt_status lt_hier_shard_open(lt_hier_shard *shard, const lt_comm *node,
                                           const lt_tensor *whole, int64_t elements);
void lt_hier_shard_close(lt_hier_shard *shard);
/* Intersects a part of the whole with this shard, in elements of the whole; returns false if they are disjoint. */
bool lt_hier_shard_intersects(const lt_hier_shard *shard, const lt_reducer_part *part,
                              int64_t *from, int64_t *to);

typedef struct lt_hier {
    const lt_reducer *reducer;
    lt_comm *node, *peers; /* ranks of the node, and peers; NULL if flat: one all-reduce */
    uint64_t sent;         /* bytes sent, if flat */
} lt_hier;

/* Opens the communicators for the reducer's comm and nodes. Collective. */
LT_MUST_CHECK lt_status lt_hier_open(lt_hier *hier, const lt_reducer *reducer);
void lt_hier_close(lt_hier *hier);
void lt_hier_bytes_sent(const lt_hier *hier, lt_reducer_bytes *out);

/* A tensor that is averaged in every update. */
typedef struct lt_hier_mean {
    lt_hier *hier;
    lt_tensor *tensor;   /* the tensor; borrowed */
    lt_hier_shard shard; /* this rank's shard of it; unused if flat */
    int phase;
    lt_request *request;
} lt_hier_mean;

LT_MUST_CHECK lt_status lt_hier_mean_open(lt_hier_mean *mean, lt_hier *hier, lt_tensor *tensor);
void lt_hier_mean_close(lt_hier_mean *mean);
/* Starts the first phase of the mean. */
LT_MUST_CHECK lt_status lt_hier_mean_begin(lt_hier_mean *mean);
/* Waits for a phase and starts the next one; sets *done after the last: the tensor is the mean. */
LT_MUST_CHECK lt_status lt_hier_mean_step(lt_hier_mean *mean, bool *done);

#endif
