/* Inside of lather/shard.h. A part is what one rank updates for all: a parameter, or what the
 * optimizer's own table says (Shampoo: a block). */
#ifndef LT_OPTIM_SHARD_H
#define LT_OPTIM_SHARD_H

#include "optim/optim.h"

#include "lather/shard_params.h"

typedef struct lt_part {
    lt_slot *slot;
    double nanoseconds;  /* modelled, of a step */
    int64_t state_bytes; /* where it is owned */
    int64_t elements;    /* of the parameter */
    lt_shape sides;      /* of the block as it is preconditioned, or of the parameter */
    int owner;           /* rank of the group */
    int64_t at;          /* where its elements begin in what is gathered */
    lt_view update; /* at its owner: where the change of the parameter goes instead; else no data */
    /* At its owner: its home, where its elements of the parameter and of the gradient are instead of in
     * theirs, which may be meta tensors; else no data. */
    lt_view value, grad;
} lt_part;

enum { LT_PART_COUNTERS = 2 + 2 * LT_MAX_DIMS };

/* What an optimizer fills in whose parts are smaller than parameters; their order is fixed. */
typedef struct lt_part_ops {
    size_t (*count)(const lt_optim *self);
    /* The first five members. */
    void (*describe)(lt_optim *self, size_t index, lt_part *part);
    /* The part of a tensor shaped like the parameter. */
    lt_view (*of)(lt_optim *self, size_t index, const lt_tensor *parameter);
    /* Which box of the parameter's own dimensions that is. */
    void (*box)(lt_optim *self, size_t index, lt_shape *offset, lt_shape *extent);
    /* All members are filled in; rank: this one. Drops state that was made. */
    void (*divide)(lt_optim *self, const lt_part *part, int rank);
    /* Numbers that only the owner knows. */
    void (*counters)(lt_optim *self, size_t index, int64_t *counter[LT_PART_COUNTERS]);
} lt_part_ops;

typedef struct lt_shard {
    lt_shard_config config;
    lt_comm *group;  /* of the ranks that share one copy of the state */
    bool owns_group; /* else it is the config's */
    int rank, ranks; /* in the group */
    int first;       /* its rank 0, among all ranks */
    lt_part *part;
    size_t count;
    int64_t *elements; /* per rank: of its segment, the status flag included */
    int64_t *begin;    /* per rank: where that begins */
    bool differences;  /* the optimizer changes parameters, updates are gathered */
    bool
        adds_updates; /* shard_params: what the optimizer wrote to `updates` is added to its parts */
    lt_tensor *updates;               /* then: this rank's parts behind each other; else NULL */
    lt_tensor *mine, *whole;          /* this rank's segment, all; master dtype */
    lt_tensor *comm_own, *comm_whole; /* the same in the communication dtype, if it is another */
    lt_tensor *old;                   /* with differences: this rank's parameters before the step */
    lt_shard_params *values; /* of lt_optim_shard_params(); NULL: all values are on all ranks */
    struct lt_placed
        *placed;     /* parts have homes, and none of the tensors above is made; NULL: not so */
    double seconds;  /* of the last exchange */
    lt_vec_job *job; /* workspace: one per part */
} lt_shard;

/* How many parts there are; slot, elements and what part i costs. Divided or not. */
size_t lt_shard_parts(const lt_optim *optim);
void lt_shard_describe(lt_optim *optim, size_t i, lt_part *part);

/* Part i of a tensor shaped like its parameter; which box of it that is. */
lt_view lt_shard_part(lt_optim *optim, size_t i, const lt_tensor *parameter);
void lt_shard_box(lt_optim *optim, size_t i, lt_shape *offset, lt_shape *extent);
/* Part i of the gradient, at home if it has one. */
lt_view lt_shard_grad(lt_optim *optim, size_t i);
/* As many elements of a flat tensor as the part has, as a view of the part's shape, dense in the
 * order in which the parameter lies in memory, so that most kernels run along it. */
lt_view lt_shard_flat(lt_optim *optim, size_t i, const lt_tensor *flat, int64_t at);

/* Around the optimizer's own step: between them only this rank's parts are changed, then every
 * rank gets all changes. st: how the step went here; skipped: a gradient was not finite. Errors: st; what
 * another rank failed with, naming it. */
LT_MUST_CHECK lt_status lt_shard_begin(lt_optim *optim);
LT_MUST_CHECK lt_status lt_shard_finish(lt_optim *optim, lt_status st, bool skipped);

/* Collective, if the optimizer is divided: every rank gets all counters of parts. */
LT_MUST_CHECK lt_status lt_shard_share_counters(lt_optim *optim);

#endif
