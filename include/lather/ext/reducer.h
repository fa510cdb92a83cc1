/** Interface for new reducers, which average buckets of gradients over ranks (DDP's communication hooks). Start from
 *  src/dist/reducer/plain.c. */
#ifndef LATHER_EXT_REDUCER_H
#define LATHER_EXT_REDUCER_H

#include "lather/comm.h"
#include "lather/detail/comm_cost.h"
#include "lather/detail/state.h"
#include "lather/detail/topology.h"
#include "lather/ext/fail.h"
#include "lather/param.h"

typedef struct lt_reducer lt_reducer;

/** A gradient's slice of its bucket. */
typedef struct lt_reducer_part {
    const lt_param *param;
    int64_t offset,
        elements; /**< range in the bucket; elements are in memory order of the gradient */
} lt_reducer_part;

/** Gradients that are reduced together. Laid out in the first update, equally on all ranks. */
typedef struct lt_reducer_bucket {
    lt_tensor *
        flat; /**< [elements + parts], communication dtype: gradients, then a flag per part (1 if this rank
                           has the gradient, else its slice is 0) */
    int64_t elements; /**< elements of all gradients */
    lt_reducer_part *part;
    size_t parts;
    void *own; /**< the reducer's state, ops->bucket_bytes, zeroed at first */
} lt_reducer_bucket;

/** Payload bytes that this rank sent within its node and to other nodes. All count as `between` if nodes are unknown.
 *  Updates replayed by a graph are not counted. */
typedef struct lt_reducer_bytes {
    uint64_t within, between;
} lt_reducer_bytes;

/** Called by the tape's thread. Collective functions are called on all ranks in the same order. begin, finish and sent
 *  are required; the others may be NULL. */
typedef struct lt_reducer_ops {
    const char *kind; /**< "plain": the KIND of --compress KIND:ARGUMENT */
    const lt_cost_row
        *cost;    /**< cost model for `plan`, which rejects a reducer without one; may be NULL */
    size_t bytes; /**< size of the struct whose first member is lt_reducer */
    size_t bucket_bytes; /**< size of lt_reducer_bucket.own */
    /** finish also leaves the mean of the flags in flat. If false, data-parallel training averages the flags separately,
     *  in one small all-reduce per update, and ignores those in flat. */
    bool reduces_flags;
    bool capturable; /**< begin and finish only queue work, so a graph can capture them */
    /** Parses self->argument, before buckets exist. Collective. NULL: any argument is LT_E_ARG. */
    lt_status (*configure)(lt_reducer *self);
    /** Prepares for the buckets, which are laid out for good. Collective. */
    lt_status (*open)(lt_reducer *self);
    /** Starts a bucket. Its flat contains this rank's gradients and belongs to the reducer until finish. Collective. */
    lt_status (*begin)(lt_reducer *self, size_t bucket);
    /** Waits until flat is the mean over all ranks, bitwise identical on each. Called in the order of begin, also after a
     *  failed one. Collective. */
    lt_status (*finish)(lt_reducer *self, size_t bucket);
    /** Called when the update of the finished buckets was applied or skipped: keeps or discards new error feedback. */
    lt_status (*commit)(lt_reducer *self, bool applied);
    /** Completes the state that visit shows, before it is saved. Collective. */
    lt_status (*gather)(lt_reducer *self);
    /** Shows all state in a fixed order, with block -1; also before open, to load it. Not collective. Entries "NAME.I", I
     *  from 0 to m-1, are terms of a sum: when loaded from a checkpoint with another number of terms each gets the sum
     *  divided by m. */
    lt_status (*visit)(lt_reducer *self, lt_state_visitor *visitor);
    /** Called after a visit that wrote the tensors, also before open. Collective. */
    lt_status (*loaded)(lt_reducer *self);
    /** Returns the bytes sent since configure. */
    void (*sent)(const lt_reducer *self, lt_reducer_bytes *out);
    /** Frees all but self, also after a failed configure or open. Every bucket begun is finished. */
    void (*close)(lt_reducer *self);
} lt_reducer_ops;

/** First member of every reducer's struct. All borrowed. */
struct lt_reducer {
    const lt_reducer_ops *ops;
    lt_comm *comm; /**< all ranks; use lt_comm_split() in configure or open for other groups */
    lt_device *device;
    const lt_nodes *nodes;   /**< nodes of the ranks; NULL if unknown */
    char *argument;          /**< argument of --compress: "0.01" of topk:0.01; "" if absent */
    const lt_params *params; /**< all parameters of the model */
    lt_reduce op; /**< LT_REDUCE_MEAN; LT_REDUCE_SUM for built-in reducers in a reproducible step */
    lt_reducer_bucket *bucket; /**< the buckets; NULL before open */
    size_t buckets;
    const lt_tensor *loss_scale; /**< loss scale of the gradients, f64 0-D; NULL: 1 */
    bool dense;                  /**< this update must not be compressed */
};

/** Registers a reducer for `--compress KIND:ARGUMENT` and lt_data_parallel_config.compress. Borrows ops forever. Call it
 *  before other threads use the library. Errors: LT_E_ARG (the name is taken or contains ':' or '|'; a required function
 *  is missing), LT_E_NOMEM (too many). */
LT_API LT_MUST_CHECK lt_status lt_reducer_register(const lt_reducer_ops *ops);

#endif
