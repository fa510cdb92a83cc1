/* Host memory: every allocation of the library goes through here, so that tests can make the n-th
 * one fail. */
#ifndef LT_BASE_ALLOC_H
#define LT_BASE_ALLOC_H

#include "lather/ext/fail.h"

#include <stdint.h>
#include <stdlib.h>

/* Zeroed memory for count objects, or NULL with the message set. Free with lt_free(). */
void *lt_alloc(size_t count, size_t size) __attribute__((alloc_size(1, 2), warn_unused_result));
/* Grows or shrinks; new memory is not zeroed. NULL: the message is set, the old memory stays. */
void *lt_realloc(void *old, size_t count, size_t size) __attribute__((warn_unused_result));
/* Capacity for want objects: the same memory if *capacity is enough, else more than that, so that adding
 * one after the other copies each a few times only. NULL: as lt_realloc(). */
void *lt_grow(void *old, size_t *capacity, size_t want, size_t size)
    __attribute__((warn_unused_result));
/* A copy of text, or NULL. */
char *lt_strdup(const char *text) __attribute__((warn_unused_result));
/* A formatted string, or NULL. */
char *lt_format(const char *fmt, ...) LT_PRINTF(1, 2) __attribute__((warn_unused_result));
void lt_free(void *memory);
/* Frees count texts, each may be NULL, and the list of them; NULL does nothing. */
void lt_free_texts(char **text, size_t count);

/* For kernels and files: aligned to alignment, a power of two; not zeroed. Free with lt_free(). */
void *lt_alloc_aligned(size_t alignment, size_t bytes) __attribute__((warn_unused_result));

/* Makes the n-th allocation from now on fail, once (1 is the next); 0: none. For tests. */
void lt_alloc_fail_at(int64_t n);

#endif
