/** A backend's entries for attention, positions and embeddings: their signatures, and what they compute. */
#ifndef LATHER_DETAIL_ATTENTION_KERNELS_H
#define LATHER_DETAIL_ATTENTION_KERNELS_H

/* Not a stable interface: may change in any release. */

#include "lather/detail/entry.h"
#include "lather/ops/attention.h"

/** Formula: lt_attention(). q, y [B,Tq,heads,d]; k, v [B,Tk,kv_heads,d]: 4-D views of any strides,
 *  as they are parts of joined features. lse [B,heads,Tq], of the master dtype, contiguous:
 *  log(sum(exp(scores))) of each query. config has no zero fields left but causal, with which query i sees keys
 *  0 .. i + Tk - Tq whatever lower_right is. f32 scores are rounded before lse is taken from them, in both entries. */
LT_ENTRY(attention, void *ctx, const lt_attention_config *config, const lt_view *q,
         const lt_view *k, const lt_view *v, const lt_view *y, const lt_view *lse);
/** What backward of it reads, and what it writes: each of dq, dk and dv may be NULL.
 *
 *     P = exp(scores - lse), D = sum of dy * y over features, dS = P * (dy v^T - D)
 *     dv = P^T dy, dq = scale * dS k, dk = scale * dS^T q; of the heads that read it */
typedef struct lt_attention_grad {
    const lt_view *dy, *q, *k, *v, *y, *lse;
    const lt_view *dq, *dk, *dv;
} lt_attention_grad;
LT_ENTRY(attention_grad, void *ctx, const lt_attention_config *config, const lt_attention_grad *g);

/** Formula: lt_rotary(). x, y [B,T,heads,d], any strides. inverse: by the opposite angles, which is
 *  the gradient. config has no zero fields left but first and interleaved. */
LT_ENTRY(rotary, void *ctx, const lt_rotary_config *config, bool inverse, const lt_view *x,
         const lt_view *y);

/** y[n,c] = w[ids[n],c]; ids i32 [N], w [V,C], y [N,C]. Host devices answer LT_E_ARG to an id outside
 *  0..V-1, here and below. */
LT_ENTRY(embedding, void *ctx, const lt_view *ids, const lt_view *w, const lt_view *y);
/** dw[v,c] = sum over n with ids[n] = v, in ascending n, of dy[n,c]; dw of the master dtype, all of it
 *  is written. */
LT_ENTRY(embedding_grad, void *ctx, const lt_view *ids, const lt_view *dy, const lt_view *dw);

/** The entries above: ext/entry.h. */
#define LT_ATTENTION_ENTRIES(X)   \
    X(attention, BASIC, OWN)      \
    X(attention_grad, BASIC, OWN) \
    X(rotary, BASIC, OWN)         \
    X(embedding, BASIC, OWN)      \
    X(embedding_grad, BASIC, OWN)

#endif
