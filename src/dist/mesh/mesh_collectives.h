/* Collectives of operations (lt_process_group) on an axis of a mesh. */
#ifndef LT_DIST_MESH_COLLECTIVES_H
#define LT_DIST_MESH_COLLECTIVES_H

#include "lather/mesh.h"

/* An lt_process_group whose calls run on a communicator. */
typedef struct lt_mesh_exchange {
    lt_process_group base;
    lt_comm *comm;
    int64_t *count; /* [size] counts of a reduction to a root: all elements at the root */
} lt_mesh_exchange;

/* Opens an axis' process group over comm. Takes ownership of comm, also on failure. */
lt_status lt_mesh_exchange_open(lt_mesh_exchange *self, lt_comm *comm);
void lt_mesh_exchange_close(lt_mesh_exchange *self);

#endif
