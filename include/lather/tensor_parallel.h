/** Tensor parallelism: how layers see the ranks of a mesh that share one model. */
#ifndef LATHER_TENSOR_PARALLEL_H
#define LATHER_TENSOR_PARALLEL_H

#include "lather/detail/process_group.h"
#include "lather/param.h"

/** The ranks that hold one replica of a model. Groups are borrowed from a mesh for the model's
 *  life. In one dimension (as in Megatron-LM) features and heads are sharded over row. On a grid
 *  (as in SUMMA) rows of activations are sharded over depth and column, features over row.
 *  Functions take NULL for a single rank that holds everything. */
typedef struct lt_tensor_parallel {
    lt_process_group *row;            /**< ranks that shard features; in 1-D: all of the replica */
    lt_process_group *column, *depth; /**< ranks that shard rows on a grid; NULL in one dimension */
    lt_process_group *model;          /**< all ranks of the replica */
    bool sequence; /**< sequence parallelism, in one dimension: rows are sharded between products */
    bool overlap;  /**< products overlap with communication; false: the same bits, slower */
} lt_tensor_parallel;

/** Rows of a replica's activations: the tokens of its sequences, one sequence after the other. */
typedef struct lt_token_rows {
    int64_t sequences, tokens;
} lt_token_rows;
typedef struct lt_row_range {
    int64_t first, count;
} lt_row_range;

/** Returns the rows of that many samples. A grid needs at least one sample for each of its rows
 *  in each depth: smaller batches are padded, and the padding is removed again. */
LT_API lt_token_rows lt_parallel_rows(const lt_tensor_parallel *parallel, int64_t samples,
                                      int64_t tokens);
/** Checks, for training, that samples divide evenly over a grid's rows in all depths. The last
 *  batch of an evaluation need not. Errors: LT_E_ARG (names both numbers and one that works). */
LT_API LT_MUST_CHECK lt_status lt_parallel_check_batch(const char *name,
                                                       const lt_tensor_parallel *parallel,
                                                       int64_t samples);
/** Returns true if each rank holds only some rows, as matrices [rows,features], between
 *  products. */
LT_API bool lt_parallel_shards_rows(const lt_tensor_parallel *parallel);
/** Returns this rank's rows between products: any range in one dimension, whole sequences on a
 *  grid. */
LT_API lt_row_range lt_parallel_local_rows(const lt_tensor_parallel *parallel, lt_token_rows rows);
/** Returns the sequences to which this rank's rows belong. */
LT_API lt_row_range lt_parallel_local_samples(const lt_tensor_parallel *parallel,
                                              lt_token_rows rows);

/** Maps x [N,..], N <= rows.sequences, to the samples of this rank, [n,..]; padding is filled
 *  with `fill`. Any dtype. */
LT_API lt_tensor *lt_parallel_slice_samples(lt_tape *tape, lt_tensor *x,
                                            const lt_tensor_parallel *parallel, lt_token_rows rows,
                                            double fill);
/** Maps x [n,tokens,C] of this rank's samples to its rows [r,C]. */
LT_API lt_tensor *lt_parallel_slice_rows(lt_tape *tape, lt_tensor *x,
                                         const lt_tensor_parallel *parallel, lt_token_rows rows);
/** Reverses lt_parallel_slice_rows(): [r,C] to [n,tokens,C], in which rows of other ranks are 0. */
LT_API lt_tensor *lt_parallel_unslice_rows(lt_tape *tape, lt_tensor *x,
                                           const lt_tensor_parallel *parallel, lt_token_rows rows);
/** Selects the rows that begin a sample: its share of the rows {sequences, 1}. In
 *  one dimension there must be at least as many sequences as ranks. */
LT_API lt_tensor *lt_parallel_first_rows(lt_tape *tape, lt_tensor *x,
                                         const lt_tensor_parallel *parallel, lt_token_rows rows);
/** Sums contributions [n,C_j] of this rank's samples to all samples, [samples,features], equal
 *  on all ranks of the replica. */
LT_API lt_tensor *lt_parallel_sum_samples(lt_tape *tape, lt_tensor *x,
                                          const lt_tensor_parallel *parallel, lt_token_rows rows,
                                          int64_t samples, int64_t features);

/** Sharding of a linear layer in one dimension of ranks: by outputs (column-parallel) or by inputs
 *  (row-parallel). A grid shards both. */
typedef enum lt_parallel_style { LT_COLUMN_PARALLEL, LT_ROW_PARALLEL } lt_parallel_style;

/** Dimensions of a parameter's view that hold its output and input features; -1: absent. */
typedef struct lt_parallel_dims {
    int outputs, inputs;
} lt_parallel_dims;

/** Returns this rank's shard of a linear layer's parameter. */
LT_API lt_shard_spec lt_parallel_shard_spec(const lt_tensor_parallel *parallel, lt_shape logical,
                                            lt_shape view, lt_parallel_dims dims,
                                            lt_parallel_style division);
/** Returns the shape of this rank's tensor: the logical shape with the shard's sizes. */
LT_API lt_shape lt_parallel_shape(const lt_shard_spec *spec);
/** Returns the shard of a parameter that applies to every row: on a grid its features, dimension
 *  dim, are sharded over row. */
LT_API lt_shard_spec lt_parallel_shard_spec_features(const lt_tensor_parallel *parallel,
                                                     lt_shape logical, int dim);
/** Puts a parameter on the tape of which ranks with other rows hold copies: its gradient is
 *  summed over those ranks. */
LT_API lt_tensor *lt_parallel_param(lt_tape *tape, lt_param *param,
                                    const lt_tensor_parallel *parallel);

typedef struct lt_parallel_linear {
    const lt_tensor_parallel *parallel;
    lt_parallel_style division;
    int64_t in, out; /**< input and output features of the whole w */
    int64_t rows;    /**< rows of all ranks, if rows are sharded */
    bool in_out;     /**< w is stored as [in,out] */
} lt_parallel_linear;

/** Runs a linear layer on this rank's shards of w and b; with LT_ROW_PARALLEL in one dimension
 *  b is whole. Between layers x has the rows of lt_parallel_local_rows(), or is [..,C] if rows are
 *  not sharded. Between a layer that shards outputs and one that shards inputs, x has fewer
 *  features, and all rows in one dimension (on a grid the same rows). */
LT_API lt_tensor *lt_parallel_linear_run(lt_tape *tape, lt_tensor *x, lt_tensor *w, lt_tensor *b,
                                         lt_parallel_linear config);

/** Position of an activation in the whole one, from which its random numbers follow. */
typedef struct lt_parallel_noise {
    const lt_tensor_parallel *parallel;
    lt_token_rows rows;
    int64_t features; /**< features of all ranks */
    bool inside;      /**< lies between a layer that shards outputs and one that shards inputs */
} lt_parallel_noise;

/** lt_dropout() and lt_drop_path() of a sharded activation: draw the numbers that one rank would
 *  draw for these elements. */
LT_API lt_tensor *lt_parallel_dropout(lt_tape *tape, lt_tensor *x, double p,
                                      lt_parallel_noise where);
LT_API lt_tensor *lt_parallel_drop_path(lt_tape *tape, lt_tensor *x, double p,
                                        lt_parallel_noise where);

/** Shape of an embedding table [count,features] that is sharded as a linear layer's weight:
 *  rows, and on a grid features. */
typedef struct lt_parallel_embedding {
    const lt_tensor_parallel *parallel;
    lt_token_rows rows;
    int64_t count, features;
} lt_parallel_embedding;
/** Looks up ids [N,T], all of the replica's, and returns this rank's rows [r,C]. */
LT_API lt_tensor *lt_parallel_embedding_run(lt_tape *tape, lt_tensor *ids, lt_tensor *table,
                                            lt_parallel_embedding config);

/** Mean cross-entropy of the replica's labels [N,T] without those of LT_IGNORED_LABEL, equal on
 *  all its ranks. logits: [n,T,K_j], the samples of lt_parallel_local_samples() (in one dimension
 *  all), with classes sharded over row. */
LT_API lt_tensor *lt_parallel_softmax_xent(lt_tape *tape, lt_tensor *logits, lt_tensor *labels,
                                           const lt_tensor_parallel *parallel, int64_t classes);
/** lt_topk_hits() of the same logits: counts the replica's samples, equally on each of its
 *  ranks. */
LT_API LT_MUST_CHECK lt_status lt_parallel_topk_hits(lt_tape *tape, lt_tensor *logits,
                                                     lt_tensor *labels, lt_tensor *hits,
                                                     const lt_tensor_parallel *parallel,
                                                     int64_t classes);

#endif
