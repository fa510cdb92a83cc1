/* cuDNN graphs of attention, forward and backward, in the form that its kernels recognize. Works without a device, so
 * that tests can query the available engines. */
#ifndef LT_CUDA_ATTENTION_GRAPH_H
#define LT_CUDA_ATTENTION_GRAPH_H

#include "tensor/backend/cuda/dnn/dnn_graph.h"

/* Numbers of a graph's tensors in memory. Views are [batch,heads,rows,width]. */
enum {
    LT_ATTENTION_Q,
    LT_ATTENTION_K,
    LT_ATTENTION_V,
    LT_ATTENTION_Y,
    LT_ATTENTION_LSE, /* f32 [batch,heads,queries,1] */
    /* By value, f32: scale of the scores; 1; the value of a masked score. */
    LT_ATTENTION_SCALE,
    LT_ATTENTION_ONE,
    LT_ATTENTION_MASKED,
    /* By value, i32: number of keys and of queries. */
    LT_ATTENTION_KEYS,
    LT_ATTENTION_QUERIES,
    LT_ATTENTION_FORWARD_SLOTS,
    /* Backward only. */
    LT_ATTENTION_DY = LT_ATTENTION_FORWARD_SLOTS,
    LT_ATTENTION_DQ,
    LT_ATTENTION_DK,
    LT_ATTENTION_DV,
    LT_ATTENTION_SUMS, /* f32, shaped as LSE: sums of dy * y, in the workspace */
    LT_ATTENTION_SLOTS
};

typedef struct lt_attention_strides {
    int64_t batch, head, row; /* in elements; that of the width is 1 */
} lt_attention_strides;

typedef struct lt_attention_problem {
    lt_dtype dtype; /* f16 or bf16 */
    bool causal;    /* query i sees keys 0 .. i + keys - queries */
    bool backward;
    int64_t batch, heads, kv_heads, queries, keys, width;
    lt_attention_strides stride[LT_ATTENTION_SLOTS]; /* strides in elements */
} lt_attention_problem;

/* Returns whether the graph has that tensor. */
bool lt_attention_has_slot(const lt_attention_problem *p, int slot);
/* Builds and finalizes the graph, which the caller resets in any case. */
LT_MUST_CHECK lt_status lt_attention_build_graph(lt_dnn_graph *g, const lt_attention_problem *p);

#endif
