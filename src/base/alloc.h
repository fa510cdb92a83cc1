/* Host memory. All allocations of the library use these functions, so that tests can make the n-th one fail. */
#ifndef LT_BASE_ALLOC_H
#define LT_BASE_ALLOC_H

#include "lather/ext/fail.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

/* Returns zeroed memory for count objects, or NULL with the message set. Free with lt_free(). */
void *lt_alloc(size_t count, size_t size) __attribute__((alloc_size(1, 2), warn_unused_result));
/* Resizes memory; new bytes are not zeroed. On failure returns NULL with the message set and keeps the old memory. */
void *lt_realloc(void *old, size_t count, size_t size) __attribute__((warn_unused_result));

/* Sets the pointer *array to zeroed memory for count elements. On failure returns LT_E_NOMEM and sets it to NULL. */
#define LT_ALLOC(array, count) \
    lt_alloc_array((array), (size_t)(count), sizeof(__typeof__(**(array))))
LT_MUST_CHECK lt_status lt_alloc_array(void *array, size_t count, size_t size);
/* Ensures that the pointer *array has memory for `want` elements; grows geometrically, so that appending takes amortised
 * constant time. New elements are not zeroed. On failure returns LT_E_NOMEM and keeps the old memory. */
#define LT_GROW(array, capacity, want) \
    lt_grow_array((array), (capacity), (want), sizeof(__typeof__(**(array))))
LT_MUST_CHECK lt_status lt_grow_array(void *array, size_t *capacity, size_t want, size_t size);
/* The same without spare memory: resizes *array to `count` elements. (cppcheck 2.10 cannot parse &(size_t){0}.) */
#define LT_RESIZE(array, count) LT_GROW((array), (size_t[]){0}, (size_t)(count))
/* Returns a copy of text, or NULL with the message set. */
char *lt_strdup(const char *text) __attribute__((warn_unused_result));
/* Returns a formatted string, or NULL with the message set. */
char *lt_format(const char *fmt, ...) LT_PRINTF(1, 2) __attribute__((warn_unused_result));
char *lt_format_list(const char *fmt, va_list args) LT_PRINTF(1, 0)
    __attribute__((warn_unused_result));
void lt_free(void *memory);
/* Frees an array of count strings, each possibly NULL; NULL is ignored. */
void lt_free_texts(char **text, size_t count);

/* Returns memory aligned to a power of two, not zeroed, or NULL with the message set. Free with lt_free(). */
void *lt_alloc_aligned(size_t alignment, size_t bytes) __attribute__((warn_unused_result));

/* Makes the n-th allocation from now on fail once (1: the next; 0: never). For tests. */
void lt_alloc_fail_at(int64_t n);

#endif
