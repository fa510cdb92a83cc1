/** Any optimizer, exact, over parameters of which each rank holds a box. */
#ifndef LATHER_DETAIL_SHARDED_OPTIM_H
#define LATHER_DETAIL_SHARDED_OPTIM_H

/* Not a stable interface: may change in any release. */

#include "lather/shard.h"

/** The whole parameters behind a rank's boxes, and how their pieces are sent. An optimizer is made over
 *  them and divided over all ranks: what updates an element sees all of its block or parameter, so
 *  blocks, factors, norms, state and its checkpoints are those of one rank, bit for bit. */
typedef struct lt_sharded_optim lt_sharded_optim;

/** own: this rank's parameters, borrowed with their gradients; every rank lists the same names. world: all
 *  ranks; copy: of them those that hold one copy of the model; both borrowed, and copy split from world, or
 *  world. In each copy boxes are disjoint or equal and make up their parameter. Collective over both.
 *  Errors: LT_E_ARG (names, shapes, views or memory formats that ranks do not agree on; boxes that overlap
 *  or leave a gap: names the parameter), LT_E_UNSUPPORTED (a box of a format that has no order of its own),
 *  LT_E_NOMEM, LT_E_COMM. */
LT_API LT_MUST_CHECK lt_status lt_sharded_optim_new(lt_sharded_optim **out, const lt_params *own,
                                                    lt_comm *world, lt_comm *copy);
/** After the optimizer that is attached, before the parameters. */
LT_API void lt_sharded_optim_free(lt_sharded_optim **placed);

/** What to make the optimizer over: the names, roles and logical shapes, with values and gradients that
 *  have no memory. Owns: placed. */
LT_API const lt_params *lt_sharded_optim_params(const lt_sharded_optim *placed);

/** Divides an optimizer of lt_sharded_optim_params() as lt_optim_shard() does, over all ranks; before its first
 *  step and before a checkpoint is loaded. From then on lt_optim_step() is collective over world. It takes
 *  the pieces of gradients to the owners of their parts by one all-to-all within each copy, whose gradients
 *  are complete and the same in every copy; updates; and takes pieces of values from the owners to all that
 *  hold them by one all-to-all over world. The gradient norm is that of norms of parts:
 *  lt_optim_shard_gradients(). After values were written by something else, a checkpoint or an average, the
 *  next step also takes them to the owners. config: group is 0; comm is world. With dtype LT_F32 parameters
 *  are sent, exactly, whatever gather_params says.
 *  Errors: as lt_optim_shard(); LT_E_ARG (not of these parameters). */
LT_API LT_MUST_CHECK lt_status lt_sharded_optim_attach(lt_sharded_optim *placed, lt_optim *optim,
                                                       const lt_shard_config *config);

/** Instead, of an optimizer that is elementwise and made over own itself, the boxes: each rank updates what it
 *  holds and keeps its state, nothing is sent but the norms of boxes, an all-reduce over world of so many f64.
 *  Values and state have the bits of one rank, but for the rounding of the norm where gradients are clipped by it.
 *  Every copy keeps state of its own. Checkpoints need the list own as their parameters. Before the first step.
 *  Errors: LT_E_ARG (another list; not elementwise; gradients that ranks do not all have are not found). */
LT_API LT_MUST_CHECK lt_status lt_sharded_optim_attach_shards(lt_sharded_optim *placed,
                                                              lt_optim *optim);

/** Elements that this rank sends to others in a step. Let O be the elements of a rank's parts, and H those
 *  of its boxes. Of t ranks of a copy and R copies, all ranks together send in
 *      gradients   sum over ranks of O less what they hold of it themselves, + R t (t - 1)
 *      values      sum over ranks of H less what they own of it,             + R t (R t - 1)
 *  that is, with E elements cut t ways and owners that do not look at boxes, each rank
 *      (t-1)/t E/(R t)  and  (R t-1)/(R t) E/t,  and one number per other rank. */
typedef struct lt_sharded_traffic {
    int64_t
        gradients;  /**< over copy, in the master dtype; again with each lot of values to owners */
    int64_t values; /**< over world, in config's dtype */
    int64_t parts;  /**< norms: an all-reduce over world of so many f64 */
    int64_t bytes;  /**< of memory on this rank: homes of its parts, and messages */
} lt_sharded_traffic;
/** Errors: LT_E_ARG (nothing is attached). */
LT_API LT_MUST_CHECK lt_status lt_sharded_optim_traffic(const lt_sharded_optim *placed,
                                                        lt_sharded_traffic *out);

#endif
