/** Exact optimizers over sharded parameters, of which each rank holds a shard (tensor parallelism). */
#ifndef LATHER_DETAIL_SHARDED_OPTIM_H
#define LATHER_DETAIL_SHARDED_OPTIM_H

/* Not a stable interface: may change in any release. */

#include "lather/shard.h"

/** Logical parameters of which the ranks hold shards, and the schedule that exchanges them. An optimizer is
 *  made over the logical parameters and its state is sharded over all ranks. The owner of a part sees the
 *  whole block or parameter, so blocks, factors, norms, state and checkpoints are bitwise those of one rank. */
typedef struct lt_sharded_optim lt_sharded_optim;

/** Makes logical parameters. own: this rank's shards, borrowed with their gradients; every rank lists the
 *  same names. world: all ranks; copy: its ranks that together hold one copy of the model; both borrowed;
 *  copy is split from world, or world. In each copy shards are disjoint or equal, and together are the whole
 *  parameter. Collective over both.
 *  Errors: LT_E_ARG (names, shapes, views or memory formats differ between ranks; shards overlap or leave a
 *  gap: names the parameter), LT_E_UNSUPPORTED (a shard in a format that has no order), LT_E_NOMEM,
 *  LT_E_COMM. */
LT_API LT_MUST_CHECK lt_status lt_sharded_optim_new(lt_sharded_optim **out, const lt_params *own,
                                                    lt_comm *world, lt_comm *copy);
/** Frees the logical parameters; call after freeing the attached optimizer and before the parameters. */
LT_API void lt_sharded_optim_free(lt_sharded_optim **placed);

/** Returns the logical parameters to make the optimizer over: names, roles and logical shapes, with values
 *  and gradients that have no memory.
 *  Owns: the lt_sharded_optim. */
LT_API const lt_params *lt_sharded_optim_params(const lt_sharded_optim *placed);

/** Shards the state of an optimizer made over lt_sharded_optim_params(), as lt_optim_shard() does, over all
 *  ranks; call before its first step and before a checkpoint is loaded. lt_optim_step() is then collective
 *  over world: it sends gradients to the owners of their parts by one all-to-all within each copy (gradients
 *  are complete and equal in every copy), updates, and sends values from the owners to all ranks that hold
 *  them by one all-to-all over world. The gradient norm is computed from norms of parts:
 *  lt_optim_shard_gradients(). After something else wrote values, such as a checkpoint or an average, the
 *  next step also sends them to the owners. config: group must be 0, comm is world. With dtype LT_F32
 *  parameters are sent, exactly, whatever gather_params is.
 *  Errors: as lt_optim_shard(); LT_E_ARG (made over other parameters). */
LT_API LT_MUST_CHECK lt_status lt_sharded_optim_attach(lt_sharded_optim *placed, lt_optim *optim,
                                                       const lt_shard_config *config);

/** Alternative for an elementwise optimizer that is made over the shards (own) themselves: each rank updates
 *  its shards and keeps their state; only the norms of shards are exchanged, by an all-reduce of one f64 each
 *  over world. Values and state are bitwise those of one rank, except for the rounding of the norm if
 *  gradients are clipped. Every copy keeps its own state. Checkpoints need the list own as their parameters.
 *  Call before the first step.
 *  Errors: LT_E_ARG (another list; not elementwise). Ranks that lack a gradient which others have are not
 *  detected. */
LT_API LT_MUST_CHECK lt_status lt_sharded_optim_attach_shards(lt_sharded_optim *placed,
                                                              lt_optim *optim);

/** Elements that this rank sends to others in a step. Let O be the elements of a rank's parts and H those of
 *  its shards. With t ranks per copy and R copies all ranks together send */
typedef struct lt_sharded_traffic {
    int64_t gradients; /**< over copy, in the master dtype; sent again whenever values are pulled */
    int64_t values;    /**< elements of values over world, in config's dtype */
    int64_t parts;     /**< elements (f64) of the all-reduce of norms over world */
    int64_t bytes;     /**< bytes of memory on this rank: owner buffers and messages */
} lt_sharded_traffic;
/** Sets the traffic. Errors: LT_E_ARG (no optimizer is attached). */
LT_API LT_MUST_CHECK lt_status lt_sharded_optim_traffic(const lt_sharded_optim *placed,
                                                        lt_sharded_traffic *out);

#endif
