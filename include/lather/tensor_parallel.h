/** A model divided over the ranks of a mesh, as its layers see it. */
#ifndef LATHER_TENSOR_PARALLEL_H
#define LATHER_TENSOR_PARALLEL_H

#include "lather/detail/exchange_ops.h"
#include "lather/param.h"

/** The ranks that hold one copy of a model; groups are borrowed from a mesh, for the model's life.
 *  In one dimension features and heads are divided over row; on a grid rows of activations over depth and
 *  column, features over row. Functions take NULL for one rank that has all. */
typedef struct lt_tensor_parallel {
    lt_exchange *row;            /**< in one dimension all ranks of the copy */
    lt_exchange *column, *depth; /**< NULL in one dimension */
    lt_exchange *model;          /**< all ranks of the copy */
    bool
        sequence; /**< one dimension: rows are divided between products, where they meet no weights */
    bool overlap; /**< products begin before an exchange is done; else the same bits, later */
} lt_tensor_parallel;

/** The rows of a copy's activations: tokens of sequences, one sequence behind the other. */
typedef struct lt_token_rows {
    int64_t sequences, tokens;
} lt_token_rows;
typedef struct lt_row_range {
    int64_t first, count;
} lt_row_range;

/** Rows of so many samples. A grid has at least a sample for each of its rows in each depth: what a
 *  smaller batch lacks is padded, and taken off again. */
LT_API lt_token_rows lt_parallel_rows(const lt_tensor_parallel *parallel, int64_t samples,
                                      int64_t tokens);
/** For training: whether samples divide evenly over a grid's rows in all depths. An evaluation's last batch
 *  need not. Errors: LT_E_ARG (both numbers, and what would do). */
LT_API LT_MUST_CHECK lt_status lt_parallel_check_batch(const char *name,
                                                       const lt_tensor_parallel *parallel,
                                                       int64_t samples);
/** Whether this rank has some of the rows, as matrices [rows,features], between products. */
LT_API bool lt_parallel_divides_rows(const lt_tensor_parallel *parallel);
/** Rows of this rank between products: in one dimension any, on a grid whole sequences. */
LT_API lt_row_range lt_parallel_own_rows(const lt_tensor_parallel *parallel, lt_token_rows rows);
/** The sequences that these rows are of. */
LT_API lt_row_range lt_parallel_own_samples(const lt_tensor_parallel *parallel, lt_token_rows rows);

/** x [N,..], N <= rows.sequences, to those samples [n,..]; padded ones are `fill`. Any dtype. */
LT_API lt_tensor *lt_parallel_take_samples(lt_tape *tape, lt_tensor *x,
                                           const lt_tensor_parallel *parallel, lt_token_rows rows,
                                           double fill);
/** x [n,tokens,C] of those samples to this rank's rows [r,C]. */
LT_API lt_tensor *lt_parallel_take_rows(lt_tape *tape, lt_tensor *x,
                                        const lt_tensor_parallel *parallel, lt_token_rows rows);
/** Back to [n,tokens,C]: rows of other ranks are 0. */
LT_API lt_tensor *lt_parallel_put_rows(lt_tape *tape, lt_tensor *x,
                                       const lt_tensor_parallel *parallel, lt_token_rows rows);
/** This rank's rows to those of tokens that begin a sample: rows {sequences, 1}, at least as many as
 *  ranks in one dimension. */
LT_API lt_tensor *lt_parallel_first_rows(lt_tape *tape, lt_tensor *x,
                                         const lt_tensor_parallel *parallel, lt_token_rows rows);
/** Terms of samples, [n,C_j], to all of them, [samples,features], equal on all ranks of the copy. */
LT_API lt_tensor *lt_parallel_sum_samples(lt_tape *tape, lt_tensor *x,
                                          const lt_tensor_parallel *parallel, lt_token_rows rows,
                                          int64_t samples, int64_t features);

/** Which dimension of a layer one dimension of ranks divides; a grid divides both. */
typedef enum lt_division { LT_DIVIDE_OUTPUTS, LT_DIVIDE_INPUTS } lt_division;

/** Where a parameter's features are in its view; -1: nowhere. */
typedef struct lt_parallel_dims {
    int outputs, inputs;
} lt_parallel_dims;

/** This rank's box. */
LT_API lt_place lt_parallel_place(const lt_tensor_parallel *parallel, lt_shape logical,
                                  lt_shape view, lt_parallel_dims dims, lt_division division);
/** The shape of a rank's own tensor: the logical one with the box's extents. */
LT_API lt_shape lt_parallel_shape(const lt_place *place);
/** The place of what every rank has the rows of: on a grid its features, dimension dim, are cut over row. */
LT_API lt_place lt_parallel_place_features(const lt_tensor_parallel *parallel, lt_shape logical,
                                           int dim);
/** A parameter on the tape that ranks with other rows hold, too: its gradient is summed over them. */
LT_API lt_tensor *lt_parallel_param(lt_tape *tape, lt_param *param,
                                    const lt_tensor_parallel *parallel);

typedef struct lt_parallel_linear {
    const lt_tensor_parallel *parallel;
    lt_division division;
    int64_t in, out; /**< of the whole w */
    int64_t rows;    /**< of all ranks, where rows are divided */
    bool in_out;     /**< w is [in,out] */
} lt_parallel_linear;

/** A linear layer with this rank's boxes of w and b; with LT_DIVIDE_INPUTS in one dimension b is whole.
 *  Between products x is as lt_parallel_own_rows() says (or [..,C] undivided), between a layer that divides
 *  outputs and one that divides inputs it has all rows, or on a grid the same, of fewer features. */
LT_API lt_tensor *lt_parallel_linear_run(lt_tape *tape, lt_tensor *x, lt_tensor *w, lt_tensor *b,
                                         lt_parallel_linear config);

/** What the rows of an activation are in this rank's part of a divided layer. */
typedef struct lt_parallel_noise {
    const lt_tensor_parallel *parallel;
    lt_token_rows rows;
    int64_t features; /**< of all ranks */
    bool inside;      /**< between a layer that divides outputs and one that divides inputs */
} lt_parallel_noise;

/** lt_dropout() and lt_drop_path() of it: what one rank would draw for these elements. */
LT_API lt_tensor *lt_parallel_dropout(lt_tape *tape, lt_tensor *x, double p,
                                      lt_parallel_noise where);
LT_API lt_tensor *lt_parallel_drop_path(lt_tape *tape, lt_tensor *x, double p,
                                        lt_parallel_noise where);

/** Rows of a table whose numbers (of `count` in all) and, on a grid, features are divided as those of a
 *  linear layer [count,features]: ids [N,T], the copy's, to this rank's rows. */
typedef struct lt_parallel_embedding {
    const lt_tensor_parallel *parallel;
    lt_token_rows rows;
    int64_t count, features;
} lt_parallel_embedding;
LT_API lt_tensor *lt_parallel_embedding_run(lt_tape *tape, lt_tensor *ids, lt_tensor *table,
                                            lt_parallel_embedding config);

/** Mean cross-entropy of a copy's labels [N,T], those of LT_IGNORED_LABEL apart, equal on all its ranks.
 *  logits: [n,T,K_j] of lt_parallel_own_samples() (in one dimension all), classes divided over row. */
LT_API lt_tensor *lt_parallel_softmax_xent(lt_tape *tape, lt_tensor *logits, lt_tensor *labels,
                                           const lt_tensor_parallel *parallel, int64_t classes);
/** lt_topk_hits() of the same: the copy's, on each of its ranks. */
LT_API LT_MUST_CHECK lt_status lt_parallel_topk_hits(lt_tape *tape, lt_tensor *logits,
                                                     lt_tensor *labels, lt_tensor *hits,
                                                     const lt_tensor_parallel *parallel,
                                                     int64_t classes);

#endif
