/* Attention problems by shape. q, k and v are views of one tensor, as src/nn/attention.c makes them, or separate
 * tensors, as with rotary positions, a cache, or a last block of one query. */

#include "attention_shapes.h"

static bool is_of_keys(int slot)
{
    return slot == LT_ATTENTION_K || slot == LT_ATTENTION_V || slot == LT_ATTENTION_DK
           || slot == LT_ATTENTION_DV;
}

static bool is_joined(int slot)
{
    return slot <= LT_ATTENTION_V || (slot >= LT_ATTENTION_DQ && slot <= LT_ATTENTION_DV);
}

lt_attention_problem attention_problem(const attention_shape *s, lt_dtype dtype, bool backward)
{
    lt_attention_problem p = {.dtype = dtype,
                              .causal = s->causal,
                              .backward = backward,
                              .batch = s->batch,
                              .heads = s->heads,
                              .kv_heads = s->kv_heads,
                              .queries = s->queries,
                              .keys = s->keys,
                              .width = s->width};
    for (int i = 0; i < LT_ATTENTION_SLOTS; i++) {
        const bool keys = is_of_keys(i);
        const int heads = s->joined && is_joined(i) ? s->heads + 2 * s->kv_heads
                          : keys                    ? s->kv_heads
                                                    : s->heads;
        const int64_t features = (int64_t)heads * s->width;
        p.stride[i] =
            (lt_attention_strides){(keys ? s->keys : s->queries) * features, s->width, features};
    }
    return p;
}
