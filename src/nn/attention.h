/* The attention layer's interface to its block. */
#ifndef LT_NN_ATTENTION_H
#define LT_NN_ATTENTION_H

#include "lather/transformer.h"

typedef struct lt_attention_run {
    lt_kv_cache *cache; /* keys and values of earlier tokens; NULL: no cache */
    int layer;          /* index of the layer in the cache */
    bool first;         /* compute only the first row of each sequence: [B,1,width] */
    lt_token_rows rows; /* rows of all ranks, if rows are sharded */
} lt_attention_run;

lt_tensor *lt_attention_layer_run(lt_module *layer, lt_tape *tape, lt_tensor *x,
                                  lt_attention_run run);

#endif
