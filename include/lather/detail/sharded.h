/** Further operations of tensor-parallel transformers. On a grid rank (i, j, k) holds block (kq+i, j) of an
 *  activation, as for lt_linear_summa(). */
#ifndef LATHER_DETAIL_SHARDED_H
#define LATHER_DETAIL_SHARDED_H

/* Not a stable interface: may change in any release. */

#include "lather/detail/group_ops.h"

/** Distribution of a norm's features, and the ranks that share its parameters. */
typedef struct lt_sharded_norm_config {
    lt_process_group *row; /**< ranks that share this rank's rows */
    lt_process_group *column,
        /** Groups over which the gradients of gamma and beta are summed; NULL: no sum. */
        *depth;
    int64_t features; /**< features of all ranks of the row */
    double eps;       /**< added to the variance; 0: 1e-5 */
    /** lt_rmsnorm(): no mean, so one number per row is sent each way; beta is NULL. */
    bool rms;
} lt_sharded_norm_config;

/**
 * lt_layernorm() of rows whose features are sharded. Sums each row's mean over ranks, then its variance
 * about that mean: 2 numbers per row forward, and 2 in one message backward. (Sums of squares about 0
 * would need one message, but suffer from cancellation.)
 *
 *     y[..,c] = gamma[c] * (x[..,c] - mu) / sqrt(var + eps) + beta[c]    mu, var over all ranks' features
 *
 * Shapes  x [M,C_j], gamma, beta [C_j] (beta NULL with rms) -> y like x
 * Dtypes  all f32 or all f64; y too
 * Grads   x, gamma, beta
 * Owns    the tape owns y; borrows the groups
 * Errors  NULL; lt_tape_status() returns LT_E_SHAPE, LT_E_ARG, LT_E_UNSUPPORTED (dtype), LT_E_COMM,
 *         LT_E_NOMEM, LT_E_DEVICE
 * Source  Ba, Kiros & Hinton, "Layer Normalization", 2016, equation 4
 */
LT_API lt_tensor *lt_layernorm_sharded(lt_tape *tape, lt_tensor *x, lt_tensor *gamma,
                                       lt_tensor *beta, lt_sharded_norm_config config);

/** Sizes of a sharded attention, over all ranks. */
typedef struct lt_sharded_attention_config {
    lt_process_group *row; /**< ranks that shard the heads */
    int heads;             /**< heads of all ranks */
    int64_t tokens;        /**< tokens per sequence; a rank has whole sequences */
    bool causal;
} lt_sharded_attention_config;

/**
 * lt_attention() of this rank's heads, without communication.
 *
 *     y = attention with heads/size(row) heads, on sequences of config.tokens rows
 *
 * Shapes  x [B*T,3*C/size], queries, keys, values of own heads -> y [B*T,C/size]
 * Dtypes  any floating; y has x's
 * Grads   x
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_SHAPE (heads not divisible by the ranks, rows that are not
 *         whole sequences: names numbers that work), or as lt_attention()
 * Source  Shoeybi et al., "Megatron-LM", 2019, section 3
 */
LT_API lt_tensor *lt_attention_sharded(lt_tape *tape, lt_tensor *x,
                                       lt_sharded_attention_config config);

typedef struct lt_sharded_xent_config {
    lt_process_group *row;            /**< ranks that shard the classes, by lt_even_shard_size() */
    lt_process_group *column, *depth; /**< groups with further rows of the mean; NULL: none */
    int64_t classes;                  /**< classes of all ranks of the row */
    int64_t
        /** Rows of all ranks, by which the loss is divided; 0: the number of labels that are not ignored, over
         *  column and depth. */
        rows;
} lt_sharded_xent_config;

/**
 * Cross-entropy of rows whose logits are sharded. For each row the maximum, then the sum and the label's
 * logit, are reduced over the row's ranks.
 *
 *     loss = 1/rows * sum over n of (log sum over k of exp(x[n,k]) - x[n,label[n]])
 *
 * Shapes  x [M,K_j], labels [M] (0..classes-1, or LT_IGNORED_LABEL: no loss, no gradient) -> loss [],
 *         equal on all ranks
 * Dtypes  x of the master dtype, f32 or f64; labels i32; loss of the master dtype
 * Grads   x
 * Owns    the tape owns loss; borrows the groups
 * Errors  NULL; lt_tape_status() returns LT_E_SHAPE, LT_E_ARG (a label that is not a class),
 *         LT_E_UNSUPPORTED (dtype, device memory), LT_E_COMM, LT_E_NOMEM
 * Source  Shoeybi et al., "Megatron-LM", 2019, section 3
 */
LT_API lt_tensor *lt_softmax_xent_sharded(lt_tape *tape, lt_tensor *x, lt_tensor *labels,
                                          lt_sharded_xent_config config);

/** lt_topk_hits() of the rows of this rank, column and depth: the same counts on all ranks. logits [M,K_j],
 *  labels [M]. Ignores config.rows. Errors: LT_E_SHAPE, LT_E_UNSUPPORTED (as the loss), LT_E_COMM, LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_topk_hits_sharded(const lt_tensor *logits,
                                                    const lt_tensor *labels, lt_tensor *hits,
                                                    lt_sharded_xent_config config);

/** Position of x in a larger activation that is sharded over ranks. Rows are all dimensions of x but the last. */
typedef struct lt_noise_box {
    int64_t row_first, column_first; /**< row and column of x's first element */
    int64_t columns;                 /**< columns of the larger activation */
    int64_t sample_rows;             /**< rows of a sample, for lt_drop_path_at() */
} lt_noise_box;

/**
 * lt_dropout() of a box of a larger activation: keeps the elements that dropout of the whole would keep,
 * if both have the same operation ordinal (lt_tape_set_op_counter()).
 *
 *     y[r,c] = x[r,c] * [u[(row_first + r) * columns + column_first + c] >= p] / (1 - p)
 *
 * Shapes  x [..,C_j] -> y like x
 * Dtypes  any floating; y has x's
 * Grads   x
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_SHAPE (x exceeds the larger activation's columns), or as
 *         lt_dropout()
 * Source  Srivastava et al., "Dropout", JMLR 2014, section 10 (inverted scaling)
 */
LT_API lt_tensor *lt_dropout_at(lt_tape *tape, lt_tensor *x, double p, lt_noise_box box);

/**
 * lt_drop_path() of some rows, which may begin and end within samples.
 *
 *     y[r,..] = x[r,..] * [u[(row_first + r) / sample_rows] >= p] / (1 - p)
 *
 * Shapes  x [..,C_j] -> y like x
 * Dtypes  any floating; y has x's
 * Grads   x
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_ARG (sample_rows below 1), or as lt_drop_path()
 * Source  Huang et al., "Deep networks with stochastic depth", ECCV 2016, section 3
 */
LT_API lt_tensor *lt_drop_path_at(lt_tape *tape, lt_tensor *x, double p, lt_noise_box box);

#endif
