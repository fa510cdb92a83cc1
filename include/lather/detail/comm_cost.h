/** What an exchange of gradients costs: bytes and seconds by closed forms, and a simulation of buckets
 *  that are exchanged while backward goes on. For plans and maps; nothing is sent. */
#ifndef LATHER_DETAIL_COMM_COST_H
#define LATHER_DETAIL_COMM_COST_H

/* Not a stable interface: may change in any release. */

#include "lather/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** One direction of a link: q messages of b bytes together take latency + q message + b / bandwidth. */
typedef struct lt_cost_link {
    double latency;   /**< seconds until the first byte arrives */
    double message;   /**< seconds that each message costs besides */
    double bandwidth; /**< bytes per second */
    double gather;    /**< bytes per second of the gather after an update; 0: bandwidth */
} lt_cost_link;

/** Nodes of equally many ranks. */
typedef struct lt_cost_cluster {
    int nodes, per_node;
    lt_cost_link within;  /**< between two ranks of a node; each rank has its own */
    lt_cost_link between; /**< a node's card, which its ranks share */
    double unit;          /**< core seconds of a unit that a reducer computes: lt_cost_row.unit */
    double copy;          /**< core seconds of a byte that a rank sends or receives: copies, sums */
    double carry;         /**< and of such a byte within a node: what the link takes of cores */
    double wake;          /**< core seconds of a message that a rank sends or receives */
    /** A rank's cores for backward, which uses one, and for what exchanges compute; from 1 on. 0, or 2
     *  and more: one is spare for exchanges, which cost backward nothing. */
    double cores;
} lt_cost_cluster;

/** Where d elements of b bytes are cut for p ranks, chunk(d, p, r) is as in lt_comm_bytes(). */
typedef enum lt_cost_scheme {
    LT_COST_FLAT,      /**< all-reduce over all ranks */
    LT_COST_TWO_LEVEL, /**< reduce-scatter in the node, all-reduce of a shard between ranks of equal
                              *   places in their nodes, all-gather in the node */
    LT_COST_SHARD_GRADIENTS, /**< reduce-scatter to owners, and the gather of updates */
    LT_COST_LOCAL_STEPS, /**< all-reduce in the node; between nodes a shard of the parameters' change
                              *   every so many steps, then all-gathered in the node */
    LT_COST_REDUCER,     /**< exchange of a --compress reducer: its row */
    LT_COST_SCHEMES
} lt_cost_scheme;

typedef struct lt_cost_row lt_cost_row;

typedef struct lt_cost_plan {
    lt_cost_scheme scheme;
    int element_bytes; /**< of what is sent of gradients (the communication dtype): 2, 4 or 8 */
    const lt_cost_row *reducer; /**< of LT_COST_REDUCER */
    double number;              /**< of its argument */
    int every;                  /**< local steps: inner steps of a round, from 1 on */
    bool divided; /**< the optimizer's state is divided over all ranks (local steps: over a node's):
                   *   each update ends with an all-gather of f32. Shard-gradients has it always */
} lt_cost_plan;

typedef struct lt_cost_bucket {
    int64_t elements;
    double ready; /**< seconds after backward's begin when its last gradient is there */
    int64_t rows, columns, dense; /**< sums over its matrices; the elements that are in none */
} lt_cost_bucket;

typedef struct lt_cost_bytes {
    double within, between; /**< payload; whole numbers but for the share of a round */
} lt_cost_bytes;

/** Elements of part number index when count are cut for parts. */
LT_API int64_t lt_cost_chunk(int64_t count, int parts, int index);
/** Payload that rank sends for one update of one bucket: what lt_comm_bytes() counts, but for flags
 *  of gradients that are there. Ranks are numbered node by node. What follows the update (a gather, a
 *  round's end divided by its steps) is in it, as if the bucket's elements were cut on their own. */
LT_API lt_cost_bytes lt_cost_payload(const lt_cost_plan *plan, const lt_cost_cluster *cluster,
                                     const lt_cost_bucket *bucket, int rank);
/** A part of a bucket's exchange; stages of one bucket follow one another. */
typedef struct lt_cost_stage {
    enum { LT_COST_WITHIN, LT_COST_BETWEEN, LT_COST_COMPUTE } uses;
    double seconds;
    double messages; /**< that rank 0 sends; it gets as many */
} lt_cost_stage;
enum { LT_COST_MAX_STAGES = 5 };

/** Whether something pays: */
typedef struct lt_cost_verdict {
    bool pays;
    double value, bound; /**< it pays below the bound: tokens, or a density */
    char why[224];       /**< a sentence with the numbers */
} lt_cost_verdict;

/** Cost of a kind of exchange. payload and stages are a bucket's, without what follows the update. */
struct lt_cost_row {
    const char *name; /**< "two-level" */
    lt_cost_bytes (*payload)(const lt_cost_plan *plan, const lt_cost_cluster *cluster,
                             const lt_cost_bucket *bucket, int rank);
    size_t (*stages)(const lt_cost_plan *plan, const lt_cost_cluster *cluster,
                     const lt_cost_bucket *bucket, lt_cost_stage out[LT_COST_MAX_STAGES]);
    double kept;  /**< bytes that a rank keeps between updates for a byte of its parameters */
    bool by_node; /**< over the ranks of a node */
    /** Reducers only: checks the range of the number. Errors: LT_E_ARG. */
    lt_status (*check)(double number);
    /** Its bytes between nodes against two dense levels of as many elements. NULL: nothing says it.
     *  Errors: LT_E_ARG (a number out of range, no elements, no nodes). */
    lt_status (*verdict)(lt_cost_verdict *out, const lt_cost_cluster *cluster, int64_t elements,
                         double number, int element_bytes);
    const char *unit;   /**< key of cluster.unit in profiles; NULL: it computes nothing */
    const char *sample; /**< the argument with which that is measured, */
    double units;       /**< and its units of an element then */
    double usual;       /**< core seconds of a unit where none were measured */
};
LT_API const lt_cost_row *lt_cost_row_of(const lt_cost_plan *plan);
/** Row of a reducer by its index; NULL past the end. */
LT_API const lt_cost_row *lt_cost_of_reducer(size_t index);
/** Scheme, reducer and number of "KIND:NUMBER", as --compress has it. Errors: LT_E_ARG (no such reducer, or one
 *  without a row: those with one are named). */
LT_API LT_MUST_CHECK lt_status lt_cost_read_reducer(lt_cost_plan *plan, const char *compress);

/** The stages of a bucket's exchange, as rank 0 sees it, which sends the most. */
LT_API size_t lt_cost_stages(const lt_cost_plan *plan, const lt_cost_cluster *cluster,
                             const lt_cost_bucket *bucket, lt_cost_stage out[LT_COST_MAX_STAGES]);
/** Core seconds of a rank for a bucket's exchange: what its reducer computes, copy of each byte that is sent and as
 *  many that come, carry of those within the node, wake of each message both ways. */
LT_API double lt_cost_work(const lt_cost_plan *plan, const lt_cost_cluster *cluster,
                           const lt_cost_bucket *bucket);
/** Bytes per second of the gather after an update. */
LT_API double lt_cost_gather_rate(const lt_cost_link *link);
/** Whether backward and exchanges share a core. */
LT_API bool lt_cost_shares_cores(const lt_cost_cluster *cluster);
/** The seconds behind the update: the gather of a divided optimizer, a round's end divided by its
 *  steps. elements: of all buckets. */
LT_API double lt_cost_behind(const lt_cost_plan *plan, const lt_cost_cluster *cluster,
                             int64_t elements);

typedef struct lt_cost_result {
    double step;    /**< seconds from backward's begin to its update, with what follows */
    double exposed; /**< of them not behind backward */
    double link[2]; /**< seconds that the links within and between nodes are used by buckets */
} lt_cost_result;
/** Buckets are exchanged in their order; each stage takes one at a time, as soon as the stage before
 *  has it ready. finish(b, s) = max(finish(b, s-1), finish(b-1, s)) + seconds(b, s), finish(b, -1) =
 *  ready(b). Stages that share a link are not faster together than one after the other: no link is
 *  done earlier than its first use + its seconds in all. Nor are shared cores: what they do until the update is
 *  (backward + the sum of lt_cost_work()) / cores at least. Errors: LT_E_ARG (a field out of range, named). */
LT_API LT_MUST_CHECK lt_status lt_cost_simulate(lt_cost_result *out, const lt_cost_plan *plan,
                                                const lt_cost_cluster *cluster,
                                                const lt_cost_bucket *bucket, size_t count,
                                                double backward);

#endif
