/** Communication cost of tensor parallelism: elements that the ranks of a sharded layer receive. */
#ifndef LATHER_DETAIL_MESH_COST_H
#define LATHER_DETAIL_MESH_COST_H

/* Not a stable interface: may change in any release. */

#include "lather/mesh.h"

/** Elements that all ranks of one copy receive for a linear layer of M rows, C inputs and K outputs. */
typedef struct lt_mesh_cost {
    double forward, dx, dw; /**< elements on a 2-D grid: each (q-1)(MC + dCK) */
    double depth;           /**< elements for the sum of dw over depth: 2(d-1)CK */
} lt_mesh_cost;

/** Counts them. In one dimension, for a layer that gathers its rows: forward and dx (t-1)MC. Errors: LT_E_ARG
 *  (no mesh, or a size below 1). */
LT_API LT_MUST_CHECK lt_status lt_mesh_cost_linear(lt_mesh_cost *out, const lt_mesh_config *config,
                                                   double rows, double inputs, double outputs);
/** Counts the elements that a rank receives, on average, for a transformer's layer, forward and backward, T rows of
 *  h features, 12 h^2 weights: 8(t-1)/t Th in one dimension; else
 *  3(q-1)(7Th/(dq^2) + 12h^2/q^2) + 24(d-1)h^2/(dq^2). Norms and biases are not counted. */
LT_API LT_MUST_CHECK lt_status lt_mesh_cost_layer(double *out, const lt_mesh_config *config,
                                                  double rows, double features);

#endif
