/* Attention in parts that a library multiplies: kernels around its products. Heads of q that share a head
 * of k and v are one matrix: its rows are the queries of the first head, then of the second. */
#ifndef LT_CUDA_ATTENTION_H
#define LT_CUDA_ATTENTION_H

#include "tensor/backend/cuda/cuda.h"
#include "tensor/backend/cuda/host_device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A view [B,T,heads,d] as matrices [groups * T, d] of f32, one for each item: an item is a head of k and
 * v in one sequence. Some items, from first on. */
typedef struct lt_heads {
    lt_view view;
    int64_t groups; /* heads of the view in an item */
    int64_t first, items;
} lt_heads;
void lt_heads_gather(lt_cuda_stream stream, const lt_heads *from, float *to);
void lt_heads_scatter(lt_cuda_stream stream, const float *from, const lt_heads *to);

/* Some rows of some items' scores [items,count,keys], f32. */
typedef struct lt_scores {
    float *data;
    int64_t items, first_item;
    int64_t first, count; /* rows of each */
    int64_t rows;         /* of a whole item: groups * queries */
    int64_t queries, keys;
    bool causal;
    double scale;
} lt_scores;
/* Keys that a row's query sees: 0 .. that. */
LT_HD int64_t lt_scores_seen(const lt_scores *s, int64_t row)
{
    return s->causal ? row % s->queries + 1 + s->keys - s->queries : s->keys;
}
/* Products of q and k become softmax of the scaled scores; lse [items of all,rows]. */
void lt_scores_softmax(lt_cuda_stream stream, const lt_scores *s, float *lse);
/* They become P = exp(scores - lse); slope, of v and dy, becomes scale * P * (slope - D). */
void lt_scores_slope(lt_cuda_stream stream, const lt_scores *s, const float *lse,
                     const lt_heads *dy, const lt_heads *y, float *slope);

/* Composed of these, whatever the dtype; after lt_cuda_begin(). Of scores, at most limit bytes are in
 * memory at once. */
typedef struct lt_attention_way {
    const lt_attention_config *config;
    size_t limit;
} lt_attention_way;
lt_status lt_attention_compose(lt_cuda *c, const lt_attention_way *way, const lt_view *q,
                               const lt_view *k, const lt_view *v, const lt_view *y,
                               const lt_view *lse);
lt_status lt_attention_compose_grad(lt_cuda *c, const lt_attention_way *way,
                                    const lt_attention_grad *g);

#ifdef __cplusplus
}
#endif

#endif
