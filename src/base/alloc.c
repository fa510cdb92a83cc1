/* Host memory with fault injection. */

#include "base/alloc.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static _Atomic int64_t fail_countdown;

static bool injected_failure(void)
{
    return atomic_load_explicit(&fail_countdown, memory_order_relaxed) > 0
           && atomic_fetch_sub(&fail_countdown, 1) == 1;
}

static void *check_allocated(void *memory, size_t bytes)
{
    if (!memory)
        (void)lt_fail(LT_E_NOMEM, "no memory for %zu bytes", bytes);
    return memory;
}

void *lt_alloc(size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes))
        return check_allocated(NULL, SIZE_MAX);
    return check_allocated(injected_failure() ? NULL : calloc(count ? count : 1, size ? size : 1),
                           bytes);
}

void *lt_realloc(void *old, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes))
        return check_allocated(NULL, SIZE_MAX);
    return check_allocated(injected_failure() ? NULL : realloc(old, bytes ? bytes : 1), bytes);
}

void *lt_alloc_aligned(size_t alignment, size_t bytes)
{
    void *memory = NULL;
    if (injected_failure() || posix_memalign(&memory, alignment, bytes ? bytes : 1))
        memory = NULL;
    return check_allocated(memory, bytes);
}

lt_status lt_alloc_array(void *array, size_t count, size_t size)
{
    void *memory = lt_alloc(count, size);
    memcpy(array, &memory, sizeof memory);
    return memory ? LT_OK : LT_E_NOMEM;
}

lt_status lt_grow_array(void *array, size_t *capacity, size_t want, size_t size)
{
    void *memory;
    const size_t more = 2 * *capacity + want;
    if (want <= *capacity)
        return LT_OK;
    memcpy(&memory, array, sizeof memory);
    memory = lt_realloc(memory, more, size);
    if (!memory)
        return LT_E_NOMEM;
    memcpy(array, &memory, sizeof memory);
    *capacity = more;
    return LT_OK;
}

char *lt_strdup(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = lt_alloc(bytes, 1);
    if (copy)
        memcpy(copy, text, bytes);
    return copy;
}

char *lt_format_list(const char *fmt, va_list args)
{
    va_list again;
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    LT_ASSERT(length >= 0);

    char *text = lt_alloc((size_t)length + 1, 1);
    if (text)
        vsnprintf(text, (size_t)length + 1, fmt, args);
    return text;
}

char *lt_format(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    char *text = lt_format_list(fmt, args);
    va_end(args);
    return text;
}

void lt_free(void *memory)
{
    free(memory);
}

void lt_free_texts(char **text, size_t count)
{
    for (size_t i = 0; text && i < count; i++)
        lt_free(text[i]);
    lt_free(text);
}

void lt_alloc_fail_at(int64_t n)
{
    atomic_store(&fail_countdown, n);
}
