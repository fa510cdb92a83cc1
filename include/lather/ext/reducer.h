/** For writing a reducer: what makes the mean over ranks of buckets of gradients. Start from
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
        elements; /**< in the bucket's elements; in the order of the gradient's memory */
} lt_reducer_part;

/** Gradients that are reduced together. Laid out at the first update, the same on all ranks. */
typedef struct lt_reducer_bucket {
    lt_tensor *flat;  /**< communication dtype, [elements + parts]: gradients, then a flag per part
                           (1: this rank has the gradient, else its slice is 0) */
    int64_t elements; /**< of the gradients */
    lt_reducer_part *part;
    size_t parts;
    void *own; /**< the reducer's, zeroed, of ops->bucket_bytes */
} lt_reducer_bucket;

/** Payload bytes that this rank sent: inside its node, to other nodes. Where nodes are not known, all counts
 *  as between. Updates that a graph replays are not counted. */
typedef struct lt_reducer_bytes {
    uint64_t within, between;
} lt_reducer_bytes;

/** Called by the tape's thread. "Collective": on all ranks in the same order. */
typedef struct lt_reducer_ops {
    const char *kind;        /**< "plain"; of --compress KIND:ARGUMENT */
    const lt_cost_row *cost; /**< for `plan`, which refuses a reducer that has none; may be NULL */
    size_t bytes;            /**< of the struct whose first member is lt_reducer */
    size_t bucket_bytes;     /**< of lt_reducer_bucket.own */
    /** finish leaves in flat the mean of the flags too. false: data-parallel training averages them apart,
     *  in one small all-reduce of an update, and flat's flags mean nothing. */
    bool reduces_flags;
    bool capturable; /**< begin and finish only queue work, so that a graph may hold them */
    /** Reads self->argument; buckets are not known yet. Collective. NULL: any argument is LT_E_ARG. */
    lt_status (*configure)(lt_reducer *self);
    /** Buckets are laid out, and stay. Collective. NULL: nothing to do. */
    lt_status (*open)(lt_reducer *self);
    /** flat of this bucket holds this rank's gradients; it is the reducer's until finish. Collective. */
    lt_status (*begin)(lt_reducer *self, size_t bucket);
    /** flat holds the mean over all ranks, the same bits on each. In the order of begin, also behind one that
     *  failed. Collective. */
    lt_status (*finish)(lt_reducer *self, size_t bucket);
    /** The update of the finished buckets was applied, or skipped: new residuals are kept or dropped. NULL:
     *  nothing to keep. */
    lt_status (*commit)(lt_reducer *self, bool applied);
    /** Before state is saved. Collective; makes complete what visit shows. NULL: nothing to do. */
    lt_status (*gather)(lt_reducer *self);
    /** Shows all state in a fixed order, block -1; also before open, to load. Not collective. An entry "NAME.I", I of 0
     *  .. m-1, is a part of a sum: of a checkpoint with another count of parts each gets the sum divided by m.
     *  NULL: no state. */
    lt_status (*visit)(lt_reducer *self, lt_state_visitor *visitor);
    /** Behind a visit that wrote the tensors, also before open. Collective. NULL: nothing to do. */
    lt_status (*loaded)(lt_reducer *self);
    /** Since configure. Required, as begin and finish are. */
    void (*sent)(const lt_reducer *self, lt_reducer_bytes *out);
    /** Frees what it owns, not self; also after a configure or open that failed. Finished is what it began.
     *  NULL: nothing to do. */
    void (*close)(lt_reducer *self);
} lt_reducer_ops;

/** First member of every reducer's struct. All borrowed. */
struct lt_reducer {
    const lt_reducer_ops *ops;
    lt_comm *comm; /**< all ranks; for groups of its own lt_comm_split() in configure or open */
    lt_device *device;
    const lt_nodes *nodes;     /**< NULL: not known */
    char *argument;            /**< "0.01" of topk:0.01; "": none */
    const lt_params *params;   /**< all of the model */
    lt_reducer_bucket *bucket; /**< NULL before open */
    size_t buckets;
    const lt_tensor *loss_scale; /**< gradients are scaled by it: f64 0-D; NULL: 1 */
    bool dense;                  /**< this update is to lose nothing */
};

/** From now on `--compress KIND:ARGUMENT` and lt_data_parallel_config.compress know it. Borrows ops, for ever.
 *  Before other threads use the library. Errors: LT_E_ARG (the name is taken or has one of ":|", a required
 *  entry is missing), LT_E_NOMEM (there are too many). */
LT_API LT_MUST_CHECK lt_status lt_reducer_register(const lt_reducer_ops *ops);
/** Name number index of those; NULL past the end. */
LT_API const char *lt_reducer_registered(size_t index);

#endif
