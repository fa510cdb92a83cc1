/** Cost model of a training step: predicts the seconds and bytes of a parallel configuration, on any machine, from a
 *  profile of one rank. */
#ifndef LATHER_DETAIL_PLAN_H
#define LATHER_DETAIL_PLAN_H

/* Not a stable interface: may change in any release. */

#include "lather/detail/comm_cost.h"
#include "lather/mesh.h"

/** A parallel configuration. */
typedef struct lt_plan_setup {
    int ranks;
    int ranks_per_node;    /**< must divide ranks; 0: the machine's */
    int64_t batch_size;    /**< samples of a rank (with a mesh: of a replica) per micro-batch */
    int64_t grad_accum;    /**< micro-batches per update; 0: 1 */
    const char *optim;     /**< name of the optimizer; NULL: one that is not elementwise */
    int frequency;         /**< updates between root refreshes (Shampoo); 0: none */
    int block;             /**< Shampoo's block size; 0: none. Ignored by lt_plan_predict() */
    bool shard_optimizer;  /**< shards state, over all ranks or a node's: exchange.gather */
    lt_cost_plan exchange; /**< exchange of gradients; sharded is implied by shard_optimizer */
    lt_mesh_config mesh;   /**< mesh; zeros: data parallelism. data 0: as many as ranks allow */
    int backup_workers;    /**< number of ranks that an update does not wait for */
    double deadline;       /**< DropCompute: deadline of an update in seconds; 0: none */
} lt_plan_setup;

typedef struct lt_plan_machine {
    lt_cost_cluster cluster; /**< links, ranks per node; nodes 0: as many as needed */
    double memory;           /**< memory in bytes per rank; 0: unlimited */
    /** Ranks of a node that compute at full speed at once: its cores divided by a rank's threads, or a share of them
     *  if several nodes are one machine. More ranks share the cores, for computation and for copies within
     *  the node. 0: all ranks. */
    double slots;
} lt_plan_machine;

/** Costs of one of Shampoo's blocks: seconds of an update and of a refresh of its roots. */
typedef struct lt_plan_block {
    double update, refresh;
    int64_t elements;
} lt_plan_block;

/** Measurements at one rank, with one model, optimizer and block size. */
typedef struct lt_plan_profile {
    double fixed,
        per_sample; /**< seconds of forward and backward with b samples: fixed + per_sample b */
    double load_per_sample; /**< seconds of the loader per sample */
    /** In order of exchange. ready: share of backward, 0 to 1, after which its gradients are complete. */
    const lt_cost_bucket *bucket;
    size_t buckets;
    double backward; /**< fraction of fixed + per_sample b that is backward */
    double
        staging; /**< seconds of copying all gradients into buckets and back, with several ranks */
    double update;  /**< seconds of an update without root refresh, state not sharded */
    double refresh; /**< seconds of a refresh of all roots, once per setup.frequency updates */
    const lt_plan_block *block; /**< costs of Shampoo's blocks; NULL: owners share work equally */
    size_t blocks;
    double state_bytes;      /**< bytes of optimizer state, not sharded */
    double parameter_bytes;  /**< bytes of parameter values; gradients take the same */
    double activation_bytes; /**< bytes of activations per sample */
    double layers, hidden,
        tokens;        /**< transformers: layers, width, tokens per sample; 0: no mesh possible */
    double vocabulary; /**< rows of a tied embedding table, which a mesh shards; 0: none */
    const double *step_seconds; /**< recorded steps of one rank, for their spread */
    size_t steps;
} lt_plan_profile;

/** Predicted costs of an update, in seconds unless noted. */
typedef struct lt_plan_cost {
    double load; /**< seconds in the loader for a rank's samples */
    /** C: forward and backward, with several ranks copies of gradients into buckets and back, with a mesh communication
     *  inside the layers */
    double compute;
    double update; /**< U: the optimizer, of the slowest owner, refreshes spread over the updates */
    double exposed; /**< X: communication that is not overlapped with backward */
    double waiting; /**< wait for the slowest awaited rank, beyond the mean; may be negative */
    /** max(load, compute + update) + exposed + waiting; where ranks share cores the maximum is at least the share of
     *  the cores that they use of the sum, as loaders use cores too */
    double seconds;
    double samples; /**< mean samples used per update; fewer with backup workers or a deadline */
    double memory;  /**< memory in bytes of the rank that needs most */
    bool fits;
} lt_plan_cost;

/** Predicts the cost of a step: max(load, C + U, min(1, ranks of a node / slots) (load + C + U)) + X + waiting. C =
 *  grad_accum (fixed + per_sample b) + staging. X by lt_cost_simulate(), of the last micro-batch's backward, and of the
 *  communication after the update. waiting: the expected maximum of one draw per rank from the recorded steps; with B
 *  backup workers the (ranks - B)-th smallest; with a deadline as lt_drop_predict(). Errors: LT_E_ARG (a field and its
 *  value; ranks that do not fill nodes or the mesh), LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_plan_predict(lt_plan_cost *out, const lt_plan_profile *profile,
                                               const lt_plan_machine *machine,
                                               const lt_plan_setup *setup);

/** Computes the expected k-th smallest of n draws, with replacement, from count values: the sum over the sorted x(i) of
 *  x(i) (I(i / count) - I((i-1) / count)), I(p) = P[at least k of n are below p]. Source: David & Nagaraja,
 *  "Order Statistics", 3rd ed., 2003, section 2.1. Errors: LT_E_ARG, LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_plan_order_statistic(double *out, const double *value,
                                                       size_t count, int n, int k);

#endif
