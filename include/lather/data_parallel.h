/** Data-parallel training: every rank computes gradients of a different batch, and all apply their mean. */
#ifndef LATHER_DATA_PARALLEL_H
#define LATHER_DATA_PARALLEL_H

#include "lather/comm.h"
#include "lather/ext/reducer.h"
#include "lather/param.h"

/** Synchronization of batch norm's running statistics, which every rank collects from its own data. */
typedef enum lt_dist_bn {
    LT_DIST_BN_NONE,      /**< no synchronization: each rank keeps its own statistics */
    LT_DIST_BN_BROADCAST, /**< lt_data_parallel_sync_statistics() broadcasts rank 0's statistics */
    LT_DIST_BN_REDUCE     /**< lt_data_parallel_sync_statistics() averages them over ranks */
} lt_dist_bn;

typedef struct lt_data_parallel_config {
    size_t bucket_bytes; /**< approximate bytes of a gradient bucket; 0: 25 MiB */
    lt_dtype
        dtype; /**< communication dtype: LT_F32 (the gradients' master dtype), LT_BF16, LT_F16 */
    bool no_overlap; /**< start all-reduces after backward, for measurements */
    lt_dist_bn dist_bn;
    bool sync_bn;   /**< synchronized batch norm: statistics over all ranks' batches */
    bool alone_too; /**< reduce on a single rank too, to test the communicator */
    /** Algorithm of uncompressed means: "flat" (NULL), one all-reduce; "two-level", within nodes, then between nodes;
     *  "auto", two-level if several nodes have several ranks each. */
    const char *allreduce;
    const char *compress;  /**< reducer and argument: "topk:0.01"; NULL or "off": no compression */
    const lt_nodes *nodes; /**< nodes of comm's ranks, borrowed; NULL: unknown */
    int needed; /**< backup workers: number of ranks whose gradients make an update (lather/stragglers.h); 0: all */
    int64_t
        micro_batches; /**< drop compute: maximum micro-batches of a rank per update (lather/stragglers.h); 0: off */
    bool norms; /**< measure norms of this rank's own gradients: lt_data_parallel_norms() */
} lt_data_parallel_config;

typedef struct lt_data_parallel lt_data_parallel;

/** Broadcasts rank 0's parameters and statistics, and hooks into the tape's backward. Borrows all arguments. config NULL:
 *  zeros. Collective. Errors: LT_E_ARG (ranks disagree on the parameters; names the first), LT_E_COMM, LT_E_NOMEM.
 *  Buckets hold gradients in the order in which rank 0's first backward finished them.
 *  Source: Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training",
 *  VLDB 2020, section 3.2. */
LT_API LT_MUST_CHECK lt_status lt_data_parallel_new(lt_data_parallel **out, lt_comm *comm,
                                                    const lt_params *params, lt_tape *tape,
                                                    const lt_data_parallel_config *config);
LT_API void lt_data_parallel_free(lt_data_parallel **dp);

/** From now on gradients are summed over ranks, not averaged, as a caller wants whose loss is divided by their number;
 *  lt_data_parallel_sync_statistics() becomes the caller's work. Errors: LT_E_UNSUPPORTED (compression, two-level
 *  all-reduce, backup workers or synchronized batch norm: their sums depend on the number of ranks). */
LT_API LT_MUST_CHECK lt_status lt_data_parallel_use_sum(lt_data_parallel *dp);
/** Must precede each backward. last: this is the last micro-batch of an update; only then are buckets reduced, overlapped
 *  with backward. */
LT_API void lt_data_parallel_begin(lt_data_parallel *dp, bool last);
/** After the last backward of an update: waits until every gradient is the mean over ranks. A parameter has a gradient if
 *  any rank has one; missing ones count as zero. Collective: every rank must call it in every update, also a rank without
 *  gradients. */
LT_API LT_MUST_CHECK lt_status lt_data_parallel_finish(lt_data_parallel *dp);
/** Makes running statistics equal on all ranks, as dist_bn specifies. Call it before an evaluation or a checkpoint. */
LT_API LT_MUST_CHECK lt_status lt_data_parallel_sync_statistics(lt_data_parallel *dp);

/** Reports that the last update was applied or skipped: error feedback advances only if applied. Call it before the next
 *  lt_data_parallel_finish(). Errors: those of the reducer. */
LT_API LT_MUST_CHECK lt_status lt_data_parallel_commit(lt_data_parallel *dp, bool applied);
/** Enables (default) or disables compression from the next update on; equally on all ranks. */
LT_API void lt_data_parallel_compress(lt_data_parallel *dp, bool on);
/** Sets the loss scale of the gradients, f64 0-D, borrowed, used by reducers with error feedback; NULL: 1. */
LT_API void lt_data_parallel_set_loss_scale(lt_data_parallel *dp, const lt_tensor *scale);
/** Returns true if reductions may be part of a captured graph. */
LT_API bool lt_data_parallel_is_capturable(const lt_data_parallel *dp);

/** State of the reducer for checkpoints. Call gather before saving and loaded after a visit that wrote state; both are
 *  collective. */
LT_API LT_MUST_CHECK lt_status lt_data_parallel_visit(lt_data_parallel *dp,
                                                      lt_state_visitor *visitor);
LT_API LT_MUST_CHECK lt_status lt_data_parallel_gather_state(lt_data_parallel *dp);
LT_API LT_MUST_CHECK lt_status lt_data_parallel_finish_load(lt_data_parallel *dp);

/** Returns the bytes that this rank sent for gradients since lt_data_parallel_new(). */
LT_API void lt_data_parallel_bytes_sent(const lt_data_parallel *dp, lt_reducer_bytes *out);
/** Returns the gradient bytes that lt_comm_bytes() does not count: sent in groups split from the communicator. */
LT_API uint64_t lt_data_parallel_subgroup_bytes(const lt_data_parallel *dp);

/** Returns the Frobenius norms of this rank's gradients in the last update, before the reduction and with the loss scale:
 *  f64 [trained parameters], 0 without gradient. Valid after lt_data_parallel_finish(). Borrowed; NULL unless
 *  config.norms. */
LT_API lt_tensor *lt_data_parallel_norms(const lt_data_parallel *dp);

/** Returns the seconds that lt_data_parallel_finish() has waited since the last call of this function. */
LT_API double lt_data_parallel_wait_seconds(lt_data_parallel *dp);

#endif
