/* Appending rows of keys and values to a cache within a pass. */
#ifndef LT_NN_KV_CACHE_H
#define LT_NN_KV_CACHE_H

#include "lather/transformer.h"

typedef enum lt_kv { LT_KV_KEYS, LT_KV_VALUES, LT_KV_PARTS } lt_kv;

/* Appends x [B,T,width] to a block's keys or values; returns all of them, [B,count+T,width], on the tape.
 * The count is unchanged until lt_kv_cache_advance(). NULL on failure, with the reason in the tape's status. */
lt_tensor *lt_kv_cache_append(lt_kv_cache *cache, int layer, lt_kv part, lt_tape *tape,
                              lt_tensor *x);
/* Adds `rows` to the number of tokens in the block's cache. */
void lt_kv_cache_advance(lt_kv_cache *cache, int layer, int64_t rows);

#endif
