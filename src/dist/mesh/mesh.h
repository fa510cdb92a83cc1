/* Private declarations of meshes. */
#ifndef LT_DIST_MESH_H
#define LT_DIST_MESH_H

#include "dist/mesh/mesh_collectives.h"

struct lt_mesh {
    lt_mesh_config config;
    lt_mesh_exchange axis[LT_MESH_AXES];
};

/* Replaces zeros by 1 and checks the shape, but not the number of ranks. Errors: LT_E_ARG. */
lt_status lt_mesh_resolve(const lt_mesh_config *config, lt_mesh_config *out);

#endif
