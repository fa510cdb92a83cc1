/* Memory of an allocator by operation: now, and at the peak of the total. */
#ifndef LT_TENSOR_MEMORY_USE_H
#define LT_TENSOR_MEMORY_USE_H

#include "lather/detail/memory_use.h"

enum { LT_MEMORY_OWNERS = 96 }; /* owners beyond this number are counted as unnamed */

/* An operation and its phase; name NULL: no operation. The strings are literals. */
typedef struct lt_memory_owner {
    const char *name, *when;
} lt_memory_owner;

typedef struct lt_memory_uses {
    lt_memory_owner owner[LT_MEMORY_OWNERS]; /* the owners; index 0 is the unnamed owner */
    size_t now[LT_MEMORY_OWNERS], peak[LT_MEMORY_OWNERS];
    int count; /* number of owners with a name */
} lt_memory_uses;

/* Sets the owner of what the calling thread allocates from now on; returns the previous one. */
lt_memory_owner lt_memory_set_owner(lt_memory_owner owner);

/* Adds bytes to the thread's owner; returns its index. */
int lt_memory_uses_add(lt_memory_uses *uses, size_t bytes);
/* Records the current use as the peak. */
void lt_memory_uses_record_peak(lt_memory_uses *uses);
/* Implements lt_device_memory_by_op(). */
int lt_memory_uses_list(const lt_memory_uses *uses, lt_memory_use *out, int count);

#endif
