/** Attention, and rotary positions for it. */
#ifndef LATHER_OPS_ATTENTION_H
#define LATHER_OPS_ATTENTION_H

#include "lather/tape.h"

/** Heads of attention and its mask. */
typedef struct lt_attention_config {
    int heads; /**< number of heads of q */
    /** Heads of k and v, a divisor of heads; 0: heads. Head h of q reads head h / (heads /
     *  kv_heads). */
    int kv_heads;
    bool causal;  /**< query i attends to keys 0 to i; false: to all */
    double scale; /**< factor of the scores; 0: 1/sqrt(d), d features per head */
    /** With causal and Tk > Tq: query i attends to keys 0 to i + Tk - Tq, as needed for cached
     *  keys (PyTorch's causal_lower_right). false: keys from Tq on are masked for all queries
     *  (is_causal, causal_upper_left). */
    bool lower_right;
} lt_attention_config;

/**
 * Scaled dot-product attention. For backward it saves y and the log-sum-exp of each query's scores, not
 * the scores, so that memory is linear in Tq and Tk.
 *
 *     y[b,i,h,:] = sum over j of softmax over j of (scale * q[b,i,h,:] . k[b,j,g,:]) * v[b,j,g,:]
 *     g = h / (heads / kv_heads); a tensor's features are those of its heads in order
 *
 * Shapes  q [B,Tq,heads*d], k, v [B,Tk,kv_heads*d] -> y [B,Tq,heads*d]. k and v both NULL: q is
 *         packed [B,T,(heads+2*kv_heads)*d] (features of q, k, v), and so is its gradient
 * Dtypes  q, k, v of the same floating dtype; y has it too
 * Grads   q, k, v
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_SHAPE (also causal with Tk < Tq: call it separately for
 *         the queries that attend to all keys), LT_E_ARG (heads; only one of k and v is NULL),
 *         LT_E_NOMEM, LT_E_DEVICE
 * Source  Vaswani et al., "Attention is all you need", NeurIPS 2017, section 3.2; kv_heads: Ainslie
 *         et al., "GQA", EMNLP 2023; memory and gradient: Dao et al., "FlashAttention", NeurIPS 2022
 */
LT_API lt_tensor *lt_attention(lt_tape *tape, lt_tensor *q, lt_tensor *k, lt_tensor *v,
                               lt_attention_config config);

/** Pairing of features and the angles of their rotation. */
typedef struct lt_rotary_config {
    int heads;        /**< number of heads of x */
    double base;      /**< base of the angles; 0: 10000 */
    int64_t first;    /**< position of the first row, row 0 */
    bool interleaved; /**< pairs are features (2i, 2i+1) of a head; false: (i, i + d/2) */
} lt_rotary_config;

/**
 * Rotary position embedding: rotates pairs of features of each head by angles proportional to the
 * position, so that products of queries and keys depend on the distance between their positions.
 *
 *     (y1, y2) = (x1 cos a - x2 sin a, x2 cos a + x1 sin a)
 *     a = (first + t) * base^(-2i/d), pair i of d/2, row t
 *
 * Shapes  x [B,T,heads*d], d even -> y like x
 * Dtypes  any floating; y has x's
 * Grads   x
 * Owns    the tape owns y
 * Errors  NULL; lt_tape_status() returns LT_E_SHAPE, LT_E_ARG (base, first), LT_E_NOMEM,
 *         LT_E_DEVICE
 * Source  Su et al., "RoFormer: enhanced transformer with rotary position embedding", 2021,
 *         section 3.2.2
 */
LT_API lt_tensor *lt_rotary(lt_tape *tape, lt_tensor *x, lt_rotary_config config);

#endif
