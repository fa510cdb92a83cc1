/* Counts the bytes that entries read and write, each operand once per pass: a lower bound of their memory traffic. For
 * lt_memory_traffic(). */
#ifndef LT_BACKEND_CPU_MEMORY_TRAFFIC_H
#define LT_BACKEND_CPU_MEMORY_TRAFFIC_H

#include "base/memory_traffic.h"

#include "lather/detail/view.h"

static inline void lt_cpu_count_traffic(const lt_view *const *views, size_t count)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        if (views[i] && views[i]->data)
            bytes += lt_shape_count(views[i]->shape) * (int64_t)lt_dtype_size(views[i]->dtype);
    lt_memory_traffic_add(bytes);
}

/* Counts the operands of a pass; skips those that are NULL or without data. */
#define LT_CPU_COUNT_TRAFFIC(...)                               \
    lt_cpu_count_traffic((const lt_view *const[]){__VA_ARGS__}, \
                         sizeof((const lt_view *const[]){__VA_ARGS__}) / sizeof(lt_view *))

#endif
