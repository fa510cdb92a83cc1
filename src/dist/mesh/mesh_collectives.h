/* An axis of a mesh as operations see it. */
#ifndef LT_DIST_MESH_COLLECTIVES_H
#define LT_DIST_MESH_COLLECTIVES_H

#include "lather/mesh.h"

/* The views of its calls go to its communicator. */
typedef struct lt_mesh_exchange {
    lt_exchange base;
    lt_comm *comm;
    int64_t *count; /* [size] of a reduction to a root: all elements are the root's */
} lt_mesh_exchange;

/* Owns comm from now on, also on failure. */
lt_status lt_mesh_exchange_open(lt_mesh_exchange *self, lt_comm *comm);
void lt_mesh_exchange_close(lt_mesh_exchange *self);

#endif
