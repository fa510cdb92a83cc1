/** Kernels of attention, rotary positions and embeddings that a backend provides: signatures and formulas. */
#ifndef LATHER_DETAIL_ATTENTION_KERNELS_H
#define LATHER_DETAIL_ATTENTION_KERNELS_H

/* Not a stable interface: may change in any release. */

#include "lather/detail/entry.h"
#include "lather/ops/attention.h"

/** Formula: lt_attention(). q, y [B,Tq,heads,d]; k, v [B,Tk,kv_heads,d]: 4-D views of any strides, because they
 *  may be slices of packed features. lse [B,heads,Tq], contiguous, in the master dtype: log(sum(exp(scores)))
 *  of each query. In config only causal may be zero; with causal, query i attends to keys 0 to i + Tk - Tq
 *  whatever lower_right is. Both kernels round f32 scores before they use them with lse. */
LT_ENTRY(attention, void *ctx, const lt_attention_config *config, const lt_view *q,
         const lt_view *k, const lt_view *v, const lt_view *y, const lt_view *lse);
/** Inputs of attention's backward, and its outputs: each of dq, dk and dv may be NULL. dk and dv of a head are
 *  summed over the query heads that read it.
 *
 *      P = exp(scores - lse), D = sum of dy * y over features, dS = P * (dy v^T - D)
 *      dv = P^T dy, dq = scale * dS k, dk = scale * dS^T q */
typedef struct lt_attention_grad {
    const lt_view *dy, *q, *k, *v, *y, *lse;
    const lt_view *dq, *dk, *dv;
} lt_attention_grad;
LT_ENTRY(attention_grad, void *ctx, const lt_attention_config *config, const lt_attention_grad *g);

/** Formula: lt_rotary(). x, y [B,T,heads,d], any strides. inverse: rotates by the opposite angles, which is the
 *  gradient. In config only first and interleaved may be zero. */
LT_ENTRY(rotary, void *ctx, const lt_rotary_config *config, bool inverse, const lt_view *x,
         const lt_view *y);

/** y[n,c] = w[ids[n],c]; ids i32 [N], w [V,C], y [N,C]. Host devices return LT_E_ARG for an id outside 0..V-1,
 *  here and in embedding_grad. */
LT_ENTRY(embedding, void *ctx, const lt_view *ids, const lt_view *w, const lt_view *y);
/** dw[v,c] = sum over n with ids[n] = v, in ascending n, of dy[n,c]. Writes all of dw, which has the master
 *  dtype. */
LT_ENTRY(embedding_grad, void *ctx, const lt_view *ids, const lt_view *dy, const lt_view *dw);

/** List of the kernels above; columns as in detail/entry.h. */
#define LT_ATTENTION_ENTRIES(X)   \
    X(attention, BASIC, OWN)      \
    X(attention_grad, BASIC, OWN) \
    X(rotary, BASIC, OWN)         \
    X(embedding, BASIC, OWN)      \
    X(embedding_grad, BASIC, OWN)

#endif
