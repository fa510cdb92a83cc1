/** The other parts of a transformer that is divided over ranks. On a grid rank (i, j, k) holds block
 *  (kq+i, j) of an activation, as lt_linear_summa() does. */
#ifndef LATHER_DETAIL_SHARDED_H
#define LATHER_DETAIL_SHARDED_H

/* Not a stable interface: may change in any release. */

#include "lather/detail/exchange.h"

/** Where the features of a row are, and the other holders of the same parameters. */
typedef struct lt_sharded_norm_config {
    lt_exchange *row; /**< ranks that share this one's rows */
    lt_exchange *column,
        *depth;       /**< over which the gradients of gamma and beta are summed; NULL: not */
    int64_t features; /**< of all ranks of the row */
    double eps;       /**< added to the variance; 0: 1e-5 */
    bool rms;         /**< as lt_rmsnorm(): no mean, one number a row either way; beta NULL */
} lt_sharded_norm_config;

/**
 * lt_layernorm() of rows whose features lie on several ranks. Each row's mean, then its variance about that
 * mean, is summed over ranks: 2 numbers a row forward, and 2 in one message backward. (Squares summed about
 * 0 would need one message, and cancel.)
 *
 *     y[..,c] = gamma[c] * (x[..,c] - mu) / sqrt(var + eps) + beta[c]    mu, var over all ranks' features
 *
 * Shapes  x [M,C_j], gamma, beta [C_j] (beta NULL with rms) -> y like x
 * Dtypes  all of one of f32, f64; y has it
 * Grads   x, gamma, beta
 * Owns    the tape owns y; borrows the groups
 * Errors  NULL, and lt_tape_status() says: LT_E_SHAPE, LT_E_ARG, LT_E_UNSUPPORTED (dtype), LT_E_COMM,
 *         LT_E_NOMEM, LT_E_DEVICE
 * Source  Ba, Kiros & Hinton, "Layer Normalization", 2016, equation 4
 */
LT_API lt_tensor *lt_layernorm_sharded(lt_tape *tape, lt_tensor *x, lt_tensor *gamma,
                                       lt_tensor *beta, lt_sharded_norm_config config);

/** Rows and heads of all ranks. */
typedef struct lt_sharded_attention_config {
    lt_exchange *row; /**< ranks among which the heads are divided */
    int heads;        /**< of all of them */
    int64_t tokens;   /**< of a sequence; a rank has whole sequences */
    bool causal;
} lt_sharded_attention_config;

/**
 * lt_attention() of this rank's heads: no rank needs another's.
 *
 *     y = attention of size(row) times fewer heads, sequences of so many rows
 *
 * Shapes  x [B*T,3*C/size], queries, keys, values of own heads -> y [B*T,C/size]
 * Dtypes  any floating; y has x's
 * Grads   x
 * Owns    the tape owns y
 * Errors  NULL, and lt_tape_status() says: LT_E_SHAPE (heads that the ranks do not divide, rows that are
 *         no whole sequences: with what would do), or as lt_attention()
 * Source  Shoeybi et al., "Megatron-LM", 2019, section 3
 */
LT_API lt_tensor *lt_attention_sharded(lt_tape *tape, lt_tensor *x,
                                       lt_sharded_attention_config config);

typedef struct lt_sharded_xent_config {
    lt_exchange *row;            /**< ranks among which the classes are cut by lt_exchange_part() */
    lt_exchange *column, *depth; /**< whose rows count, too; NULL: none */
    int64_t classes;             /**< of all ranks of the row */
    int64_t
        rows; /**< of all ranks: the loss is divided by it; 0: by the labels that are not ignored,
                       counted over column and depth */
} lt_sharded_xent_config;

/**
 * Cross-entropy of rows whose logits lie on several ranks: of each row a maximum, then a sum and the label's
 * logit, go over the row's ranks.
 *
 *     loss = 1/rows * sum over n of (log sum over k of exp(x[n,k]) - x[n,label[n]])
 *
 * Shapes  x [M,K_j], labels [M] (of all classes; LT_IGNORED_LABEL: no loss, no gradient) -> loss [],
 *         equal on all ranks
 * Dtypes  x of the master dtype, f32 or f64; labels i32; loss of the master dtype
 * Grads   x
 * Owns    the tape owns loss; borrows the groups
 * Errors  NULL, and lt_tape_status() says: LT_E_SHAPE, LT_E_ARG (a label outside of the classes),
 *         LT_E_UNSUPPORTED (dtype, memory that the host cannot read), LT_E_COMM, LT_E_NOMEM
 * Source  Shoeybi et al., "Megatron-LM", 2019, section 3
 */
LT_API lt_tensor *lt_softmax_xent_sharded(lt_tape *tape, lt_tensor *x, lt_tensor *labels,
                                          lt_sharded_xent_config config);

/** Adds to hits, as lt_topk_hits() does, the rows of this rank and of column and depth: the same on all
 *  ranks. logits [M,K_j], labels [M]. config.rows is not read.
 *  Errors: LT_E_SHAPE, LT_E_UNSUPPORTED (as the loss), LT_E_COMM, LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_topk_hits_sharded(const lt_tensor *logits,
                                                    const lt_tensor *labels, lt_tensor *hits,
                                                    lt_sharded_xent_config config);

/** Where x lies in a larger activation that ranks have boxes of: rows are all of x's dimensions but the
 *  last, and x has the larger one's neighbours. */
typedef struct lt_noise_box {
    int64_t row_first, column_first; /**< of x's first element */
    int64_t columns;                 /**< of the larger one */
    int64_t sample_rows;             /**< rows of a sample: of lt_drop_path_at() */
} lt_noise_box;

/**
 * lt_dropout() of a box: it keeps what the larger activation's dropout keeps there, if that has the same
 * operation ordinal (lt_tape_set_ordinal()).
 *
 *     y[r,c] = x[r,c] * [u[(row_first + r) * columns + column_first + c] >= p] / (1 - p)
 *
 * Shapes  x [..,C_j] -> y like x
 * Dtypes  any floating; y has x's
 * Grads   x
 * Owns    the tape owns y
 * Errors  NULL, and lt_tape_status() says: LT_E_SHAPE (x leaves the larger one's columns), or as
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
 * Errors  NULL, and lt_tape_status() says: LT_E_ARG (sample_rows below 1), or as lt_drop_path()
 * Source  Huang et al., "Deep networks with stochastic depth", ECCV 2016, section 3
 */
LT_API lt_tensor *lt_drop_path_at(lt_tape *tape, lt_tensor *x, double p, lt_noise_box box);

#endif
