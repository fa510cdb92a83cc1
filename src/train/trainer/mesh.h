/* Ranks of a run as copies of a model, each divided over a mesh: --tensor-parallel and its flags. */
#ifndef LT_TRAIN_MESH_H
#define LT_TRAIN_MESH_H

#include "train/trainer/ranks.h"

#include "lather/trainer.h"

/* What --tensor-parallel says, without data: T is 1 x T, QxQ and QxQxD a grid. Errors: LT_E_ARG. */
lt_status lt_mesh_flag_parse(const ranks_options *options, lt_mesh_config *out);
/* Flags that contradict --tensor-parallel, or make no sense without it. Errors: LT_E_ARG, naming both. */
lt_status lt_mesh_flag_check(const ranks_options *options, const lt_options *flags);

/* Divides the ranks into copies of the model; alone, or of --tensor-parallel 1: nothing. Collective.
 * Errors: LT_E_ARG (the ranks are no multiple of a copy's: names what would do). */
lt_status lt_ranks_open_mesh(lt_ranks *ranks, const ranks_options *options);

/* Samples of a copy's evaluation batch, at most wanted: none of the batches of count samples, the last one too, has
 * fewer than the mesh divides them into. Errors: LT_E_ARG (count is fewer). */
lt_status lt_ranks_eval_batch(const lt_ranks *ranks, int64_t count, int wanted, int *batch);

/* Elements that a rank receives in an update, on average, for one layer of a transformer of rows x features: activations
 * and weights of the mesh, then gradients between copies; of data parallelism over as many ranks, which see as many
 * rows together. passes: micro-batches of an update. */
typedef struct lt_mesh_traffic {
    double mesh, data_parallel;
} lt_mesh_traffic;
lt_status lt_mesh_compare(const lt_mesh_config *config, double rows, double features, double passes,
                          lt_mesh_traffic *out);

#endif
