/* The caching allocator: memory of tensors, taken from the backend in segments and never given
 * back before the device is closed, so that a steady training step allocates nothing. */
#ifndef LT_TENSOR_CACHING_ALLOCATOR_H
#define LT_TENSOR_CACHING_ALLOCATOR_H

#include "lather/detail/backend.h"

#include <stdbool.h>

typedef struct lt_allocator lt_allocator;
typedef struct lt_chunk lt_chunk;

/* LATHER_POOL=off in the environment: each chunk is an allocation of its own (for sanitizers). */
lt_status lt_allocator_new(lt_allocator **out, const lt_backend *backend, void *ctx);
void lt_allocator_free(lt_allocator **allocator);
/* Then no step can be captured. */
bool lt_allocator_is_off(const lt_allocator *allocator);

/* Memory of at least bytes, aligned to 64, not initialised. Errors: LT_E_NOMEM. */
lt_status lt_allocator_alloc(lt_allocator *allocator, size_t bytes, lt_chunk **out);
void lt_allocator_give_back(lt_allocator *allocator, lt_chunk *chunk);
void *lt_chunk_data(const lt_chunk *chunk);

/* Memory of captured graphs (PyTorch's private pools): chunks taken in a scope come from segments that
 * serve nothing outside of it, so that a replay writes to no memory in use. A scope is a number of lt_allocator_new_scope();
 * 0: none. */
uint64_t lt_allocator_new_scope(lt_allocator *allocator);
/* What is taken from now on is of that scope; returns the one before. */
uint64_t lt_allocator_enter(lt_allocator *allocator, uint64_t scope);
/* Its segments become everybody's. */
void lt_allocator_end_scope(lt_allocator *allocator, uint64_t scope);
/* While frozen, nothing is asked of the backend: what would have to be fails with LT_E_NOMEM. */
void lt_allocator_freeze(lt_allocator *allocator, bool frozen);

lt_memory lt_allocator_memory(const lt_allocator *allocator);
const struct lt_memory_uses *lt_allocator_uses(const lt_allocator *allocator);
void lt_allocator_reset_peak(lt_allocator *allocator);

#endif
