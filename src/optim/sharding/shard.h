/* Private declarations of lather/shard.h. A part is the unit that one rank updates for all: a parameter, or a piece
 * by the optimizer's own table (Shampoo: a block). */
#ifndef LT_OPTIM_SHARD_H
#define LT_OPTIM_SHARD_H

#include "lather/comm.h"
#include "lather/detail/shard_params.h"
#include "lather/ext/optim.h"

typedef struct lt_part {
    lt_slot *slot;
    double nanoseconds;  /* modelled, of a step */
    int64_t state_bytes; /* where it is owned */
    int64_t elements;    /* of the parameter */
    lt_shape dims;       /* of the block as it is preconditioned, or of the parameter */
    int owner;           /* rank of the group */
    int64_t at;          /* where its elements begin in what is gathered */
    lt_view update; /* at its owner: where the change of the parameter goes instead; else no data */
    /* At its owner: its home, where its elements of the parameter and of the gradient are instead of in
     * theirs, which may be meta tensors; else no data. */
    lt_view value, grad;
} lt_part;

enum { LT_PART_COUNTERS = 2 + 2 * LT_MAX_DIMS };

/* Table of an optimizer whose parts are smaller than parameters; their order is fixed. */
typedef struct lt_part_ops {
    size_t (*count)(const lt_optim *self);
    /* The first five members. */
    void (*describe)(lt_optim *self, size_t index, lt_part *part);
    /* The part of a tensor shaped like the parameter. */
    lt_view (*of)(lt_optim *self, size_t index, const lt_tensor *parameter);
    /* Which box of the parameter's own dimensions that is. */
    void (*region)(lt_optim *self, size_t index, lt_shape *offset, lt_shape *extent);
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
    int64_t *elements;       /* per rank: of its segment, the status flag included */
    int64_t *begin;          /* per rank: where that begins */
    bool differences;        /* the optimizer changes parameters, updates are sent */
    lt_shard_params *values; /* of lt_optim_shard_params(); NULL: all values are on all ranks */
    const struct lt_shard_ops *ops;
    void *data;     /* by ops: buffers; or placed parameters, which are not the shard's */
    double seconds; /* of the last exchange */
} lt_shard;

/* How gradients get to the owners of parts, and values from them to all ranks: gathered in one flat buffer, or sent
 * between the boxes and the homes of placed parameters. An entry that may be NULL has nothing to do then. */
typedef struct lt_shard_ops {
    /* May be NULL. Exchanges owners of parts of equal cost. */
    lt_status (*prefer_local)(lt_optim *o, const int64_t *cost, int *owner);
    /* Once each part has its owner: buffers, and the views of lt_part. */
    lt_status (*allocate)(lt_optim *o);
    void (*free)(lt_shard *s); /* may be NULL */
    /* May be NULL. Before the gradient norm: gradients to their owners, values too if any were written. */
    lt_status (*pull)(lt_optim *o);
    lt_status (*begin)(lt_optim *o);          /* before the optimizer's own step */
    lt_status (*pack)(lt_optim *o);           /* after it: what there is to send */
    lt_status (*send)(lt_optim *o, int flag); /* all of it, with this rank's status flag */
    lt_status (*flag)(const lt_optim *o, int rank, int *flag); /* that came */
    lt_status (*unpack)(lt_optim *o);                          /* what came, to the parameters */
    bool is_capturable; /* else the host reads how it went on other ranks */
} lt_shard_ops;

/* divide.c: lt_optim_shard() by these ops. */
LT_MUST_CHECK lt_status lt_shard_attach(lt_optim *optim, const lt_shard_config *config,
                                        const lt_shard_ops *ops, void *data);
void lt_shard_free(lt_optim *optim);

/* How many parts there are; slot, elements and what part i costs. Divided or not. */
size_t lt_shard_part_count(const lt_optim *optim);
void lt_shard_describe(lt_optim *optim, size_t i, lt_part *part);

/* Part i of a tensor shaped like its parameter; which box of it that is. */
lt_view lt_shard_part_view(lt_optim *optim, size_t i, const lt_tensor *parameter);
void lt_shard_part_region(lt_optim *optim, size_t i, lt_shape *offset, lt_shape *extent);
/* Part i of the gradient, at home if it has one. */
lt_view lt_shard_part_grad(lt_optim *optim, size_t i);
/* As many elements of a flat tensor as the part has, as a view of the part's shape, dense in the
 * order in which the parameter lies in memory, so that most kernels run along it. */
lt_view lt_shard_flat_view(lt_optim *optim, size_t i, const lt_tensor *flat, int64_t at);

/* shard_exchange.c. After the optimizer's own step, which changed this rank's parts only, every rank gets all
 * changes. st: how the step went here; skipped: a gradient was not finite. Errors: st; what another rank failed with,
 * naming it. */
LT_MUST_CHECK lt_status lt_shard_finish(lt_optim *optim, lt_status st, bool skipped);

/* shard_params.c: around an update; without effect where parameters are not divided. */
LT_MUST_CHECK lt_status lt_optim_begin_owned_update(lt_optim *o);
void lt_optim_end_owned_update(lt_optim *o);

/* Collective, if the optimizer is divided: every rank gets all counters of parts. */
LT_MUST_CHECK lt_status lt_shard_share_counters(lt_optim *optim);

#endif
