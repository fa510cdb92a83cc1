/* Whose the memory of an allocator is: bytes by operation, now and when all of it was most. */
#ifndef LT_TENSOR_MEMORY_USE_H
#define LT_TENSOR_MEMORY_USE_H

#include "lather/detail/memory_use.h"

enum { LT_MEMORY_OWNERS = 96 }; /* beyond: those without a name */

/* An operation, and what it was doing; name NULL: no operation. Literals. */
typedef struct lt_memory_owner {
    const char *name, *when;
} lt_memory_owner;

typedef struct lt_memory_uses {
    lt_memory_owner owner[LT_MEMORY_OWNERS]; /* the first has no name */
    size_t now[LT_MEMORY_OWNERS], peak[LT_MEMORY_OWNERS];
    int count; /* of named ones */
} lt_memory_uses;

/* What the calling thread takes from now on is this owner's; returns the one before. */
lt_memory_owner lt_memory_owned_by(lt_memory_owner owner);

/* Takes bytes for the thread's owner; returns its index. */
int lt_memory_uses_take(lt_memory_uses *uses, size_t bytes);
/* Now is the peak. */
void lt_memory_uses_note_peak(lt_memory_uses *uses);
/* As lt_device_memory_uses(). */
int lt_memory_uses_list(const lt_memory_uses *uses, lt_memory_use *out, int count);

#endif
