/* Inside of meshes. */
#ifndef LT_DIST_MESH_H
#define LT_DIST_MESH_H

#include "lather/mesh.h"

/* An axis as operations see it: the views of their calls go to its communicator. */
typedef struct lt_mesh_exchange {
    lt_exchange base;
    lt_comm *comm;
    int64_t *count; /* [size] of a reduction to a root: all elements are the root's */
} lt_mesh_exchange;

struct lt_mesh {
    lt_mesh_config config;
    lt_mesh_exchange axis[LT_MESH_AXES];
};

/* Owns comm from now on, also on failure. */
lt_status lt_mesh_exchange_open(lt_mesh_exchange *self, lt_comm *comm);
void lt_mesh_exchange_close(lt_mesh_exchange *self);

/* config with 1 for each zero. Errors: LT_E_ARG; the number of ranks is not looked at. */
lt_status lt_mesh_resolve(const lt_mesh_config *config, lt_mesh_config *out);

#endif
