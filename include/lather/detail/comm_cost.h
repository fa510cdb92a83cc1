/** Cost model of gradient communication: closed forms of bytes and seconds, and a simulation of overlap with backward. */
#ifndef LATHER_DETAIL_COMM_COST_H
#define LATHER_DETAIL_COMM_COST_H

/* Not a stable interface: may change in any release. */

#include "lather/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Cost parameters of one direction of a link: q messages of b bytes take latency + q message + b / bandwidth. */
typedef struct lt_cost_link {
    double latency;   /**< seconds until the first byte arrives */
    double message;   /**< overhead of each message in seconds */
    double bandwidth; /**< bandwidth in bytes per second */
    double gather;    /**< bytes per second of the all-gather after an update; 0: bandwidth */
} lt_cost_link;

/** Nodes with the same number of ranks. */
typedef struct lt_cost_cluster {
    int nodes, per_node;
    lt_cost_link within;  /**< link between two ranks of a node; each rank has its own */
    lt_cost_link between; /**< network card of a node, shared by its ranks */
    double unit;          /**< core seconds per unit of a reducer's work: lt_cost_row.unit */
    double copy;          /**< core seconds per byte sent or received: copies, sums */
    double carry;         /**< more core seconds per byte within a node, where the link is memory */
    double wake;          /**< core seconds per message sent or received */
    /** Cores of a rank, at least 1: backward uses one, communication competes for it, unless 0 or at least 2. */
    double cores;
} lt_cost_cluster;

/** Schemes of gradient communication. Chunks of d elements over p ranks are those of lt_comm_bytes(). */
typedef enum lt_cost_scheme {
    LT_COST_FLAT,      /**< all-reduce over all ranks */
    LT_COST_TWO_LEVEL, /**< reduce-scatter in the node, all-reduce of a shard between ranks with the same
                              *   index in their nodes, all-gather in the node */
    LT_COST_SHARD_GRADIENTS, /**< reduce-scatter to owners, all-gather of updates */
    LT_COST_LOCAL_STEPS, /**< all-reduce in the node; every `every` steps an all-reduce of parameter
                              *   changes between nodes, and an all-gather in the node */
    LT_COST_REDUCER,     /**< a --compress reducer, with the costs of its lt_cost_row */
    LT_COST_SCHEMES
} lt_cost_scheme;

/** All-gather of updates: from all ranks to all; between ranks with the same index in their nodes, then in nodes; in nodes. */
typedef enum lt_cost_gather {
    LT_COST_GATHER_FLAT,
    LT_COST_GATHER_TWO_LEVELS,
    LT_COST_GATHER_IN_NODE
} lt_cost_gather;

typedef struct lt_cost_row lt_cost_row;

typedef struct lt_cost_plan {
    lt_cost_scheme scheme;
    int element_bytes;          /**< communication dtype: 2, 4 or 8 */
    const lt_cost_row *reducer; /**< costs of the reducer of LT_COST_REDUCER */
    double number;              /**< the reducer's argument: 0.01 of topk:0.01 */
    int every;                  /**< local steps: inner steps per round, at least 1 */
    bool sharded;          /**< updates end with an all-gather of f32; shard-gradients implies it */
    lt_cost_gather gather; /**< if sharded; local steps: in the node, shard-gradients: flat */
} lt_cost_plan;

typedef struct lt_cost_bucket {
    int64_t elements;
    double ready;                 /**< seconds from the start of backward to its last gradient */
    int64_t rows, columns, dense; /**< sums of the matrices' rows, columns; elements in no matrix */
} lt_cost_bucket;

typedef struct lt_cost_bytes {
    double within, between; /**< payload bytes; fractional only for a round's share */
} lt_cost_bytes;

/** Returns the payload that a rank sends for a bucket per update: what lt_comm_bytes() counts, without flags of present
 *  gradients. Ranks are numbered node by node. Includes communication after the update (an all-gather, the end of a
 *  round divided by its steps), as if the bucket were the only one. */
LT_API lt_cost_bytes lt_cost_payload(const lt_cost_plan *plan, const lt_cost_cluster *cluster,
                                     const lt_cost_bucket *bucket, int rank);
/** A stage of a bucket's communication; the stages of a bucket run one after another. */
typedef struct lt_cost_stage {
    enum { LT_COST_WITHIN, LT_COST_BETWEEN, LT_COST_COMPUTE } uses;
    double seconds;
    double messages;     /**< messages that the rank sends; it receives the same number */
    lt_cost_bytes bytes; /**< payload bytes that the rank sends */
} lt_cost_stage;
enum { LT_COST_MAX_STAGES = 5 };

/** Recommendation for or against a technique. */
typedef struct lt_cost_verdict {
    bool pays;
    double value, bound; /**< the technique pays off if value < bound: tokens, or a density */
    char why[224];       /**< reason: a sentence with the numbers */
} lt_cost_verdict;

/** Costs of a communication scheme. */
struct lt_cost_row {
    const char *name; /**< name, such as "two-level" */
    /** Lists the stages of a bucket's communication at a rank, without communication after the update; returns their
     *  number. Rank 0 sends most: its stages are simulated. */
    size_t (*stages)(const lt_cost_plan *plan, const lt_cost_cluster *cluster,
                     const lt_cost_bucket *bucket, int rank, lt_cost_stage out[LT_COST_MAX_STAGES]);
    double kept;  /**< bytes of buffers that a rank keeps per byte of its parameters */
    bool by_node; /**< these buffers are sharded over the ranks of a node */
    /** Reducers only: checks the range of the number. Errors: LT_E_ARG. */
    lt_status (*check)(double number);
    /** Compares the reducer's bytes between nodes with a dense two-level all-reduce. NULL: no verdict.
     *  Errors: LT_E_ARG (a number out of range, no elements, no nodes). */
    lt_status (*verdict)(lt_cost_verdict *out, const lt_cost_cluster *cluster, int64_t elements,
                         double number, int element_bytes);
    const char *unit;   /**< key of cluster.unit in profiles; NULL: no work */
    const char *sample; /**< reducer argument with which the unit's seconds are measured */
    double units;       /**< units of work per element with that argument */
    double usual;       /**< core seconds per unit of work if not measured */
};
LT_API const lt_cost_row *lt_cost_row_of(const lt_cost_plan *plan);
/** Returns the row of a reducer by its index; NULL past the end. */
LT_API const lt_cost_row *lt_cost_of_reducer(size_t index);
/** Parses "KIND:NUMBER" of --compress. Errors: LT_E_ARG (no such reducer with a row: names those that exist). */
LT_API LT_MUST_CHECK lt_status lt_cost_read_reducer(lt_cost_plan *plan, const char *compress);

/** Returns the core seconds of a rank for a bucket: the reducer's work, copy per byte and wake per message, both
 *  ways, carry per byte within the node. */
LT_API double lt_cost_work(const lt_cost_plan *plan, const lt_cost_cluster *cluster,
                           const lt_cost_bucket *bucket);
/** Returns the bytes per second of the all-gather after an update. */
LT_API double lt_cost_gather_rate(const lt_cost_link *link);
/** Returns true if backward and communication share a core. */
LT_API bool lt_cost_shares_cores(const lt_cost_cluster *cluster);
/** Returns the seconds of communication after the update: the all-gather of a sharded optimizer, the end of a round
 *  divided by its steps. elements: of all buckets. */
LT_API double lt_cost_after_update(const lt_cost_plan *plan, const lt_cost_cluster *cluster,
                                   int64_t elements);

typedef struct lt_cost_result {
    double
        step; /**< seconds from the start of backward to the end of communication after the update */
    double exposed; /**< the part not overlapped with backward */
    double link[2]; /**< seconds for which buckets use the links within and between nodes */
} lt_cost_result;
/** Simulates buckets in order through their stages; a stage handles one bucket at a time: finish(b, s) = max(finish(b,
 *  s-1), finish(b-1, s)) + seconds(b, s), finish(b, -1) = ready(b). Stages that share a link add up: a link finishes no
 *  earlier than its first use + the sum of its seconds. So do shared cores: they need at least (backward + the sum of
 *  lt_cost_work()) / cores until the update. Errors: LT_E_ARG (a field out of range, named). */
LT_API LT_MUST_CHECK lt_status lt_cost_simulate(lt_cost_result *out, const lt_cost_plan *plan,
                                                const lt_cost_cluster *cluster,
                                                const lt_cost_bucket *bucket, size_t count,
                                                double backward);

#endif
