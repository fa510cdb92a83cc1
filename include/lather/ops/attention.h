/** Attention, and rotary positions for it. */
#ifndef LATHER_OPS_ATTENTION_H
#define LATHER_OPS_ATTENTION_H

#include "lather/tape.h"

/** How attention's features are divided into heads, and what a query sees. */
typedef struct lt_attention_config {
    int heads;    /**< of q */
    int kv_heads; /**< of k and v, a divisor of heads; 0: heads. Head h of q reads head
                       h / (heads / kv_heads) */
    bool causal;  /**< query i sees keys 0 .. i; else all */
    double scale; /**< of scores; 0: 1/sqrt(d), d features a head */
    /** causal, with Tk > Tq: query i sees keys 0 .. i + Tk - Tq, as when keys come from a cache
     *  (PyTorch's causal_lower_right). Else keys from Tq on are seen by none (is_causal, causal_upper_left). */
    bool lower_right;
} lt_attention_config;

/**
 * Scaled dot-product attention. In training it keeps y and the logarithm of each softmax's
 * denominator, and never scores: memory is linear in Tq and Tk.
 *
 *     y[b,i,h,:] = sum over j of softmax over j of (scale * q[b,i,h,:] . k[b,j,g,:]) * v[b,j,g,:]
 *     g = h / (heads / kv_heads); features of a tensor are those of its heads, one after the other
 *
 * Shapes  q [B,Tq,heads*d], k, v [B,Tk,kv_heads*d] -> y [B,Tq,heads*d]. k and v both NULL: q is
 *         the joined [B,T,(heads+2*kv_heads)*d], features of q, then k, then v; its gradient too
 * Dtypes  q, k, v of one floating dtype; y has it
 * Grads   q, k, v
 * Owns    the tape owns y
 * Errors  NULL, and lt_tape_status() says: LT_E_SHAPE (also causal with Tk < Tq: of
 *         queries that see all keys need a separate call), LT_E_ARG (heads;
 *         one of k and v NULL), LT_E_NOMEM, LT_E_DEVICE
 * Source  Vaswani et al., "Attention is all you need", NeurIPS 2017, section 3.2; kv_heads: Ainslie
 *         et al., "GQA", EMNLP 2023; memory and gradient: Dao et al., "FlashAttention", NeurIPS 2022
 */
LT_API lt_tensor *lt_attention(lt_tape *tape, lt_tensor *q, lt_tensor *k, lt_tensor *v,
                               lt_attention_config config);

/** Which features are a pair, and by which angles they turn. */
typedef struct lt_rotary_config {
    int heads;        /**< of x */
    double base;      /**< of the angles; 0: 10000 */
    int64_t first;    /**< position of row 0 */
    bool interleaved; /**< pairs are (2i, 2i+1) of a head's d features, else (i, i + d/2) */
} lt_rotary_config;

/**
 * Rotary positions: pairs of features of each head turn by angles that rise with the position, so
 * that products of a query and a key depend on the distance of their positions.
 *
 *     (y1, y2) = (x1 cos a - x2 sin a, x2 cos a + x1 sin a)
 *     a = (first + t) * base^(-2i/d), pair i of d/2, row t
 *
 * Shapes  x [B,T,heads*d], d even -> y like x
 * Dtypes  any floating; y has x's
 * Grads   x
 * Owns    the tape owns y
 * Errors  NULL, and lt_tape_status() says: LT_E_SHAPE, LT_E_ARG (base, first), LT_E_NOMEM,
 *         LT_E_DEVICE
 * Source  Su et al., "RoFormer: enhanced transformer with rotary position embedding", 2021,
 *         section 3.2.2
 */
LT_API lt_tensor *lt_rotary(lt_tape *tape, lt_tensor *x, lt_rotary_config config);

#endif
