/** Device mesh: replicas of a model, each on a grid of rows, columns and depth. */
#ifndef LATHER_MESH_H
#define LATHER_MESH_H

#include "lather/comm.h"
#include "lather/detail/process_group.h"

/** Rank ((d * depth + k) * rows + i) * columns + j is at row i, column j, depth k of replica d: ranks of a row are
 *  consecutive. A zero means 1. */
typedef struct lt_mesh_config {
    int data;  /**< number of replicas of the model */
    int depth; /**< layers of the grid, which shard a replica's rows of activations (2.5-D) */
    int rows,
        columns; /**< equal numbers; or 1 row, any columns and depth 1 (1-D tensor parallelism) */
    bool force;  /**< allow depth above rows */
} lt_mesh_config;

typedef struct lt_mesh lt_mesh;

/** Axis: the ranks that differ from this one in the named coordinates only, in their order. */
typedef enum lt_mesh_axis {
    LT_MESH_DATA,
    LT_MESH_DEPTH,
    LT_MESH_COLUMN,   /**< the ranks of this rank's column, by row */
    LT_MESH_ROW,      /**< the ranks of this rank's row, by column */
    LT_MESH_REPLICAS, /**< data and depth: all ranks with the same parameters */
    LT_MESH_MODEL,    /**< depth, row and column: one replica of the model */
    LT_MESH_AXES
} lt_mesh_axis;

/** Splits comm, which must outlive the mesh. Collective.
 *  Errors: LT_E_ARG (the product is not comm's size; invalid rows and columns; depth above rows without force; ranks
 *  with different meshes: names both), LT_E_NOMEM, LT_E_COMM. */
LT_API LT_MUST_CHECK lt_status lt_mesh_new(lt_mesh **out, lt_comm *comm,
                                           const lt_mesh_config *config);
/** Frees the mesh and its communicators. Collective. */
LT_API void lt_mesh_free(lt_mesh **mesh);

/** Returns the configuration, with 1 for each zero. */
LT_API lt_mesh_config lt_mesh_config_of(const lt_mesh *mesh);
/** Returns the communicator of an axis. Owns: the mesh. */
LT_API lt_comm *lt_mesh_comm(const lt_mesh *mesh, lt_mesh_axis axis);
/** Returns the axis as a group for operations, see lather/detail/group_ops.h. Owns: the mesh. */
LT_API lt_process_group *lt_mesh_group(lt_mesh *mesh, lt_mesh_axis axis);
/** Returns the payload bytes that this rank has sent so far over all axes. */
LT_API uint64_t lt_mesh_bytes(const lt_mesh *mesh);

/** Placement of a tensor on the ranks of an axis, as in PyTorch's DTensor. */
typedef enum lt_placement_kind {
    LT_PLACE_REPLICATE, /**< every rank has the whole tensor */
    LT_PLACE_SHARD,     /**< each rank has its shard along dim, of lt_even_shard_size() elements */
    LT_PLACE_PARTIAL    /**< each rank has a term: the tensor is their sum */
} lt_placement_kind;

typedef struct lt_placement {
    lt_placement_kind kind;
    int dim; /**< dimension that LT_PLACE_SHARD shards */
} lt_placement;

/** Converts a tensor from one placement along an axis to another. Sums are those of lt_comm_allreduce_begin(). in and out
 *  are row-major, of equal dtype, in different memory. Collective.
 *  Errors: LT_E_SHAPE (the shapes do not belong to one tensor; fewer elements than ranks along dim), LT_E_ARG,
 *  LT_E_NOMEM, LT_E_COMM. */
LT_API LT_MUST_CHECK lt_status lt_redistribute(lt_mesh *mesh, lt_mesh_axis axis,
                                               const lt_tensor *in, lt_placement from,
                                               lt_tensor *out, lt_placement to);

#endif
