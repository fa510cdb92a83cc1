/* Caching allocator: tensor memory is taken from the backend in segments and reused, never returned before
 * the device is closed, so that a steady training step allocates nothing. */
#ifndef LT_TENSOR_CACHING_ALLOCATOR_H
#define LT_TENSOR_CACHING_ALLOCATOR_H

#include "lather/detail/backend.h"

#include <stdbool.h>

typedef struct lt_allocator lt_allocator;
typedef struct lt_chunk lt_chunk;

/* Creates an allocator. LATHER_POOL=off in the environment: each chunk is a separate allocation, for
 * sanitizers. */
lt_status lt_allocator_new(lt_allocator **out, const lt_backend *backend, void *ctx);
void lt_allocator_free(lt_allocator **allocator);
/* Returns true with LATHER_POOL=off, when caching is off; steps cannot be captured then. */
bool lt_allocator_is_off(const lt_allocator *allocator);

/* Allocates at least that many bytes, aligned to 64, uninitialised. Errors: LT_E_NOMEM. */
lt_status lt_allocator_alloc(lt_allocator *allocator, size_t bytes, lt_chunk **out);
void lt_chunk_free(lt_allocator *allocator, lt_chunk *chunk);
void *lt_chunk_data(const lt_chunk *chunk);

/* Creates a scope. Memory of captured graphs (PyTorch's private pools): chunks allocated
 * in a scope come from segments that serve nothing outside of it, so that a replay does
 * not overwrite memory in use. Scopes come from lt_allocator_new_scope(); 0: none. */
uint64_t lt_allocator_new_scope(lt_allocator *allocator);
/* Sets the scope of later allocations; returns the previous one. */
uint64_t lt_allocator_enter_scope(lt_allocator *allocator, uint64_t scope);
/* Releases the scope's segments for general use. */
void lt_allocator_end_scope(lt_allocator *allocator, uint64_t scope);
/* While frozen, the backend is not asked for memory: an allocation that would need it fails with LT_E_NOMEM. */
void lt_allocator_freeze(lt_allocator *allocator, bool frozen);

lt_memory lt_allocator_memory(const lt_allocator *allocator);
const struct lt_memory_uses *lt_allocator_memory_uses(const lt_allocator *allocator);
void lt_allocator_reset_peak(lt_allocator *allocator);

#endif
