/* Bytes that entries of this backend read and write, each operand once a pass: what they move at least between memory and
 * the caches. For lt_memory_moved(). */
#ifndef LT_BACKEND_CPU_MOVED_H
#define LT_BACKEND_CPU_MOVED_H

#include "base/memory_traffic.h"

#include "lather/detail/view.h"

static inline void lt_cpu_count_moved(const lt_view *const *views, size_t count)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        if (views[i] && views[i]->data)
            bytes += lt_shape_count(views[i]->shape) * (int64_t)lt_dtype_size(views[i]->dtype);
    lt_moved_add(bytes);
}

/* The operands of a pass; those that are NULL or without data are none. */
#define LT_CPU_MOVED(...)                                     \
    lt_cpu_count_moved((const lt_view *const[]){__VA_ARGS__}, \
                       sizeof((const lt_view *const[]){__VA_ARGS__}) / sizeof(lt_view *))

#endif
