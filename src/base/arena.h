/* Arena allocator: many small objects that are freed together. */
#ifndef LT_BASE_ARENA_H
#define LT_BASE_ARENA_H

#include <stddef.h>

/* An arena; initialise with {0}. */
typedef struct lt_arena {
    struct lt_arena_block *first, *current;
} lt_arena;

/* Returns zeroed memory, aligned to 16 bytes and valid until the reset, or NULL with the message set. */
void *lt_arena_alloc(lt_arena *arena, size_t bytes) __attribute__((warn_unused_result));
/* Frees all objects at once; keeps the blocks for reuse. */
void lt_arena_reset(lt_arena *arena);
void lt_arena_free(lt_arena *arena);

#endif
