/* Private declarations of lather/detail/sharded_optim.h.
 *
 * A part has a *home* at its owner: its elements of the value and of the gradient. A *route* is an all-to-all
 * between boxes and homes, planned once: for each message a list of pieces, packed and unpacked by batched
 * copies. Its two ends list the runs of a part that lie in a box in one order, that of the part.
 *
 * Invariants:
 *  1. Everybody knows every rank's boxes and every part's owner, so both ends of a message plan it alike.
 *  2. Between steps the home's values have the bits of the boxes' values, on every rank that holds them; or
 *     the value's version is not the one in version[], and the next step pulls it.
 *  3. Boxes and parts are boxes in the order of memory of the logical tensor, "stored order": row-major, or
 *     N H W C of a channels-last filter. */
#ifndef LT_OPTIM_SHARDED_H
#define LT_OPTIM_SHARDED_H

#include "shard.h"

#include "lather/detail/place.h"
#include "lather/detail/sharded_optim.h"

/* Rows of count elements, `step` apart in the memory of a part's home or of a parameter's own tensor; they
 * follow each other in the message. */
typedef struct lt_chunk {
    size_t index; /* of the part, or of the parameter */
    int64_t at, step, count, rows;
    int64_t message; /* where they begin in the buffer of all messages */
} lt_chunk;

typedef struct lt_chunk_list {
    lt_chunk *chunk;
    size_t count, capacity;
    int64_t elements; /* of all messages so far */
} lt_chunk_list;

/* In each message the pieces follow a header of one number. */
typedef struct lt_message_schedule {
    lt_comm *comm;
    lt_chunk_list out, in;
    int64_t *sent, *received;       /* elements for and of each rank of comm */
    int64_t *sent_at, *received_at; /* where their messages begin: the header */
} lt_message_schedule;

/* Where elements are that are sent or come. */
typedef enum lt_buffer_kind {
    LT_OWNER_VALUE,
    LT_OWNER_GRAD,
    LT_OWNER_UPDATE,
    LT_SHARD_VALUE,
    LT_SHARD_GRAD
} lt_buffer_kind;

struct lt_sharded_optim {
    lt_comm *world, *copy;
    lt_params own;       /* those that are trained, the order of all lists below */
    lt_params all;       /* logical parameters, also of those that are not trained */
    lt_param *logical;   /* [all.count] */
    size_t *number;      /* [own.count]: place in all */
    bool *channels_last; /* [own.count]: the stored order */
    uint64_t *version;   /* [own.count]: of the values that are at home */
    lt_place *place;     /* [ranks of world][own.count], in stored order */
    int *copy_of;        /* [ranks of world]: the world's rank of the first one in its copy */
    int *member;         /* [ranks of copy]: the world's rank of each */

    /* Once an optimizer is attached. */
    lt_optim *optim;
    int64_t shards; /* of a copy, if it updates them in place; then there is nothing more */
    lt_message_schedule pull, push; /* boxes to homes within the copy; homes to boxes over world */
    /* Homes of this rank's parts, flat, in the order of parts; NULL if there are none. Those of whole parameters
     * have value and grad in the logical tensors. */
    lt_tensor *value, *grad;
    lt_tensor *update, *narrow; /* with a communication dtype: what is sent, and the same in it */
    lt_tensor *old;             /* where updates are differences: values before the step */
    lt_tensor *sent, *received; /* messages of either route */
    lt_tensor *sent_narrow, *received_narrow;
    lt_tensor *header; /* [1] */
    double *header_of; /* [ranks of world]: headers that came */
    lt_vec_job *job;   /* workspace of jobs */
    size_t jobs;
};

static inline struct lt_sharded_optim *lt_sharded_of(const lt_optim *o)
{
    return o->shard->data;
}

/* In stored order, with as few dimensions as describe it. */
lt_place lt_sharded_stored_place(const lt_place *place, bool channels_last);

/* A part in stored order, and where its elements are at home. */
typedef struct lt_part_layout {
    lt_shape whole, offset, extent;
    int64_t stride[LT_MAX_DIMS];
} lt_part_layout;

lt_part_layout lt_sharded_part_layout(lt_optim *o, size_t i);
/* Strides, by logical dimension, of part i's home, and how many elements it spans. */
int64_t lt_sharded_owner_strides(lt_optim *o, size_t i, int64_t stride[LT_MAX_DIMS]);
/* Part i in a flat tensor of this rank's parts. */
lt_view lt_sharded_owner_view(lt_optim *o, size_t i, const lt_tensor *flat);

/* sharded_schedule.c: both routes, once parts have owners. Errors: LT_E_NOMEM. */
lt_status lt_sharded_plan_messages(struct lt_sharded_optim *p, lt_optim *o);
void lt_sharded_free_messages(struct lt_sharded_optim *p);

/* Entries of lt_shard_ops: sharded_schedule.c, which exchanges owners of parts of equal cost where more of their elements
 * are local then, and sharded_exchange.c. Pulling is collective over copy, sending over world. */
lt_status lt_sharded_prefer_local(lt_optim *o, const int64_t *cost, int *owner);
lt_status lt_sharded_pull(lt_optim *o);
lt_status lt_sharded_begin(lt_optim *o);
lt_status lt_sharded_pack(lt_optim *o);
lt_status lt_sharded_send(lt_optim *o, int flag);
lt_status lt_sharded_flag(const lt_optim *o, int rank, int *flag);
lt_status lt_sharded_unpack(lt_optim *o);

#endif
