/** Local steps: groups of ranks train by themselves and meet every so many steps. Within a group gradients are averaged
 *  as ever; between groups only the way that each has gone since they met is, so that slow links carry little. */
#ifndef LATHER_LOCAL_STEPS_H
#define LATHER_LOCAL_STEPS_H

#include "lather/data_parallel.h"
#include "lather/detail/state.h"
#include "lather/detail/topology.h"

typedef struct lt_local_steps lt_local_steps;

typedef struct lt_local_steps_config {
    int64_t every;   /**< inner steps of a round, at least 1 */
    double lr;       /**< of the outer step, above 0 */
    double momentum; /**< of the outer step, in [0,1) */
    /** What groups send: NULL or "off": all of it; "topk:DENSITY": the ceil(DENSITY * n) largest of a rank's n
     *  elements (ties: the lower index), as f32; "topk:DENSITY,bf16"; "topk:DENSITY,2bit": a sign and one of two
     *  levels, the means of the |v| that are at most the mean |v|, and of the others, in each 4,096 that are sent. */
    const char *compress;
    double decay; /**< in (0,1], with compress: of what was not sent, from round to round; 0: 1 */
    lt_dist_bn dist_bn; /**< how running statistics are made equal in an outer step */
} lt_local_steps_config;

/**
 * Gives all ranks of comm rank 0's values. A group is a node of nodes; in it state is divided over the ranks: rank i
 * of n keeps the i-th part of all trained elements, cut as evenly as possible, and exchanges it with the i-th ranks
 * of the other groups. Collective.
 *
 * With t0 the values when the groups last met, and t of this group now, an outer step is
 *     d = t0 - t;  D = the mean of d over groups;  u = momentum u + D;  t0 -= lr (D + momentum u);  t = t0
 * Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language Models", 2023 (arXiv 2311.08105),
 * algorithm 1 with Nesterov's momentum as in Sutskever et al., ICML 2013. With compress
 *     e = decay e + d;  q = what is sent of e;  e -= q;  D = the mean of q over groups
 * Sarfi et al., "Communication Efficient LLM Pre-training with SparseLoCo", 2025 (arXiv 2508.15706), algorithm 1.
 *
 * Borrows  comm, params; nodes until it returns
 * Errors   LT_E_ARG (a number out of its range, naming it; one group alone; groups of different sizes; ranks that
 *          disagree), LT_E_COMM, LT_E_NOMEM
 */
LT_API LT_MUST_CHECK lt_status lt_local_steps_new(lt_local_steps **out, lt_comm *comm,
                                                  const lt_nodes *nodes, const lt_params *params,
                                                  const lt_local_steps_config *config);
/** Before comm. Collective. */
LT_API void lt_local_steps_free(lt_local_steps **local);

/** The ranks of this group: for lt_data_parallel_new() and lt_optim_shard(). Owns: local. */
LT_API lt_comm *lt_local_steps_comm(const lt_local_steps *local);
LT_API int lt_local_steps_groups(const lt_local_steps *local);
/** Of this rank: 0 .. groups-1. */
LT_API int lt_local_steps_group(const lt_local_steps *local);
/** Inner steps since the groups met; 0: all ranks have the same values. */
LT_API int64_t lt_local_steps_since(const lt_local_steps *local);

/** Behind each inner step, also one that a group skipped: a round is as long in all groups. *met: this was the last
 *  of the round and the outer step was made. Collective.
 *  Errors: LT_E_ARG (compress: a change is not finite, naming parameter and group), LT_E_COMM. */
LT_API LT_MUST_CHECK lt_status lt_local_steps_step(lt_local_steps *local, bool *met);
/** The outer step now, if the round has begun: before an evaluation. Collective. Errors: as lt_local_steps_step(). */
LT_API LT_MUST_CHECK lt_status lt_local_steps_meet(lt_local_steps *local, bool *met);
/** Values were loaded, the same on all ranks: a round begins from them; the momentum and what was not sent stay. */
LT_API LT_MUST_CHECK lt_status lt_local_steps_begin(lt_local_steps *local);

/** Payload that this rank has sent in outer steps so far. With d its part of the elements of b bytes, s elements of
 *  running statistics, n ranks of its group and m groups, a step sends
 *      between groups: an all-reduce of d and one of s (lather/comm.h), or with compress (m-1) M and one of s;
 *      within: (n-1) d b, and an all-reduce of s.
 *  M, of k = ceil(DENSITY d) elements: the fewest of 4 k, 2 k + 2 ceil(d/4096) and ceil(d/8) bytes of places, and of
 *  values 4 k, bf16 2 k, 2bit ceil(k/4) + 8 ceil(k/4096); both filled up to multiples of 4. */
typedef struct lt_local_steps_bytes {
    uint64_t within, between;
} lt_local_steps_bytes;
LT_API lt_local_steps_bytes lt_local_steps_sent(const lt_local_steps *local);

/* --- For checkpoints --- */

/** Makes whole tensors of the parts that ranks keep: what the visits show. Collective. */
LT_API LT_MUST_CHECK lt_status lt_local_steps_unfold(lt_local_steps *local);
/** Frees them; loaded: takes this rank's parts out of them before. */
LT_API LT_MUST_CHECK lt_status lt_local_steps_fold(lt_local_steps *local, bool loaded);
/** What all groups have in common: numbers "outer.groups", "outer.since"; "outer.start" within a round;
 *  "outer.momentum". Owner: rank 0. */
LT_API LT_MUST_CHECK lt_status lt_local_steps_visit(lt_local_steps *local,
                                                    lt_state_visitor *visitor);
/** What is the group's own: "outer.residual"; within a round, but for the first group, "outer.value" of all that a
 *  model saves. Each of its ranks is shown the tensors. */
LT_API LT_MUST_CHECK lt_status lt_local_steps_visit_group(lt_local_steps *local,
                                                          lt_state_visitor *visitor);
/** The rank in comm of a group's rank. */
LT_API int lt_local_steps_rank(const lt_local_steps *local, int group, int rank);

#endif
