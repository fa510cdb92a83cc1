/* Private declarations of lather/detail/sharded_optim.h.
 *
 * The owner of a part has an *owner buffer*: the part's elements of the value and of the gradient. A
 * *message schedule* is an all-to-all between shards and owner buffers, planned once: for each message
 * a list of chunks, packed and unpacked by batched copies. Both ends list the runs of a part that a
 * shard contains in the same order, that of the part.
 *
 * Invariants:
 *  1. Every rank knows all ranks' shards and every part's owner, so both ends of a message plan it
 *     identically.
 *  2. Between steps an owner buffer's values equal those of the shards bitwise, on every rank that
 *     holds them; or the value's version differs from version[], and the next step pulls it.
 *  3. Shards and parts are regions of the logical tensor in the order of its memory, the "stored
 *     order": row-major, or N H W C for a channels-last filter. */
#ifndef LT_OPTIM_SHARDED_H
#define LT_OPTIM_SHARDED_H

#include "shard.h"

#include "lather/detail/shard_spec.h"
#include "lather/detail/sharded_optim.h"

/* Rows of count elements, `step` apart in an owner buffer or in a rank's own tensor; contiguous in the message. */
typedef struct lt_chunk {
    size_t index; /* index of the part or parameter that is copied from or to */
    int64_t at, step, count, rows;
    int64_t message; /* offset of the elements in the buffer of all messages */
} lt_chunk;

typedef struct lt_chunk_list {
    lt_chunk *chunk;
    size_t count, capacity;
    int64_t elements; /* number of elements of all messages so far */
} lt_chunk_list;

/* All messages of an exchange. Each message is a header of one number and its chunks. */
typedef struct lt_message_schedule {
    lt_comm *comm;
    lt_chunk_list out, in;
    int64_t *sent, *received;       /* elements to and from each rank of comm */
    int64_t *sent_at, *received_at; /* offset of each rank's message in the buffer, at its header */
} lt_message_schedule;

/* Memory that a chunk is packed from or unpacked to. */
typedef enum lt_buffer_kind {
    LT_OWNER_VALUE,
    LT_OWNER_GRAD,
    LT_OWNER_UPDATE,
    LT_SHARD_VALUE,
    LT_SHARD_GRAD
} lt_buffer_kind;

struct lt_sharded_optim {
    lt_comm *world, *copy;
    lt_params own;       /* trained shards of this rank; all lists below have their order */
    lt_params all;       /* logical parameters, trained or not */
    lt_param *logical;   /* [all.count] the logical parameters themselves */
    size_t *number;      /* [own.count]: index of the parameter in all */
    bool *channels_last; /* [own.count]: stored order is N H W C, not row-major */
    uint64_t *version;   /* [own.count]: version of the values in owner buffers */
    lt_shard_spec *spec; /* [ranks of world][own.count]: shards in stored order */
    int *copy_of;        /* [ranks of world]: rank in world of the first rank of its copy */
    int *member;         /* [ranks of copy]: rank in world of each */

    /* Set when an optimizer is attached. */
    lt_optim *optim;
    /* shards of a copy if the optimizer updates shards in place; the members below are then unused */
    int64_t shards;
    /* pull: shards to owner buffers within the copy; push: owner buffers to shards over world */
    lt_message_schedule pull, push;
    /* Owner buffers of this rank's parts, concatenated in the order of parts; NULL if it has no parts, or if parts
     * are whole parameters, whose owner buffers are the logical tensors. */
    lt_tensor *value, *grad;
    /* with a communication dtype: the update, and the same in that dtype */
    lt_tensor *update, *narrow;
    lt_tensor *old;             /* if updates are differences: values before the step */
    lt_tensor *sent, *received; /* messages of either schedule */
    lt_tensor *sent_narrow, *received_narrow;
    lt_tensor *header; /* [1]: number that is sent in all headers */
    double *header_of; /* [ranks of world]: headers received, on the host */
    lt_vec_job *job;   /* workspace of `jobs` jobs */
    size_t jobs;
};

static inline struct lt_sharded_optim *lt_sharded_of(const lt_optim *o)
{
    return o->shard->data;
}

/* Converts a shard spec to stored order, with as few dimensions as describe it. */
lt_shard_spec lt_sharded_stored_spec(const lt_shard_spec *spec, bool channels_last);

/* A part in stored order, and the strides of its owner buffer. */
typedef struct lt_part_layout {
    lt_shape whole, offset, extent;
    int64_t stride[LT_MAX_DIMS];
} lt_part_layout;

lt_part_layout lt_sharded_part_layout(lt_optim *o, size_t i);
/* Sets the strides, by logical dimension, of part i's owner buffer; returns the elements that it spans. */
int64_t lt_sharded_owner_strides(lt_optim *o, size_t i, int64_t stride[LT_MAX_DIMS]);
/* Returns the view of part i in a flat tensor of this rank's parts. */
lt_view lt_sharded_owner_view(lt_optim *o, size_t i, const lt_tensor *flat);

/* sharded_schedule.c. Plans both schedules once parts have owners. Errors: LT_E_NOMEM. */
lt_status lt_sharded_plan_messages(struct lt_sharded_optim *p, lt_optim *o);
void lt_sharded_free_messages(struct lt_sharded_optim *p);

/* Entries of lt_shard_ops, in sharded_exchange.c but for the first, in sharded_schedule.c, which exchanges owners
 * of parts of equal cost if more of their elements are then local. Pull is collective over copy, send over world. */
lt_status lt_sharded_prefer_local(lt_optim *o, const int64_t *cost, int *owner);
lt_status lt_sharded_pull_gradients(lt_optim *o);
lt_status lt_sharded_save_old_values(lt_optim *o);
lt_status lt_sharded_pack(lt_optim *o);
lt_status lt_sharded_send(lt_optim *o, int flag);
lt_status lt_sharded_read_flag(const lt_optim *o, int rank, int *flag);
lt_status lt_sharded_unpack(lt_optim *o);

#endif
