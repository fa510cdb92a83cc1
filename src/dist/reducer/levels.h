/* Means over all ranks that a reducer drives hop by hop: one all-reduce, or, where several nodes have several ranks
 * each, a reduce-scatter in each node, an all-reduce among the ranks with the same place in their nodes, and an
 * all-gather in each node. All calls are the caller's, so their order is that of its steps. */
#ifndef LT_DIST_REDUCER_LEVELS_H
#define LT_DIST_REDUCER_LEVELS_H

#include "lather/ext/reducer.h"

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
    lt_tensor *what;  /* borrowed */
    lt_tensor *shard; /* of two levels: this rank's part; NULL: of 0 elements */
    int64_t *count;   /* [ranks of the node] */
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
