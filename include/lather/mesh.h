/** Ranks in a mesh: copies of a model, and within a copy a grid of rows and columns, in depth. */
#ifndef LATHER_MESH_H
#define LATHER_MESH_H

#include "lather/comm.h"
#include "lather/detail/exchange_ops.h"

/** Rank ((data * depth + k) * rows + i) * columns + j is at row i, column j, depth k of a copy: a row's
 *  ranks are neighbours, and lie in a node. A zero is 1. */
typedef struct lt_mesh_config {
    int data;          /**< copies of the model */
    int depth;         /**< layers of the grid, which divide a copy's rows of activations */
    int rows, columns; /**< equal; or 1 and any, without depth: one dimension */
    bool force;        /**< depth may exceed rows */
} lt_mesh_config;

typedef struct lt_mesh lt_mesh;

/** Ranks that differ from this one in these coordinates only, in their order. */
typedef enum lt_mesh_axis {
    LT_MESH_DATA,
    LT_MESH_DEPTH,
    LT_MESH_COLUMN,   /**< a column's ranks, by row */
    LT_MESH_ROW,      /**< a row's ranks, by column */
    LT_MESH_REPLICAS, /**< data and depth: all that have the same parameters */
    LT_MESH_MODEL,    /**< all but data: one copy of the model */
    LT_MESH_AXES
} lt_mesh_axis;

/** Splits comm, which must outlive the mesh. Collective.
 *  Errors: LT_E_ARG (the product is not comm's size; rows and columns that make no grid; depth above
 *  rows without force; ranks that ask for different meshes: names both), LT_E_NOMEM, LT_E_COMM. */
LT_API LT_MUST_CHECK lt_status lt_mesh_new(lt_mesh **out, lt_comm *comm,
                                           const lt_mesh_config *config);
/** Collective. */
LT_API void lt_mesh_free(lt_mesh **mesh);

/** Without zeros. */
LT_API lt_mesh_config lt_mesh_config_of(const lt_mesh *mesh);
/** The communicator of an axis. Owns: the mesh. */
LT_API lt_comm *lt_mesh_comm(const lt_mesh *mesh, lt_mesh_axis axis);
/** The same for operations: see lather/detail/exchange.h. Owns: the mesh. */
LT_API lt_exchange *lt_mesh_group(lt_mesh *mesh, lt_mesh_axis axis);
/** Payload bytes that this rank has sent so far over all axes. */
LT_API uint64_t lt_mesh_bytes(const lt_mesh *mesh);

/** What a rank holds of a tensor. */
typedef enum lt_placement_kind {
    LT_PLACE_REPLICATE, /**< all of it */
    LT_PLACE_SHARD,     /**< part number rank along dim, by lt_exchange_part() */
    LT_PLACE_PARTIAL    /**< a term: the tensor is the sum over ranks */
} lt_placement_kind;

typedef struct lt_placement {
    lt_placement_kind kind;
    int dim; /**< of LT_PLACE_SHARD */
} lt_placement;

/** out, of one placement, becomes what in is of another, along an axis. Sums are those of
 *  lt_comm_allreduce_begin(). Both row-major, of one dtype, in different memory. Collective.
 *  Errors: LT_E_SHAPE (they are not pieces of one tensor; fewer elements than ranks along dim),
 *  LT_E_ARG, LT_E_NOMEM, LT_E_COMM. */
LT_API LT_MUST_CHECK lt_status lt_redistribute(lt_mesh *mesh, lt_mesh_axis axis,
                                               const lt_tensor *in, lt_placement from,
                                               lt_tensor *out, lt_placement to);

#endif
