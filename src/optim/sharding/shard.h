/* Private declarations of lather/shard.h. A part is the unit of ownership: a parameter, or a piece of one by the
 * optimizer's table (Shampoo: a block). One rank updates it for all. */
#ifndef LT_OPTIM_SHARD_H
#define LT_OPTIM_SHARD_H

#include "lather/comm.h"
#include "lather/detail/shard_params.h"
#include "lather/ext/optim.h"

typedef struct lt_part {
    lt_slot *slot;
    double nanoseconds;  /* modelled time of a step in nanoseconds */
    int64_t state_bytes; /* bytes of state at its owner */
    int64_t elements;    /* number of the parameter's elements in it */
    lt_shape dims;       /* dimensions of the preconditioned block, or of the parameter */
    int owner;           /* rank of the owner in the group */
    int64_t at;          /* offset of the part in the gathered buffer */
    /* at its owner: receives the update instead of the parameter; without data if unused */
    lt_view update;
    /* At its owner: owner buffer, used instead of the parameter and the gradient, which may be meta tensors;
     * without data if unused. */
    lt_view value, grad;
} lt_part;

enum { LT_PART_COUNTERS = 2 + 2 * LT_MAX_DIMS };

/* Operations of an optimizer whose parts are smaller than parameters, in a fixed order. */
typedef struct lt_part_ops {
    size_t (*count)(const lt_optim *self);
    /* Fills in the part's first five members: slot to dims. */
    void (*describe)(lt_optim *self, size_t index, lt_part *part);
    /* Returns the part of a tensor shaped like the parameter. */
    lt_view (*of)(lt_optim *self, size_t index, const lt_tensor *parameter);
    /* Returns the part's region: its offset and extent in the parameter's dimensions. */
    void (*region)(lt_optim *self, size_t index, lt_shape *offset, lt_shape *extent);
    /* Takes the owners and views of all parts. rank: this rank. Frees existing state. */
    void (*set_owners)(lt_optim *self, const lt_part *part, int rank);
    /* Returns pointers to the numbers that only the owner knows. */
    void (*counters)(lt_optim *self, size_t index, int64_t *counter[LT_PART_COUNTERS]);
} lt_part_ops;

typedef struct lt_shard {
    lt_shard_config config;
    lt_comm *group;  /* ranks that share one copy of the state */
    bool owns_group; /* group is closed with the shard; false: it is the config's */
    int rank, ranks; /* this rank's index in the group; the group's size */
    int first;       /* rank of group's rank 0 among all ranks */
    lt_part *part;
    size_t count;
    int64_t *elements;       /* per rank: elements of its segment, status flag included */
    int64_t *begin;          /* per rank: offset of its segment */
    bool differences;        /* the optimizer changes parameters, differences are sent */
    lt_shard_params *values; /* set by lt_optim_shard_params(); NULL: all ranks have all values */
    const struct lt_shard_ops *ops;
    void *data;     /* private to ops: owned buffers, or a borrowed lt_sharded_optim */
    double seconds; /* duration of the last exchange */
} lt_shard;

/* Exchange of gradients and values: gathered in one flat buffer, or sent between the shards and the owner buffers
 * of sharded parameters. Entries may be NULL where noted. */
typedef struct lt_shard_ops {
    /* May be NULL. Exchanges owners of parts of equal cost, so that less is sent. */
    lt_status (*prefer_local)(lt_optim *o, const int64_t *cost, int *owner);
    /* Allocates buffers and sets the views of lt_part, once every part has an owner. */
    lt_status (*allocate)(lt_optim *o);
    void (*free)(lt_shard *s); /* frees the buffers; may be NULL */
    /* May be NULL. Sends gradients to their owners before the gradient norm, and values that were written. */
    lt_status (*pull)(lt_optim *o);
    lt_status (*begin)(lt_optim *o);          /* runs before the optimizer's own step */
    lt_status (*pack)(lt_optim *o);           /* runs after that step: packs messages */
    lt_status (*send)(lt_optim *o, int flag); /* sends all messages, with this rank's status flag */
    lt_status (*flag)(const lt_optim *o, int rank, int *flag); /* returns a rank's flag */
    lt_status (*unpack)(lt_optim *o); /* copies received values to the parameters */
    bool is_capturable;               /* false: the host reads the other ranks' status */
} lt_shard_ops;

/* divide.c. Shards the state, with these exchange operations. */
LT_MUST_CHECK lt_status lt_shard_attach(lt_optim *optim, const lt_shard_config *config,
                                        const lt_shard_ops *ops, void *data);
void lt_shard_free(lt_optim *optim);

/* Returns the number of parts; sets slot, elements and costs of part i. Sharded or not. */
size_t lt_shard_part_count(const lt_optim *optim);
void lt_shard_fill_part(lt_optim *optim, size_t i, lt_part *part);

/* Returns part i of a tensor shaped like its parameter; sets its region in the parameter. */
lt_view lt_shard_part_view(lt_optim *optim, size_t i, const lt_tensor *parameter);
void lt_shard_part_region(lt_optim *optim, size_t i, lt_shape *offset, lt_shape *extent);
/* Returns part i of the gradient, in the owner buffer if there is one. */
lt_view lt_shard_part_grad(lt_optim *optim, size_t i);
/* Returns the elements of a flat tensor from `at` on as a view of the part's shape, dense in the parameter's order
 * of storage, so that kernels pass over both contiguously. */
lt_view lt_shard_flat_view(lt_optim *optim, size_t i, const lt_tensor *flat, int64_t at);

/* shard_exchange.c. After the optimizer's own step, which changed this rank's parts only, sends all changes to
 * every rank. st: status of the step on this rank; skipped: a gradient was not finite. Errors: st; the failure of
 * another rank, naming it. */
LT_MUST_CHECK lt_status lt_shard_finish_step(lt_optim *optim, lt_status st, bool skipped);

/* shard_params.c. Called before and after an update; without effect unless parameters are sharded. */
LT_MUST_CHECK lt_status lt_optim_begin_owned_update(lt_optim *o);
void lt_optim_end_owned_update(lt_optim *o);
/* Returns the rank that keeps the value of a parameter, and its average; 0 if all ranks do. optim may be NULL. */
int lt_shard_value_owner(const lt_optim *optim, const lt_param *param);

/* Shares the counters of all parts with all ranks. Collective if the state is sharded. */
LT_MUST_CHECK lt_status lt_shard_share_counters(lt_optim *optim);

/* Checks that parameters and gradients may be sharded. Errors: LT_E_UNSUPPORTED. */
LT_MUST_CHECK lt_status lt_optim_check_takes_shards(const lt_optim *o);

extern const lt_shard_ops lt_flat_ops;

#endif
