/** Local steps (DiLoCo): groups of ranks train independently and synchronize every N steps. Gradients are averaged within
 *  a group; between groups only the change of the parameters since the last synchronization is, for slow links. */
#ifndef LATHER_LOCAL_STEPS_H
#define LATHER_LOCAL_STEPS_H

#include "lather/data_parallel.h"
#include "lather/detail/state.h"
#include "lather/detail/topology.h"

typedef struct lt_local_steps lt_local_steps;

typedef struct lt_local_steps_config {
    int64_t every;   /**< inner steps per round, at least 1 */
    double lr;       /**< outer learning rate, above 0 */
    double momentum; /**< outer momentum, in [0,1) */
    /** Compression between groups: NULL or "off": none; "topk:DENSITY": the ceil(DENSITY * n) largest of a rank's n
     *  elements (ties: the lower index), as f32; "topk:DENSITY,bf16"; "topk:DENSITY,2bit": sign and one of two levels
     *  per 4,096 sent elements: the mean of the |v| that are at most the mean |v|, and the mean of the others. */
    const char *compress;
    double
        decay; /**< decay factor of the error feedback per round, in (0,1]; 0: 1; only with compress */
    lt_dist_bn dist_bn; /**< synchronization of running statistics in an outer step */
} lt_local_steps_config;

/**
 * Broadcasts rank 0's values to all ranks of comm. Each node of nodes is a group, over whose ranks the outer state is
 * sharded: rank i of n keeps the i-th shard of all trained elements, as even as possible, and reduces it with the i-th
 * ranks of the other groups. Collective.
 *
 * With t0 the values after the last outer step and t this group's values now, an outer step is
 *     d = t0 - t;  D = the mean of d over groups;  u = momentum u + D;  t0 -= lr (D + momentum u);  t = t0
 * Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language Models", 2023 (arXiv 2311.08105),
 * algorithm 1 with Nesterov's momentum as in Sutskever et al., ICML 2013. With compress
 *     e = decay e + d;  q = compressed e;  e -= q;  D = the mean of q over groups
 * Sarfi et al., "Communication Efficient LLM Pre-training with SparseLoCo", 2025 (arXiv 2508.15706), algorithm 1.
 *
 * Borrows  comm, params; nodes until it returns
 * Errors   LT_E_ARG (a number out of range; a single group; groups of different sizes; ranks that disagree), LT_E_COMM,
 *          LT_E_NOMEM
 */
LT_API LT_MUST_CHECK lt_status lt_local_steps_new(lt_local_steps **out, lt_comm *comm,
                                                  const lt_nodes *nodes, const lt_params *params,
                                                  const lt_local_steps_config *config);
/** Frees the local steps; before comm is closed. Collective. */
LT_API void lt_local_steps_free(lt_local_steps **local);

/** Returns the communicator of this group, for lt_data_parallel_new() and lt_optim_shard(). Owns: local. */
LT_API lt_comm *lt_local_steps_comm(const lt_local_steps *local);
LT_API int lt_local_steps_groups(const lt_local_steps *local);
/** Returns this rank's group index, 0 to groups-1. */
LT_API int lt_local_steps_group(const lt_local_steps *local);
/** Returns the number of inner steps since the last outer step; 0 if all ranks have the same values. */
LT_API int64_t lt_local_steps_since_sync(const lt_local_steps *local);

/** Counts an inner step, also one that a group skipped, so that rounds are equally long in all groups. Makes the outer
 *  step at the end of a round and sets *met. Collective.
 *  Errors: LT_E_ARG (compress: a change is not finite, naming parameter and group), LT_E_COMM. */
LT_API LT_MUST_CHECK lt_status lt_local_steps_step(lt_local_steps *local, bool *met);
/** Makes the outer step now if a round has begun, for example before an evaluation, and sets *met. Collective.
 *  Errors: as lt_local_steps_step(). */
LT_API LT_MUST_CHECK lt_status lt_local_steps_synchronize(lt_local_steps *local, bool *met);
/** Begins a round from the current values, loaded and equal on all ranks; keeps momentum and error feedback. */
LT_API LT_MUST_CHECK lt_status lt_local_steps_begin(lt_local_steps *local);

/** Payload bytes that this rank has sent in outer steps. With d elements of b bytes in its shard, s elements of running
 *  statistics, n ranks in its group and m groups, a step sends
 *      between groups: an all-reduce of d and one of s (lather/comm.h), or with compress (m-1) M and one of s;
 *      within: (n-1) d b, and an all-reduce of s.
 *  M, for k = ceil(DENSITY d) elements: indices of the least of 4 k, 2 k + 2 ceil(d/4096) and ceil(d/8) bytes, and values
 *  of 4 k, bf16 2 k, 2bit ceil(k/4) + 8 ceil(k/4096) bytes; both padded to multiples of 4. */
typedef struct lt_local_steps_bytes {
    uint64_t within, between;
} lt_local_steps_bytes;
LT_API lt_local_steps_bytes lt_local_steps_bytes_sent(const lt_local_steps *local);

/* --- Checkpoints --- */

/** Gathers the ranks' shards into whole tensors, which the visits show. Collective. */
LT_API LT_MUST_CHECK lt_status lt_local_steps_gather_state(lt_local_steps *local);
/** Frees the whole tensors; loaded: first copies this rank's shards out of them. */
LT_API LT_MUST_CHECK lt_status lt_local_steps_free_gathered(lt_local_steps *local, bool loaded);
/** Visits state common to all groups: numbers "outer.groups", "outer.since"; "outer.start" within a round;
 *  "outer.momentum". Owner: rank 0. */
LT_API LT_MUST_CHECK lt_status lt_local_steps_visit(lt_local_steps *local,
                                                    lt_state_visitor *visitor);
/** Visits state of this group, on each of its ranks: "outer.residual"; within a round, except in the first group,
 *  "outer.value" of all saved tensors of the model. */
LT_API LT_MUST_CHECK lt_status lt_local_steps_visit_group(lt_local_steps *local,
                                                          lt_state_visitor *visitor);
/** Returns the rank in comm of a group's rank. */
LT_API int lt_local_steps_rank(const lt_local_steps *local, int group, int rank);

#endif
