/* Ranks of a run as replicas of a model, each sharded over a mesh: --tensor-parallel and its flags. */
#ifndef LT_TRAIN_MESH_H
#define LT_TRAIN_MESH_H

#include "ranks.h"

#include "lather/trainer.h"

/* Parses --tensor-parallel into a mesh of one replica: T is 1 x T, QxQ and QxQxD are grids. Errors: LT_E_ARG. */
lt_status lt_mesh_flag_parse(const ranks_options *options, lt_mesh_config *out);
/* Returns true if --tensor-parallel is given and other than 1, so that ranks share a replica of the model. */
bool lt_mesh_flag_is_on(const ranks_options *options);
/* Checks for flags that contradict --tensor-parallel or need it. Errors: LT_E_ARG, naming both. */
lt_status lt_mesh_flag_check(const ranks_options *options, const lt_options *flags);

/* Splits the ranks into replicas of the model; nothing with --tensor-parallel 1. Collective. Errors: LT_E_ARG (the
 * ranks are not a multiple of a replica's; suggests numbers that are). */
lt_status lt_ranks_open_mesh(lt_ranks *ranks, const ranks_options *options);

/* Average number of elements that a rank receives per update, for a transformer layer of 12 h^2 weights. */
typedef struct lt_mesh_traffic {
    /* lt_mesh_cost_layer() in each micro-batch, and gradients between the replicas */
    double mesh;
    /* 2(n-1)/n 12h^2: gradients of n whole models that process the same rows together */
    double data_parallel;
    double sharded_params; /* 3(n-1)/n 12h^2: data parallelism with sharded parameters */
} lt_mesh_traffic;
/* Computes a mesh's traffic. rows: of a replica's micro-batch; passes: micro-batches per update. Errors: those of
 * lt_mesh_cost_layer(). */
lt_status lt_mesh_compute_traffic(const lt_mesh_config *config, double rows, double features,
                                  double passes, lt_mesh_traffic *out);

#endif
