/* The caching allocator: memory of tensors, taken from the backend in segments and never given
 * back before the device is closed, so that a steady training step allocates nothing. */
#ifndef LT_TENSOR_POOL_H
#define LT_TENSOR_POOL_H

#include "lather/ext/backend.h"

#include <stdbool.h>

typedef struct lt_pool lt_pool;
typedef struct lt_chunk lt_chunk;

/* LATHER_POOL=off in the environment: each chunk is an allocation of its own (for sanitizers). */
lt_status lt_pool_new(lt_pool **out, const lt_backend *backend, void *ctx);
void lt_pool_free(lt_pool **pool);
/* Then no step can be captured. */
bool lt_pool_is_off(const lt_pool *pool);

/* Memory of at least bytes, aligned to 64, not initialised. Errors: LT_E_NOMEM. */
lt_status lt_pool_alloc(lt_pool *pool, size_t bytes, lt_chunk **out);
void lt_pool_give_back(lt_pool *pool, lt_chunk *chunk);
void *lt_chunk_data(const lt_chunk *chunk);

/* Memory of captured steps: chunks taken in a scope come from segments that nothing outside of it
 * gets, so that what a replay writes is nobody else's. A scope is a number of lt_pool_new_scope();
 * 0: none. */
uint64_t lt_pool_new_scope(lt_pool *pool);
/* What is taken from now on is of that scope; returns the one before. */
uint64_t lt_pool_enter(lt_pool *pool, uint64_t scope);
/* Its segments become everybody's. */
void lt_pool_end_scope(lt_pool *pool, uint64_t scope);
/* While frozen, nothing is asked of the backend: what would have to be fails with LT_E_NOMEM. */
void lt_pool_freeze(lt_pool *pool, bool frozen);

lt_memory lt_pool_memory(const lt_pool *pool);
void lt_pool_reset_peak(lt_pool *pool);

#endif
