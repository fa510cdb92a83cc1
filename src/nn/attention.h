/* The attention layer, as its block runs it. */
#ifndef LT_NN_ATTENTION_H
#define LT_NN_ATTENTION_H

#include "lather/transformer.h"

typedef struct lt_attention_run {
    lt_kv_cache *cache; /* NULL: none */
    int layer;          /* of the cache */
    bool first;         /* the first row of the result alone: [B,1,width] */
    lt_token_rows rows; /* of all ranks, where rows are divided */
} lt_attention_run;

lt_tensor *lt_attention_layer_run(lt_module *layer, lt_tape *tape, lt_tensor *x,
                                  lt_attention_run run);

#endif
