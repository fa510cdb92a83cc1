/** What a step of training costs on a machine that one may not have: seconds and bytes of a way to run, from a
 *  profile of one rank. */
#ifndef LATHER_DETAIL_PLAN_H
#define LATHER_DETAIL_PLAN_H

/* Not a stable interface: may change in any release. */

#include "lather/detail/comm_cost.h"
#include "lather/mesh.h"

/** A way to run: a candidate. */
typedef struct lt_plan_setup {
    int ranks;             /**< in all */
    int ranks_per_node;    /**< 0: the machine's. Ranks fill nodes; the last one is full as well */
    int64_t batch_size;    /**< samples of a rank (with a mesh: of a copy) and micro-batch */
    int64_t grad_accum;    /**< micro-batches of an update; 0: 1 */
    const char *optim;     /**< a name, for messages; may be NULL */
    int frequency;         /**< updates between new roots (Shampoo); 0: no roots */
    int block;             /**< --max-preconditioner-dim, for whoever reads it; not read here */
    bool shard_optimizer;  /**< state is divided over all ranks (local steps: over a node's) */
    lt_cost_plan exchange; /**< of gradients; its divided is set where shard_optimizer is */
    lt_mesh_config mesh;   /**< zeros: every rank has the whole model. data 0: what ranks give */
    int backup_workers;    /**< B: an update waits for the first ranks - B */
    double deadline;       /**< seconds from the update's begin (DropCompute); 0: none */
} lt_plan_setup;

typedef struct lt_plan_machine {
    lt_cost_cluster cluster; /**< links, and ranks of a node; nodes 0: as many as are wanted */
    double memory;           /**< bytes of a rank; 0: not known, all fits */
    /** Ranks of a node that compute at full speed at once: its cores over a rank's threads, or a share of
     *  them where nodes lie on one machine. More ranks share them, in what they compute and in
     *  what they copy within the node. 0: as many as there are. */
    double slots;
} lt_plan_machine;

/** Measured at one rank, of one model, optimizer and size of blocks. */
typedef struct lt_plan_profile {
    double fixed,
        per_sample; /**< seconds of a forward and backward of b samples: fixed + per_sample b */
    double load_per_sample; /**< seconds in which the loader makes one */
    /** In order of exchange. ready: the share of backward, 0 to 1, after which the last gradient is there. */
    const lt_cost_bucket *bucket;
    size_t buckets;
    double backward; /**< share of fixed + per_sample b that is backward */
    double
        staging;   /**< seconds in which all gradients go into buckets and back; of several ranks */
    double update; /**< seconds of an update without new roots, state undivided */
    double refresh; /**< seconds of all new roots, once in setup.frequency updates */
    /** Shampoo: what each block takes of update and of refresh. NULL: parts of equal cost, of any size. */
    const double *block_update, *block_refresh;
    const int64_t *block_elements;
    size_t blocks;
    double state_bytes;      /**< of the optimizer, undivided */
    double parameter_bytes;  /**< of the values; gradients take as many */
    double activation_bytes; /**< of a sample */
    double layers, hidden,
        tokens; /**< transformers: blocks, width, tokens of a sample; 0: no mesh */
    double
        vocabulary; /**< rows of a table that is embedding and last layer, which a mesh divides; 0 */
    const double
        *step_seconds; /**< recorded steps of one rank, without waiting for others: their spread */
    size_t steps;
} lt_plan_profile;

/** All per update. */
typedef struct lt_plan_cost {
    double load; /**< seconds in which the loader makes a rank's samples */
    /** Forward and backward, of several ranks the gradients' copies into buckets and back: C; with a mesh, exchanges
     *  inside its layers too */
    double compute;
    double update;  /**< the optimizer: U, the slowest owner's, roots spread over the updates */
    double exposed; /**< exchange that is not behind backward: X */
    double waiting; /**< for the slowest rank that is waited for, beyond the mean; may be below 0 */
    /** max(load, compute + update) + exposed + waiting; of ranks that share cores instead of the maximum at least the
     *  share of cores that they use of the sum, as loaders take cores too */
    double seconds;
    double
        samples; /**< that the update uses, on average: less than computed with a backup or deadline */
    double memory; /**< bytes of the rank that needs the most */
    bool fits;
} lt_plan_cost;

/** A step's cost: max(load, C + U, min(1, ranks of a node / slots) (load + C + U)) + X + waiting.
 *  C = grad_accum (fixed + per_sample b) + staging. X by lt_cost_simulate(), of the last
 *  micro-batch's backward, and what follows the update. waiting: the expected maximum of one draw per rank from
 *  the recorded steps; (ranks - B)-th smallest with backup workers; with a deadline as lt_drop_predict().
 *  Errors: LT_E_ARG (which field, and its value; ranks that fill no nodes or no mesh), LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_plan_predict(lt_plan_cost *out, const lt_plan_profile *profile,
                                               const lt_plan_machine *machine,
                                               const lt_plan_setup *setup);

/** Expected k-th smallest of n draws, with replacement, from count values: sum over the sorted x(i) of
 *  x(i) (I(i / count) - I((i-1) / count)), I(p) = P[at least k of n are below p]. Source: David & Nagaraja,
 *  "Order Statistics", 3rd ed., 2003, section 2.1. Errors: LT_E_ARG, LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_plan_order_statistic(double *out, const double *value,
                                                       size_t count, int n, int k);

/** A mesh against data parallelism over as many ranks, which fits: the elements that a rank receives for a layer of width
 *  hidden in an update of T tokens of a copy. lt_mesh_cost_layer() + 2 (c-1)/c 12 h^2 / (rows columns) of c copies, against
 *  2 (n-1)/n 12 h^2 of n ranks. Errors: LT_E_ARG (no mesh, or a size below 1). */
LT_API LT_MUST_CHECK lt_status lt_plan_mesh_verdict(lt_cost_verdict *out,
                                                    const lt_mesh_config *mesh, double tokens,
                                                    double hidden);

#endif
