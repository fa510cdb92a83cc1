/* Arena allocator: a list of blocks, filled one after the other. */

#include "base/arena.h"

#include "base/alloc.h"

#include <string.h>

enum { BLOCK_BYTES = 64 * 1024, ALIGNMENT = 16 };

typedef struct lt_arena_block {
    struct lt_arena_block *next;
    size_t used, capacity;
    _Alignas(ALIGNMENT) unsigned char bytes[];
} block;

static block *new_block(size_t bytes)
{
    size_t capacity = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
    block *b = lt_alloc(1, sizeof *b + capacity);
    if (b)
        b->capacity = capacity;
    return b;
}

/* Advances to the next block with enough capacity, or appends one. Returns NULL without memory. */
static block *advance_to_block(lt_arena *arena, size_t bytes)
{
    block *last = arena->current;
    for (block *b = last ? last->next : NULL; b; b = b->next) {
        if (b->capacity >= bytes)
            return arena->current = b;
        last = b;
    }
    block *b = new_block(bytes);
    if (!b)
        return NULL;
    if (last)
        last->next = b;
    else
        arena->first = b;
    return arena->current = b;
}

void *lt_arena_alloc(lt_arena *arena, size_t bytes)
{
    bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    block *b = arena->current;
    if (!b || b->capacity - b->used < bytes)
        b = advance_to_block(arena, bytes);
    if (!b)
        return NULL;
    void *memory = b->bytes + b->used;
    b->used += bytes;
    return memset(memory, 0, bytes);
}

void lt_arena_reset(lt_arena *arena)
{
    for (block *b = arena->first; b; b = b->next)
        b->used = 0;
    arena->current = arena->first;
}

void lt_arena_free(lt_arena *arena)
{
    for (block *b = arena->first, *next; b; b = next) {
        next = b->next;
        lt_free(b);
    }
    *arena = (lt_arena){0};
}
