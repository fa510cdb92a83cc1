/* Memory for many small objects that die together. */
#ifndef LT_BASE_ARENA_H
#define LT_BASE_ARENA_H

#include <stddef.h>

/* Starts as {0}. */
typedef struct lt_arena {
    struct lt_arena_block *first, *current;
} lt_arena;

/* Zeroed memory, aligned to 16 bytes, until the reset; NULL with the message set. */
void *lt_arena_alloc(lt_arena *arena, size_t bytes) __attribute__((warn_unused_result));
/* Frees all objects at once; the blocks are kept for the next ones. */
void lt_arena_reset(lt_arena *arena);
void lt_arena_free(lt_arena *arena);

#endif
