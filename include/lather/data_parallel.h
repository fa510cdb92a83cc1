/** Data-parallel training: every rank computes gradients of its own batch, all apply their mean. */
#ifndef LATHER_DATA_PARALLEL_H
#define LATHER_DATA_PARALLEL_H

#include "lather/comm.h"
#include "lather/ext/reducer.h"
#include "lather/param.h"

/** How batch norm's running statistics, which every rank collects from its own data, are made equal. */
typedef enum lt_dist_bn {
    LT_DIST_BN_NONE,      /**< each rank keeps its own */
    LT_DIST_BN_BROADCAST, /**< rank 0's, in lt_data_parallel_statistics() */
    LT_DIST_BN_REDUCE     /**< the mean over ranks, there */
} lt_dist_bn;

typedef struct lt_data_parallel_config {
    size_t bucket_bytes; /**< gradients are reduced in buckets of about this size; 0: 25 MiB */
    lt_dtype dtype;      /**< communication dtype: LT_F32 (the gradients' own), LT_BF16, LT_F16 */
    bool no_overlap;     /**< start after backward, for measuring */
    lt_dist_bn dist_bn;
    bool sync_bn;   /**< batch norm's statistics are of all ranks' batches */
    bool alone_too; /**< a single rank reduces too, to test the communicator */
    /** How all ranks make a dense mean: "flat" (NULL), one all-reduce; "two-level", in each node, then between
     *  nodes; "auto", two-level where there are several nodes of several ranks each. */
    const char *allreduce;
    const char *compress;  /**< reducer and its argument: "topk:0.01"; NULL, "off": none */
    const lt_nodes *nodes; /**< of comm's ranks, borrowed; NULL: not known */
    int needed; /**< ranks whose gradients make an update (lather/stragglers.h); 0: all */
    int64_t micro_batches; /**< of a rank's update at most, of which a deadline may leave out some
                                (lather/stragglers.h); 0: none is left out */
    bool norms; /**< measure the norms of each rank's own gradients: lt_data_parallel_norms() */
} lt_data_parallel_config;

typedef struct lt_data_parallel lt_data_parallel;

/** Gives all ranks rank 0's parameters and statistics, and hooks into the tape's backward. Borrows
 *  all. config NULL: zeros. Collective. Errors: LT_E_ARG (ranks disagree on the parameters: names the
 *  first), LT_E_COMM, LT_E_NOMEM.
 *  Buckets follow the order in which rank 0's first backward finished the gradients.
 *  Source: Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training",
 *  VLDB 2020, section 3.2. */
LT_API LT_MUST_CHECK lt_status lt_data_parallel_new(lt_data_parallel **out, lt_comm *comm,
                                                    const lt_params *params, lt_tape *tape,
                                                    const lt_data_parallel_config *config);
LT_API void lt_data_parallel_free(lt_data_parallel **dp);

/** Before each backward: last says whether it is the last micro-batch of an update. Only then are
 *  buckets reduced, while backward computes the others. */
LT_API void lt_data_parallel_begin(lt_data_parallel *dp, bool last);
/** After the last backward of an update: waits until every gradient is the mean over ranks. A
 *  parameter has a gradient if any rank had one; the others count as zero. Collective: every rank
 *  must call it in every update, also one without any gradient. */
LT_API LT_MUST_CHECK lt_status lt_data_parallel_finish(lt_data_parallel *dp);
/** Makes running statistics equal on all ranks, by dist_bn; before an evaluation or a checkpoint. */
LT_API LT_MUST_CHECK lt_status lt_data_parallel_statistics(lt_data_parallel *dp);

/** Whether the last update was applied, or skipped: a reducer with residuals keeps or drops what it left over.
 *  Before the next lt_data_parallel_finish(); Errors: those of the reducer. */
LT_API LT_MUST_CHECK lt_status lt_data_parallel_commit(lt_data_parallel *dp, bool applied);
/** Whether updates from the next on may lose something to compression; on at first. The same on all ranks. */
LT_API void lt_data_parallel_compress(lt_data_parallel *dp, bool on);
/** Gradients are scale times too large: f64 0-D, borrowed, read by reducers with residuals; NULL: 1. */
LT_API void lt_data_parallel_set_loss_scale(lt_data_parallel *dp, const lt_tensor *scale);
/** Whether an update of gradients may be part of a captured graph. */
LT_API bool lt_data_parallel_is_capturable(const lt_data_parallel *dp);

/** State of the reducer, for checkpoints. gather, collective: before state is saved; loaded, collective: behind a
 *  visit that wrote it. */
LT_API LT_MUST_CHECK lt_status lt_data_parallel_visit(lt_data_parallel *dp,
                                                      lt_state_visitor *visitor);
LT_API LT_MUST_CHECK lt_status lt_data_parallel_gather(lt_data_parallel *dp);
LT_API LT_MUST_CHECK lt_status lt_data_parallel_loaded(lt_data_parallel *dp);

/** What this rank sent for gradients since lt_data_parallel_new(). */
LT_API void lt_data_parallel_sent(const lt_data_parallel *dp, lt_reducer_bytes *out);
/** Of that, what lt_comm_bytes() of the communicator does not count: sent in groups that were split from it. */
LT_API uint64_t lt_data_parallel_apart(const lt_data_parallel *dp);

/** Frobenius norms of this rank's gradients of the last update before they became the mean, f64 [trained parameters
 *  in their order]; 0: it had none. As backward left them: scaled by the loss scale. Written by
 *  lt_data_parallel_finish() at the latest. Borrowed; NULL: config.norms is false. */
LT_API lt_tensor *lt_data_parallel_norms(const lt_data_parallel *dp);

/** Seconds that lt_data_parallel_finish() waited, since the last call of this. */
LT_API double lt_data_parallel_exposed(lt_data_parallel *dp);

#endif
