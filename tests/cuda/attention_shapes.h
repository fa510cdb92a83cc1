/* The shapes of attention that models of this project ask of cuDNN. */
#ifndef LT_TESTS_CUDA_ATTENTION_SHAPES_H
#define LT_TESTS_CUDA_ATTENTION_SHAPES_H

#include "tensor/backend/cuda/attention/attention_graph.h"

typedef struct attention_shape {
    bool causal, joined; /* joined: q, k and v are parts of one tensor, as their gradients */
    int batch, heads, kv_heads, queries, keys, width;
} attention_shape;

/* Attention calls with the tensor layouts that the layers use. */
lt_attention_problem attention_problem(const attention_shape *s, lt_dtype dtype, bool backward);

#endif
