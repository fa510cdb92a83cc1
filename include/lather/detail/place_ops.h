/** Boxes of parameters that several ranks hold, gathered into whole tensors. */
#ifndef LATHER_DETAIL_PLACE_OPS_H
#define LATHER_DETAIL_PLACE_OPS_H

/* Not a stable interface: may change in any release. */

#include "lather/comm.h"
#include "lather/param.h"

/** A box, and the lowest rank that holds it. */
typedef struct lt_place_holder {
    int rank;
    lt_place place;
} lt_place_holder;

/** Which ranks hold what of a list of parameters. */
typedef struct lt_place_map lt_place_map;

/** Collective: all ranks list the same parameters. Errors: LT_E_ARG (another count of them, another logical
 *  shape), LT_E_SHAPE (the boxes of all ranks make less or more than a parameter: names it), LT_E_NOMEM,
 *  LT_E_COMM. */
LT_API LT_MUST_CHECK lt_status lt_place_map_new(lt_place_map **out, lt_comm *comm,
                                                const lt_params *params);
LT_API void lt_place_map_free(lt_place_map **map);
/** The different boxes of parameter number index, by the ranks that hold them. Owns: the map. */
LT_API const lt_place_holder *lt_place_map_holders(const lt_place_map *map, size_t index,
                                                   size_t *count);

/** The whole tensor of which each rank has own, the box that param says: its value, gradient or average. On
 *  root logical gets it, in host memory, row-major, of own's dtype; others may give NULL. Of ranks with
 *  the same box the lowest sends. Collective; a message per box. Errors: as lt_place_map_new(). */
LT_API LT_MUST_CHECK lt_status lt_place_gather(lt_comm *comm, lt_param *param, const lt_tensor *own,
                                               int root, void *logical);

#endif
