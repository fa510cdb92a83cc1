/** Shards of parameters over ranks: a map of their holders, and whole tensors gathered from them. */
#ifndef LATHER_DETAIL_PLACE_OPS_H
#define LATHER_DETAIL_PLACE_OPS_H

/* Not a stable interface: may change in any release. */

#include "lather/comm.h"
#include "lather/param.h"

/** A shard, and the lowest rank that holds it. */
typedef struct lt_place_holder {
    int rank;
    lt_place place;
} lt_place_holder;

/** Map of the shards of a list of parameters to the ranks that hold them. */
typedef struct lt_place_map lt_place_map;

/** Makes the map; all ranks list the same parameters. Collective. Errors: LT_E_ARG (ranks differ in the number of
 *  parameters or in a logical shape), LT_E_SHAPE (the shards of all ranks are not exactly the parameter: names it),
 *  LT_E_NOMEM, LT_E_COMM. */
LT_API LT_MUST_CHECK lt_status lt_place_map_new(lt_place_map **out, lt_comm *comm,
                                                const lt_params *params);
LT_API void lt_place_map_free(lt_place_map **map);
/** Returns the distinct shards of parameter number index, in the order of their holders. Owns: the map. */
LT_API const lt_place_holder *lt_place_map_holders(const lt_place_map *map, size_t index,
                                                   size_t *count);

/** Gathers on root the whole tensor of which each rank has its shard of param: a value, gradient or average. logical is
 *  in host memory, row-major, of own's dtype; NULL on other ranks. The lowest rank with a shard sends it, in one message
 *  per shard. Collective. Errors: as lt_place_map_new(). */
LT_API LT_MUST_CHECK lt_status lt_place_gather(lt_comm *comm, lt_param *param, const lt_tensor *own,
                                               int root, void *logical);

#endif
