/* Kernels of composed attention, around cuBLAS's products. Heads of q that share a head of k and v form one matrix:
 * its rows are the queries of the first head, then of the second. */
#ifndef LT_CUDA_ATTENTION_H
#define LT_CUDA_ATTENTION_H

#include "tensor/backend/cuda/cuda.h"
#include "tensor/backend/cuda/host_device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A view [B,T,heads,d] as f32 matrices [groups * T, d], one per item: an item is a head of k and v in one sequence. A
 * range of the items. */
typedef struct lt_heads {
    lt_view view;
    int64_t groups; /* heads of the view in an item */
    int64_t first, items;
} lt_heads;
void lt_heads_gather(lt_cuda_stream stream, const lt_heads *from, float *to);
void lt_heads_scatter(lt_cuda_stream stream, const float *from, const lt_heads *to);

/* Scores [items,count,keys], f32, of a range of rows of a range of items. */
typedef struct lt_scores {
    float *data;
    int64_t items, first_item;
    int64_t first, count; /* rows of each item */
    int64_t rows;         /* rows per batch item: groups * queries */
    int64_t queries, keys;
    bool causal;
    double scale;
} lt_scores;
/* Returns the number of keys that a row's query attends to, from key 0 on. */
LT_HD int64_t lt_scores_visible_keys(const lt_scores *s, int64_t row)
{
    return s->causal ? row % s->queries + 1 + s->keys - s->queries : s->keys;
}
/* Replaces the products of q and k by the softmax of the scaled scores; lse [all items,rows]. */
void lt_scores_softmax(lt_cuda_stream stream, const lt_scores *s, float *lse);
/* Replaces them by P = exp(scores - lse), and slope, the products of dy and v, by scale * P * (slope - D). */
void lt_scores_slope(lt_cuda_stream stream, const lt_scores *s, const float *lse,
                     const lt_heads *dy, const lt_heads *y, float *slope);

/* Composed attention, of any dtype; called after lt_cuda_begin(). limit: most bytes of scores in memory. */
typedef struct lt_attention_composed {
    const lt_attention_config *config;
    size_t limit;
} lt_attention_composed;
lt_status lt_attention_compose(lt_cuda *c, const lt_attention_composed *composed, const lt_view *q,
                               const lt_view *k, const lt_view *v, const lt_view *y,
                               const lt_view *lse);
lt_status lt_attention_compose_grad(lt_cuda *c, const lt_attention_composed *composed,
                                    const lt_attention_grad *g);

#ifdef __cplusplus
}
#endif

#endif
