/* Ranks of a run as copies of a model, each divided over a mesh: --tensor-parallel and its flags. */
#ifndef LT_TRAIN_MESH_H
#define LT_TRAIN_MESH_H

#include "ranks.h"

#include "lather/trainer.h"

/* What --tensor-parallel says, without data: T is 1 x T, QxQ and QxQxD a grid. Errors: LT_E_ARG. */
lt_status lt_mesh_flag_parse(const ranks_options *options, lt_mesh_config *out);
/* Whether it divides models. */
bool lt_mesh_flag_is_on(const ranks_options *options);
/* Flags that contradict --tensor-parallel, or make no sense without it. Errors: LT_E_ARG, naming both. */
lt_status lt_mesh_flag_check(const ranks_options *options, const lt_options *flags);

/* Divides the ranks into copies of the model; alone, or of --tensor-parallel 1: nothing. Collective.
 * Errors: LT_E_ARG (the ranks are no multiple of a copy's: names what would do). */
lt_status lt_ranks_open_mesh(lt_ranks *ranks, const ranks_options *options);

/* Elements that a rank receives in an update, on average, for a layer of a transformer, 12 h^2 weights. */
typedef struct lt_mesh_traffic {
    double
        mesh; /* lt_mesh_cost_layer() in each micro-batch, and gradients between copies of the model */
    double
        data_parallel; /* 2(n-1)/n 12h^2: gradients of n whole models, that see as many rows together */
    double sharded_params; /* 3(n-1)/n 12h^2: the same with parameters divided too */
} lt_mesh_traffic;
/* rows: of a copy's micro-batch; passes: micro-batches of an update. Errors: those of lt_mesh_cost_layer(). */
lt_status lt_mesh_compare(const lt_mesh_config *config, double rows, double features, double passes,
                          lt_mesh_traffic *out);

#endif
