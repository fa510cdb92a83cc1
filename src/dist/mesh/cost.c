/* Closed forms of the elements that a mesh communicates; they equal its communicators' byte counters. */

#include "dist/mesh/mesh.h"

#include "lather/detail/mesh_cost.h"
#include "lather/ext/fail.h"

static bool is_valid_size(double x)
{
    return x >= 1 && x <= 0x1p62;
}

lt_status lt_mesh_cost_linear(lt_mesh_cost *out, const lt_mesh_config *config, double rows,
                              double inputs, double outputs)
{
    lt_mesh_config c;
    LT_TRY(lt_mesh_resolve(config, &c));
    if (!is_valid_size(rows) || !is_valid_size(inputs) || !is_valid_size(outputs))
        return lt_fail(LT_E_ARG,
                       "mesh: cost of %g rows, %g inputs, %g outputs, want 1 or more of each", rows,
                       inputs, outputs);
    const bool one = c.rows == 1;
    const double weights = inputs * outputs;
    const double each = (c.columns - 1) * (rows * inputs + (one ? 0 : c.depth * weights));
    *out = (lt_mesh_cost){
        .forward = each, .dx = each, .dw = one ? 0 : each, .depth = 2.0 * (c.depth - 1) * weights};
    return LT_OK;
}

lt_status lt_mesh_cost_layer(double *out, const lt_mesh_config *config, double rows,
                             double features)
{
    /* Queries, keys and values; the projection; the two products of the MLP. */
    static const struct {
        int inputs, outputs;
    } product[] = {{1, 3}, {1, 1}, {1, 4}, {4, 1}};
    lt_mesh_config c;
    LT_TRY(lt_mesh_resolve(config, &c));
    double sum = 0;
    for (int i = 0; i < 4; i++) {
        /* 1-D: all-gather of the inputs or reduce-scatter of the outputs, both of this width. */
        const double inputs = c.rows == 1 ? features : product[i].inputs * features;
        lt_mesh_cost cost;
        LT_TRY(lt_mesh_cost_linear(&cost, &c, rows, inputs, product[i].outputs * features));
        sum += cost.forward + cost.dx + cost.dw + cost.depth;
    }
    *out = sum / ((double)c.depth * c.rows * c.columns);
    return LT_OK;
}
